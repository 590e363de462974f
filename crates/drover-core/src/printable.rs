// SPDX-License-Identifier: GPL-2.0-only
//! How text that others chose is shown: names of VMs, cgroups and threads.
//!
//! Who runs a VM chooses its name, and the path of a cgroup below a delegated one. Shown as it is, such text could
//! move the cursor of root's terminal, turn the direction of a line, end a line of the log and begin one of its own,
//! or look like another name. So every writer (tables, messages, the log, `drover top`, CSV, metrics) shows it in the
//! one form made here: a letter for each letter, those that are no letters replaced by U+FFFD. JSON has its own escapes.

/// No name that is shown is longer, in letters.
pub const LENGTH_MAX: usize = 255;

/// Whether it is shown as itself, and nothing else happens: no control character (C0, DEL, C1), no mark of direction,
/// no end of a line or paragraph, nothing that cannot be seen.
pub fn is_printable(letter: char) -> bool {
    if letter.is_ascii() {
        return !letter.is_ascii_control();
    }
    let is_hidden = matches!(
        letter,
        '\u{ad}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    !letter.is_control() && !is_hidden
}

/// The text in the form in which it is shown.
pub fn printable(text: &str) -> String {
    let shown = |letter| if is_printable(letter) { letter } else { char::REPLACEMENT_CHARACTER };
    text.chars().map(shown).collect()
}

/// The same of several lines, in one.
pub fn one_line(text: &str) -> String {
    let lines: Vec<String> = text.trim().lines().map(printable).collect();
    lines.join("; ")
}

/// The same for the cell of a table: what is longer than a name may be is cut off, and ends in `…`.
pub fn cell(text: &str) -> String {
    let shown = printable(text);
    match shown.char_indices().nth(LENGTH_MAX) {
        None => shown,
        Some(_) => shown.chars().take(LENGTH_MAX - 1).chain(['…']).collect(),
    }
}

/// JSON that means the same and can be shown: what is not printable in its texts is escaped.
pub fn json(text: &str) -> String {
    let is_plain = |byte: u8| byte == b'\n' || (byte.is_ascii() && !byte.is_ascii_control());
    // As nearly all of it is, some MB beside a thousand VMs.
    if text.bytes().all(is_plain) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        // JSON has escaped the end of a line within a text: this one is between two.
        if is_printable(letter) || letter == '\n' {
            shown.push(letter);
        } else {
            let units = letter.encode_utf16(&mut [0; 2]).to_vec();
            shown.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An escape, the one of C1, a title, marks of direction, ends of lines, what cannot be seen.
    const BAD: &str = "\x1b[2J \u{9b}31m \x1b]0;t\x07 \x7f \u{202e}\u{2066}\u{200f} \r\n\u{2028}\u{85} \u{200b}\u{e0041}";

    #[test]
    fn what_is_no_letter_is_replaced_one_by_one() {
        assert_eq!(printable("a\x1b[2Jb\u{202e}c"), "a\u{fffd}[2Jb\u{fffd}c");
        let shown = printable(BAD);
        assert_eq!(shown.chars().count(), BAD.chars().count());
        assert!(shown.chars().all(is_printable), "{shown:?}");
        assert_eq!(printable(&shown), shown);
    }

    #[test]
    fn letters_of_all_scripts_stay() {
        for name in ["web-1", "Пётр", "網站", "كتاب", "naïve", "e\u{301}", "a@b/c\\x2d", "😀"]
        {
            assert_eq!(printable(name), name);
            assert_eq!(json(name), name);
        }
    }

    #[test]
    fn several_lines_are_one() {
        assert_eq!(one_line("a\n<3>b\x07\n"), "a; <3>b\u{fffd}");
        assert_eq!(one_line(BAD).lines().count(), 1);
    }

    #[test]
    fn a_cell_is_no_longer_than_a_name_may_be() {
        let longest = "ä".repeat(LENGTH_MAX);
        assert_eq!(cell(&longest), longest);
        let cut = cell(&format!("{longest}b"));
        assert!(cut.chars().count() == LENGTH_MAX && cut.ends_with("ä…"), "{cut}");
        assert_eq!(cell("a\tb"), "a\u{fffd}b");
    }

    #[test]
    fn json_means_what_it_did() {
        let text = serde_json::to_string_pretty(&[BAD, "ä"]).unwrap();
        let shown = json(&text);
        assert!(shown.chars().all(|letter| is_printable(letter) || letter == '\n'), "{shown:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), [BAD, "ä"]);
    }
}
