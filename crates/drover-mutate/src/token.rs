// SPDX-License-Identifier: GPL-2.0-only
//! The words of a C source: no comments, no preprocessor lines, no static assertions. Enough to
//! find operators and statements; what a name means is not known here.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A name or keyword.
    Word,
    /// A number.
    Number,
    /// A string or character.
    Text,
    /// An operator, or other punctuation.
    Mark,
}

/// A token and where it begins, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: Kind,
    /// As written.
    pub text: &'a str,
    /// Its first byte in the source.
    pub at: usize,
}

impl Token<'_> {
    /// The byte after it.
    pub fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

/// Marks of more than one character, the longest first.
const LONG_MARKS: [&str; 23] = [
    "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=",
    "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##",
];

/// All tokens of the source, in order.
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        let token = |kind, length| Token { kind, text: &rest[..length], at };
        at += if first.is_whitespace() {
            first.len_utf8()
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '#' && source[..at].trim_end_matches([' ', '\t']).ends_with('\n') {
            directive_length(rest)
        } else {
            let token = if first == '"' || first == '\'' {
                token(Kind::Text, text_length(rest, first))
            } else if is_word(first) {
                let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                token(if first.is_ascii_digit() { Kind::Number } else { Kind::Word }, length)
            } else {
                let long = LONG_MARKS.iter().find(|mark| rest.starts_with(**mark));
                token(Kind::Mark, long.map_or(first.len_utf8(), |mark| mark.len()))
            };
            found.push(token);
            token.text.len()
        };
    }
    without_assertions(&found)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Up to the end of the line that does not end in a backslash.
fn directive_length(rest: &str) -> usize {
    let mut length = 0;
    for line in rest.split_inclusive('\n') {
        length += line.len();
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    length
}

fn text_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    rest.len()
}

fn without_assertions<'a>(all: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::new();
    let mut i = 0;
    while i < all.len() {
        if all[i].text == "_Static_assert" {
            i = closing(all, i + 1);
        } else {
            kept.push(all[i]);
        }
        i += 1;
    }
    kept
}

/// Where the bracket that opens at `open` is closed; the last token if it never is.
pub fn closing(all: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0;
    for (i, token) in all.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i;
        }
    }
    all.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokens(source).iter().map(|token| token.text).collect()
    }

    #[test]
    fn operators_are_taken_whole() {
        assert_eq!(
            texts("a<<=b<=c->d--!=!e"),
            ["a", "<<=", "b", "<=", "c", "->", "d", "--", "!=", "!", "e"]
        );
    }

    #[test]
    fn numbers_and_words_are_told_apart() {
        let kinds: Vec<Kind> = tokens("x1 0x1fULL 'a' +").iter().map(|token| token.kind).collect();
        assert_eq!(kinds, [Kind::Word, Kind::Number, Kind::Text, Kind::Mark]);
    }

    #[test]
    fn comments_strings_and_directives_hide_what_is_in_them() {
        assert_eq!(
            texts("a /* < */ b // >\n\"x < \\\" y\" '\\''"),
            ["a", "b", "\"x < \\\" y\"", "'\\''"]
        );
        assert_eq!(texts("\n\t#define A \\\n\t1 < 2\nb"), ["b"]);
        assert_eq!(texts("/* never closed < "), Vec::<&str>::new());
    }

    #[test]
    fn static_assertions_are_left_out() {
        assert_eq!(texts("_Static_assert(sizeof(struct a) == 4, \"a\"); b"), [";", "b"]);
    }

    #[test]
    fn a_token_knows_where_it_stands() {
        let found = tokens("é /**/ ab;");
        assert_eq!((found[1].at, found[1].end()), (8, 10));
        assert_eq!(closing(&tokens("f(a[1], (b))+c"), 1), 10);
    }
}
