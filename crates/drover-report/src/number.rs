// SPDX-License-Identifier: GPL-2.0-only
//! Numbers as people read them.

/// Three significant digits where there is a fraction, thousands set apart where there is none:
/// `0.04`, `12.4`, `812`, `1,234,567`.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => count(value),
    }
}

/// A whole number, thousands set apart.
pub(crate) fn count(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = if value <= -0.5 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `text` in at most `width` characters, `~` standing for what was left out. The last character is
/// kept where there is room: names are often told apart by a number at their end.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let tail = text.chars().last().filter(|_| width >= 4);
    let head = text.chars().take(width.saturating_sub(if tail.is_some() { 2 } else { 1 }));
    head.chain(['~']).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits() {
        for (value, text) in [
            (0.0, "0.00"),
            (0.044, "0.04"),
            (12.44, "12.4"),
            (812.4, "812"),
            (1234567.0, "1,234,567"),
            (-12.44, "-12.4"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn counts_have_their_thousands_apart() {
        assert_eq!(count(999.0), "999");
        assert_eq!(count(1000.0), "1,000");
        assert_eq!(count(0.2), "0");
        assert_eq!(count(-0.2), "0");
    }

    #[test]
    fn long_texts_are_shortened_to_the_width() {
        assert_eq!(shorten("scx_bpfland", 11), "scx_bpfland");
        assert_eq!(shorten("database-2", 6), "data~2");
        assert_eq!(shorten("größer", 3), "gr~");
    }
}
