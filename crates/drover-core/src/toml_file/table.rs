// SPDX-License-Identifier: GPL-2.0-only
//! Tables of a TOML file, read by serde, and what is wrong with them: each fault in one line.

use super::setting::{self, Setting, Unlaid, moved};
use crate::nearest::hint;
use crate::printable::printable;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::Deref;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, ValueDeserializer};

/// What may stand for keys that a table must have.
const EXAMPLES: &[(&str, &str)] = &[
    ("after_s", "2.0"),
    ("case", "\"alone\""),
    ("cpus", "\"0-1\""),
    ("duty_pct", "50"),
    ("host", "{ cores = 4 }"),
    (
        "kind",
        "\"cpu\", \"lock\", \"barrier\", \"sleep\", \"yield\", \"io\", \"mix\", \"program\" or \"command\"",
    ),
    ("metric", "\"share_error_points\""),
    ("name", "\"vm0\""),
    ("run", "\"sysbench cpu --time=0 run\""),
    ("steps", "[\"compute 20 us\", \"count\"]"),
    ("threads", "4"),
    ("times", "2.0"),
    ("tolerance_pct", "1.0"),
    ("vcpus", "4"),
    ("workload", "{ kind = \"cpu\" }"),
];

/// Gives the text of a file that a scenario names, or says why it cannot.
pub type ReadFile<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// What is read of a file, or the first fault found.
pub type Read<T> = Result<T, FileError>;

/// A fault of a file, in one line: where, what, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}; {fix}", place(file, *line))]
pub struct FileError {
    /// The file, as it was named to the parser; or the setting that was laid over it.
    pub file: String,
    /// Line of the fault, from 1; 0 for a setting.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub fix: String,
}

fn place(file: &str, line: usize) -> String {
    if line == 0 { file.to_owned() } else { format!("{file}:{line}") }
}

/// A file.
pub struct Source<'a> {
    /// Its name in messages.
    file: &'a str,
    /// Its text. Behind it, where something is laid over the file, stand the values that are set and the texts of the
    /// files that these change: each byte has its place in one of the parts.
    text: Cow<'a, str>,
    /// Where it is described.
    docs: &'static str,
    /// Gives the text of files this one names.
    read: &'a ReadFile<'a>,
    /// What stands behind the file's own text, in order.
    behind: Vec<Behind>,
    /// Where its lines end, once somebody has asked.
    ends: OnceCell<Vec<usize>>,
}

/// A part of a source behind the file's own text.
struct Behind {
    begins: usize,
    what: Part,
}

enum Part {
    Setting(Setting),
    /// A file, by the name that the source has for it.
    File(String),
}

/// The keys of a table.
pub trait Keys: DeserializeOwned {
    /// How messages, and the document that describes it, call the table.
    const TITLE: &'static str;
    /// The numbers that its keys take, and those of tables in it.
    const RANGES: Ranges = &[];
    /// The keys, of tables whose keys are looked up by name.
    const KEYS: &'static [&'static str] = &[];
}

/// Keys, and the numbers that each takes.
pub type Ranges = &'static [(&'static str, Numbers)];

/// Numbers that a key takes, or a list of such.
pub struct Numbers {
    least: f64,
    most: f64,
    whole: bool,
}

/// Whole numbers of that range.
pub const fn whole(least: u32, most: u32) -> Numbers {
    Numbers { least: least as f64, most: most as f64, whole: true }
}

/// All numbers of that range.
pub const fn number(least: f64, most: f64) -> Numbers {
    Numbers { least, most, whole: false }
}

impl Numbers {
    fn has(&self, value: &DeValue) -> bool {
        let number = match value {
            DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
                .map_or(f64::NAN, |number| number as f64),
            DeValue::Float(digits) if !self.whole => digits.as_str().parse().unwrap_or(f64::NAN),
            DeValue::Array(items) => return items.iter().all(|item| self.has(item.get_ref())),
            _ => f64::NAN,
        };
        (self.least..=self.most).contains(&number)
    }

    fn fix(&self, given: &DeValue) -> String {
        let kind = match (given, self.whole) {
            (DeValue::Array(_), _) => "whole numbers, each",
            (_, true) => "a whole number",
            (_, false) => "a number",
        };
        format!("give {kind} from {} to {}", self.least, self.most)
    }
}

