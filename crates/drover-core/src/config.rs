// SPDX-License-Identifier: GPL-2.0-only
//! The configuration of a host: pools, and what VMs of certain names are to have.
//!
//! ```toml
//! [[pool]]
//! name = "prod"
//! shares = "high"
//! reservation = "400%"
//!
//! [[vm]]
//! name = "web*"
//! pool = "prod"
//! limit = "200%"
//!
//! [[partition]]
//! name = "io"
//! cpus = "2-3"
//! policy = "credit"
//!
//! [[set]]
//! name = "shop"
//! vms = ["web1", "db"]
//! kind = "affine"
//!
//! [numa]
//! move_mib_per_s = 100
//!
//! [host]
//! reservation_per_pcpu = "20%"
//! ```
//!
//! Where several rules match a VM all of them apply, in the order of the file: the later goes over the
//! earlier, value by value. So general rules stand first and exceptions after them.

mod write;

use crate::asked::{Asked, Consolidate, HOST, Key, Limit, MaxPerNode, NO_POOLS};
use crate::cpu_list::CpuList;
use crate::partition::{PartitionPolicy, PartitionSpec, Partitions, parse_slice};
use crate::percent;
use crate::place::Heuristic;
use crate::resolve::Layer;
use crate::sets::{SetSpec, SetTable, read_sets};
use crate::settings::{Cosched, VcpuLimit};
use crate::shares::GivenShares;
use crate::tables;
use crate::toml_file::{FileError, Read, Source, Table, whole};
use crate::tree::pcpus::HOST_PERMILLE;
use crate::tree::{PoolChange, PoolSpec, Tree};
use glob::Pattern;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::{HashMap, HashSet};

/// Memory moves that fast unless it is said: a few hundredths of what one node's memory can do.
const MOVE_MIB_PER_S: u32 = 256;
const MOVE_MIB_PER_S_MAX: u32 = 1 << 16;
/// The host's own tasks keep no more than half.
const HOST_PERMILLE_MAX: u32 = 500;

tables! {
    "drover.toml" Top {
        pool: Option<IgnoredAny>;
        partition: Option<IgnoredAny>;
        vm: Option<IgnoredAny>;
        set: Option<IgnoredAny>;
        numa: Option<IgnoredAny>;
        host: Option<IgnoredAny>;
    }

    "drover.toml [host]" HostTable {
        reservation_per_pcpu: Option<Percent>;
    }

    "drover.toml [numa]" NumaTable {
        move_mib_per_s: Option<u32> = whole(0, MOVE_MIB_PER_S_MAX);
        placement: Option<Heuristic>;
    }

    "drover.toml [[pool]]" PoolTable {
        name: String;
        parent: Option<String>;
        shares: Option<GivenShares>;
        reservation: Option<Percent>;
        limit: Option<Limit>;
        expandable: Option<bool>;
        cosched: Option<Cosched>;
    }

    "drover.toml [[partition]]" PartitionTable {
        name: String;
        cpus: CpuList;
        policy: Option<PartitionPolicy>;
        slice: Option<Slice>;
    }

    "drover.toml [[vm]]" VmTable {
        name: String;
        shares: Option<GivenShares>;
        reservation: Option<Percent>;
        limit: Option<Limit>;
        pool: Option<String>;
        cosched: Option<Cosched>;
        partition: Option<String>;
        max_per_node: Option<GivenMost>;
        consolidate: Option<Consolidate>;
    }
}

/// A number of vCPUs, or `"none"`.
#[derive(Deserialize, Clone, Copy)]
#[serde(try_from = "toml::Value")]
pub(crate) struct GivenMost(MaxPerNode);

impl TryFrom<toml::Value> for GivenMost {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let number = value.as_integer().map(|number| number.to_string());
        let text = number.as_deref().or(value.as_str()).unwrap_or_default();
        let wants = |_| "give a number of vCPUs, or \"none\"".to_owned();
        text.parse().map(Self).map_err(wants)
    }
}

