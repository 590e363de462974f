// SPDX-License-Identifier: GPL-2.0-only
//! The `newc` cpio format, written and read.
//!
//! The kernel takes its initramfs in this format, and the lab ships `/out` back in it: one format serves
//! both ways. An entry is a 110-byte header of ASCII hex fields, the NUL-ended name and the data, name and
//! data each padded to 4 bytes. An entry named `TRAILER!!!` ends the archive.
//!
//! Every field that could differ from run to run (inode numbers, times, owners) is written as a constant,
//! so that the same entries always give the same bytes.

use std::io::{self, Write};

use anyhow::{Result, bail, ensure};

const HEADER_LEN: usize = 110;
const TRAILER: &str = "TRAILER!!!";

const MODE_FILE: u32 = 0o100_000;
const MODE_DIR: u32 = 0o040_000;
const MODE_LINK: u32 = 0o120_000;
const MODE_CHAR: u32 = 0o020_000;
const MODE_KIND_MASK: u32 = 0o170_000;

/// What an entry is; permission bits come with the kinds that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    /// A directory, readable by all.
    Dir,
    /// A regular file.
    File {
        /// Permission bits such as `0o755`.
        permissions: u32,
        /// The content.
        data: &'a [u8],
    },
    /// A symbolic link to the path given.
    Link(&'a str),
    /// A character device of this major and minor number.
    Char(u32, u32),
}

/// Writes entries to any sink.
pub struct Writer<W: Write> {
    sink: W,
    inode: u32,
}

impl<W: Write> Writer<W> {
    /// An archive without entries yet.
    pub fn new(sink: W) -> Self {
        Self { sink, inode: 0 }
    }

    /// Adds one entry; `path` is taken relative to the archive's root whether it begins with `/` or not.
    ///
    /// # Errors
    /// When the sink cannot be written, or a file is longer than the format allows (4 GiB).
    pub fn add(&mut self, path: &str, node: &Node) -> io::Result<()> {
        self.inode += 1;
        let (mode, data, device) = match node {
            Node::Dir => (MODE_DIR | 0o755, &[][..], (0, 0)),
            Node::File { permissions, data } => (MODE_FILE | permissions, *data, (0, 0)),
            Node::Link(target) => (MODE_LINK | 0o777, target.as_bytes(), (0, 0)),
            Node::Char(major, minor) => (MODE_CHAR | 0o600, &[][..], (*major, *minor)),
        };
        self.entry(path.trim_start_matches('/'), mode, data, device)
    }

    /// Hands over what the sink may hold back.
    ///
    /// # Errors
    /// When the sink cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    /// Writes the end mark and hands the sink back.
    ///
    /// # Errors
    /// When the sink cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.inode = 0;
        self.entry(TRAILER, 0, &[], (0, 0))?;
        self.sink.flush()?;
        Ok(self.sink)
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8], device: (u32, u32)) -> io::Result<()> {
        let size = u32::try_from(data.len()).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{name}: over 4 GiB"))
        })?;
        let links = if mode & MODE_KIND_MASK == MODE_DIR { 2 } else { 1 };
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        let fields =
            [self.inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0];
        let mut header = String::with_capacity(HEADER_LEN + name.len() + 4);
        header.push_str("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        header.push_str(name);
        header.push('\0');
        header.extend(std::iter::repeat_n('\0', padding(header.len())));
        self.sink.write_all(header.as_bytes())?;
        self.sink.write_all(data)?;
        self.sink.write_all(&[0; 3][..padding(data.len())])
    }
}

fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// A regular file found in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Path relative to the archive's root, never absolute, never with `..` in it.
    pub path: String,
    /// Permission bits.
    pub permissions: u32,
    /// The content.
    pub data: Vec<u8>,
}

