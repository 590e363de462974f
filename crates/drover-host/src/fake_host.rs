// SPDX-License-Identifier: GPL-2.0-only
//! A host as tests want it: the files that the daemon reads, in a directory.

use std::fs;

/// A directory with these files, by path and text; it goes when it is dropped.
pub fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}
