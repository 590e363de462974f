// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel says of sched_ext schedulers.

use std::fs;
use std::path::{Path, PathBuf};

/// Whether a scheduler is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The kernel has no sched_ext.
    Absent,
    /// None; the kernel's own scheduler has all tasks.
    Disabled,
    /// One, in full.
    Enabled,
    /// One that comes or goes.
    Changing,
}

/// The directory of sysfs where the kernel says it.
#[derive(Debug, Clone)]
pub(crate) struct SchedExt {
    dir: PathBuf,
}

impl SchedExt {
    /// That of this host.
    pub fn of_this_host() -> Self {
        Self::at(Path::new("/sys/kernel/sched_ext"))
    }

    /// Another in its place.
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The state now.
    pub fn state(&self) -> State {
        match self.read("state").as_deref() {
            None => State::Absent,
            Some("disabled") => State::Disabled,
            Some("enabled") => State::Enabled,
            Some(_) => State::Changing,
        }
    }

    /// Name of the scheduler that is loaded.
    pub fn loaded(&self) -> Option<String> {
        self.read("root/ops")
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.dir.join(file)).ok().map(|text| text.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        let dir = tempfile::tempdir().unwrap();
        let sched_ext = SchedExt::at(dir.path());
        assert_eq!((sched_ext.state(), sched_ext.loaded()), (State::Absent, None));
        for (text, state) in [
            ("disabled\n", State::Disabled),
            ("enabled\n", State::Enabled),
            ("enabling\n", State::Changing),
        ] {
            fs::write(dir.path().join("state"), text).unwrap();
            assert_eq!(sched_ext.state(), state);
        }
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::write(dir.path().join("root/ops"), "simple\n").unwrap();
        assert_eq!(sched_ext.loaded().as_deref(), Some("simple"));
    }
}
