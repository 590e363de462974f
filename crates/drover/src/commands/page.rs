// SPDX-License-Identifier: GPL-2.0-only
//! Parts of a page that commands write.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use drover_report::picture::Picture;

/// Puts `text` into the page, in place of what is between two lines.
///
/// # Errors
/// When the page has no such lines, or cannot be written.
pub fn write(page: &Path, (begin, end): (&str, &str), text: &str) -> Result<()> {
    let old =
        fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let Some(new) = put_between(&old, (begin, end), text) else {
        let (begin, end) = (begin.trim(), end.trim());
        bail!("{} has no line `{begin}` before one `{end}`; add them", page.display());
    };
    fs::write(page, new).with_context(|| format!("cannot write {}", page.display()))
}

/// Draws the picture into that file; where there is nothing to draw, the file stays as it is.
///
/// # Errors
/// When it cannot be drawn or written.
pub fn draw(file: &Path, picture: Option<Picture>) -> Result<()> {
    let Some(picture) = picture else { return Ok(()) };
    fs::write(file, picture.svg()?).with_context(|| format!("cannot write {}", file.display()))
}

/// `old` with `text` between the two lines; none where they are not there.
fn put_between(old: &str, (begin, end): (&str, &str), text: &str) -> Option<String> {
    let (before, rest) = old.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{text}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: (&str, &str) = ("<!-- begin -->\n", "<!-- end -->\n");

    #[test]
    fn what_was_written_before_is_replaced_and_all_else_stays() {
        let old = format!("above\n{}old\n{}below\n", LINES.0, LINES.1);
        let new = put_between(&old, LINES, "new\n").unwrap();
        assert_eq!(new, format!("above\n{}\nnew\n{}below\n", LINES.0, LINES.1));
        assert_eq!(put_between(&new, LINES, "new\n").unwrap(), new);
        assert_eq!(put_between("nothing of the kind", LINES, ""), None);
    }

    #[test]
    fn a_page_without_the_lines_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("page.md");
        fs::write(&page, "nothing of the kind\n").unwrap();
        let error = write(&page, LINES, "new\n").unwrap_err().to_string();
        assert!(error.contains("<!-- begin -->") && error.ends_with("add them"), "{error}");
        assert_eq!(fs::read_to_string(&page).unwrap(), "nothing of the kind\n");
    }
}
