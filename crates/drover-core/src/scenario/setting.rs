// SPDX-License-Identifier: GPL-2.0-only
//! What is laid over a file before it is read: `host.cores=16`, as `--set` of the command line has it.
//!
//! The key is a path as TOML writes it. Where it meets an array of tables, the next part of it is the name of
//! one: `vm.web.shares=4000`; `vm."web-*".shares` means several. Where it meets the name of a file, what is
//! in that file is changed: `host.cores=16` also where the scenario says `host = "hosts/lab.toml"`. What is then
//! wrong is found where files are read, and told with the setting instead of a line.

use super::table::{Read, ScenarioError};
use crate::nearest::hint;
use crate::printable::printable;
use crate::scenario::is_meant;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    /// As it was given.
    pub(crate) given: String,
    /// The parts of the key.
    pub(crate) path: Vec<String>,
    /// The value, as TOML has it.
    pub(crate) value: String,
}

impl Setting {
    /// Reads `KEY=VALUE`. A value that is no TOML is a text: `clock=real`.
    pub(crate) fn parse(given: &str) -> Read<Self> {
        let refused = |what: &str| fault(given, what, "give KEY=VALUE, such as host.cores=16");
        // A name in quotes may have a = in it.
        let mut cuts = given.match_indices('=').map(|(at, _)| (&given[..at], &given[at + 1..]));
        let key = cuts.find_map(|(key, value)| Some((path_of(key)?, value.trim())));
        let Some((path, value)) = key else {
            return Err(refused("there is no key before a ="));
        };
        if value.is_empty() {
            return Err(refused("there is no value behind the ="));
        }
        let is_toml =
            DeTable::parse(&format!("v = {value}")).is_ok_and(|it| it.get_ref().len() == 1);
        let value = if is_toml { value.to_owned() } else { quoted(value) };
        Ok(Self { given: given.to_owned(), path, value })
    }

    /// Lays it over a table. `value` is its value, with its place; `files` gives the tables in files that were read.
    pub(crate) fn lay<'a>(
        &self,
        table: &mut DeTable<'a>,
        value: &Spanned<DeValue<'a>>,
        files: &Files<'_, 'a>,
    ) -> Result<(), Unlaid> {
        Laying { setting: self, value, files }.over(table, &self.path)
    }
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    // What JSON escapes, TOML escapes alike.
    serde_json::Value::from(text).to_string()
}

/// The fault `what` of a setting.
pub(crate) fn fault(given: &str, what: &str, fix: &str) -> ScenarioError {
    let file = printable(&format!("--set {given}"));
    ScenarioError { file, line: 0, what: printable(what), fix: printable(fix) }
}

/// The parts of a key; `None` if the text is not a key.
fn path_of(key: &str) -> Option<Vec<String>> {
    let text = format!("{key} = 0");
    let mut table = DeTable::parse(&text).ok().filter(|_| !key.contains('\n'))?.into_inner();
    let mut path = Vec::new();
    loop {
        let only = table.keys().next().filter(|_| table.len() == 1)?.get_ref().to_string();
        let value = table.remove(only.as_str())?.into_inner();
        path.push(only);
        match value {
            DeValue::Table(below) => table = below,
            _ => return Some(path),
        }
    }
}

/// Why settings could not be laid over a table.
pub(crate) enum Unlaid {
    /// The file of that name is to be changed, and was not read yet.
    File(String),
    /// Something is wrong.
    Fault(ScenarioError),
}

/// Gives the table in a file that was read.
type Files<'f, 'a> = dyn Fn(&str) -> Result<DeTable<'a>, Unlaid> + 'f;

/// A setting that is being laid over a table.
struct Laying<'s, 'a> {
    setting: &'s Setting,
    value: &'s Spanned<DeValue<'a>>,
    files: &'s Files<'s, 'a>,
}

