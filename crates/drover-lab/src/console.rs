// SPDX-License-Identifier: GPL-2.0-only
//! The console of the virtual host: what it says about a kernel in trouble.

/// Marks of lines that tell of a kernel in trouble.
const TROUBLE: [&str; 14] = [
    "soft lockup",
    "hard LOCKUP",
    "self-detected stall",
    "detected stalls on CPUs",
    "rcu_sched kthread starved",
    "rcu_preempt kthread starved",
    "blocked for more than",
    "WARNING: ",
    "BUG: ",
    "Oops: ",
    "general protection fault",
    "Kernel panic",
    "Out of memory: Killed process",
    "runnable task stall",
];

/// Lines of the console that tell of a lockup, a stall, a warning or a crash of the kernel.
#[must_use]
pub fn kernel_warnings(console: &str) -> Vec<String> {
    console
        .lines()
        .map(str::trim)
        .filter(|line| TROUBLE.iter().any(|mark| line.contains(mark)))
        .map(str::to_owned)
        .collect()
}

/// The last `count` lines that are not empty, for error messages.
#[must_use]
pub fn tail(console: &str, count: usize) -> String {
    let lines: Vec<&str> =
        console.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_and_lockups_are_found() {
        let console = "[ 1.0] hello\r\n\
            [ 9.1] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [vcpu0:99]\r\n\
            [12.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\r\n\
            [13.0] INFO: task kworker/0:1 blocked for more than 120 seconds.\r\n";
        assert_eq!(kernel_warnings(console).len(), 3);
        assert!(kernel_warnings(console)[0].ends_with("[vcpu0:99]"));
    }

    #[test]
    fn a_quiet_boot_has_no_warnings() {
        assert!(
            kernel_warnings("[ 0.0] Linux version\n[ 1.0] kvm: Nested Virtualization enabled\n")
                .is_empty()
        );
    }

    #[test]
    fn the_tail_skips_empty_lines() {
        assert_eq!(tail("a\r\n\nb\n\nc\n", 2), "b\nc");
        assert_eq!(tail("", 2), "");
    }
}