/// Reads the regular files of an archive; the flag says whether its end mark was there.
///
/// What is cut off is not an error, because a lab that was stopped leaves exactly that: files that came
/// whole are handed over and the flag is false.
///
/// # Errors
/// When the bytes are no `newc` archive, or a path would lead out of the directory it is unpacked to.
pub fn read(bytes: &[u8]) -> Result<(Vec<FileEntry>, bool)> {
    let mut files = Vec::new();
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + HEADER_LEN) {
        ensure!(header.starts_with(b"070701"), "byte {at} begins no cpio entry");
        let (mode, size, name_len) = (field(header, 1)?, field(header, 6)?, field(header, 11)?);
        let name_at = at + HEADER_LEN;
        let data_at = name_at + name_len + padding(HEADER_LEN + name_len);
        let (Some(name), Some(data)) = (
            bytes.get(name_at..(name_at + name_len).saturating_sub(1)),
            bytes.get(data_at..data_at + size),
        ) else {
            return Ok((files, false));
        };
        let name = std::str::from_utf8(name)?;
        if name == TRAILER {
            return Ok((files, true));
        }
        if u32::try_from(mode)? & MODE_KIND_MASK == MODE_FILE {
            let permissions = u32::try_from(mode)? & 0o7777;
            files.push(FileEntry { path: inside(name)?, permissions, data: data.to_vec() });
        }
        at = data_at + size + padding(size);
    }
    Ok((files, false))
}

/// The `index`-th hex field after the magic number.
fn field(header: &[u8], index: usize) -> Result<usize> {
    let text = std::str::from_utf8(&header[6 + index * 8..14 + index * 8])?;
    Ok(usize::from_str_radix(text, 16)?)
}

/// Refuses a path that would leave the directory an archive is unpacked to.
fn inside(name: &str) -> Result<String> {
    let escapes = name.starts_with('/') || name.split('/').any(|part| part == "..");
    if escapes || name.is_empty() {
        bail!("cpio entry `{name}` leads out of the archive");
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn archive(entries: &[(&str, Node)]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        for (path, node) in entries {
            writer.add(path, node).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn header_is_what_the_kernel_expects() {
        let bytes = archive(&[("a", Node::File { permissions: 0o644, data: b"hi" })]);
        let text = String::from_utf8_lossy(&bytes[..110]).into_owned();
        assert_eq!(
            text,
            "070701000000010000\
             81a40000000000000000000000010000000000000002000000000000000000000000000000000000000200000000"
        );
        assert_eq!(&bytes[110..118], b"a\0hi\0\0\x30\x37");
    }

    #[test]
    fn files_come_back_and_other_kinds_are_left_out() {
        let bytes = archive(&[
            ("/dir", Node::Dir),
            ("/dir/x", Node::File { permissions: 0o755, data: b"123" }),
            ("/link", Node::Link("dir/x")),
            ("/dev/console", Node::Char(5, 1)),
        ]);
        let (files, whole) = read(&bytes).unwrap();
        assert!(whole);
        assert_eq!(
            files,
            [FileEntry { path: "dir/x".into(), permissions: 0o755, data: b"123".to_vec() }]
        );
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        let bytes =
            archive(&[("a/../../etc/passwd", Node::File { permissions: 0o644, data: b"" })]);
        assert!(read(&bytes).unwrap_err().to_string().contains("leads out"));
    }

    #[test]
    fn garbage_is_refused() {
        assert!(read(&[b'x'; 200]).is_err());
    }

    proptest! {
        #[test]
        fn any_files_survive_the_round_trip(files in prop::collection::vec(("[a-z]{1,9}", prop::collection::vec(any::<u8>(), 0..70)), 0..6)) {
            let mut writer = Writer::new(Vec::new());
            for (path, data) in &files {
                writer.add(path, &Node::File { permissions: 0o644, data }).unwrap();
            }
            let (back, whole) = read(&writer.finish().unwrap()).unwrap();
            prop_assert!(whole);
            let back: Vec<_> = back.into_iter().map(|f| (f.path, f.data)).collect();
            prop_assert_eq!(back, files);
        }

        #[test]
        fn a_cut_archive_is_never_called_whole(cut in 0usize..400) {
            let bytes = archive(&[("a", Node::File { permissions: 0o644, data: &[7; 90] })]);
            let cut = cut.min(bytes.len() - 4 - TRAILER.len());
            if let Ok((_, whole)) = read(&bytes[..cut]) {
                prop_assert!(!whole);
            }
        }
    }
}
