// SPDX-License-Identifier: GPL-2.0-only
//! Where a source can be mutated, and how. Sites are in the bodies of functions only:
//!
//! | what | becomes |
//! |---|---|
//! | `<` `<=` `>` `>=` | its twin, with or without equality |
//! | `==` `!=` | the other |
//! | `&&` `\|\|` | the other |
//! | `+` `-` of two, `+=` `-=`, `++` `--` | the other |
//! | `!` | nothing |
//! | a whole number n | n + 1; 1 becomes 0 as well |
//! | `least_of` `most_of`, `least_signed` `most_signed` | the other |
//! | `return X;` in a function of type bool | `return !(X);` |
//! | `break;` `continue;` | nothing |
//! | a statement that assigns or calls | nothing |
//!
//! These are the slips that a test for "does it run" misses and a test for "is it right" must
//! not: a bound that is off by one, a condition left out, a step forgotten.

use std::ops::Range;

use crate::token::{Kind, Token, closing, tokens};

/// A change to a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The bytes that go.
    pub span: Range<usize>,
    /// What stands there instead.
    pub put: String,
    /// Its first line, from 1.
    pub line: usize,
    /// The lines it is in.
    pub before: String,
    /// The same lines, changed.
    pub after: String,
}

impl Site {
    fn new(source: &str, span: Range<usize>, put: &str) -> Self {
        let first = source[..span.start].rfind('\n').map_or(0, |end| end + 1);
        let last = source[span.end..].find('\n').map_or(source.len(), |end| span.end + end);
        let after = format!("{}{put}{}", &source[first..span.start], &source[span.end..last]);
        Self {
            line: 1 + source[..span.start].matches('\n').count(),
            before: on_one_line(&source[first..last]),
            after: on_one_line(&after),
            put: put.to_owned(),
            span,
        }
    }

    /// The source with the change.
    pub fn mutated(&self, source: &str) -> String {
        format!("{}{}{}", &source[..self.span.start], self.put, &source[self.span.end..])
    }
}

