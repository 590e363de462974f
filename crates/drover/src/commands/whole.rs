// SPDX-License-Identifier: GPL-2.0-only
//! Files that are there whole or not at all: a list of their folder shows what is done.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// What the names of files begin with that are being written.
pub const PART: &str = ".part-";

/// Writes `content` as JSON, in place of what was there. A process killed on the way leaves a file of another name.
pub fn write_whole(path: &Path, content: &impl Serialize) -> Result<()> {
    let mut bytes = serde_json::to_vec(content)?;
    bytes.push(b'\n');
    write_bytes_whole(path, &bytes)
}

/// The same with bytes.
pub fn write_bytes_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = || {
        let dir = std::path::absolute(path)?.parent().map(Path::to_owned).unwrap_or_default();
        let readable = Permissions::from_mode(0o644);
        let part = tempfile::Builder::new().prefix(PART).permissions(readable).tempfile_in(dir)?;
        // Not synced: a machine that loses power may leave an empty file, which its readers do not count.
        part.as_file().write_all(bytes)?;
        part.persist(path).map_err(std::io::Error::from).map(drop)
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_takes_the_place_of_another_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write_whole(&path, &[1, 2]).unwrap();
        write_whole(&path, &[3]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[3]\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let error = write_whole(Path::new("/no/such/dir/a.json"), &[1]).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/dir/a.json"), "{error:#}");
    }
}
