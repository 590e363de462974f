// SPDX-License-Identifier: GPL-2.0-only
//! Which program a scheduler's name means.

use anyhow::{Context, Result, bail};
use drover_lab::cache::Cache;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A scheduler to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Contender {
    /// The kernel's own scheduler: nothing loaded.
    Eevdf,
    /// This program's.
    Drover,
    /// Another sched_ext scheduler, and the arguments it is started with.
    Program(PathBuf, Vec<String>),
}

/// Where peers that were built for comparison are, below the cache.
const PEERS: &str = "peers/bin";

impl Contender {
    /// Finds what `name` means: a path is taken as it is, a name is looked for in `$PATH` and among the
    /// peers in the cache.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn find(name: &str) -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
        dirs.extend(Cache::open().ok().map(|cache| cache.path(PEERS)));
        Self::find_in(name, &dirs)
    }

    fn find_in(name: &str, dirs: &[PathBuf]) -> Result<Self> {
        match name {
            "eevdf" => return Ok(Self::Eevdf),
            "drover" => return Ok(Self::Drover),
            _ => {}
        }
        if name.contains('/') {
            if is_program(Path::new(name)) {
                return Self::program(PathBuf::from(name));
            }
            bail!("scheduler {name}: no program is there; give the path of a sched_ext scheduler");
        }
        match dirs.iter().map(|dir| dir.join(name)).find(|place| is_program(place)) {
            Some(place) => Self::program(place),
            None => bail!(
                "scheduler {name}: no such program in $PATH; use eevdf, drover, or the path of a \
                 sched_ext scheduler"
            ),
        }
    }

    fn program(path: PathBuf) -> Result<Self> {
        let file = arguments_file(&path);
        let arguments = match fs::read_to_string(&file) {
            Ok(text) => text.lines().map(str::to_owned).collect(),
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
        };
        Ok(Self::Program(path, arguments))
    }
}

/// Where the arguments of a program are that is started with any: a file beside it, an argument a line.
pub(crate) fn arguments_file(program: &Path) -> PathBuf {
    let mut file = program.as_os_str().to_owned();
    file.push(".args");
    PathBuf::from(file)
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_mean_programs() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("scx_other");
        fs::write(&program, "").unwrap();
        let dirs = [PathBuf::from("/no/such/dir"), dir.path().to_owned()];
        assert!(Contender::find_in("scx_other", &dirs).is_err(), "it cannot be executed yet");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(arguments_file(&program), "--layers\n[{ }]\n").unwrap();
        let arguments = ["--layers", "[{ }]"].map(str::to_owned).to_vec();
        let found = Contender::Program(program.clone(), arguments);
        assert_eq!(Contender::find_in("scx_other", &dirs).unwrap(), found);
        assert_eq!(Contender::find_in(program.to_str().unwrap(), &[]).unwrap(), found);
        assert_eq!(Contender::find_in("eevdf", &[]).unwrap(), Contender::Eevdf);
        assert_eq!(Contender::find_in("drover", &[]).unwrap(), Contender::Drover);
    }

    #[test]
    fn what_is_not_there_is_refused_in_one_line() {
        for name in ["scx_none", "/no/such/scx_none", "./"] {
            let message = Contender::find_in(name, &[]).unwrap_err().to_string();
            assert!(message.contains(name) && message.lines().count() == 1, "{message}");
        }
    }
}
