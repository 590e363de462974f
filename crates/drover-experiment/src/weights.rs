// SPDX-License-Identifier: GPL-2.0-only
//! Shares in the words of cgroups: `cpu.weight`, a whole number from 1 to 10,000.
//!
//! The kernel's own scheduler, and others, know shares only so. Weights count among siblings, so
//! all of them can be scaled alike: the VM with most shares is given 10,000, which rounds the others
//! least. Worked example: shares 1000 and 7000 become 1429 and 10,000, a ratio of 1 : 6.998.

const WEIGHT_MAX: u32 = 10_000;
/// The default weight, of a cgroup that was given none.
pub(crate) const WEIGHT_NORMAL: u32 = 100;

/// The weights of sibling VMs with these shares. More than 10,000 times the shares of a sibling
/// cannot be expressed: that sibling has weight 1.
pub(crate) fn weights(shares: &[u32]) -> Vec<u32> {
    let most = shares.iter().copied().max().unwrap_or(1).max(1);
    let scaled = |shares: &u32| {
        let weight = f64::from(*shares) * f64::from(WEIGHT_MAX) / f64::from(most);
        // Between 0 and 10,000, so the conversion is exact.
        (weight.round() as u32).max(1)
    };
    shares.iter().map(scaled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_worked_example_of_the_header_holds() {
        assert_eq!(weights(&[1000, 7000]), [1429, 10_000]);
        assert_eq!(weights(&[5]), [10_000]);
        assert!(weights(&[]).is_empty());
    }

    #[test]
    fn the_least_weight_is_1() {
        assert_eq!(weights(&[1, 1_000_000]), [1, 10_000]);
    }

    proptest! {
        #[test]
        fn ratios_up_to_a_hundred_are_kept_within_half_a_percent(a in 1u32..1000, factor in 1u32..100) {
            let pair = weights(&[a, a * factor]);
            let ratio = f64::from(pair[1]) / f64::from(pair[0]);
            prop_assert!((ratio / f64::from(factor) - 1.0).abs() <= 0.005 + 1e-9);
        }

        #[test]
        fn weights_are_in_range(shares in prop::collection::vec(1u32..=1_000_000, 1..9)) {
            prop_assert!(weights(&shares).iter().all(|weight| (1..=10_000).contains(weight)));
        }
    }
}
