// SPDX-License-Identifier: GPL-2.0-only
//! A configuration as the text of a file that says the same.
//!
//! The order of tables of one kind is kept, as of rules for VMs a later one goes over an earlier one. Comments of the file
//! it was read from are not in it.

use super::{Config, Rule, Rules};
use crate::asked::{Asked, Key};
use crate::partition::{PartitionSpec, slice_text};
use crate::percent;
use crate::place::Heuristic;
use crate::sets::SetSpec;
use crate::tree::PoolSpec;
use glob::Pattern;
use std::collections::BTreeMap;

/// Keys with their values, as TOML has these; none: it is left out.
type Keys = Vec<(&'static str, Option<String>)>;

impl Config {
    /// This, with what was ordered over it: these pools, partitions and sets in the place of its own, and a rule for each
    /// of these VMs after its own.
    #[must_use]
    pub fn with_orders(
        &self,
        pools: Vec<PoolSpec>,
        partitions: Vec<PartitionSpec>,
        sets: Vec<SetSpec>,
        vms: &BTreeMap<String, Asked>,
    ) -> Self {
        // Nobody is told lines of a file that is not there yet.
        let line = 0;
        let rule = |(name, asked): (&String, &Asked)| {
            let pattern = Pattern::new(&Pattern::escape(name)).expect("it is escaped");
            Rule { pattern, asked: asked.clone(), line }
        };
        let rules = self.rules.all.iter().cloned().chain(vms.iter().map(rule)).collect();
        Self {
            pools: pools.into_iter().map(|spec| (spec, line)).collect(),
            partitions: partitions.into_iter().map(|spec| (spec, line)).collect(),
            sets: sets.into_iter().map(|spec| (spec, line)).collect(),
            rules: Rules::of(rules),
            ..self.clone()
        }
    }

    /// The text of a file that says the same.
    pub fn text(&self) -> String {
        let Self {
            file: _,
            pools,
            partitions,
            rules,
            sets,
            move_mib_per_s,
            placement,
            host_permille,
        } = self;
        let mut tables: Vec<String> = Vec::new();
        tables.extend(pools.iter().map(|(spec, _)| table("[[pool]]", pool(spec))));
        tables.extend(partitions.iter().map(|(spec, _)| table("[[partition]]", partition(spec))));
        tables.extend(rules.all.iter().map(|it| table("[[vm]]", rule(it))));
        tables.extend(sets.iter().map(|(spec, _)| table("[[set]]", set(spec))));
        let chosen = (*placement != Heuristic::default()).then(|| quoted(&placement.to_string()));
        let numa = vec![
            ("move_mib_per_s", move_mib_per_s.map(|speed| speed.to_string())),
            ("placement", chosen),
        ];
        let kept = host_permille.map(|permille| quoted(&percent::text(permille)));
        let host = vec![("reservation_per_pcpu", kept)];
        let one = [("[numa]", numa), ("[host]", host)].into_iter();
        let one = one.filter(|(_, keys)| keys.iter().any(|(_, value)| value.is_some()));
        tables.extend(one.map(|(head, keys)| table(head, keys)));
        tables.join("\n")
    }
}

fn table(head: &str, keys: Keys) -> String {
    let lines = keys.into_iter().filter_map(|(key, value)| Some(format!("{key} = {}\n", value?)));
    std::iter::once(format!("{head}\n")).chain(lines).collect()
}

/// A text as TOML has it, which has no control characters here: as JSON does.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A number as it is, anything else as a text.
fn plain(text: &str) -> String {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.to_owned() } else { quoted(text) }
}

fn pool(spec: &PoolSpec) -> Keys {
    // Only cgroups say the burst.
    let PoolSpec { name, parent, shares, reservation_mcpu, limit_mcpu, .. } = spec;
    let PoolSpec { burst_us: _, expandable, cosched, .. } = spec;
    let reserved = (*reservation_mcpu > 0).then(|| quoted(&percent::text(*reservation_mcpu)));
    vec![
        ("name", Some(quoted(name))),
        ("parent", parent.as_deref().map(quoted)),
        ("shares", Some(plain(&shares.to_string()))),
        ("reservation", reserved),
        ("limit", limit_mcpu.map(|mcpu| quoted(&percent::text(mcpu)))),
        ("expandable", Some(expandable.to_string())),
        ("cosched", cosched.map(|mode| quoted(&mode.to_string()))),
    ]
}

fn partition(PartitionSpec { name, cpus, policy, slice_ns }: &PartitionSpec) -> Keys {
    vec![
        ("name", Some(quoted(name))),
        ("cpus", Some(quoted(&cpus.to_string()))),
        ("policy", Some(quoted(&policy.to_string()))),
        ("slice", slice_ns.map(|ns| quoted(&slice_text(ns)))),
    ]
}

fn rule(rule: &Rule) -> Keys {
    let value = |key: Key| (key.name(), rule.asked.text(key).map(|text| plain(&text)));
    let name = [("name", Some(quoted(rule.pattern.as_str())))];
    name.into_iter().chain(Key::ALL.map(value)).collect()
}

