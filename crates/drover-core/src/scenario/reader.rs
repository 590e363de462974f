// SPDX-License-Identifier: GPL-2.0-only
//! Reads the values of one TOML table, each checked for type and range, each fault with its line.

use super::error::{ScenarioError, Source};
use super::keys;
use crate::nearest::hint;
use crate::settings::Cosched;
use crate::shares::{SHARES_MAX, Shares};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A table of a file, known to have no unknown keys.
pub(crate) struct Reader<'a> {
    pub(crate) source: &'a Source<'a>,
    /// Which table of [`keys::TABLES`] it is.
    pub(crate) title: &'static str,
    table: &'a DeTable<'a>,
    /// Where the table begins, in bytes.
    pub(crate) at: usize,
}

impl<'a> Reader<'a> {
    /// Takes the table at `at` and refuses keys that a table of this `title` does not have.
    pub(crate) fn new(
        source: &'a Source<'a>,
        title: &'static str,
        at: usize,
        table: &'a DeTable<'a>,
    ) -> Result<Self, ScenarioError> {
        let known = keys::of(title);
        // Tables are kept sorted by key; complain about the first in the order of the file.
        let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        if let Some(key) = unknown.min_by_key(|key| key.span().start) {
            let fix = hint(key.get_ref(), known.iter().copied());
            let what = format!("unknown key \"{}\" in {title}", key.get_ref());
            return Err(source.error(key.span().start, what, fix));
        }
        Ok(Self { source, title, table, at })
    }