/// `3ms`, in ns.
#[derive(Deserialize, Clone, Copy)]
#[serde(try_from = "String")]
pub(crate) struct Slice(u64);

impl TryFrom<String> for Slice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_slice(&text).map(Self)
    }
}

/// `150%`, in thousandths of a pCPU.
#[derive(Deserialize, Clone, Copy)]
#[serde(try_from = "String")]
pub(crate) struct Percent(u32);

impl TryFrom<String> for Percent {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        percent::parse(&text).map(Self)
    }
}

/// A host's configuration, checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    file: String,
    pools: Vec<(PoolSpec, usize)>,
    partitions: Vec<(PartitionSpec, usize)>,
    rules: Rules,
    sets: Vec<(SetSpec, usize)>,
    move_mib_per_s: Option<u32>,
    placement: Heuristic,
    host_permille: Option<u32>,
}

/// All rules for VMs. Most are for one name, and a VM is not held against those of all others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Rules {
    all: Vec<Rule>,
    /// Those for one name, by that.
    of_name: HashMap<String, Vec<usize>>,
    /// Those for several.
    of_pattern: Vec<usize>,
}

impl Rules {
    fn of(all: Vec<Rule>) -> Self {
        let mut rules = Self::default();
        for (place, rule) in all.iter().enumerate() {
            let pattern = rule.pattern.as_str();
            if pattern.contains(['*', '?', '[']) {
                rules.of_pattern.push(place);
            } else {
                rules.of_name.entry(pattern.to_owned()).or_default().push(place);
            }
        }
        Self { all, ..rules }
    }

    /// Those that match that name, in their order.
    fn matching(&self, name: &str) -> impl Iterator<Item = &Rule> {
        let of_name = self.of_name.get(name).into_iter().flatten();
        let of_pattern = self.of_pattern.iter().filter(|it| self.all[**it].pattern.matches(name));
        let mut places: Vec<usize> = of_name.chain(of_pattern).copied().collect();
        places.sort_unstable();
        places.into_iter().map(|place| &self.all[place])
    }
}

/// What VMs of some names are to have.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    pattern: Pattern,
    asked: Asked,
    line: usize,
}

impl Config {
    /// Reads the text of a configuration file; `file` is its name in messages.
    ///
    /// # Errors
    /// The first fault found, in one line: where, what, and how to fix it.
    pub fn parse(text: &str, file: &str) -> Result<Self, FileError> {
        let read = &|_: &str| Err("it stands alone".to_owned());
        let source = Source::new(file, text, "docs/reference.md", read);
        let top = source.table()?.read::<Top>()?;
        let tables = top.tables::<PoolTable>("pool")?;
        let specs = tables.iter().map(read_pool).collect::<Read<Vec<PoolSpec>>>()?;
        Tree::of(&specs).map_err(|fault| {
            let at = specs.iter().rposition(|spec| spec.name == fault.pool).expect("one of them");
            let what = format!("pool \"{}\" {}", fault.pool, fault.what);
            tables[at].error("name", what, fault.fix)
        })?;
        let pools = specs.into_iter().zip(tables.iter().map(Table::line)).collect();
        let partitions = read_partitions(&top.tables::<PartitionTable>("partition")?)?;
        let rules = top.tables::<VmTable>("vm")?.iter().map(read_rule).collect::<Result<_, _>>()?;
        let rules = Rules::of(rules);
        let numa = top.table::<NumaTable>("numa")?;
        let move_mib_per_s = numa.as_ref().and_then(|numa| numa.move_mib_per_s);
        let placement = numa.as_ref().and_then(|numa| numa.placement).unwrap_or_default();
        let sets = read_sets(&top.tables::<SetTable>("set")?, <[String]>::to_vec)?;
        let host_permille =
            top.table::<HostTable>("host")?.as_ref().map(read_host).transpose()?.flatten();
        let file = file.to_owned();
        Ok(Self { file, pools, partitions, rules, sets, move_mib_per_s, placement, host_permille })
    }

