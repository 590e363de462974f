// SPDX-License-Identifier: GPL-2.0-only
//! Why a scheduler ended, in words.

use crate::files;
use drover_core::printable::{one_line, printable};
use std::path::{Path, PathBuf};

/// What the kernel recorded when it ended the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitInfo {
    /// The kernel's `enum scx_exit_kind`.
    pub kind: i32,
    /// The kernel's short reason, such as "runnable task stall".
    pub reason: String,
    /// Details, may be empty.
    pub message: String,
    /// What the kernel saw on each pCPU then: many lines, or none.
    pub dump: String,
}

/// Where the last one against our will is kept; its time is the file's.
const FILE: &str = "thrown-out.txt";
/// From this value on, kinds are errors (`SCX_EXIT_ERROR`).
const FIRST_ERROR_KIND: i32 = 1024;

impl ExitInfo {
    /// Did the kernel throw the scheduler out, rather than let it go?
    pub fn is_error(&self) -> bool {
        self.kind >= FIRST_ERROR_KIND
    }

    /// Writes it into that directory, over the one before; where it is then.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn keep_in(&self, dir: &Path) -> std::io::Result<PathBuf> {
        let file = dir.join(FILE);
        // Tasks have names, and users give them.
        let dump: String =
            self.dump.trim_end().lines().map(|line| printable(line) + "\n").collect();
        files::replace(&file, format!("{}\n\n{dump}", one_line(&self.to_string())).as_bytes())?;
        Ok(file)
    }
}

impl std::fmt::Display for ExitInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.kind {
            64 => "unregistered",
            65 => "unregistered by its own program",
            66 => "ended by the kernel",
            67 => "ended from the keyboard (SysRq-S)",
            kind if kind >= FIRST_ERROR_KIND => "thrown out by the kernel",
            _ => "ended",
        };
        write!(f, "{what}: {}", self.reason)?;
        if !self.message.is_empty() {
            write!(f, " ({})", self.message.trim())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn exit_info(kind: i32, message: &str) -> ExitInfo {
        ExitInfo {
            kind,
            reason: "runnable task stall".into(),
            message: message.into(),
            dump: String::new(),
        }
    }

    #[test]
    fn errors_are_told_from_ordinary_ends() {
        assert!(exit_info(1026, "").is_error());
        assert!(!exit_info(64, "").is_error());
    }

    #[test]
    fn the_last_one_is_kept_with_what_the_kernel_saw() {
        let dir = tempfile::tempdir().unwrap();
        for dump in ["an older one", "CPU states\n----------\n"] {
            let dump = dump.to_owned();
            let file = ExitInfo { dump, ..exit_info(1026, "") }.keep_in(&dir.path().join("below"));
            let text = fs::read_to_string(file.unwrap()).unwrap();
            assert!(
                text.starts_with("thrown out by the kernel: runnable task stall\n\n"),
                "{text}"
            );
        }
        let text = fs::read_to_string(dir.path().join("below").join(FILE)).unwrap();
        assert!(text.ends_with("\n\nCPU states\n----------\n"), "{text}");
    }

    #[test]
    fn one_line_with_reason_and_details() {
        let text = exit_info(1026, "vcpu0[12] failed to run for 5.2s\n").to_string();
        assert_eq!(
            text,
            "thrown out by the kernel: runnable task stall (vcpu0[12] failed to run for 5.2s)"
        );
        assert_eq!(exit_info(64, "").to_string(), "unregistered: runnable task stall");
    }
}
