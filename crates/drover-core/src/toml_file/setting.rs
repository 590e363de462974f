// SPDX-License-Identifier: GPL-2.0-only
//! What is laid over a file before it is read: `host.cores=16`, as `--set` of the command line has it.
//!
//! The key is a path as TOML writes it. Where it meets an array of tables, the next part of it is the name of
//! one: `vm.web.shares=4000`; `vm."web-*".shares` means several. Where it meets the name of a file, what is
//! in that file is changed: `host.cores=16` also where the scenario says `host = "hosts/lab.toml"`. What is then
//! wrong is found where files are read, and told with the setting instead of a line.

use super::table::{FileError, Read};
use crate::names::is_meant;
use crate::nearest::hint;
use crate::printable::printable;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// As it was given.
    pub given: String,
    /// The parts of the key.
    pub path: Vec<String>,
    /// The value, as TOML has it.
    pub value: String,
}

impl Setting {
    /// Reads `KEY=VALUE`. A value that is no TOML is a text: `clock=real`.
    pub fn parse(given: &str) -> Read<Self> {
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
    pub(super) fn lay<'a>(
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
pub fn fault(given: &str, what: &str, fix: &str) -> FileError {
    let file = printable(&format!("--set {given}"));
    FileError { file, line: 0, what: printable(what), fix: printable(fix) }
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
pub(super) enum Unlaid {
    /// The file of that name is to be changed, and was not read yet.
    File(String),
    /// Something is wrong.
    Fault(FileError),
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
pub(super) fn moved(table: DeTable<'_>, by: usize) -> DeTable<'_> {
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