impl<'a> Laying<'_, 'a> {
    fn wrong(&self, what: &str, fix: &str) -> Unlaid {
        Unlaid::Fault(fault(&self.setting.given, what, fix))
    }

    /// Lays it over `table` at `path`.
    fn over(&self, table: &mut DeTable<'a>, path: &[String]) -> Result<(), Unlaid> {
        let [key, rest @ ..] = path else { return Ok(()) };
        let at = self.value.span().start..self.value.span().start;
        let new_key = || Spanned::new(at.clone(), key.clone().into());
        if rest.is_empty() {
            // With its key: a fault of it is found there.
            table.remove(key.as_str());
            table.insert(new_key(), self.value.clone());
            return Ok(());
        }
        if !table.contains_key(key.as_str()) {
            table.insert(new_key(), Spanned::new(at, DeValue::Table(DeTable::new())));
        }
        match table.get_mut(key.as_str()).map(Spanned::get_mut) {
            Some(DeValue::Table(below)) => self.over(below, rest),
            Some(DeValue::Array(items)) => self.over_named(key, items, rest),
            Some(named) if named.as_str().is_some_and(|it| it.ends_with(".toml")) => {
                let mut of_file = (self.files)(named.as_str().unwrap_or_default())?;
                self.over(&mut of_file, rest)?;
                *named = DeValue::Table(of_file);
                Ok(())
            }
            _ => Err(self.wrong(&format!("{key} is no table"), &format!("set {key} itself"))),
        }
    }

    /// The same for those tables of an array whose name the path goes on with.
    fn over_named(
        &self,
        key: &str,
        items: &mut DeArray<'a>,
        path: &[String],
    ) -> Result<(), Unlaid> {
        let [name, rest @ ..] = path else { return Ok(()) };
        let names: Vec<String> = items.iter().filter_map(|item| name_of(item.get_ref())).collect();
        if names.is_empty() {
            let what = format!("what {key} lists has no names");
            return Err(self.wrong(&what, "set it as a whole, or change the file"));
        }
        if !names.iter().any(|known| is_meant(name, known)) {
            let fix = hint(name, names.iter().map(String::as_str));
            return Err(self.wrong(&format!("there is no [[{key}]] \"{name}\""), &fix));
        }
        if rest.is_empty() {
            let fix = format!("go on with one of its keys, such as {key}.{name}.name");
            return Err(self.wrong(&format!("\"{name}\" is a table of [[{key}]]"), &fix));
        }
        for item in items.iter_mut() {
            let is_it = name_of(item.get_ref()).is_some_and(|known| is_meant(name, &known));
            if let (true, DeValue::Table(below)) = (is_it, item.get_mut()) {
                self.over(below, rest)?;
            }
        }
        Ok(())
    }
}

fn name_of(item: &DeValue) -> Option<String> {
    item.as_table()?.get("name")?.get_ref().as_str().map(str::to_owned)
}

/// The same table, as it stands so many bytes further on.
pub(crate) fn moved(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    let key = |key: Spanned<_>| Spanned::new(further(key.span(), by), key.into_inner());
    table.into_iter().map(|(of, value)| (key(of), moved_value(value, by))).collect()
}

fn moved_value(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let span = further(value.span(), by);
    let value = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(moved(table, by)),
        DeValue::Array(items) => {
            let mut all = DeArray::new();
            items.iter().for_each(|item| all.push(moved_value(item.clone(), by)));
            DeValue::Array(all)
        }
        value => value,
    };
    Spanned::new(span, value)
}

fn further(span: Range<usize>, by: usize) -> Range<usize> {
    span.start + by..span.end + by
}

#[cfg(test)]
mod tests {
    use crate::scenario::{Clock, Scenario};

    const FILE: &str = r#"name = "x"
host = "two.toml"
[[vm]]
name = "web"
vcpus = 2
workload = { kind = "cpu" }
[[vm]]
name = "db"
vcpus = 2
workload = { kind = "cpu", duty_pct = 50 }
[[case]]
name = "1:7"
"#;

    fn read(set: &[&str]) -> Result<Scenario, String> {
        let set: Vec<String> = set.iter().map(|&it| it.to_owned()).collect();
        let file = |name: &str| match name {
            "two.toml" => Ok("# two\ncores = 2\n".to_owned()),
            _ => Err("no such file".to_owned()),
        };
        Scenario::parse_set(FILE, "dir/x.toml", &file, &set).map_err(|error| error.to_string())
    }

