// SPDX-License-Identifier: GPL-2.0-only
//! Why a scheduler ended, in words.

/// What the kernel recorded when it ended the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Farewell {
    /// The kernel's `enum scx_exit_kind`.
    pub kind: i32,
    /// The kernel's short reason, such as "runnable task stall".
    pub reason: String,
    /// Details, may be empty.
    pub message: String,
}

/// From this value on, kinds are errors (`SCX_EXIT_ERROR`).
const FIRST_ERROR_KIND: i32 = 1024;

impl Farewell {
    /// Did the kernel throw the scheduler out, rather than let it go?
    pub fn is_error(&self) -> bool {
        self.kind >= FIRST_ERROR_KIND
    }
}

impl std::fmt::Display for Farewell {
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

    fn farewell(kind: i32, message: &str) -> Farewell {
        Farewell { kind, reason: "runnable task stall".into(), message: message.into() }
    }

    #[test]
    fn errors_are_told_from_ordinary_ends() {
        assert!(farewell(1026, "").is_error());
        assert!(!farewell(64, "").is_error());
    }

    #[test]
    fn one_line_with_reason_and_details() {
        let text = farewell(1026, "vcpu0[12] failed to run for 5.2s\n").to_string();
        assert_eq!(
            text,
            "thrown out by the kernel: runnable task stall (vcpu0[12] failed to run for 5.2s)"
        );
        assert_eq!(farewell(64, "").to_string(), "unregistered: runnable task stall");
    }
}