/// Makes types of tables: the title, and for each key what it means, its type and the range of its numbers.
#[macro_export]
macro_rules! tables {
    ($($title:literal $table:ident {
        $($(#[$doc:meta])* $key:ident: $kind:ty $(= $range:expr)?;)*
    })*) => {$(
        #[derive(::serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code, reason = "keys that are read elsewhere are known here")]
        pub(crate) struct $table {
            $($(#[$doc])* pub(crate) $key: $kind,)*
        }

        impl $crate::toml_file::Keys for $table {
            const TITLE: &'static str = $title;
            const RANGES: $crate::toml_file::Ranges =
                &[$($((stringify!($key), $range),)?)*];
            const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];
        }
    )*};
}
impl<'a> Source<'a> {
    /// Of a file of that name with that text.
    pub fn new(file: &'a str, text: &'a str, docs: &'static str, read: &'a ReadFile<'a>) -> Self {
        Self { file, text: text.into(), docs, read, behind: Vec::new(), ends: OnceCell::new() }
    }

    /// Lays settings over it, one after the other.
    pub fn set(&mut self, settings: Vec<Setting>) -> Read<()> {
        for setting in settings {
            let text = format!("v = {}", setting.value);
            self.add(Part::Setting(setting), &text);
        }
        loop {
            match self.laid_over() {
                Ok(_) => return Ok(()),
                Err(Unlaid::File(name)) => {
                    let text = (self.read)(&name).map_err(|why| self.unreadable(0, &name, &why))?;
                    self.add(Part::File(name), &text);
                }
                Err(unlaid) => return Err(self.fault_of(unlaid)),
            }
        }
    }

    fn add(&mut self, what: Part, text: &str) {
        let whole = self.text.to_mut();
        whole.push('\n');
        self.behind.push(Behind { begins: whole.len(), what });
        whole.push_str(text);
    }

    /// How messages call a file that this one names.
    fn path_of(&self, name: &str) -> String {
        Path::new(self.file).with_file_name(name).display().to_string()
    }

    /// Where the part begins that has byte `at`, and what it is; none: the file's own text.
    fn part(&self, at: usize) -> (usize, Option<&Part>) {
        let behind = self.behind.iter().rev().find(|part| part.begins <= at);
        behind.map_or((0, None), |part| (part.begins, Some(&part.what)))
    }

    /// The line at byte `at`, in its part.
    fn line(&self, at: usize) -> usize {
        let ends = self.ends.get_or_init(|| self.text.match_indices('\n').map(|it| it.0).collect());
        let before = |at: usize| ends.partition_point(|&end| end < at);
        1 + before(at) - before(self.part(at).0)
    }

    /// The whole file, as a table.
    pub fn table(&self) -> Read<Table<'_, ()>> {
        let raw = self.laid_over().map_err(|unlaid| self.fault_of(unlaid))?;
        Ok(Table { source: self, title: String::new(), at: 0, raw, keys: () })
    }

    /// The file's table, with what is laid over it.
    fn laid_over(&self) -> Result<DeTable<'_>, Unlaid> {
        let mut raw = self.parsed(0)?;
        for part in &self.behind {
            let Part::Setting(setting) = &part.what else { continue };
            let of_value = self.parsed(part.begins)?;
            let Some(value) = of_value.get("v") else { continue };
            let file = |name: &str| {
                let is_it = |it: &&Behind| matches!(&it.what, Part::File(file) if file == name);
                let read = self.behind.iter().find(is_it);
                self.parsed(read.ok_or(Unlaid::File(name.to_owned()))?.begins)
            };
            setting.lay(&mut raw, value, &file)?;
        }
        Ok(raw)
    }

    /// The table in the part that begins there.
    fn parsed(&self, begins: usize) -> Result<DeTable<'_>, Unlaid> {
        let ends = self.behind.iter().map(|it| it.begins - 1).find(|&end| end >= begins);
        let text = &self.text[begins..ends.unwrap_or(self.text.len())];
        let raw = DeTable::parse(text).map_err(|error| {
            let at = begins + error.span().map_or(0, |span| span.start);
            let what = format!("not TOML: {}", error.message().replace('\n', ", "));
            Unlaid::Fault(self.error(at, &what, &format!("see {} for an example", self.docs)))
        })?;
        Ok(if begins == 0 { raw.into_inner() } else { moved(raw.into_inner(), begins) })
    }

    fn fault_of(&self, unlaid: Unlaid) -> FileError {
        match unlaid {
            Unlaid::Fault(fault) => fault,
            Unlaid::File(name) => self.unreadable(0, &name, "it was not read before"),
        }
    }

    /// The fault that a file which is named at byte `at` cannot be read.
    fn unreadable(&self, at: usize, name: &str, why: &str) -> FileError {
        let what = format!("cannot read {}: {why}", self.path_of(name));
        self.error(at, &what, "name a file by its path from this one's directory")
    }

    /// The fault `what` at byte `at` of the text.
    fn error(&self, at: usize, what: &str, fix: &str) -> FileError {
        let file = match self.part(at).1 {
            Some(Part::Setting(setting)) => return setting::fault(&setting.given, what, fix),
            Some(Part::File(name)) => self.path_of(name),
            None => self.file.to_owned(),
        };
        FileError { file, line: self.line(at), what: printable(what), fix: printable(fix) }
    }
}

