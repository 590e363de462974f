// SPDX-License-Identifier: GPL-2.0-only
//! Files in which others have a say: what is read of them is bounded and waits for nobody, and what is written follows
//! no link.
//!
//! Who runs a VM chooses how long the command line of its process is (8 GiB, if he likes), what its cgroups are called
//! and how many there are, how many threads it has, what its manager keeps of it. Who keeps a host may have put
//! anything in the place of a file, and a FIFO has its reader wait for good. So all that is read here is read by these
//! functions; clippy.toml keeps the others out.
//!
//! The directories that are written to are root's alone. Links that stand in them are not followed all the same: a file
//! is written under another name and takes the place of what was there, link or not, whole or not at all.

use std::fs::{self, DirBuilder, DirEntry, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// So much is read of a file of the kernel: lists, tables and settings are shorter, but of what a user has a say in.
const KERNEL_MAX: usize = 64 << 10;
/// So many threads of a process are looked at; a VM has 1,024 vCPUs at most, and some helpers.
pub const THREADS_MAX: usize = 4096;
/// So much is looked at of other directories.
pub const ENTRIES_MAX: usize = 1 << 16;

/// The beginning of a file, and whether there is more of it.
///
/// # Errors
/// When it cannot be read or is no regular file, as those of /proc and /sys are.
pub fn head(path: &Path, most: usize) -> io::Result<(Vec<u8>, bool)> {
    // Not to wait for who writes to a FIFO, nor to come to belong to a terminal.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = open(OpenOptions::new().read(true).custom_flags(flags), path)?;
    let meta = file.metadata()?;
    if !meta.is_file() && !is_null(&meta) {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "it is no regular file, nor a link to one",
        ));
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    let is_cut = bytes.len() > most;
    bytes.truncate(most);
    Ok((bytes, is_cut))
}

/// Is it /dev/null? People name it where they want no file.
fn is_null(meta: &Metadata) -> bool {
    meta.file_type().is_char_device() && meta.rdev() == libc::makedev(1, 3)
}

/// All of a file.
///
/// # Errors
/// As [`head`], and when it is longer than that.
pub fn whole(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    match head(path, most)? {
        (bytes, false) => Ok(bytes),
        _ => {
            let text = format!("it is longer than {} KiB, and not read", most >> 10);
            Err(io::Error::new(ErrorKind::FileTooLarge, text))
        }
    }
}

/// All of a file that people or programs write.
///
/// # Errors
/// As [`whole`], and when it is not UTF-8.
pub fn text(path: &Path, most: usize) -> io::Result<String> {
    String::from_utf8(whole(path, most)?)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

/// The lines of a file of the kernel's; of what is not UTF-8 in it, which a thread or a cgroup may be called, the rest
/// is still true. Where it is long, its beginning.
///
/// # Errors
/// As [`head`].
pub fn kernel(path: &Path) -> io::Result<String> {
    kernel_lines(path, KERNEL_MAX)
}

/// The value of a line that begins so.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The same of one that is longer by its nature.
///
/// # Errors
/// As [`head`].
pub fn kernel_lines(path: &Path, most: usize) -> io::Result<String> {
    let (mut bytes, is_cut) = head(path, most)?;
    if is_cut {
        // Half of a line would say something else.
        bytes.truncate(bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What is in a directory, so much of it at most; nothing where it cannot be read.
#[allow(clippy::disallowed_methods, reason = "it is bounded here")]
pub fn entries(dir: &Path, most: usize) -> impl Iterator<Item = DirEntry> + use<> {
    fs::read_dir(dir).into_iter().flatten().flatten().take(most)
}

/// Writes a file: all of it, on the disk, in place of what was there, or nothing. Its directory is made where there is
/// none.
///
/// # Errors
/// When the disk does not take it; what was there still is, then.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    let mut new_name = name.to_owned();
    new_name.push(".new");
    let new = dir.join(new_name);
    make_private_dir(dir)?;
    // Of one who died while writing; or somebody's link.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = open(OpenOptions::new().write(true).create_new(true).mode(0o600), &new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The rename itself must reach the disk too.
    open(OpenOptions::new().read(true), dir)?.sync_all()
}

/// Makes a directory with mode 0700, unless there is one. Another process may make it in the same moment.
///
/// # Errors
/// When it cannot be.
pub fn make_private_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir.parent().unwrap_or(dir))?;
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(_) if dir.is_dir() => Ok(()),
        made => made,
    }
}

