// SPDX-License-Identifier: GPL-2.0-only
//! The configuration file, followed as it changes.
//!
//! A file may be met while somebody writes it. What it says is taken once it has stood unchanged for
//! some looks, and only if it is without fault; until then the last good one counts. It is opened only when
//! the file system says that it may have changed: a daemon that opens files all day costs the host more than
//! its own time, by what the kernel does after each.

use crate::files;
use drover_core::config::Config;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where the configuration is.
pub const CONFIG_PATH: &str = "/etc/drover/drover.toml";
/// No file is longer: there is room for ten thousand rules.
const CONFIG_MAX: usize = 1 << 20;
/// Looks that must show the same text before it is taken.
const LOOKS: u32 = 3;
/// Two changes within so long may bear the same time.
const STAMP_GRAIN: Duration = Duration::from_secs(2);

/// Which file it is, and when it changed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

/// A configuration file.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    /// The text that was taken or refused last.
    settled: String,
    /// Another text, and how many looks have shown it.
    fresh: Option<(String, u32)>,
    /// What the file was like when it said what is settled.
    stamp: Option<Stamp>,
}

impl ConfigFile {
    /// Reads it. A file that is not there says nothing.
    ///
    /// # Errors
    /// When it cannot be read or has a fault, in one line.
    pub fn open(path: &Path) -> Result<(Self, Config), String> {
        let settled = read(path)?;
        let config = parse(&settled, path)?;
        Ok((Self { path: path.to_owned(), settled, fresh: None, stamp: None }, config))
    }

    /// Where it is, or would be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it says something new: the configuration, or what is wrong with it, once.
    pub fn look(&mut self) -> Option<Result<Config, String>> {
        self.look_at(SystemTime::now())
    }

    /// What it says now is new again: it did not fit what else was asked, and may now.
    pub fn offer_again(&mut self) {
        (self.settled, self.stamp) = (String::new(), None);
    }

    fn look_at(&mut self, now: SystemTime) -> Option<Result<Config, String>> {
        let stamp = stamp(&self.path).filter(|stamp| is_old(stamp, now));
        if stamp.is_some() && stamp == self.stamp {
            return None;
        }
        self.stamp = None;
        let text = match read(&self.path) {
            Ok(text) => text,
            // Told once, as any other fault.
            Err(fault) => {
                return (fault != self.settled).then(|| {
                    self.settled.clone_from(&fault);
                    Err(fault)
                });
            }
        };
        if text == self.settled {
            self.fresh = None;
            self.stamp = stamp;
            return None;
        }
        let looks = match self.fresh.take() {
            Some((before, looks)) if before == text => looks + 1,
            _ => 1,
        };
        if looks < LOOKS {
            self.fresh = Some((text, looks));
            return None;
        }
        self.settled = text;
        // A full disk cuts off what is written in place: that is no wish.
        if self.settled.is_empty() && self.path.exists() {
            let path = self.path.display();
            return Some(Err(format!("{path} has become empty; remove it to configure nothing")));
        }
        Some(parse(&self.settled, &self.path))
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = fs::metadata(path).ok()?;
    let changed = (meta.ctime(), meta.ctime_nsec());
    Some(Stamp { inode: meta.ino(), size: meta.size(), changed })
}

/// Whether a change after `now` would bear another time.
fn is_old(stamp: &Stamp, now: SystemTime) -> bool {
    let Ok(seconds) = u64::try_from(stamp.changed.0) else { return true };
    // Beyond what can be counted it lies ahead.
    let changed = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    changed.and_then(|at| at.checked_add(STAMP_GRAIN)).is_some_and(|at| at < now)
}

fn read(path: &Path) -> Result<String, String> {
    match files::text(path, CONFIG_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        text => text.map_err(|error| format!("cannot read {}: {error}", path.display())),
    }
}

fn parse(text: &str, path: &Path) -> Result<Config, String> {
    Config::parse(text, &path.display().to_string()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "[[vm]]\nname = \"a\"\nshares = 1\n";
    const TWO: &str = "[[vm]]\nname = \"a\"\nshares = 2\n\n[[vm]]\nname = \"b\"\nshares = 2\n";

    fn shares(config: &Config) -> usize {
        config.layers("a").len() + config.layers("b").len()
    }

    #[test]
    fn a_time_beyond_all_clocks_is_not_past() {
        let stamp = |seconds| Stamp { inode: 1, size: 1, changed: (seconds, 0) };
        let now = UNIX_EPOCH + Duration::from_secs(100);
        assert!(!is_old(&stamp(i64::MAX), now) && !is_old(&stamp(98), now));
        assert!(is_old(&stamp(97), now) && is_old(&stamp(-1), now));
    }

    #[test]
    fn a_file_that_is_not_there_says_nothing_until_it_comes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drover.toml");
        let (mut file, config) = ConfigFile::open(&path).unwrap();
        assert_eq!(shares(&config), 0);
        assert!(file.look().is_none());
        fs::write(&path, ONE).unwrap();
        assert!(file.look().is_none() && file.look().is_none());
        assert_eq!(shares(&file.look().unwrap().unwrap()), 1);
        assert!(file.look().is_none());
    }

    #[test]
    fn a_file_met_while_it_is_written_is_taken_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drover.toml");
        fs::write(&path, ONE).unwrap();
        let (mut file, _) = ConfigFile::open(&path).unwrap();
        // Cut off at every byte, one look each, as a slow writer would leave it.
        for end in 0..TWO.len() {
            fs::write(&path, &TWO[..end]).unwrap();
            assert!(file.look().is_none(), "{end}");
        }
        fs::write(&path, TWO).unwrap();
        let taken = (0..LOOKS).find_map(|_| file.look()).unwrap().unwrap();
        assert_eq!(shares(&taken), 2);
    }