/// A table of a file: its keys as `T` has them, and where they stand.
pub struct Table<'a, T> {
    source: &'a Source<'a>,
    /// How messages call it.
    pub title: String,
    /// Where it begins, in bytes.
    pub at: usize,
    /// Its keys and their values, as they stand there.
    pub raw: DeTable<'a>,
    keys: T,
}

impl<T> Deref for Table<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.keys
    }
}

impl<'a, T> Table<'a, T> {
    /// The same table with the keys of `U`, no others.
    pub fn read<U: Keys>(&self) -> Read<Table<'a, U>> {
        self.read_as(U::TITLE, &[])
    }

    /// The same, called `title`; it has keys `also` that were read before.
    pub fn read_as<U: Keys>(&self, title: &str, also: &[&str]) -> Read<Table<'a, U>> {
        let table = self.of(title, self.at, self.raw.clone(), ());
        table.check(&table.raw, U::RANGES)?;
        let value = Spanned::new(self.at..self.at, DeValue::Table(table.raw.clone()));
        match U::deserialize(ValueDeserializer::from(value)) {
            Ok(keys) => Ok(self.of(title, self.at, table.raw, keys)),
            Err(error) => Err(table.refused(&error, also)),
        }
    }

    /// Whether numbers are in their ranges, here and in tables below, and texts can be shown.
    fn check(&self, raw: &DeTable, ranges: Ranges) -> Read<()> {
        for (key, value) in raw {
            let range = ranges.iter().find(|(known, _)| known == key.get_ref());
            let fix = match (value.get_ref(), range) {
                (DeValue::Table(below), None) => {
                    self.check(below, ranges)?;
                    continue;
                }
                (DeValue::String(text), None)
                    if text.is_empty() || text.contains(char::is_control) =>
                {
                    "give text in quotes, in one line".to_owned()
                }
                (value, Some((_, range))) if !range.has(value) => range.fix(value),
                _ => continue,
            };
            return Err(self.wrong_value(key.get_ref(), value, &fix));
        }
        Ok(())
    }

    /// Serde's complaint, in our words.
    fn refused(&self, error: &toml::de::Error, also: &[&str]) -> FileError {
        let (message, span) = (error.message(), error.span().unwrap_or_default());
        // Serde puts what it met and what it knows into backticks.
        let mut names = message.split('`').skip(1).step_by(2);
        let name = names.next().unwrap_or("");
        if message.starts_with("unknown field") {
            let at = place_of(&self.raw, name).unwrap_or(self.at);
            let also = if self.raw.contains_key(name) { also } else { &[] };
            return self.unknown(at, "key", name, also.iter().copied().chain(names));
        }
        if message.starts_with("missing field") {
            let fix = format!("add one, such as {name} = {}", example(name));
            return self.error("", format!("{} has no {name}", self.title), fix);
        }
        // What serde has put aside has no place any more: it is known by its text.
        let is_it = |value: &Spanned<DeValue>| {
            let (start, end) = (value.span().start, value.span().end);
            let text = self.source.text.get(start..end).unwrap_or("");
            start <= span.start && span.end <= end && start < end
                || !name.is_empty() && text.trim_matches('"') == name
        };
        let Some((key, value)) = self.raw.iter().find(|(_, value)| is_it(value)) else {
            return self.error("", format!("{} is invalid: {message}", self.title), "correct it");
        };
        if message.starts_with("unknown variant") {
            return self.unknown(value.span().start, key.get_ref(), name, names);
        }
        if let Some((what, fix)) = message.split_once("; ") {
            return self.error_at(value.span().start, what, fix);
        }
        let expected = message.split_once(", expected ").map_or(message, |(_, expected)| expected);
        self.wrong_value(
            key.get_ref(),
            value,
            match expected {
                "a boolean" => "give true or false",
                "a string" | "wanted string or table" => "give text in quotes, in one line",
                "a sequence" => "give a list of texts",
                "f64" => "give a number",
                "u32" => "give a whole number",
                "u64" => "give a whole number from 0 on",
                kind if kind.starts_with("struct") => "give a table",
                fix => fix,
            },
        )
    }

    /// The fault `what` of the value of `key`, or of the whole table where that is missing.
    pub fn error(&self, key: &str, what: impl AsRef<str>, fix: impl AsRef<str>) -> FileError {
        let at = self.raw.get(key).map_or(self.at, |value| value.span().start);
        self.error_at(at, what, fix)
    }

    /// The fault `what` at byte `at` of the file.
    pub fn error_at(&self, at: usize, what: impl AsRef<str>, fix: impl AsRef<str>) -> FileError {
        self.source.error(at, what.as_ref(), fix.as_ref())
    }

    /// The fault that the word at `at` is none of those known.
    fn unknown<'b>(
        &self,
        at: usize,
        key: &str,
        word: &str,
        known: impl Iterator<Item = &'b str> + Clone,
    ) -> FileError {
        let what = format!("unknown {key} \"{word}\" in {}", self.title);
        self.error_at(at, what, hint(word, known))
    }

    /// Whether the word of `key`, if the file has it, is one of those known.
    pub fn check_word<'b>(
        &self,
        key: &str,
        word: Option<&String>,
        known: impl Iterator<Item = &'b str> + Clone,
    ) -> Read<()> {
        match (self.raw.get(key), word) {
            (Some(value), Some(word)) if !known.clone().any(|known| known == word) => {
                Err(self.unknown(value.span().start, key, word, known))
            }
            _ => Ok(()),
        }
    }

    /// The fault that the value of `key` is not what `fix` says.
    pub fn wrong_value(&self, key: &str, value: &Spanned<DeValue>, fix: &str) -> FileError {
        let written = self.source.text.get(value.span()).unwrap_or("").trim();
        let line = written.lines().next().unwrap_or("");
        let what = format!("{key} = {line} is invalid in {}", self.title);
        self.error_at(value.span().start, what, fix)
    }

    /// Whether the number of `key`, if it is there, is within `range`.
    pub fn within(&self, key: &str, range: &Numbers) -> Read<()> {
        match self.raw.get(key) {
            Some(value) if !range.has(value.get_ref()) => {
                Err(self.wrong_value(key, value, &range.fix(value.get_ref())))
            }
            _ => Ok(()),
        }
    }

    /// The line the table begins in.
    pub fn line(&self) -> usize {
        self.source.line(self.at)
    }

    /// The tables of a `[[key]]`, in the order of the file.
    pub fn tables<U: Keys>(&self, key: &str) -> Read<Vec<Table<'a, U>>> {
        self.items::<U>(key)?.iter().map(Table::read).collect()
    }

    /// The same before their keys are read, called by their title.
    pub fn items<U: Keys>(&self, key: &str) -> Read<Vec<Table<'a, ()>>> {
        let Some(value) = self.raw.get(key) else { return Ok(Vec::new()) };
        let fix = format!("give one or more tables, each under {}", U::TITLE);
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.wrong_value(key, value, &fix));
        };
        let item = |item| Ok(Table { title: U::TITLE.to_owned(), ..self.below(key, item, &fix)? });
        items.iter().map(item).collect()
    }

    /// The table of `key`, if there is one.
    pub fn table<U: Keys>(&self, key: &str) -> Read<Option<Table<'a, U>>> {
        let Some(value) = self.raw.get(key) else { return Ok(None) };
        self.below(key, value, "give a table")?.read().map(Some)
    }

    /// The tables of a `[key.NAME]`, by name, in the order of the file.
    pub fn named<U: Keys>(&self, key: &str) -> Read<Vec<(String, Table<'a, U>)>> {
        let Some(value) = self.raw.get(key) else { return Ok(Vec::new()) };
        let fix = format!("give tables, each under {}", U::TITLE);
        let read = |(name, value): (&Spanned<DeString<'a>>, &Spanned<DeValue<'a>>)| {
            let below = Table { at: name.span().start, ..self.below(key, value, &fix)? };
            Ok((name.get_ref().to_string(), below.read()?))
        };
        let tables = self.below(key, value, &fix)?.raw;
        let mut named = tables.iter().map(read).collect::<Read<Vec<_>>>()?;
        named.sort_by_key(|(_, table)| table.at);
        Ok(named)
    }

    /// What `read` makes of the table of `key`, which may also be that of a file that is named there.
    pub fn here_or_in_file<R>(
        &self,
        key: &str,
        read: impl Fn(&Table<()>) -> Read<R>,
    ) -> Read<Option<R>> {
        let Some(value) = self.raw.get(key) else { return Ok(None) };
        let name = match value.get_ref() {
            DeValue::String(name) if name.ends_with(".toml") => name,
            _ => {
                let fix = format!("give a table, such as {}", example(key));
                return read(&self.below(key, value, &fix)?).map(Some);
            }
        };
        let file = self.source.path_of(name);
        let text = (self.source.read)(name)
            .map_err(|why| self.source.unreadable(value.span().start, name, &why))?;
        let source = Source::new(&file, &text, self.source.docs, self.source.read);
        read(&source.table()?).map(Some)
    }

    /// This table without a key.
    pub fn without(&self, key: &str) -> Table<'a, ()> {
        let mut raw = self.raw.clone();
        raw.remove(key);
        self.of(&self.title, self.at, raw, ())
    }

    /// `base` with what this table says laid over it. What is then wrong with a value of `base` is told
    /// with the place of this table.
    pub fn over<U: Keys>(&self, base: &Table<'a, U>) -> Read<Table<'a, U>> {
        let here =
            |value: &Spanned<DeValue<'a>>| Spanned::new(self.at..self.at, value.get_ref().clone());
        let base = base.raw.iter().map(|(key, value)| (key.clone(), here(value)));
        let raw: DeTable = base.chain(self.raw.clone()).collect();
        self.of("", self.at, raw, ()).read_as(&self.title, &[])
    }

    /// The same table with another text of `key`.
    pub fn with_text(&self, key: &str, text: &str) -> Read<Self>
    where
        T: Keys,
    {
        let mut raw = self.raw.clone();
        if let Some(value) = raw.get_mut(key) {
            *value.get_mut() = DeValue::String(text.to_owned().into());
        }
        self.of("", self.at, raw, ()).read_as(&self.title, &[])
    }

    /// The text of `key`; empty where there is none.
    pub fn word(&self, key: &str) -> &str {
        match self.raw.get(key).map(Spanned::get_ref) {
            Some(DeValue::String(text)) => text,
            _ => "",
        }
    }

    /// The value of `key` if it is a table.
    fn below(&self, key: &str, value: &Spanned<DeValue<'a>>, fix: &str) -> Read<Table<'a, ()>> {
        let DeValue::Table(raw) = value.get_ref() else {
            return Err(self.wrong_value(key, value, fix));
        };
        Ok(self.of(&self.title, value.span().start, raw.clone(), ()))
    }

    /// A table of the same file.
    pub fn of<U>(&self, title: &str, at: usize, raw: DeTable<'a>, keys: U) -> Table<'a, U> {
        Table { source: self.source, title: title.to_owned(), at, raw, keys }
    }
}

/// What may stand for a key.
fn example(key: &str) -> &'static str {
    EXAMPLES.iter().find(|(known, _)| *known == key).map_or("...", |(_, example)| example)
}

/// Where a key stands in the table, or in one below.
fn place_of(raw: &DeTable, key: &str) -> Option<usize> {
    let here = raw.get_key_value(key).map(|(key, _)| key.span().start);
    here.or_else(|| {
        raw.values().find_map(|value| match value.get_ref() {
            DeValue::Table(below) => place_of(below, key),
            _ => None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_file_and_line() {
        let read = |_: &str| Err(String::new());
        let source = Source::new("a.toml", "x = 1\ny = 2\n", "", &read);
        assert_eq!(source.error(0, "bad", "fix it").to_string(), "a.toml:1: bad; fix it");
        assert_eq!(source.error(6, "bad", "fix it").to_string(), "a.toml:2: bad; fix it");
        assert_eq!(source.error(99, "bad", "fix it").line, 3);
    }
}