#[allow(clippy::disallowed_methods, reason = "whoever is here bounds what is read")]
pub(crate) fn open(options: &OpenOptions, path: &Path) -> io::Result<File> {
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn processes_that_make_one_directory_at_once_all_have_it() {
        let parent = tempfile::tempdir().unwrap();
        for round in 0..200 {
            let dir = parent.path().join(round.to_string());
            let start = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                let make = || {
                    start.wait();
                    make_private_dir(&dir).unwrap();
                };
                scope.spawn(make);
                make();
            });
        }
    }

    #[test]
    fn what_is_written_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/settings.json");
        replace(&file, b"x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(file.parent().unwrap()), mode(&file)), (0o700, 0o600));
    }

    #[test]
    fn what_stands_in_place_of_a_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        symlink("/dev/zero", at("link")).unwrap();
        symlink(at("fifo"), at("link-to-fifo")).unwrap();
        symlink(at("loop"), at("loop")).unwrap();
        for name in ["fifo", "socket", "link", "link-to-fifo", "loop", ""] {
            assert!(text(&at(name), 9).is_err() && kernel(&at(name)).is_err(), "{name}");
        }
        let told = text(&at("fifo"), 9).unwrap_err().to_string();
        assert!(told.contains("no regular file"), "{told}");
        fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link-to-file")).unwrap();
        assert_eq!(text(&at("link-to-file"), 9).unwrap(), "text");
        assert_eq!(text(Path::new("/dev/null"), 9).unwrap(), "");
    }

    #[test]
    fn what_is_too_long_is_refused_or_cut_at_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "1234\n5678\n").unwrap();
        assert_eq!(text(&file, 10).unwrap(), "1234\n5678\n");
        assert!(text(&file, 9).unwrap_err().to_string().contains("longer than"));
        assert_eq!(kernel_lines(&file, 10).unwrap(), "1234\n5678\n");
        assert_eq!(kernel_lines(&file, 9).unwrap(), "1234", "56 is no line");
        assert_eq!(kernel_lines(&file, 3).unwrap(), "");
        assert_eq!(head(&file, 2).unwrap(), (b"12".to_vec(), true));
        // It has no size of its own, and no end.
        assert_eq!(File::create(&file).unwrap().set_len(1 << 40).ok(), Some(()));
        assert_eq!(head(&file, 3).unwrap(), (vec![0; 3], true));
    }

    #[test]
    fn names_that_are_no_text_leave_the_rest_true() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("status");
        fs::write(&file, b"Name:\t\xff\xfe\nUid:\t1000\n").unwrap();
        assert!(kernel(&file).unwrap().lines().any(|line| line == "Uid:\t1000"));
        assert!(text(&file, 99).unwrap_err().to_string().contains("UTF-8"));
        assert!(kernel(Path::new("/proc/self/status")).unwrap().contains("Uid:"), "of size 0");
    }

    #[test]
    fn directories_are_looked_at_in_part() {
        let dir = tempfile::tempdir().unwrap();
        (0..9).for_each(|name| fs::write(dir.path().join(name.to_string()), "").unwrap());
        assert_eq!((entries(dir.path(), 9).count(), entries(dir.path(), 4).count()), (9, 4));
        assert_eq!(entries(&dir.path().join("1"), 9).count(), 0);
    }

    #[test]
    fn what_is_written_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("victim"), "whole").unwrap();
        for link in ["file", "file.new"] {
            symlink(at("victim"), at(link)).unwrap();
            replace(&at("file"), b"text").unwrap();
            assert_eq!(fs::read_to_string(at("file")).unwrap(), "text");
            assert!(fs::symlink_metadata(at("file")).unwrap().is_file(), "{link}");
            fs::remove_file(at("file")).unwrap();
        }
        assert_eq!(fs::read_to_string(at("victim")).unwrap(), "whole");
        replace(&at("deep/er/file"), b"text").unwrap();
        assert_eq!(fs::read_dir(at("deep/er")).unwrap().count(), 1, "nothing else is left");
        assert!(replace(&at("victim/file"), b"text").is_err());
    }
}
