// SPDX-License-Identifier: GPL-2.0-only
//! Readers of what is given on a command line. Shells offer the words that they know; of values they know none of, shells
//! offer nothing, and no names of files.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PathBufValueParser, PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, ValueHint};
use drover_core::asked::{Asked, DEFAULT, Key};

type Offered<'a> = Option<Box<dyn Iterator<Item = PossibleValue> + 'a>>;

fn offer<'a>(words: impl Iterator<Item = &'static str> + 'a) -> Offered<'a> {
    Some(Box::new(words.map(PossibleValue::new)))
}

/// Takes one of a VM's values, or [`DEFAULT`].
#[derive(Clone, Copy)]
pub struct Given(pub Key);

impl Given {
    fn read(self, text: &str) -> Result<(), String> {
        if text != DEFAULT {
            let read = Asked::default().read(self.0, text);
            read.map_err(|fix| format!("{fix}, or {DEFAULT}"))?;
        }
        Ok(())
    }

    fn words(self) -> &'static [&'static str] {
        match self.0 {
            Key::Shares => &["low", "normal", "high"],
            Key::Limit | Key::MaxPerNode => &["none"],
            Key::Pool => &["host"],
            Key::Cosched => &["auto", "off", "strict", "relaxed", "skew", "gang"],
            Key::Consolidate => &["off", "on", "auto"],
            Key::Reservation | Key::Partition => &[],
        }
    }
}

impl TypedValueParser for Given {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let given = *self;
        let read = move |text: String| given.read(&text).map(|()| text);
        StringValueParser::new().try_map(read).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Offered<'_> {
        offer(self.words().iter().chain(&[DEFAULT]).copied())
    }
}

/// Takes one of the words of a table.
#[derive(Clone, Copy)]
pub struct OneOf<T: 'static>(pub &'static [(&'static str, T)]);

impl<T> TypedValueParser for OneOf<T>
where
    T: FromStr<Err = String> + Clone + Send + Sync,
{
    type Value = T;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let read = |text: String| text.parse::<T>();
        StringValueParser::new().try_map(read).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Offered<'_> {
        offer(self.0.iter().map(|(word, _)| *word))
    }
}

/// Takes any text; these are offered.
#[derive(Clone, Copy)]
pub struct Such(pub &'static [&'static str]);

impl TypedValueParser for Such {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Offered<'_> {
        offer(self.0.iter().copied())
    }
}

/// Takes the name of a file to write. `-` would be one that is hard to remove.
pub fn out_file() -> impl TypedValueParser<Value = PathBuf> {
    let read = |path: PathBuf| match path.as_os_str() == "-" {
        true => Err("this is written to a file: give its name"),
        false => Ok(path),
    };
    PathBufValueParser::new().try_map(read)
}

/// The command line as shells are to complete it: names of files where files are meant, and nowhere else.
pub fn without_file_names(command: Command) -> Command {
    let hinted = |argument: Arg| match argument.get_value_hint() {
        ValueHint::Unknown => argument.value_hint(ValueHint::Other),
        _ => argument,
    };
    command.mut_args(hinted).mut_subcommands(without_file_names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_core::partition::PartitionPolicy;

    fn words(parser: &impl TypedValueParser) -> Vec<String> {
        let offered = parser.possible_values().into_iter().flatten();
        offered.map(|it| it.get_name().to_owned()).collect()
    }

    #[test]
    fn a_value_is_given_or_left_to_others() {
        let limit = Given(Key::Limit);
        assert_eq!((limit.read("default"), limit.read("150%")), (Ok(()), Ok(())));
        assert!(limit.read("150").unwrap_err().ends_with("or none, or default"));
        for key in Key::ALL {
            Given(key).words().iter().for_each(|word| Given(key).read(word).unwrap());
        }
        assert_eq!(words(&limit), ["none", "default"]);
    }

    #[test]
    fn words_are_offered_from_the_table_they_are_read_by() {
        let policies = words(&OneOf(&PartitionPolicy::WORDS));
        assert_eq!(policies, ["share", "credit", "dedicated", "anticipatory"]);
        let command = Command::new("test");
        let read = |parser: &OneOf<PartitionPolicy>, text: &str| {
            parser.parse_ref(&command, None, OsStr::new(text)).ok()
        };
        let parser = OneOf(&PartitionPolicy::WORDS);
        assert_eq!(read(&parser, "credit"), Some(PartitionPolicy::Credit));
        assert_eq!(read(&parser, "credits"), None);
        let any = Such(&["eevdf"]).parse_ref(&command, None, OsStr::new("/path/scx")).ok();
        assert_eq!(any.as_deref(), Some("/path/scx"));
    }
}
