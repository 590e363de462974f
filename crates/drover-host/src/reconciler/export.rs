// SPDX-License-Identifier: GPL-2.0-only
//! `drover config export`: the configuration with all orders over it, as a file that says the same without them.

use super::Reconciler;
use crate::saved::{merged, merged_partitions, merged_sets};
use anyhow::Result;
use drover_core::printable::printable;

impl Reconciler {
    /// The text of that file.
    pub(super) fn export(&self) -> Result<String> {
        let (config, saved) = (&self.config, &self.saved);
        let tree = merged(config.pools().map(|(spec, _)| spec), saved)?;
        let pools = tree.pools().iter().map(|pool| pool.spec.clone()).collect();
        let partitions = merged_partitions(config.partitions().map(|(spec, _)| spec), saved)?;
        let sets = merged_sets(config.sets().map(|(set, _)| set), saved)?;
        let all = config.with_orders(pools, partitions.specs().to_vec(), sets, &saved.vms);
        let mut text =
            "# Written by `drover config export`: what drover.toml says, and all orders over it.\n"
                .to_owned();
        if saved.auto_partitions {
            text += "# Not in it: `drover partition auto --on`.\n";
        }
        if !saved.live.is_empty() {
            let names: Vec<String> = saved.live.keys().map(|name| printable(name)).collect();
            text += &format!(
                "# Not in it: what is ordered for VMs while they run: {}.\n",
                names.join(", ")
            );
        }
        Ok(format!("{text}\n{}", all.text()))
    }
}
