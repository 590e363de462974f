// SPDX-License-Identifier: GPL-2.0-only
//! The initramfs: all files of a virtual host, in memory, from one archive.
//!
//! Entries are kept by path and written in order, so the same content gives the same archive, and a
//! directory always comes before what is in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cpio::{Node, Writer};
use crate::programs;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Dir,
    Bytes { permissions: u32, data: Vec<u8> },
    HostFile { permissions: u32, path: PathBuf },
    Link(String),
    Char(u32, u32),
}

/// An archive in the making.
#[derive(Clone, Debug, Default)]
pub struct Initramfs {
    entries: BTreeMap<String, Entry>,
}

impl Initramfs {
    /// The parts every small Linux system needs: busybox under all its names, a console, a root user.
    ///
    /// # Errors
    /// When busybox is not installed, or not as one static program.
    pub fn with_busybox() -> Result<Self> {
        let busybox = programs::find("busybox")
            .context("busybox is not installed; install package busybox-static")?;
        ensure!(
            programs::shared_libraries(&busybox)?.is_empty(),
            "{} needs shared libraries; install package busybox-static instead of busybox",
            busybox.display()
        );
        let names = Command::new(&busybox).arg("--list-full").output()?;
        let mut initramfs = Self::default();
        initramfs.add_host_file("/bin/busybox", &busybox)?;
        for name in
            String::from_utf8_lossy(&names.stdout).lines().filter(|name| *name != "bin/busybox")
        {
            initramfs.add_link(name, "/bin/busybox");
        }
        for dir in ["proc", "sys", "dev", "tmp", "run", "root", "out", "etc", "var"] {
            initramfs.insert(dir, Entry::Dir);
        }
        initramfs.insert("dev/console", Entry::Char(5, 1));
        initramfs.add_bytes("/etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n");
        initramfs.add_bytes("/etc/group", 0o644, b"root:x:0:\n");
        Ok(initramfs)
    }

    /// Adds a file with the content given. A path that is there already is replaced.
    pub fn add_bytes(&mut self, path: &str, permissions: u32, data: &[u8]) {
        self.insert(path, Entry::Bytes { permissions, data: data.to_vec() });
    }

    /// Adds a symbolic link.
    pub fn add_link(&mut self, path: &str, target: &str) {
        self.insert(path, Entry::Link(target.to_owned()));
    }

    /// Adds a file of this machine, read when the archive is written.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn add_host_file(&mut self, path: &str, host_path: &Path) -> Result<()> {
        let data = fs::metadata(host_path)
            .with_context(|| format!("cannot read {}", host_path.display()))?;
        ensure!(data.is_file(), "{} is not a file", host_path.display());
        let permissions = data.permissions().mode() & 0o777;
        self.insert(path, Entry::HostFile { permissions, path: host_path.to_owned() });
        Ok(())
    }

    /// Adds files of this machine to a directory, by the names they have.
    ///
    /// # Errors
    /// When one is not there.
    pub fn add_host_files(&mut self, dir: &str, host_paths: &[PathBuf]) -> Result<()> {
        for host_path in host_paths {
            let name = host_path.file_name().unwrap_or_default().to_string_lossy();
            self.add_host_file(&format!("{dir}/{name}"), host_path)?;
        }
        Ok(())
    }

    /// Adds a program of this machine with the shared libraries it needs, each at its own path.
    ///
    /// # Errors
    /// When the program or a library is not there.
    pub fn add_program(&mut self, path: &str, host_path: &Path) -> Result<()> {
        self.add_host_file(path, host_path)?;
        for library in programs::shared_libraries(host_path)? {
            self.add_host_file(&library.to_string_lossy(), &library)?;
        }
        Ok(())
    }

    fn insert(&mut self, path: &str, entry: Entry) {
        let path = path.trim_matches('/');
        for (at, _) in path.match_indices('/') {
            self.entries.entry(path[..at].to_owned()).or_insert(Entry::Dir);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// When a file cannot be read or the sink not be written (a full disk, say).
    pub fn write<W: Write>(&self, sink: W) -> Result<W> {
        let mut writer = Writer::new(sink);
        for (path, entry) in &self.entries {
            let result = match entry {
                Entry::Dir => writer.add(path, &Node::Dir),
                Entry::Bytes { permissions, data } => {
                    writer.add(path, &Node::File { permissions: *permissions, data })
                }
                Entry::HostFile { permissions, path: host_path } => {
                    let data = fs::read(host_path)
                        .with_context(|| format!("cannot read {}", host_path.display()))?;
                    writer.add(path, &Node::File { permissions: *permissions, data: &data })
                }
                Entry::Link(target) => writer.add(path, &Node::Link(target)),
                Entry::Char(major, minor) => writer.add(path, &Node::Char(*major, *minor)),
            };
            result.context("cannot write the initramfs")?;
        }
        writer.finish().context("cannot write the initramfs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpio;

    fn bytes(initramfs: &Initramfs) -> Vec<u8> {
        initramfs.write(Vec::new()).unwrap()
    }

    #[test]
    fn parents_come_before_children() {
        let mut initramfs = Initramfs::default();
        initramfs.add_bytes("/a/b/c", 0o644, b"x");
        let paths: Vec<_> = initramfs.entries.keys().collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c"]);
    }

    #[test]
    fn the_order_of_adding_does_not_matter() {
        let (mut one, mut other) = (Initramfs::default(), Initramfs::default());
        one.add_bytes("/x", 0o644, b"1");
        one.add_link("/y", "x");
        other.add_link("y", "x");
        other.add_bytes("x", 0o644, b"1");
        assert_eq!(bytes(&one), bytes(&other));
    }

    #[test]
    fn programs_bring_their_libraries() {
        let mut initramfs = Initramfs::default();
        initramfs.add_program("/usr/bin/ls", Path::new("/bin/ls")).unwrap();
        assert!(initramfs.entries.keys().any(|path| path.contains("libc.so")));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error =
            Initramfs::default().add_host_file("/x", Path::new("/no/such/file")).unwrap_err();
        assert!(error.to_string().contains("/no/such/file"));
        assert!(Initramfs::default().add_host_file("/x", Path::new("/tmp")).is_err());
    }

    #[test]
    fn the_basic_system_has_a_shell() {
        let initramfs = Initramfs::with_busybox().unwrap();
        assert_eq!(initramfs.entries["bin/sh"], Entry::Link("/bin/busybox".into()));
        let (files, whole) = cpio::read(&bytes(&initramfs)).unwrap();
        assert!(whole && files.iter().any(|file| file.path == "bin/busybox"));
    }
}
