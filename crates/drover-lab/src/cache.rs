// SPDX-License-Identifier: GPL-2.0-only
//! The lab's cache: `$XDG_CACHE_HOME/drover`, else `~/.cache/drover`.
//!
//! Everything in it can be deleted at any time and is made again. An entry is a directory with a
//! `manifest.json` that holds length and SHA-256 of each file; an entry that does not match its manifest,
//! because a disk filled up or a download was cut, counts as not there. Entries are built beside their
//! place and renamed into it, so that a reader never sees half of one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statvfs::statvfs;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const MANIFEST: &str = "manifest.json";

/// The directory all of the lab's files live in.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The user's cache, created when it is not there.
    ///
    /// # Errors
    /// When no home directory is known, or the directory cannot be made.
    pub fn open() -> Result<Self> {
        let base = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
            .context("no cache directory: set HOME or XDG_CACHE_HOME")?;
        Self::at(&base.join("drover"))
    }

    /// A cache in a directory of the caller's choice.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn at(root: &Path) -> Result<Self> {
        make_dir(root)?;
        Ok(Self { root: root.to_owned() })
    }

    /// Path of something in the cache.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A directory in the cache, created when it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        make_dir(&path)?;
        Ok(path)
    }

    /// Waits until no other process builds entries of this kind, and keeps others out until dropped.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    pub fn lock(&self, kind: &str) -> Result<Flock<File>> {
        let path = self.path(&format!("{kind}.lock"));
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, error)| anyhow::anyhow!("cannot lock {}: {error}", path.display()))
    }

    /// Checks that so much room is left on the cache's disk.
    ///
    /// # Errors
    /// One line that says where how much is missing for what.
    pub fn need_room(&self, need_mib: u64, purpose: &str) -> Result<()> {
        let disk = statvfs(&self.root)
            .with_context(|| format!("cannot tell the free room of {}", self.root.display()))?;
        let free_mib = (disk.blocks_available() * disk.fragment_size()) >> 20;
        ensure!(
            free_mib >= need_mib,
            "{} has {free_mib} MiB free, {purpose} takes {need_mib}; make room, or set XDG_CACHE_HOME to another disk",
            self.root.display()
        );
        Ok(())
    }

    /// Puts a finished directory (built with [`Cache::scratch`]) in its place, with a manifest.
    ///
    /// # Errors
    /// When files cannot be read or the directory cannot be moved.
    pub fn publish(&self, built: &Path, name: &str, facts: &Facts) -> Result<PathBuf> {
        let files = checksums(built)?;
        let manifest = Manifest { facts: facts.clone(), files };
        write_file(&built.join(MANIFEST), &serde_json::to_vec_pretty(&manifest)?)?;
        let place = self.path(name);
        if place.exists() {
            fs::remove_dir_all(&place)
                .with_context(|| format!("cannot replace {}", place.display()))?;
        }
        if let Some(parent) = place.parent() {
            make_dir(parent)?;
        }
        fs::rename(built, &place).with_context(|| format!("cannot write {}", place.display()))?;
        Ok(place)
    }

    /// A fresh directory on the same file system, to build an entry in; removed when dropped.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn scratch(&self) -> Result<tempfile::TempDir> {
        let parent = self.dir("building")?;
        tempfile::tempdir_in(&parent)
            .with_context(|| format!("cannot write in {}", parent.display()))
    }

    /// The facts of an entry, when it is there, whole, and every file has the checksum it was stored with.
    #[must_use]
    pub fn verified(&self, name: &str) -> Option<Facts> {
        let place = self.path(name);
        let manifest: Manifest =
            serde_json::from_slice(&fs::read(place.join(MANIFEST)).ok()?).ok()?;
        let found = checksums(&place).ok()?;
        if found == manifest.files {
            return Some(manifest.facts);
        }
        tracing::warn!("{} is broken and will be made again", place.display());
        None
    }
}

/// What is known of an entry beside its files.
pub type Facts = BTreeMap<String, String>;

#[derive(Serialize, Deserialize)]
struct Manifest {
    facts: Facts,
    files: BTreeMap<String, String>,
}

