// SPDX-License-Identifier: GPL-2.0-only
//! Whether a kernel can be a host of the lab, told from its configuration file.

use anyhow::{Result, ensure};

/// What the configuration must say, and why. Drover schedules with the first, and observes without.
const NEEDED: [(&str, &str, &str); 5] = [
    ("CONFIG_SCHED_CLASS_EXT", "y", "sched_ext, the class that schedulers in BPF belong to"),
    ("CONFIG_DEBUG_INFO_BTF", "y", "type information, without which BPF programs cannot be loaded"),
    ("CONFIG_BPF_JIT", "y", "the compiler for BPF programs"),
    ("CONFIG_KVM", "ym", "virtual machines"),
    ("CONFIG_BLK_DEV_INITRD", "y", "starting from an initramfs"),
];

/// What is wanted of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Drover schedules.
    Schedule,
    /// Somebody asked for this kernel, if only to observe what its own scheduler does.
    AsAsked,
}

/// Checks a kernel's configuration text (`/boot/config-VERSION`).
///
/// # Errors
/// One line that names every option that is missing and what it is for.
pub fn check(config: &str, wanted: Use) -> Result<()> {
    let first = match wanted {
        Use::Schedule => 0,
        Use::AsAsked => 1,
    };
    let missing: Vec<String> = NEEDED[first..]
        .iter()
        .filter(|(name, values, _)| !is_set(config, name, values))
        .map(|(name, _, purpose)| format!("{name} ({purpose})"))
        .collect();
    ensure!(missing.is_empty(), "it is built without {}", missing.join(", "));
    Ok(())
}

/// Whether `name` is set to one of the letters in `values`.
fn is_set(config: &str, name: &str, values: &str) -> bool {
    config.lines().any(|line| {
        line.strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('='))
            .is_some_and(|value| value.len() == 1 && values.contains(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "CONFIG_SCHED_CLASS_EXT=y\nCONFIG_DEBUG_INFO_BTF=y\nCONFIG_BPF_JIT=y\n\
                        CONFIG_KVM=m\nCONFIG_BLK_DEV_INITRD=y\n";

    #[test]
    fn a_kernel_with_everything_passes() {
        check(GOOD, Use::Schedule).unwrap();
    }

    #[test]
    fn what_is_missing_is_named_with_its_purpose() {
        let config =
            GOOD.replace("CONFIG_SCHED_CLASS_EXT=y", "# CONFIG_SCHED_CLASS_EXT is not set");
        let message = check(&config, Use::Schedule).unwrap_err().to_string();
        assert_eq!(
            message,
            "it is built without CONFIG_SCHED_CLASS_EXT (sched_ext, the class that schedulers in BPF belong to)"
        );
        check(&config, Use::AsAsked).unwrap();
    }

    #[test]
    fn longer_names_do_not_count() {
        let config = GOOD.replace("CONFIG_KVM=m", "CONFIG_KVM_AMD=m");
        assert!(check(&config, Use::AsAsked).unwrap_err().to_string().contains("CONFIG_KVM "));
    }

    #[test]
    fn a_module_does_not_do_where_it_must_be_built_in() {
        let config = GOOD.replace("DEBUG_INFO_BTF=y", "DEBUG_INFO_BTF=m");
        assert!(check(&config, Use::AsAsked).is_err());
    }
}