fn set(SetSpec { name, vms, kind, within, hard }: &SetSpec) -> Keys {
    let vms: Vec<String> = vms.iter().map(|vm| quoted(vm)).collect();
    vec![
        ("name", Some(quoted(name))),
        ("vms", Some(format!("[{}]", vms.join(", ")))),
        ("kind", Some(quoted(&kind.to_string()))),
        ("within", Some(quoted(&within.to_string()))),
        ("hard", Some(hard.to_string())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::PartitionPolicy;
    use crate::place::{Kind, Within};
    use crate::settings::Cosched;
    use crate::shares::Shares;

    /// What a configuration says, without where it stands.
    fn said(config: &Config) -> Config {
        let rule = |it: &Rule| Rule { line: 0, ..it.clone() };
        Config {
            file: String::new(),
            pools: config.pools.iter().map(|(spec, _)| (spec.clone(), 0)).collect(),
            partitions: config.partitions.iter().map(|(spec, _)| (spec.clone(), 0)).collect(),
            sets: config.sets.iter().map(|(spec, _)| (spec.clone(), 0)).collect(),
            rules: Rules::of(config.rules.all.iter().map(rule).collect()),
            ..config.clone()
        }
    }

    fn is_read_the_same(config: &Config) {
        let text = config.text();
        let read = Config::parse(&text, "d.toml").unwrap_or_else(|fault| panic!("{fault}\n{text}"));
        assert_eq!(said(&read), said(config), "{text}");
    }

    fn asked(values: &[(Key, &str)]) -> Asked {
        let mut asked = Asked::default();
        values.iter().for_each(|(key, text)| asked.read(*key, text).unwrap());
        asked
    }

    #[test]
    fn nothing_is_nothing_and_a_file_says_what_it_said() {
        assert_eq!(Config::default().text(), "");
        is_read_the_same(&Config::parse(super::super::tests::GOOD, "d.toml").unwrap());
    }

    #[test]
    fn every_kind_of_setting_is_read_as_it_was_written() {
        let all = [
            (Key::Shares, &["high", "low", "normal", "700", "700/vcpu"][..]),
            (Key::Reservation, &["0%", "150%", "12.5%"]),
            (Key::Limit, &["none", "200%", "0.1%"]),
            (Key::Pool, &["prod", "host"]),
            (Key::Cosched, &["auto", "off", "strict", "relaxed", "skew", "gang"]),
            (Key::Partition, &["p0", "default"]),
            (Key::MaxPerNode, &["2", "none"]),
            (Key::Consolidate, &["off", "on", "auto"]),
        ];
        assert_eq!(all.map(|(key, _)| key), Key::ALL);
        let mut vms: BTreeMap<String, Asked> = BTreeMap::new();
        for (key, texts) in all {
            let one = |text: &&str| (format!("{} {text}", key.name()), asked(&[(key, text)]));
            vms.extend(texts.iter().map(one));
        }
        let whole = all.map(|(key, texts)| (key, texts[1]));
        vms.insert("all \"of\" \\ it: ü*[a]?".to_owned(), asked(&whole));
        let more = PoolSpec {
            parent: Some("prod".to_owned()),
            shares: Shares::Exact(9),
            reservation_mcpu: 125,
            limit_mcpu: Some(1500),
            expandable: false,
            cosched: Some(Cosched::Gang),
            ..PoolSpec::named("more")
        };
        let partitions = PartitionPolicy::WORDS.iter().enumerate();
        let partitions = partitions.map(|(number, (_, policy))| PartitionSpec {
            name: format!("p{number}"),
            cpus: format!("{number},{}", number + 8).parse().unwrap(),
            policy: *policy,
            slice_ns: [None, Some(3_000_000), Some(1_500_000)][number % 3],
        });
        let set = |name: &str, kind, within, hard| SetSpec {
            name: name.to_owned(),
            vms: vec![format!("{name} 1"), format!("{name} 2")],
            kind,
            within,
            hard,
        };
        let sets = vec![
            set("a", Kind::Affine, Within::Node, false),
            set("b", Kind::AntiAffine, Within::Llc, true),
        ];
        let below = "[[vm]]\nname = \"*\"\nshares = 5\n\n[numa]\nmove_mib_per_s = 0\n";
        let below = Config::parse(below, "d.toml").unwrap();
        let pools = vec![PoolSpec::named("prod"), more];
        let config = below.with_orders(pools, partitions.collect(), sets, &vms);
        is_read_the_same(&config);
        for (name, ordered) in &vms {
            let layers = config.layers(name);
            assert_eq!(layers.iter().map(|it| &it.asked).collect::<Vec<_>>()[1..], [ordered]);
        }
        let percents = [("\"10%\"", 100), ("\"0.1%\"", 1)];
        for (text, permille) in percents {
            let config = Config { host_permille: Some(permille), ..Config::default() };
            assert!(config.text().contains(text));
            is_read_the_same(&config);
        }
        for (_, placement) in Heuristic::WORDS {
            is_read_the_same(&Config { placement, ..Config::default() });
        }
    }
}