/// Length and SHA-256 of each file below `dir` but the manifest, by relative path.
fn checksums(dir: &Path) -> Result<BTreeMap<String, String>> {
    let mut sums = BTreeMap::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(current) = pending.pop() {
        for entry in
            fs::read_dir(&current).with_context(|| format!("cannot read {}", current.display()))?
        {
            let path = entry?.path();
            if path.is_dir() {
                pending.push(path);
                continue;
            }
            let name = path.strip_prefix(dir)?.to_string_lossy().into_owned();
            if name != MANIFEST {
                sums.insert(name, file_sha256(&path)?);
            }
        }
    }
    Ok(sums)
}

/// Length and SHA-256 of a file, as `LENGTH:HEX`.
fn file_sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut hash, mut length, mut block) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        let got = file.read(&mut block)?;
        if got == 0 {
            return Ok(format!("{length}:{:x}", hash.finalize()));
        }
        length += got;
        hash.update(&block[..got]);
    }
}

/// Writes a whole file; says where and what to do when the disk is full.
///
/// # Errors
/// One line with the path and the reason.
pub fn write_file(path: &Path, data: &[u8]) -> Result<()> {
    fs::write(path, data).with_context(|| format!("cannot write {}", path.display()))
}

fn make_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path)
        .with_context(|| format!("cannot make directory {}", path.display()))?;
    ensure!(path.is_dir(), "{} is no directory", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache_with_entry() -> (tempfile::TempDir, Cache, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(&home.path().join("drover")).unwrap();
        let built = cache.scratch().unwrap();
        fs::create_dir(built.path().join("modules")).unwrap();
        fs::write(built.path().join("vmlinuz"), b"kernel").unwrap();
        fs::write(built.path().join("modules/kvm.ko"), b"module").unwrap();
        let facts = Facts::from([("version".into(), "1".into())]);
        let place = cache.publish(&built.keep(), "kernels/1", &facts).unwrap();
        (home, cache, place)
    }

    #[test]
    fn a_whole_entry_is_verified_with_its_facts() {
        let (_home, cache, _) = cache_with_entry();
        assert_eq!(cache.verified("kernels/1").unwrap()["version"], "1");
        assert!(cache.verified("kernels/2").is_none());
    }

    #[test]
    fn a_truncated_changed_missing_or_added_file_breaks_the_entry() {
        for damage in [
            (|place| fs::write(place, b"kern")) as fn(PathBuf) -> std::io::Result<()>,
            |place| fs::write(place, b"kernal"),
            |place| fs::remove_file(place),
            |place| fs::write(place.with_file_name("extra"), b""),
        ] {
            let (_home, cache, place) = cache_with_entry();
            damage(place.join("vmlinuz")).unwrap();
            assert!(cache.verified("kernels/1").is_none());
        }
    }

    #[test]
    fn a_broken_manifest_breaks_the_entry() {
        let (_home, cache, place) = cache_with_entry();
        fs::write(place.join(MANIFEST), b"{").unwrap();
        assert!(cache.verified("kernels/1").is_none());
    }

    #[test]
    fn publishing_again_replaces_the_entry() {
        let (_home, cache, place) = cache_with_entry();
        let built = cache.scratch().unwrap();
        fs::write(built.path().join("vmlinuz"), b"newer").unwrap();
        cache.publish(&built.keep(), "kernels/1", &Facts::new()).unwrap();
        assert_eq!(fs::read(place.join("vmlinuz")).unwrap(), b"newer");
        assert!(!place.join("modules").exists());
        assert!(cache.verified("kernels/1").is_some());
    }

    #[test]
    fn a_full_disk_is_noticed_before() {
        let (_home, cache, _) = cache_with_entry();
        cache.need_room(0, "nothing").unwrap();
        let message = cache.need_room(u64::MAX, "a kernel").unwrap_err().to_string();
        assert!(
            message.contains("a kernel takes") && message.contains("XDG_CACHE_HOME"),
            "{message}"
        );
    }

    #[test]
    fn the_lock_keeps_a_second_holder_out() {
        let (_home, cache, _) = cache_with_entry();
        let held = cache.lock("kernels").unwrap();
        let file = File::open(cache.path("kernels.lock")).unwrap();
        assert!(Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err());
        drop(held);
        let file = File::open(cache.path("kernels.lock")).unwrap();
        assert!(Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok());
    }
}