    #[test]
    fn an_old_file_is_not_read_again_until_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drover.toml");
        fs::write(&path, ONE).unwrap();
        let (mut file, _) = ConfigFile::open(&path).unwrap();
        let later = SystemTime::now() + Duration::from_secs(10);
        assert!(file.look_at(SystemTime::now()).is_none() && file.stamp.is_none(), "too new");
        assert!(file.look_at(later).is_none() && file.stamp.is_some());
        assert!(file.look_at(later).is_none());
        fs::write(&path, TWO).unwrap();
        assert!(file.look_at(later).is_none() && file.look_at(later).is_none());
        assert_eq!(shares(&file.look_at(later).unwrap().unwrap()), 2);
        fs::remove_file(&path).unwrap();
        assert!(file.look_at(later).is_none() && file.look_at(later).is_none());
        assert_eq!(shares(&file.look_at(later).unwrap().unwrap()), 0);
    }

    #[test]
    fn a_fault_is_told_once_and_mended_by_the_next_good_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drover.toml");
        fs::write(&path, ONE).unwrap();
        let (mut file, _) = ConfigFile::open(&path).unwrap();
        fs::write(&path, "[[vm]]\nname = \"a\"\nshares = ").unwrap();
        let told: Vec<_> = (0..9).filter_map(|_| file.look()).collect();
        assert_eq!(told.len(), 1);
        assert!(told[0].as_ref().unwrap_err().contains("drover.toml:3: not TOML"));
        fs::write(&path, TWO).unwrap();
        assert!((0..LOOKS).find_map(|_| file.look()).unwrap().is_ok());
        assert!(ConfigFile::open(Path::new("/")).unwrap_err().contains("cannot read"));
    }

    #[test]
    fn what_is_no_file_is_told_once_and_what_was_before_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drover.toml");
        fs::write(&path, ONE).unwrap();
        let (mut file, _) = ConfigFile::open(&path).unwrap();
        let puts: [&dyn Fn(); 4] = [
            &|| nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            &|| fs::create_dir(&path).unwrap(),
            &|| std::os::unix::fs::symlink("/dev/zero", &path).unwrap(),
            &|| fs::write(&path, vec![b'#'; CONFIG_MAX + 1]).unwrap(),
        ];
        for put in puts {
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
            put();
            let told: Vec<_> = (0..9).filter_map(|_| file.look()).collect();
            assert_eq!(told.len(), 1, "{told:?}");
            let fault = told[0].as_ref().unwrap_err();
            assert!(fault.contains("cannot read") && !fault.contains('\n'), "{fault}");
            // It was said in the same words.
            file.settled.clear();
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, TWO).unwrap();
        assert_eq!((0..LOOKS).find_map(|_| file.look()).map(|it| it.is_ok()), Some(true));
    }
}