    /// The fault `what` of the value of `key`, or of the whole table where that is missing.
    pub(crate) fn error(
        &self,
        key: &str,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> ScenarioError {
        let at = self.value(key).map_or(self.at, |value| value.span().start);
        self.source.error(at, what, fix)
    }

    /// The value, or the complaint that the table has none.
    pub(crate) fn need<T>(
        &self,
        key: &str,
        value: Option<T>,
        example: &str,
    ) -> Result<T, ScenarioError> {
        let missing = || {
            let fix = format!("add one, such as {key} = {example}");
            self.error(key, format!("{} has no {key}", self.title), fix)
        };
        value.ok_or_else(missing)
    }

    /// A text of at least one character, all printable.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, ScenarioError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::String(text) if !text.is_empty() && !text.contains(char::is_control) => {
                Ok(Some(text))
            }
            _ => Err(self.wrong(key, value, "text in quotes, in one line")),
        }
    }

    /// `true` or `false`.
    pub(crate) fn truth(&self, key: &str) -> Result<Option<bool>, ScenarioError> {
        match self.value(key).map(|value| (value, value.get_ref())) {
            None => Ok(None),
            Some((_, DeValue::Boolean(truth))) => Ok(Some(*truth)),
            Some((value, _)) => Err(self.wrong(key, value, "true or false")),
        }
    }

    /// A whole number within `range`.
    pub(crate) fn whole(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, ScenarioError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number = match value.get_ref() {
            DeValue::Integer(digits) => u64::from_str_radix(digits.as_str(), digits.radix()).ok(),
            _ => None,
        };
        match number {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(self.wrong(key, value, &between("a whole number", &range))),
        }
    }

    /// [`Reader::whole`] for what has 32 bits.
    pub(crate) fn whole32(
        &self,
        key: &str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, ScenarioError> {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        let narrow = |number: u64| u32::try_from(number).expect("the range has 32 bits");
        Ok(self.whole(key, range)?.map(narrow))
    }

    /// A number within `range`, with or without decimals.
    pub(crate) fn number(
        &self,
        key: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ScenarioError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number = match value.get_ref() {
            DeValue::Integer(digits) if digits.radix() == 10 => digits.as_str().parse().ok(),
            DeValue::Float(digits) => digits.as_str().parse().ok(),
            _ => None,
        };
        match number {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(self.wrong(key, value, &between("a number", &range))),
        }
    }

    /// One of some words, each with what it stands for.
    pub(crate) fn word<T: Copy>(
        &self,
        key: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, ScenarioError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*meaning));
        }
        let fix = hint(text, words.iter().map(|(word, _)| *word));
        Err(self.error(key, format!("unknown {key} \"{text}\" in {}", self.title), fix))
    }

    /// Shares: a number or a word.
    pub(crate) fn shares(&self, key: &str) -> Result<Option<Shares>, ScenarioError> {
        self.number_or_word(key, &format!("1 to {SHARES_MAX}, or \"low\", \"normal\", \"high\""))
    }

    /// A whole number or a word, such as `T` reads from texts; `wants` says what to give.
    pub(crate) fn number_or_word<T: FromStr>(
        &self,
        key: &str,
        wants: &str,
    ) -> Result<Option<T>, ScenarioError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let text = match value.get_ref() {
            DeValue::Integer(digits) if digits.radix() == 10 => digits.as_str(),
            DeValue::String(text) => text,
            _ => "",
        };
        text.parse().map(Some).map_err(|_| self.wrong(key, value, wants))
    }

    /// How vCPUs are kept together.
    pub(crate) fn cosched(&self, key: &str) -> Result<Option<Cosched>, ScenarioError> {
        self.word(key, &Cosched::WORDS)
    }

    /// A text that `parse` understands.
    pub(crate) fn parsed<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ScenarioError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        parse(text).map(Some).map_err(|fix| {
            let what = format!("{key} = \"{text}\" is invalid in {}", self.title);
            self.error(key, what, fix)
        })
    }

    /// The line the table begins in.
    pub(crate) fn line(&self) -> usize {
        self.source.error(self.at, "", "").line
    }

    /// A list of texts.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>, ScenarioError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let text = |item: &'a Spanned<DeValue<'a>>| match item.get_ref() {
            DeValue::String(text) if !text.is_empty() => Some(text.as_ref()),
            _ => None,
        };
        let texts = match value.get_ref() {
            DeValue::Array(items) => items.iter().map(text).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        texts.ok_or_else(|| self.wrong(key, value, "a list of texts")).map(Some)
    }

    /// [`Reader::texts`], each with where it stands.
    pub(super) fn texts_at(
        &self,
        key: &str,
    ) -> Result<Option<Vec<(usize, &'a str)>>, ScenarioError> {
        let Some(texts) = self.texts(key)? else { return Ok(None) };
        let Some(DeValue::Array(items)) = self.value(key).map(Spanned::get_ref) else {
            unreachable!("texts come in a list");
        };
        Ok(Some(items.iter().map(|item| item.span().start).zip(texts).collect()))
    }

    /// The fault `what` at byte `at` of the text.
    pub(super) fn error_at(
        &self,
        at: usize,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> ScenarioError {
        self.source.error(at, what, fix)
    }

    /// A table within this one, whose keys are names that the file gives.
    pub(super) fn any_keys(&self, key: &str) -> Result<Option<Reader<'a>>, ScenarioError> {
        let Some((at, table)) = self.raw_table(key)? else { return Ok(None) };
        Ok(Some(Reader { source: self.source, title: self.title, at, table }))
    }

    /// The keys of this table and where they stand, in the order of the file.
    pub(super) fn names(&self) -> Vec<(usize, &'a str)> {
        let keys = self.table.keys().map(|key| (key.span().start, key.get_ref().as_ref()));
        let mut names: Vec<(usize, &str)> = keys.collect();
        names.sort_unstable();
        names
    }

    /// Rows of whole numbers within `range`.
    pub(super) fn grid(
        &self,
        key: &str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<Vec<Vec<u32>>>, ScenarioError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let row = |item: &Spanned<DeValue<'a>>| numbers(item.get_ref(), &range);
        let rows = match value.get_ref() {
            DeValue::Array(rows) => rows.iter().map(row).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        let expected = between("rows of whole numbers, each", &range);
        rows.ok_or_else(|| self.wrong(key, value, &expected)).map(Some)
    }

    /// A list of whole numbers within `range`.
    pub(super) fn wholes(
        &self,
        key: &str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<Vec<u32>>, ScenarioError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let expected = between("a list of whole numbers, each", &range);
        numbers(value.get_ref(), &range).ok_or_else(|| self.wrong(key, value, &expected)).map(Some)
    }

    /// Is the value of `key` a list?
    pub(super) fn is_list(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| matches!(value.get_ref(), DeValue::Array(_)))
    }

    /// Is the value of `key` the name of a TOML file?
    pub(super) fn is_file(&self, key: &str) -> bool {
        let is_file =
            |value: &DeValue| matches!(value, DeValue::String(text) if text.ends_with(".toml"));
        self.value(key).is_some_and(|value| is_file(value.get_ref()))
    }

    /// The file that the value of `key` names: its name for error messages, and its text.
    pub(super) fn other_file(
        &self,
        key: &str,
        name: &str,
    ) -> Result<(String, String), ScenarioError> {
        let shown = Path::new(self.source.file).with_file_name(name).display().to_string();
        let text = (self.source.read)(name).map_err(|why| {
            let fix = "name a file by its path from this one's directory";
            self.error(key, format!("cannot read {shown}: {why}"), fix)
        })?;
        Ok((shown, text))
    }

    /// A table within this one.
    pub(crate) fn table(
        &self,
        key: &str,
        title: &'static str,
    ) -> Result<Option<Reader<'a>>, ScenarioError> {
        let Some((at, table)) = self.raw_table(key)? else { return Ok(None) };
        Reader::new(self.source, title, at, table).map(Some)
    }

    /// A table within this one whose title hangs on a word of it: `title_of` gets the word's
    /// reader before keys are checked.
    pub(crate) fn table_by_word(
        &self,
        key: &str,
        word_key: &'static str,
        titles: &[(&str, &'static str)],
    ) -> Result<Option<Reader<'a>>, ScenarioError> {
        let Some((at, table)) = self.raw_table(key)? else { return Ok(None) };
        let unchecked = Reader { source: self.source, title: self.title, at, table };
        unchecked.titled_by_word(key, word_key, titles).map(Some)
    }

    /// The table at `at` as what its value of `key` says it is.
    fn titled_by_word(
        &self,
        key: &str,
        word_key: &'static str,
        titles: &[(&str, &'static str)],
    ) -> Result<Reader<'a>, ScenarioError> {
        let Some(title) = self.word(word_key, titles)? else {
            let known: Vec<_> = titles.iter().map(|(word, _)| *word).collect();
            let fix = format!("add {word_key} = one of {}", known.join(", "));
            return Err(self.error("", format!("{key} has no {word_key}"), fix));
        };
        Reader::new(self.source, title, self.at, self.table)
    }

    /// A whole file that is a table as [`Reader::table_by_word`] reads them.
    pub(super) fn of_file_by_word(
        source: &'a Source<'a>,
        word_key: &'static str,
        titles: &[(&str, &'static str)],
        table: &'a DeTable<'a>,
    ) -> Result<Reader<'a>, ScenarioError> {
        let unchecked = Reader { source, title: "the file", at: 0, table };
        unchecked.titled_by_word("the file", word_key, titles)
    }

    /// The tables of a `[[key]]`, in the order of the file.
    pub(crate) fn tables(
        &self,
        key: &str,
        title: &'static str,
    ) -> Result<Vec<Reader<'a>>, ScenarioError> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let expected = format!("one or more tables, each under {title}");
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.wrong(key, value, &expected));
        };
        let reader = |item: &'a Spanned<DeValue<'a>>| match item.get_ref() {
            DeValue::Table(table) => Reader::new(self.source, title, item.span().start, table),
            _ => Err(self.wrong(key, item, &expected)),
        };
        items.iter().map(reader).collect()
    }

    /// The tables of a `[key.NAME]`, with their names and where these stand, in the order of the
    /// file.
    pub(crate) fn named_tables(
        &self,
        key: &str,
        title: &'static str,
    ) -> Result<Vec<(&'a str, Reader<'a>)>, ScenarioError> {
        let Some((_, tables)) = self.raw_table(key)? else { return Ok(Vec::new()) };
        let mut named = Vec::new();
        for (name, value) in tables.iter() {
            let DeValue::Table(table) = value.get_ref() else {
                return Err(self.wrong(name.get_ref(), value, &format!("a table {title}")));
            };
            let reader = Reader::new(self.source, title, name.span().start, table)?;
            named.push((name.get_ref().as_ref(), reader));
        }
        named.sort_by_key(|(_, reader)| reader.at);
        Ok(named)
    }

    fn raw_table(&self, key: &str) -> Result<Option<(usize, &'a DeTable<'a>)>, ScenarioError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(table) => Ok(Some((value.span().start, table))),
            _ => Err(self.wrong(key, value, "a table, such as { kind = \"cpu\" }")),
        }
    }

    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        let found = self.table.iter().find(|(known, _)| known.get_ref() == key);
        found.map(|(_, value)| value)
    }

    fn wrong(&self, key: &str, value: &Spanned<DeValue<'_>>, expected: &str) -> ScenarioError {
        let written = self.source.text.get(value.span()).unwrap_or("").trim();
        let line = written.lines().next().unwrap_or("");
        let what = format!("{key} = {line} is invalid in {}", self.title);
        self.source.error(value.span().start, what, format!("give {expected}"))
    }
}

/// The whole numbers of a list, all within `range`.
fn numbers(list: &DeValue, range: &RangeInclusive<u32>) -> Option<Vec<u32>> {
    let number = |item: &Spanned<DeValue>| match item.get_ref() {
        DeValue::Integer(digits) => u32::from_str_radix(digits.as_str(), digits.radix()).ok(),
        _ => None,
    };
    let DeValue::Array(items) = list else { return None };
    items.iter().map(|item| number(item).filter(|number| range.contains(number))).collect()
}

fn between(kind: &str, range: &RangeInclusive<impl Display>) -> String {
    format!("{kind} from {} to {}", range.start(), range.end())
}
