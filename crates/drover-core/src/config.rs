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
//! [[set]]
//! name = "shop"
//! vms = ["web1", "db"]
//! kind = "affine"
//!
//! [numa]
//! move_mib_per_s = 100
//! ```
//!
//! Where several rules match a VM all of them apply, in the order of the file: the later goes over the
//! earlier, value by value. So general rules stand first and exceptions after them.

use crate::asked::{Asked, Consolidate, HOST, Key, Limit, NO_POOLS};
use crate::percent;
use crate::place::{Heuristic, Kind, Within};
use crate::resolve::Layer;
use crate::scenario::keys;
use crate::scenario::reader::Reader;
use crate::scenario::{ScenarioError, Source};
use crate::sets::{self, SetSpec};
use crate::tree::{PoolSpec, Tree};
use glob::Pattern;

/// Memory moves that fast unless it is said: a few hundredths of what one node's memory can do.
const MOVE_MIB_PER_S: u32 = 256;
const MOVE_MIB_PER_S_MAX: u32 = 1 << 16;

/// A host's configuration, checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    file: String,
    pools: Vec<(PoolSpec, usize)>,
    rules: Vec<Rule>,
    sets: Vec<(SetSpec, usize)>,
    move_mib_per_s: Option<u32>,
    placement: Heuristic,
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
    pub fn parse(text: &str, file: &str) -> Result<Self, ScenarioError> {
        let source = Source { file, text, read: &|_| Err("it stands alone".to_owned()) };
        let table = source.table("docs/operating.md")?;
        let top = Reader::new(&source, keys::CONFIG, 0, table.get_ref())?;
        let readers = top.tables("pool", keys::CONFIG_POOL)?;
        let specs = readers.iter().map(read_pool).collect::<Result<Vec<PoolSpec>, _>>()?;
        Tree::of(&specs).map_err(|fault| {
            let at = specs.iter().rposition(|spec| spec.name == fault.pool).expect("one of them");
            let what = format!("pool \"{}\" {}", fault.pool, fault.what);
            readers[at].error("name", what, fault.fix)
        })?;
        let lines = readers.iter().map(Reader::line);
        let pools = specs.into_iter().zip(lines).collect();
        let rules = top.tables("vm", keys::CONFIG_VM)?;
        let rules = rules.iter().map(read_rule).collect::<Result<_, _>>()?;
        let sets = read_sets(&top.tables("set", keys::CONFIG_SET)?)?;
        let numa = top.table("numa", keys::CONFIG_NUMA)?;
        let (mut move_mib_per_s, mut placement) = (None, None);
        if let Some(numa) = numa {
            move_mib_per_s = numa.whole32("move_mib_per_s", 0..=MOVE_MIB_PER_S_MAX)?;
            placement = numa.word("placement", &Heuristic::WORDS)?;
        }
        let (file, placement) = (file.to_owned(), placement.unwrap_or_default());
        Ok(Self { file, pools, rules, sets, move_mib_per_s, placement })
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

    /// What its rules ask for a VM of that name, in their order.
    pub fn layers(&self, vm: &str) -> Vec<Layer> {
        let matching = self.rules.iter().filter(|rule| rule.pattern.matches(vm));
        let layer = |rule: &Rule| Layer {
            origin: format!("{} ({})", self.place(rule.line), rule.pattern),
            of_name: true,
            asked: rule.asked.clone(),
        };
        matching.map(layer).collect()
    }

    fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.file)
    }
}

fn read_pool(reader: &Reader) -> Result<PoolSpec, ScenarioError> {
    let name = reader.need("name", reader.text("name")?, "\"prod\"")?;
    let spec = PoolSpec::named(name);
    if let Some((word, meaning)) = NO_POOLS.iter().find(|(word, _)| name == *word) {
        let what = format!("no pool can be called \"{word}\"");
        let fix = format!("that is the word for {meaning}; choose another");
        return Err(reader.error("name", what, fix));
    }
    let limit: Option<Limit> = reader.parsed("limit", str::parse)?;
    Ok(PoolSpec {
        parent: reader.text("parent")?.filter(|parent| *parent != HOST).map(str::to_owned),
        shares: reader.shares("shares")?.unwrap_or(spec.shares),
        reservation_mcpu: reader.parsed("reservation", percent::parse)?.unwrap_or(0),
        limit_mcpu: limit.and_then(Limit::mcpu),
        expandable: reader.truth("expandable")?.unwrap_or(spec.expandable),
        cosched: reader.cosched("cosched")?,
        ..spec
    })
}

