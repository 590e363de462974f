// SPDX-License-Identifier: GPL-2.0-only
//! Values that are one of some words: shown and read by their table `WORDS`.

macro_rules! words {
    ($kind:ty) => {
        impl $kind {
            /// The word for it.
            pub fn name(self) -> &'static str {
                let known = Self::WORDS.iter().find(|(_, it)| *it == self);
                known.expect("each has a word").0
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $kind {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let known = Self::WORDS.iter().find(|(word, _)| *word == text);
                let words = Self::WORDS.iter().map(|(word, _)| *word);
                known.map(|(_, it)| *it).ok_or_else(|| crate::nearest::hint(text, words))
            }
        }
    };
}

pub(crate) use words;