    /// What the host's own tasks keep of each pCPU, in thousandths.
    pub fn host_permille(&self) -> u32 {
        self.host_permille.unwrap_or(HOST_PERMILLE)
    }

    /// How homes of VMs are chosen.
    pub fn placement(&self) -> Heuristic {
        self.placement
    }

    /// Its sets, each with where it stands.
    pub fn sets(&self) -> impl Iterator<Item = (&SetSpec, String)> {
        self.sets.iter().map(|(spec, line)| (spec, self.place(*line)))
    }

    /// How fast memory of VMs is moved to their homes, MiB/s; 0: not at all.
    pub fn move_mib_per_s(&self) -> u32 {
        self.move_mib_per_s.unwrap_or(MOVE_MIB_PER_S)
    }

    /// Its pools, each with where it stands.
    pub fn pools(&self) -> impl Iterator<Item = (&PoolSpec, String)> {
        self.pools.iter().map(|(spec, line)| (spec, self.place(*line)))
    }

    /// Its partitions, each with where it stands.
    pub fn partitions(&self) -> impl Iterator<Item = (&PartitionSpec, String)> {
        self.partitions.iter().map(|(spec, line)| (spec, self.place(*line)))
    }

    /// How many rules for VMs it has.
    pub fn rule_count(&self) -> usize {
        self.rules.all.len()
    }

    /// The pools that its rules name and it does not have, each with where the rule stands.
    pub fn unknown_pools(&self) -> impl Iterator<Item = (&str, String)> {
        let there: HashSet<&str> = self.pools.iter().map(|(spec, _)| spec.name.as_str()).collect();
        let is_there = move |name: &str| there.contains(name);
        let named =
            self.rules.all.iter().filter_map(|rule| Some((rule.asked.pool.as_deref()?, rule)));
        let unknown = named.filter(move |(name, _)| *name != HOST && !is_there(name));
        unknown.map(|(name, rule)| (name, self.place(rule.line)))
    }

    /// What its rules ask for a VM of that name, in their order.
    pub fn layers(&self, vm: &str) -> Vec<Layer> {
        let layer = |rule: &Rule| Layer {
            origin: format!("{} ({})", self.place(rule.line), rule.pattern),
            of_name: true,
            asked: rule.asked.clone(),
        };
        self.rules.matching(vm).map(layer).collect()
    }

    fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.file)
    }
}

/// What the host's own tasks keep of each pCPU.
fn read_host(table: &Table<HostTable>) -> Read<Option<u32>> {
    let permille = table.reservation_per_pcpu.map(|it| it.0);
    if permille.is_some_and(|permille| permille > HOST_PERMILLE_MAX) {
        let what = "the host's own tasks would keep more than half of each pCPU".to_owned();
        return Err(table.error("reservation_per_pcpu", what, "give 50% at most, such as 10%"));
    }
    Ok(permille)
}

/// The partitions, each with its line. Whether the host has their pCPUs is not looked at.
fn read_partitions(tables: &[Table<PartitionTable>]) -> Read<Vec<(PartitionSpec, usize)>> {
    let spec = |table: &Table<PartitionTable>| PartitionSpec {
        name: table.name.clone(),
        cpus: table.cpus.clone(),
        policy: table.policy.unwrap_or_default(),
        slice_ns: table.slice.map(|slice| slice.0),
    };
    let specs: Vec<PartitionSpec> = tables.iter().map(spec).collect();
    Partitions::of(specs.clone()).map_err(|fault| {
        let at = specs.iter().rposition(|spec| spec.name == fault.partition).expect("one of them");
        let what = format!("partition \"{}\" {}", fault.partition, fault.what);
        tables[at].error(fault.key, what, fault.fix)
    })?;
    Ok(specs.into_iter().zip(tables.iter().map(Table::line)).collect())
}

