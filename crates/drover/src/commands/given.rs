// SPDX-License-Identifier: GPL-2.0-only
//! Readers of what is given on a command line. Shells offer the words that they know; of values they know none of, shells
//! offer nothing, and no names of files.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PathBufValueParser, PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, ValueHint};
use drover_core::asked::{Asked, Consolidate, DEFAULT, HOST, Key};
use drover_core::settings::Cosched;
use drover_core::shares::Shares;

/// Reads as `parser` does; shells offer `words`.
#[derive(Clone)]
pub struct Offering<P> {
    parser: P,
    words: Vec<&'static str>,
}

impl<P: TypedValueParser> TypedValueParser for Offering<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<P::Value, clap::Error> {
        self.parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().copied().map(PossibleValue::new)))
    }
}

/// Takes one of a VM's values, or [`DEFAULT`].
pub fn given(key: Key) -> Offering<impl TypedValueParser<Value = String>> {
    let words = match key {
        Key::Shares => words_of(&Shares::WORDS),
        Key::Limit | Key::MaxPerNode => vec!["none"],
        Key::Pool => vec![HOST],
        Key::Cosched => words_of(&Cosched::WORDS),
        Key::Consolidate => words_of(&Consolidate::WORDS),
        Key::Reservation | Key::Partition => Vec::new(),
    };
    let read = move |text: String| match text.as_str() {
        DEFAULT => Ok(text),
        _ => match Asked::default().read(key, &text) {
            Ok(()) => Ok(text),
            Err(fix) => Err(format!("{fix}, or {DEFAULT}")),
        },
    };
    let words = words.into_iter().chain([DEFAULT]).collect();
    Offering { parser: StringValueParser::new().try_map(read), words }
}

/// Takes one of the words of a table.
pub fn one_of<T>(table: &[(&'static str, T)]) -> Offering<impl TypedValueParser<Value = T> + use<T>>
where
    T: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    let parser = StringValueParser::new().try_map(|text: String| text.parse::<T>());
    Offering { parser, words: words_of(table) }
}

/// Takes any text; these are offered.
pub fn such(words: &[&'static str]) -> Offering<StringValueParser> {
    Offering { parser: StringValueParser::new(), words: words.to_vec() }
}

fn words_of<T>(table: &[(&'static str, T)]) -> Vec<&'static str> {
    table.iter().map(|(word, _)| *word).collect()
}

/// Takes the name of a file to write. `-` would be one that is hard to remove.
pub fn out_file() -> impl TypedValueParser<Value = PathBuf> {
    let read = |path: PathBuf| match path.as_os_str() == "-" {
        true => Err("this is written to a file: give its name"),
        false => Ok(path),
    };
    PathBufValueParser::new().try_map(read)
}

/// Reads a length of time: `30s`, `10m` or `24h`, from a second to a day.
pub fn span(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3600)];
    let read = units.into_iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(seconds)
    });
    let seconds = read.filter(|seconds| (1..=86_400).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| "use 30s, 10m or 24h: a day at most".to_owned())
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

    fn read<P: TypedValueParser>(parser: &P, text: &str) -> Result<P::Value, String> {
        let read = parser.parse_ref(&Command::new("test"), None, OsStr::new(text));
        read.map_err(|error| error.to_string())
    }

    fn words(parser: &impl TypedValueParser) -> Vec<String> {
        let offered = parser.possible_values().into_iter().flatten();
        offered.map(|it| it.get_name().to_owned()).collect()
    }

    #[test]
    fn a_value_is_given_or_left_to_others() {
        let limit = given(Key::Limit);
        assert!(read(&limit, "default").is_ok() && read(&limit, "150%").is_ok());
        assert!(read(&limit, "150").unwrap_err().contains("or none, or default"));
        for key in Key::ALL {
            words(&given(key)).iter().for_each(|word| drop(read(&given(key), word).unwrap()));
        }
        assert_eq!(words(&limit), ["none", "default"]);
    }

    #[test]
    fn a_length_of_time_has_its_unit() {
        let read = |text| span(text).ok().map(|span| span.as_secs());
        assert_eq!((read("30s"), read("10m"), read("24h")), (Some(30), Some(600), Some(86_400)));
        for bad in ["", "s", "30", "0s", "25h", "-1s", "1.5m", "99999999999999999999s", "3 m"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn words_are_offered_from_the_table_they_are_read_by() {
        let parser = one_of(&PartitionPolicy::WORDS);
        assert_eq!(words(&parser), ["share", "credit", "dedicated", "anticipatory"]);
        assert_eq!(read(&parser, "credit"), Ok(PartitionPolicy::Credit));
        assert!(read(&parser, "credits").is_err());
        assert_eq!(read(&such(&["eevdf"]), "/path/scx"), Ok("/path/scx".to_owned()));
    }
}
