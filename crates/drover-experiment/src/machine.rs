// SPDX-License-Identifier: GPL-2.0-only
//! This machine in words that tell what it is, and not whose: results may be shown to others.

use drover_host::topology::Topology;
use std::fs;

/// CPU and shape of this machine.
pub fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let shape = Topology::read().map_or_else(|_| "shape unknown".to_owned(), |it| it.summary());
    format!("{}, {shape}", model(&cpuinfo).unwrap_or("CPU unknown"))
}

/// What the first CPU calls itself.
fn model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_told_and_no_name() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A CPU @ 2.00GHz\nmodel name\t: other\n";
        assert_eq!(model(cpuinfo), Some("A CPU @ 2.00GHz"));
        assert_eq!(model("processor\t: 0\n"), None);
        let name = nix::unistd::gethostname().unwrap();
        let said = machine();
        assert!(said.contains("pCPUs online"), "{said}");
        assert!(!said.contains(&*name.to_string_lossy()), "{said}");
    }
}
