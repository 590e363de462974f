// SPDX-License-Identifier: GPL-2.0-only
//! What was ordered ([`Saved`]), kept across restarts of the daemon and of VMs.
//!
//! One file, written whole ([`files::replace`]): whoever dies at whatever point leaves the old settings or the new
//! ones, never something between. Where its directory was removed it is made anew, with all that was ordered.

use crate::files;
use crate::privileges::Writer;
use crate::saved::{Saved, VERSION};
use anyhow::{Context, Result, bail, ensure};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where orders are kept.
pub const STATE_DIR: &str = "/var/lib/drover";
const FILE: &str = "settings.json";
/// No longer file is read or written: there is room for some 100,000 VMs.
const BYTES_MAX: usize = 16 << 20;

/// Where it is kept.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// Who writes; none: whoever asks.
    writer: Option<Arc<Writer>>,
}

impl Store {
    /// What was kept in that directory; nothing where there is none.
    ///
    /// # Errors
    /// When it is there and cannot be read or understood: it is then for a human to look at.
    pub fn open(dir: &Path) -> Result<(Self, Saved)> {
        let store = Self { dir: dir.to_owned(), writer: None };
        let path = dir.join(FILE);
        let text = match files::text(&path, BYTES_MAX) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok((store, Saved::default()));
            }
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let fix = "fix it, or remove it to begin without saved settings";
        let saved: Saved = serde_json::from_str(&text)
            .map_err(|error| anyhow::anyhow!("{}: {error}; {fix}", path.display()))?;
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
        let text = serde_json::to_string_pretty(saved)? + "\n";
        ensure!(
            text.len() <= BYTES_MAX,
            "so much is ordered that no more can be kept; `drover vm orders` shows what, `drover vm forget` makes room"
        );
        let path = self.dir.join(FILE);
        let write = move || Ok(files::replace(&path, text.as_bytes())?);
        let written = match &self.writer {
            Some(writer) => writer.run(write),
            None => write(),
        };
        written.with_context(|| {
            let dir = self.dir.display();
            match self.dir.exists() {
                true => format!("cannot save settings in {dir}"),
                false => format!(
                    "{dir} was removed and cannot be made anew; restart drover (`systemctl restart drover`) and give \
                     again what `drover vm orders` and `drover pool list` show now"
                ),
            }
        })
    }

    /// From now on that one writes: whoever asks may not any more.
    pub fn write_by(&mut self, writer: Arc<Writer>) {
        self.writer = Some(writer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_core::asked::{Asked, Key};
    use drover_core::tree::PoolSpec;
    use std::collections::BTreeMap;
    use std::fs;

    const NEW_FILE: &str = "settings.json.new";

    fn saved(shares: u32) -> Saved {
        let mut asked = Asked::default();
        asked.read(Key::Shares, &shares.to_string()).unwrap();
        let vms = BTreeMap::from([("web".to_owned(), asked)]);
        let io = r#"{"name":"io","cpus":"0-1","policy":"credit"}"#;
        let partitions = vec![serde_json::from_str(io).unwrap()];
        let shop = r#"{"name":"shop","vms":["web","db"],"kind":"affine"}"#;
        let sets = vec![serde_json::from_str(shop).unwrap()];
        Saved { pools: vec![PoolSpec::named("prod")], vms, partitions, sets, ..Saved::default() }
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
        let store = Store { dir: file.join("below"), writer: None };
        let message = format!("{:#}", store.save(&saved(1)).unwrap_err());
        assert!(message.contains("cannot be made anew; restart drover"), "{message}");
        let store = Store { dir: file, writer: None };
        let message = format!("{:#}", store.save(&saved(1)).unwrap_err());
        assert!(message.contains("cannot save settings in"), "{message}");
    }

    #[test]
    fn a_directory_that_was_removed_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("drover");
        let (mut store, _) = Store::open(&home).unwrap();
        store.write_by(Arc::new(Writer::start(&[&home]).unwrap()));
        for shares in [1, 2] {
            store.save(&saved(shares)).unwrap();
            assert_eq!(Store::open(&home).unwrap().1, saved(shares));
            fs::remove_dir_all(&home).unwrap();
        }
    }

    #[test]
    fn a_file_too_long_to_be_read_again_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        store.save(&saved(1)).unwrap();
        let mut much = saved(2);
        much.vms.insert("x".repeat(BYTES_MAX), Asked::default());
        assert!(store.save(&much).unwrap_err().to_string().contains("makes room"));
        assert_eq!(Store::open(dir.path()).unwrap().1, saved(1));
        fs::write(dir.path().join(FILE), " ".repeat(BYTES_MAX + 1)).unwrap();
        assert!(format!("{:#}", Store::open(dir.path()).unwrap_err()).contains("longer than"));
    }
}