fn read_sets(readers: &[Reader]) -> Result<Vec<(SetSpec, usize)>, ScenarioError> {
    let read = |reader: &Reader| {
        let name = reader.need("name", reader.text("name")?, "\"shop\"")?;
        let vms = reader.need("vms", reader.texts("vms")?, "[\"web1\", \"db\"]")?;
        Ok(SetSpec {
            name: name.to_owned(),
            vms: vms.into_iter().map(str::to_owned).collect(),
            kind: reader.need("kind", reader.word("kind", &Kind::WORDS)?, "\"affine\"")?,
            within: reader.word("within", &Within::WORDS)?.unwrap_or_default(),
            hard: reader.truth("hard")?.unwrap_or(false),
        })
    };
    let specs = readers.iter().map(read).collect::<Result<Vec<SetSpec>, _>>()?;
    sets::check(&specs).map_err(|fault| {
        let at = specs.iter().rposition(|spec| spec.name == fault.set).expect("one of them");
        readers[at].error(fault.key, format!("set \"{}\" {}", fault.set, fault.what), fault.fix)
    })?;
    Ok(specs.into_iter().zip(readers.iter().map(Reader::line)).collect())
}

fn read_rule(reader: &Reader) -> Result<Rule, ScenarioError> {
    let pattern = reader.need("name", reader.text("name")?, "\"web*\"")?;
    let pattern = Pattern::new(pattern).map_err(|error| {
        let what = format!("\"{pattern}\" is no pattern: {}", error.msg);
        reader.error(
            "name",
            what,
            "use letters, * for any of them, ? for one, [ab] for one of some",
        )
    })?;
    let asked = Asked {
        shares: reader.shares("shares")?,
        reservation_mcpu: reader.parsed("reservation", percent::parse)?,
        limit: reader.parsed("limit", str::parse)?,
        burst_us: 0,
        pool: reader.text("pool")?.map(str::to_owned),
        cosched: reader.cosched("cosched")?,
        partition: reader.text("partition")?.map(str::to_owned),
        max_per_node: reader.number_or_word("max_per_node", "a number of vCPUs, or \"none\"")?,
        consolidate: reader.word("consolidate", &Consolidate::WORDS)?,
    };
    if let (Some(reserved), Some(Limit::At(limit))) = (asked.reservation_mcpu, asked.limit) {
        if limit < reserved {
            let (limit, reserved) = (percent::text(limit), percent::text(reserved));
            let what = format!("{pattern} is limited to {limit} and has {reserved} reserved");
            let fix = "raise the limit or lower the reservation";
            return Err(reader.error(Key::Limit.name(), what, fix));
        }
    }
    Ok(Rule { pattern, asked, line: reader.line() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::MaxPerNode;

    const GOOD: &str = r#"
[[pool]]
name = "prod"
shares = "high"
reservation = "400%"

[[pool]]
name = "web"
parent = "prod"
limit = "200%"
expandable = false

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
"#;

    fn complaint(old: &str, new: &str) -> String {
        assert!(GOOD.contains(old), "{old}");
        let text = GOOD.replacen(old, new, 1);
        Config::parse(&text, "d.toml").unwrap_err().to_string()
    }

    #[test]
    fn pools_and_rules_are_read_with_their_lines() {
        let config = Config::parse(GOOD, "d.toml").unwrap();
        let pools: Vec<_> = config.pools().collect();
        assert_eq!((pools[0].1.as_str(), pools[1].1.as_str()), ("d.toml:2", "d.toml:7"));
        assert_eq!((pools[0].0.reservation_mcpu, pools[1].0.limit_mcpu), (4000, Some(2000)));
        let layers = config.layers("web1");
        let origins: Vec<_> = layers.iter().map(|layer| layer.origin.as_str()).collect();
        assert_eq!(origins, ["d.toml:13 (*)", "d.toml:17 (web*)"], "both match, the later is last");
        assert_eq!(config.layers("db").len(), 1);
        assert_eq!((layers[1].asked.max_per_node, layers[1].asked.consolidate), {
            (Some(MaxPerNode::At(2)), Some(Consolidate::On))
        });
        let sets: Vec<_> = config.sets().collect();
        assert_eq!((sets[0].1.as_str(), sets[1].0.within), ("d.toml:25", Within::Llc));
        assert_eq!((config.move_mib_per_s(), config.placement()), (64, Heuristic::Spread));
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
                "d.toml:21: web* is limited to 50% and has 60% reserved; \
                 raise the limit or lower the reservation",
            ),
            (
                "\"web*\"",
                "\"web[\"",
                "d.toml:18: \"web[\" is no pattern: invalid range pattern; \
                 use letters, * for any of them, ? for one, [ab] for one of some",
            ),
            (
                "max_per_node = 2",
                "max_per_node = 0",
                "d.toml:22: max_per_node = 0 is invalid in drover.toml [[vm]]; give a number of vCPUs, or \
                 \"none\"",
            ),
            (
                "\"web2\"]",
                "\"web1\"]",
                "d.toml:34: set \"far\" cannot be kept: \"shop\" has VMs db and web1 together, \"far\" has \
                 them apart, and both are hard; leave out that one of them is hard, or take one of these VMs \
                 out of it",
            ),
            (
                "\"spread\"",
                "\"sprad\"",
                "d.toml:41: unknown placement \"sprad\" in drover.toml [numa]; did you mean \"spread\"?",
            ),
            (
                "name = \"*\"\n",
                "",
                "d.toml:13: drover.toml [[vm]] has no name; add one, such as name = \"web*\"",
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