    fn refused(setting: &str) -> String {
        let line = read(&[setting]).unwrap_err();
        assert!(line.starts_with(&format!("--set {setting}: ")) && !line.contains('\n'), "{line}");
        line
    }

    #[test]
    fn any_key_is_set_by_its_path() {
        let scenario = read(&[
            "host.cores=16",
            "vm.web.shares=high",
            "vm.db.workload.duty_pct = 25",
            "clock=real",
            "seed=7",
            "duration_s=1",
            "schedulers=[\"drover\"]",
            "case.\"1:7\".vm.db.vcpus=3",
        ])
        .unwrap();
        assert_eq!((scenario.host.pcpus(), scenario.clock, scenario.seed), (16, Clock::Real, 7));
        assert_eq!((scenario.duration_s, scenario.schedulers.len()), (1.0, 1));
        let [web, db] = &scenario.cases[0].vms[..] else { panic!("two VMs") };
        assert_eq!((web.shares_of_all(), db.vcpus), (4000, 3));
        assert!(format!("{:?}", db.workload).contains("25"), "{:?}", db.workload);
        assert_eq!(read(&["vm.\"*\".shares=5"]).unwrap().cases[0].vms[1].shares_of_all(), 5);
        assert_eq!(read(&["host={ cores = 3 }"]).unwrap().host.pcpus(), 3);
        assert_eq!(read(&["host.cores=3", "host.cores=5"]).unwrap().host.pcpus(), 5);
    }

    #[test]
    fn parameters_of_the_policy_are_set_by_their_names() {
        assert_eq!(read(&[]).unwrap().policy, crate::params::Params::default());
        let policy = read(&["slice_ms=2", "policy.preempt_gain_ms=0.5"]).unwrap().policy;
        assert_eq!((policy.slice_ns, policy.preempt_gain_ns), (2_000_000, 500_000));
    }

    #[test]
    fn what_cannot_be_set_is_refused_in_one_line_that_names_the_nearest() {
        for (setting, said) in [
            ("host.croes=16", "did you mean \"cores\"?"),
            ("hots.cores=16", "did you mean \"host\"?"),
            ("slcie_ms=2", "did you mean \"slice_ms\"?"),
            ("policy.slise_ms=2", "did you mean \"slice_ms\"?"),
            ("duratoin_s=2", "did you mean \"duration_s\"?"),
            ("vm.wab.shares=1", "there is no [[vm]] \"wab\"; did you mean \"web\"?"),
            ("vm.web.share=1", "did you mean \"shares\"?"),
            ("case.\"1:8\".ple=true", "did you mean \"1:7\"?"),
            ("vm.web=1", "is a table of [[vm]]"),
            ("name.x=1", "name is no table"),
            ("host.cores=0", "cores = 0 is invalid in [host]; give a whole number from 1 to 1024"),
            ("host.cores=many", "cores = \"many\" is invalid in [host]"),
            ("slice_ms=0", "give a number from 0.1 to 1000"),
            ("host=\"three.toml\"", "cannot read dir/three.toml: no such file"),
            ("cores", "give KEY=VALUE"),
            ("=3", "give KEY=VALUE"),
            ("seed=", "give KEY=VALUE"),
        ] {
            let line = refused(setting);
            assert!(line.contains(said), "{line}");
        }
    }

    #[test]
    fn faults_of_files_keep_their_lines() {
        let file = |_: &str| Ok("# two\ncroes = 2\n".to_owned());
        let set = ["host.threads=2".to_owned()];
        let error = Scenario::parse_set(FILE, "dir/x.toml", &file, &set).unwrap_err();
        assert!(error.to_string().starts_with("dir/two.toml:2: unknown key \"croes\""), "{error}");
        let file = |_: &str| Ok("cores = 2\n".to_owned());
        let broken = FILE.replace("vcpus = 2", "vcpu = 2");
        let error = Scenario::parse_set(&broken, "x.toml", &file, &["seed=3".to_owned()]);
        assert!(error.unwrap_err().to_string().starts_with("x.toml:5: unknown key"));
    }
}