fn read_pool(table: &Table<PoolTable>) -> Read<PoolSpec> {
    let name = &table.name;
    if let Some((word, meaning)) = NO_POOLS.iter().find(|(word, _)| name == *word) {
        let what = format!("no pool can be called \"{word}\"");
        let fix = format!("that is the word for {meaning}; choose another");
        return Err(table.error("name", what, fix));
    }
    let asked = PoolChange {
        parent: table.parent.clone(),
        shares: table.shares.map(|given| given.0),
        reservation_mcpu: table.reservation.map(|it| it.0),
        limit: table.limit,
        expandable: table.expandable,
        cosched: table.cosched,
    };
    Ok(asked.of(&PoolSpec::named(name)))
}

fn read_rule(table: &Table<VmTable>) -> Read<Rule> {
    let pattern = Pattern::new(&table.name).map_err(|error| {
        let what = format!("\"{}\" is no pattern: {}", table.name, error.msg);
        let fix = "use letters, * for any of them, ? for one, [ab] for one of some";
        table.error("name", what, fix)
    })?;
    let asked = Asked {
        shares: table.shares.map(|given| given.0),
        reservation_mcpu: table.reservation.map(|it| it.0),
        limit: table.limit,
        burst_us: 0,
        vcpu_limit: VcpuLimit::default(),
        pool: table.pool.clone(),
        cosched: table.cosched,
        partition: table.partition.clone(),
        max_per_node: table.max_per_node.map(|given| given.0),
        consolidate: table.consolidate,
    };
    if let (Some(reserved), Some(Limit::At(limit))) = (asked.reservation_mcpu, asked.limit) {
        if limit < reserved {
            let (limit, reserved) = (percent::text(limit), percent::text(reserved));
            let what = format!("{pattern} is limited to {limit} and has {reserved} reserved");
            let fix = "raise the limit or lower the reservation";
            return Err(table.error(Key::Limit.name(), what, fix));
        }
    }
    Ok(Rule { pattern, asked, line: table.line() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Within;
    use std::time::Instant;

    pub const GOOD: &str = r#"
[[pool]]
name = "prod"
shares = "high"
reservation = "400%"

[[pool]]
name = "web"
parent = "prod"
limit = "200%"
expandable = false

[[partition]]
name = "io"
cpus = "2-3"
policy = "credit"
slice = "5ms"

[[vm]]
name = "*"
shares = "low"

[[vm]]
name = "web*"
shares = 3000
pool = "web"
limit = "none"
max_per_node = 2
consolidate = "on"

[[set]]
name = "shop"
vms = ["web1", "db"]
kind = "affine"
within = "llc"
hard = true

[[set]]
name = "far"
vms = ["db", "web2"]
kind = "anti-affine"
within = "llc"
hard = true

[numa]
move_mib_per_s = 64
placement = "spread"

[host]
reservation_per_pcpu = "20%"
"#;

    fn complaint(old: &str, new: &str) -> String {
        assert!(GOOD.contains(old), "{old}");
        let text = GOOD.replacen(old, new, 1);
        Config::parse(&text, "d.toml").unwrap_err().to_string()
    }

    #[test]
    fn the_time_to_read_rules_grows_with_their_number() {
        let took = |count: usize| {
            let rules = (0..count).map(|it| format!("[[vm]]\nname = \"vm{it}\"\nshares = 5\n"));
            let text: String = rules.collect();
            let begun = Instant::now();
            let config = Config::parse(&text, "d.toml").unwrap();
            let last = config.layers(&format!("vm{}", count - 1));
            assert!(
                last.len() == 1
                    && last[0].origin.starts_with(&format!("d.toml:{} ", 3 * count - 2))
            );
            // As many VMs as there may be.
            assert!((0..2000).all(|it| config.layers(&format!("vm{it}")).len() == 1));
            begun.elapsed()
        };
        took(2000);
        let (few, many) = (took(5000), took(20_000));
        println!("5,000 rules: {few:?}, 20,000: {many:?}");
        assert!(many < few * 10, "{few:?}, {many:?}");
    }

    #[test]
    fn a_rule_for_one_name_stands_among_those_for_several() {
        let text = ["a", "*", "a", "b", "[a]"].map(|name| format!("[[vm]]\nname = \"{name}\"\n"));
        let config = Config::parse(&text.concat(), "d").unwrap();
        let origins: Vec<String> = config.layers("a").into_iter().map(|it| it.origin).collect();
        assert_eq!(origins, ["d:1 (a)", "d:3 (*)", "d:5 (a)", "d:9 ([a])"]);
    }

    #[test]
    fn pools_and_rules_are_read_with_their_lines() {
        let config = Config::parse(GOOD, "d.toml").unwrap();
        let pools: Vec<_> = config.pools().collect();
        assert_eq!((pools[0].1.as_str(), pools[1].1.as_str()), ("d.toml:2", "d.toml:7"));
        assert_eq!((pools[0].0.reservation_mcpu, pools[1].0.limit_mcpu), (4000, Some(2000)));
        let layers = config.layers("web1");
        let origins: Vec<_> = layers.iter().map(|layer| layer.origin.as_str()).collect();
        assert_eq!(origins, ["d.toml:19 (*)", "d.toml:23 (web*)"], "both match, the later is last");
        assert_eq!(config.layers("db").len(), 1);
        assert_eq!((layers[1].asked.max_per_node, layers[1].asked.consolidate), {
            (Some(MaxPerNode::At(2)), Some(Consolidate::On))
        });
        let sets: Vec<_> = config.sets().collect();
        assert_eq!((sets[0].1.as_str(), sets[1].0.within), ("d.toml:31", Within::Llc));
        assert_eq!((config.move_mib_per_s(), config.placement()), (64, Heuristic::Spread));
        assert_eq!(config.host_permille(), 200);
        let empty = Config::parse("", "d.toml").unwrap();
        assert_eq!((empty.layers("db"), empty.move_mib_per_s()), (Vec::new(), MOVE_MIB_PER_S));
    }

    #[test]
    fn faults_are_told_with_line_and_mend() {
        for (old, new, expected) in [
            (
                "shares = \"high\"",
                "share = 1",
                "d.toml:4: unknown key \"share\" in drover.toml [[pool]]; did you mean \"shares\"?",
            ),
            (
                "\"400%\"",
                "400",
                "d.toml:5: reservation = 400 is invalid in drover.toml [[pool]]; give text in quotes, \
                 in one line",
            ),
            (
                "\"400%\"",
                "\"400\"",
                "d.toml:5: reservation = \"400\" is invalid in drover.toml [[pool]]; use a percentage \
                 of one pCPU, such as 150% for one and a half",
            ),
            (
                "parent = \"prod\"",
                "parent = \"web\"",
                "d.toml:8: pool \"web\" is inside itself (web in web); give one of them another parent",
            ),
            (
                "name = \"prod\"",
                "name = \"host\"",
                "d.toml:3: no pool can be called \"host\"; that is the word for no pool; choose another",
            ),
            (
                "limit = \"none\"",
                "limit = \"50%\"\nreservation = \"60%\"",
                "d.toml:27: web* is limited to 50% and has 60% reserved; \
                 raise the limit or lower the reservation",
            ),
            (
                "\"web*\"",
                "\"web[\"",
                "d.toml:24: \"web[\" is no pattern: invalid range pattern; \
                 use letters, * for any of them, ? for one, [ab] for one of some",
            ),
            (
                "\"20%\"",
                "\"60%\"",
                "d.toml:50: the host's own tasks would keep more than half of each pCPU; give 50% at most, \
                 such as 10%",
            ),
            (
                "name = \"*\"\n",
                "",
                "d.toml:19: drover.toml [[vm]] has no name; add one, such as name = \"vm0\"",
            ),
        ] {
            assert_eq!(complaint(old, new), expected);
        }
    }

    #[test]
    fn a_file_cut_off_anywhere_is_refused_or_says_what_stands_there() {
        for end in (0..GOOD.len()).filter(|&end| GOOD.is_char_boundary(end)) {
            if let Err(error) = Config::parse(&GOOD[..end], "d.toml") {
                assert!(error.to_string().starts_with("d.toml:"), "{error}");
            }
        }
    }
}
