// SPDX-License-Identifier: GPL-2.0-only
//! What is wrong with a scenario or a configuration file.

use super::parse::ReadFile;
use toml::Spanned;
use toml::de::DeTable;

/// A fault of a file, in one line: where, what, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}; {fix}")]
pub struct ScenarioError {
    /// The file, as it was named to the parser.
    pub file: String,
    /// Line of the fault, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub fix: String,
}

/// A file's text, to tell the line of a fault.
pub(crate) struct Source<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
    /// Gives the text of files this one names.
    pub(crate) read: &'a ReadFile<'a>,
}

impl<'a> Source<'a> {
    /// The text as a table; `docs` shows examples.
    pub(crate) fn table(&self, docs: &str) -> Result<Spanned<DeTable<'a>>, ScenarioError> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let what = error.message().replace('\n', ", ");
            self.error(at, format!("not TOML: {what}"), format!("see {docs} for an example"))
        })
    }

    /// The fault `what` at byte `at` of the text.
    pub(crate) fn error(
        &self,
        at: usize,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> ScenarioError {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        ScenarioError { file: self.file.to_owned(), line, what: what.into(), fix: fix.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_file_and_line() {
        let read = |_: &str| Err(String::new());
        let source = Source { file: "a.toml", text: "x = 1\ny = 2\n", read: &read };
        assert_eq!(source.error(0, "bad", "fix it").to_string(), "a.toml:1: bad; fix it");
        assert_eq!(source.error(6, "bad", "fix it").to_string(), "a.toml:2: bad; fix it");
        assert_eq!(source.error(99, "bad", "fix it").line, 3);
    }
}