fn on_one_line(lines: &str) -> String {
    lines.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// All sites of a source, in its order.
pub fn sites(source: &str) -> Vec<Site> {
    let all = tokens(source);
    let mut changes = Vec::new();
    for body in bodies(&all) {
        changes.extend(body.inside.clone().flat_map(|i| of_token(&all, i)));
        changes.extend(statements(&all, body.inside).flat_map(|one| {
            let statement = &all[one];
            of_statement(source, statement, body.is_bool)
        }));
    }
    changes.sort_by_key(|change| change.0.start);
    changes.into_iter().map(|(span, put)| Site::new(source, span, &put)).collect()
}

type Change = (Range<usize>, String);

/// A function's body, without its braces.
struct Body {
    inside: Range<usize>,
    is_bool: bool,
}

fn bodies(all: &[Token<'_>]) -> Vec<Body> {
    let mut found = Vec::new();
    let (mut i, mut is_bool) = (0, false);
    while i < all.len() {
        match all[i].text {
            "bool" => is_bool = true,
            ";" => is_bool = false,
            "(" => i = closing(all, i),
            "{" => {
                let end = closing(all, i);
                if i > 0 && all[i - 1].text == ")" {
                    found.push(Body { inside: i + 1..end, is_bool });
                }
                (i, is_bool) = (end, false);
            }
            _ => {}
        }
        i += 1;
    }
    found
}

const SWAPS: [(&str, &str); 9] = [
    ("<", "<="),
    (">", ">="),
    ("==", "!="),
    ("&&", "||"),
    ("+", "-"),
    ("+=", "-="),
    ("++", "--"),
    ("least_of", "most_of"),
    ("least_signed", "most_signed"),
];

fn of_token(all: &[Token<'_>], i: usize) -> Vec<Change> {
    let token = &all[i];
    let span = token.at..token.end();
    if token.kind == Kind::Number {
        return of_number(token.text).into_iter().map(|put| (span.clone(), put)).collect();
    }
    let has_sign = matches!(token.text, "+" | "-") && !follows_value(all, i);
    let put = match token.text {
        "!" => Some(""),
        _ if has_sign => None,
        text => SWAPS.iter().find_map(|&(one, other)| match text {
            _ if text == one => Some(other),
            _ if text == other => Some(one),
            _ => None,
        }),
    };
    put.map(|put| (span, put.to_owned())).into_iter().collect()
}

/// Is a `+` or `-` there one of two values?
fn follows_value(all: &[Token<'_>], i: usize) -> bool {
    let before = &all[i - 1];
    match before.kind {
        Kind::Mark => matches!(before.text, ")" | "]"),
        _ => !matches!(before.text, "return" | "case"),
    }
}

fn of_number(text: &str) -> Vec<String> {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let suffix = &text[digits.len()..];
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    match value {
        Ok(u64::MAX) | Err(_) => Vec::new(),
        Ok(1) => vec![format!("2{suffix}"), format!("0{suffix}")],
        Ok(value) => vec![format!("{}{suffix}", value + 1)],
    }
}

/// The simple statements of a body, each without its semicolon.
fn statements(all: &[Token<'_>], body: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut i = body.start;
    std::iter::from_fn(move || {
        while i < body.end {
            match all[i].text {
                "{" | "}" | ";" | "else" | "do" => i += 1,
                "case" | "default" => i = next(all, i, ":") + 1,
                _ if is_head(all, i) => i = closing(all, i + 1) + 1,
                _ => {
                    let begin = i;
                    i = next(all, i, ";") + 1;
                    return Some(begin..i - 1);
                }
            }
        }
        None
    })
}

/// Does an `if`, a loop, or a macro that is one begin there?
fn is_head(all: &[Token<'_>], i: usize) -> bool {
    if all[i].kind != Kind::Word || all[i + 1].text != "(" {
        return false;
    }
    let after = &all[closing(all, i + 1) + 1];
    matches!(all[i].text, "if" | "while" | "for" | "switch")
        || after.kind == Kind::Word
        || after.text == "{"
}

/// The next such token outside of brackets.
fn next(all: &[Token<'_>], from: usize, text: &str) -> usize {
    let mut i = from;
    while i + 1 < all.len() && all[i].text != text {
        i = if matches!(all[i].text, "(" | "[" | "{") { closing(all, i) + 1 } else { i + 1 };
    }
    i
}

fn of_statement(source: &str, statement: &[Token<'_>], is_bool: bool) -> Option<Change> {
    let (first, last) = (statement.first()?, statement.last()?);
    let span = first.at..last.end();
    match first.text {
        "return" if is_bool && statement.len() > 1 => {
            let value = statement[1].at..last.end();
            Some((value.clone(), inverted(&source[value])))
        }
        "return" | "goto" => None,
        "break" | "continue" => Some((span, String::new())),
        _ if declares(statement) => None,
        _ => acts(statement).then(|| (span, String::new())),
    }
}

fn inverted(value: &str) -> String {
    match value {
        "true" => "false".to_owned(),
        "false" => "true".to_owned(),
        _ => format!("!({value})"),
    }
}

/// `u32 i`, `struct vm *vm = ...`: two words, or a word and a star, begin no other statement.
fn declares(statement: &[Token<'_>]) -> bool {
    let second = statement.get(1);
    statement[0].kind == Kind::Word
        && second.is_some_and(|token| token.kind == Kind::Word || token.text == "*")
}

fn acts(statement: &[Token<'_>]) -> bool {
    let assigns = |token: &Token<'_>| {
        let text = token.text;
        let compares = matches!(text, "==" | "!=" | "<=" | ">=");
        token.kind == Kind::Mark
            && (text.ends_with('=') && !compares || matches!(text, "++" | "--"))
    };
    let calls = |pair: &[Token<'_>]| pair[0].kind == Kind::Word && pair[1].text == "(";
    statement.iter().any(assigns) || statement.windows(2).any(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each site of a function with that body puts there instead.
    fn mutants(body: &str) -> Vec<String> {
        of_function("void", body)
    }

    fn of_function(kind: &str, body: &str) -> Vec<String> {
        let source = format!("static {kind} f(int x)\n{{\n{body}\n}}\n");
        sites(&source)
            .iter()
            .map(|site| {
                let whole = site.mutated(&source);
                let line = whole.strip_prefix(&format!("static {kind} f(int x)\n{{\n")).unwrap();
                assert_eq!((site.before.as_str(), site.line), (body, 3));
                assert_eq!(site.after, on_one_line(line.trim_end_matches("\n}\n")));
                site.after.clone()
            })
            .collect()
    }

    #[test]
    fn comparisons_and_conditions() {
        assert_eq!(mutants("if (a < b) return;"), ["if (a <= b) return;"]);
        assert_eq!(mutants("if (a >= b) return;"), ["if (a > b) return;"]);
        assert_eq!(mutants("if (a != b) return;"), ["if (a == b) return;"]);
        assert_eq!(
            mutants("if (a || !b) return;"),
            ["if (a && !b) return;", "if (a || b) return;"]
        );
        assert_eq!(mutants("u32 a = b << c;"), Vec::<String>::new());
    }

    #[test]
    fn sums_but_not_signs() {
        assert_eq!(
            mutants("u32 a = b + c[d] - e;"),
            ["u32 a = b - c[d] - e;", "u32 a = b + c[d] + e;"]
        );
        assert_eq!(mutants("u32 a = -b;"), Vec::<String>::new());
        assert_eq!(mutants("return -b;"), Vec::<String>::new());
        assert_eq!(mutants("a += b;"), [";", "a -= b;"]);
        assert_eq!(mutants("a->b++;"), [";", "a->b--;"]);
    }

    #[test]
    fn numbers_keep_their_suffix() {
        assert_eq!(mutants("u64 a = 0;"), ["u64 a = 1;"]);
        assert_eq!(mutants("u64 a = 1ULL;"), ["u64 a = 2ULL;", "u64 a = 0ULL;"]);
        assert_eq!(mutants("u64 a = 0x1f;"), ["u64 a = 32;"]);
        assert_eq!(mutants("u64 a = 18446744073709551615ULL;"), Vec::<String>::new());
    }

    #[test]
    fn least_and_most() {
        assert_eq!(mutants("u64 a = least_of(b, c);"), ["u64 a = most_of(b, c);"]);
        assert_eq!(mutants("u64 a = most_signed(b, c);"), ["u64 a = least_signed(b, c);"]);
    }

    #[test]
    fn statements_that_do_something_are_left_out() {
        assert_eq!(mutants("f(a, b);"), [";"]);
        assert_eq!(mutants("at(d)->a = b;"), [";"]);
        assert_eq!(mutants("*a = b;"), [";"]);
        assert_eq!(
            mutants("if (a) f(b); else g(c);"),
            ["if (a) ; else g(c);", "if (a) f(b); else ;"]
        );
        assert_eq!(mutants("for_each_index(i, a, b) f(i);"), ["for_each_index(i, a, b) ;"]);
        assert_eq!(mutants("for (i = a; b; c) { f(i); }"), ["for (i = a; b; c) { ; }"]);
        assert_eq!(mutants("switch (a) { case A: f(a); }"), ["switch (a) { case A: ; }"]);
        assert_eq!(mutants("do f(a); while (b);"), ["do ; while (b);"]);
        assert_eq!(mutants("struct vm *vm = vm_at(d, slot);"), Vec::<String>::new());
        assert_eq!(mutants("u32 i, j = f(a);"), Vec::<String>::new());
    }

    #[test]
    fn ways_out_of_a_loop() {
        assert_eq!(
            mutants("while (a) { if (b) break; else continue; }"),
            ["while (a) { if (b) ; else continue; }", "while (a) { if (b) break; else ; }"]
        );
    }

    #[test]
    fn only_answers_of_type_bool_are_turned_around() {
        assert_eq!(of_function("bool", "return a & f(b);"), ["return !(a & f(b));"]);
        assert_eq!(of_function("bool", "return true;"), ["return false;"]);
        assert_eq!(of_function("u32", "return a & f(b);"), Vec::<String>::new());
    }

    #[test]
    fn only_bodies_of_functions_count() {
        let source = "struct a { u32 b[4]; };\nenum c { D = 1 };\nstatic const int e[] = {1, 2};\n\
                      bool f(int x);\nstatic u32 g(bool x)\n{\n\treturn a;\n}\n";
        assert_eq!(sites(source), []);
    }

    #[test]
    fn a_site_on_several_lines_is_told_on_one() {
        let source = "int f(void)\n{\n\tg(a,\n\t  b);\n\treturn c;\n}\n";
        let found = &sites(source)[0];
        assert_eq!((found.line, found.before.as_str(), found.after.as_str()), (3, "g(a, b);", ";"));
        assert_eq!(found.mutated(source), "int f(void)\n{\n\t;\n\treturn c;\n}\n");
    }
}
