// SPDX-License-Identifier: GPL-2.0-only
//! What was ordered, kept across restarts of the daemon and of VMs.
//!
//! One file, written whole: to another name, flushed to the disk, then renamed over the old one. Whoever
//! dies at whatever point leaves the old settings or the new ones, never something between.

use anyhow::{Context, Result, bail};
use drover_core::asked::Asked;
use drover_core::partition::PartitionSpec;
use drover_core::tree::{PoolSpec, Tree};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Where orders are kept.
pub const STATE_DIR: &str = "/var/lib/drover";
const FILE: &str = "settings.json";
const NEW_FILE: &str = "settings.json.new";
const VERSION: u32 = 1;

/// Everything that was ordered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    version: u32,
    /// Pools that were added or changed.
    pub pools: Vec<PoolSpec>,
    /// What was asked for VMs, by name.
    pub vms: BTreeMap<String, Asked>,
    /// Partitions that were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PartitionSpec>,
}

impl Saved {
    /// Pools that were ordered into pools which are neither configured nor ordered any more are the host's
    /// now. Returns a line for each.
    pub fn adopt_orphans<'a>(
        &mut self,
        configured: impl Iterator<Item = &'a PoolSpec>,
    ) -> Vec<String> {
        let mut known: Vec<String> = configured.map(|spec| spec.name.clone()).collect();
        known.extend(self.pools.iter().map(|pool| pool.name.clone()));
        let mut told = Vec::new();
        for pool in &mut self.pools {
            let Some(parent) = pool.parent.take_if(|parent| !known.contains(parent)) else {
                continue;
            };
            told.push(format!(
                "pool {0}: pool {parent:?}, which it was ordered into, is not there any more; it is the \
                 host's until `drover pool set {0} --parent NAME`",
                pool.name
            ));
        }
        told
    }
}

impl Default for Saved {
    fn default() -> Self {
        let (pools, vms, partitions) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { version: VERSION, pools, vms, partitions }
    }
}

/// Where it is kept.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// What was kept in that directory; nothing where there is none.
    ///
    /// # Errors
    /// When it is there and cannot be read or understood: it is then for a human to look at.
    pub fn open(dir: &Path) -> Result<(Self, Saved)> {
        let store = Self { dir: dir.to_owned() };
        let path = dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok((store, Saved::default()));
            }
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let mend = "mend it, or remove it to begin without saved settings";
        let saved: Saved = serde_json::from_str(&text)
            .map_err(|error| anyhow::anyhow!("{}: {error}; {mend}", path.display()))?;
        if saved.version != VERSION {
            let version = saved.version;
            bail!("{} is of version {version}, this drover knows {VERSION}", path.display());
        }
        Ok((store, saved))
    }

    /// Keeps these settings instead of those before.
    ///
    /// # Errors
    /// When the disk does not take them; those before are still kept then.
    pub fn save(&self, saved: &Saved) -> Result<()> {
        let (path, new) = (self.dir.join(FILE), self.dir.join(NEW_FILE));
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(&self.dir)?;
            let mut file = File::create(&new)?;
            file.write_all(serde_json::to_string_pretty(saved)?.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            // The rename itself must reach the disk too.
            File::open(&self.dir)?.sync_all()
        };
        write().with_context(|| format!("cannot save settings in {}", self.dir.display()))
    }
}

/// The pools of a configuration with those that were ordered over them, in place of or after them.
///
/// # Errors
/// When they are no tree together, in one line.
pub fn merged<'a>(configured: impl Iterator<Item = &'a PoolSpec>, saved: &Saved) -> Result<Tree> {
    let mut specs: Vec<PoolSpec> = configured.cloned().collect();
    for pool in &saved.pools {
        match specs.iter_mut().find(|spec| spec.name == pool.name) {
            Some(spec) => *spec = pool.clone(),
            None => specs.push(pool.clone()),
        }
    }
    Ok(Tree::of(&specs)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_core::asked::Key;

    fn saved(shares: u32) -> Saved {
        let mut asked = Asked::default();
        asked.read(Key::Shares, &shares.to_string()).unwrap();
        let vms = BTreeMap::from([("web".to_owned(), asked)]);
        let io = r#"{"name":"io","cpus":"0-1","policy":"credit"}"#;
        let partitions = vec![serde_json::from_str(io).unwrap()];
        Saved { pools: vec![PoolSpec::named("prod")], vms, partitions, ..Saved::default() }
    }

    #[test]
    fn what_is_saved_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("deep/drover");
        let (store, before) = Store::open(&home).unwrap();
        assert_eq!(before, Saved::default());
        for shares in [1, 2] {
            store.save(&saved(shares)).unwrap();
            assert_eq!(Store::open(&home).unwrap().1, saved(shares));
        }
        assert_eq!(fs::read_dir(&home).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_death_while_writing_leaves_what_was_before() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        store.save(&saved(1)).unwrap();
        let whole = serde_json::to_string_pretty(&saved(2)).unwrap();
        for end in 0..whole.len() {
            fs::write(dir.path().join(NEW_FILE), &whole[..end]).unwrap();
            assert_eq!(Store::open(dir.path()).unwrap().1, saved(1), "cut off at {end}");
        }
        store.save(&saved(3)).unwrap();
        assert_eq!(Store::open(dir.path()).unwrap().1, saved(3));
    }

    #[test]
    fn a_file_that_is_not_ours_is_refused_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "{", "{\"version\":1}", "[]", "{\"version\":9,\"pools\":[],\"vms\":{}}"] {
            fs::write(dir.path().join(FILE), text).unwrap();
            let message = format!("{:#}", Store::open(dir.path()).unwrap_err());
            assert!(message.contains(FILE) && message.lines().count() == 1, "{message}");
        }
    }

    #[test]
    fn what_was_saved_before_there_were_partitions_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), r#"{"version":1,"pools":[],"vms":{}}"#).unwrap();
        assert_eq!(Store::open(dir.path()).unwrap().1, Saved::default());
    }

    #[test]
    fn a_disk_that_takes_nothing_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let (store, _) = (Store { dir: file.join("below") }, ());
        let message = format!("{:#}", store.save(&saved(1)).unwrap_err());
        assert!(message.contains("cannot save settings in"), "{message}");
    }

    #[test]
    fn ordered_pools_go_over_configured_ones() {
        let configured = [PoolSpec::named("a"), PoolSpec::named("prod")];
        let mut over = saved(1);
        over.pools[0].parent = Some("a".to_owned());
        let tree = merged(configured.iter(), &over).unwrap();
        assert_eq!(tree.pools()[tree.find("prod").unwrap()].parent, tree.find("a"));
        over.pools[0].parent = Some("b".to_owned());
        assert!(merged(configured.iter(), &over).unwrap_err().to_string().contains("not there"));
    }
}
