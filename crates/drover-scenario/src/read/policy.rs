// SPDX-License-Identifier: GPL-2.0-only
//! Reads the policy's parameters, and finds those that a setting names without saying so.

use super::format::{PolicyTable, Top};
use drover_core::nearest::hint;
use drover_core::params::Params;
use drover_core::toml_file::{Keys, Read, Table};
use drover_core::toml_file::{Setting, fault};

/// The table of the scenario that has the parameters.
const POLICY: &str = "policy";

/// Reads `[policy]` of a scenario. What is not said is as the daemon has it.
pub(super) fn read_policy(top: &Table<Top>) -> Read<Params> {
    let default = Params::default();
    let Some(table) = top.table::<PolicyTable>(POLICY)? else { return Ok(default) };
    let ns = |ms: Option<f64>, ns: u64| ms.map_or(ns, |ms| (ms * 1e6).round() as u64);
    let permille = table.shared_core_permille;
    let params = Params {
        slice_ns: ns(table.slice_ms, default.slice_ns),
        wake_credit_ns: ns(table.wake_credit_ms, default.wake_credit_ns),
        claim_bound_ns: ns(table.claim_bound_ms, default.claim_bound_ns),
        preempt_gain_ns: ns(table.preempt_gain_ms, default.preempt_gain_ns),
        steal_gain_ns: ns(table.steal_gain_ms, default.steal_gain_ns),
        wait_bound_ns: ns(table.wait_bound_ms, default.wait_bound_ns),
        skew_max_ns: ns(table.skew_max_ms, default.skew_max_ns),
        hold_max_ns: ns(table.hold_max_ms, default.hold_max_ns),
        judge_window_ns: ns(table.judge_window_ms, default.judge_window_ns),
        shared_core_permille: permille.map_or(default.shared_core_permille, u64::from),
    };
    if params.slice_ns >= params.wait_bound_ns {
        let what = "slice_ms is not below wait_bound_ms";
        return Err(table.error("slice_ms", what, "give a shorter slice or a longer bound"));
    }
    Ok(params)
}

/// Reads settings. One whose key is no path is of the scenario's top level or of the policy.
pub(super) fn read_settings(given: &[String]) -> Read<Vec<Setting>> {
    let mut settings = given.iter().map(|it| Setting::parse(it)).collect::<Read<Vec<_>>>()?;
    for setting in &mut settings {
        let [key] = &setting.path[..] else { continue };
        if PolicyTable::KEYS.contains(&key.as_str()) {
            setting.path.insert(0, POLICY.to_owned());
        } else if !Top::KEYS.contains(&key.as_str()) {
            let known = Top::KEYS.iter().chain(PolicyTable::KEYS).copied();
            return Err(fault(
                &setting.given,
                &format!("unknown key \"{key}\""),
                &hint(key, known),
            ));
        }
    }
    Ok(settings)
}
