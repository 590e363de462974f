// SPDX-License-Identifier: GPL-2.0-only
//! What an operator has chosen, from one `drover top` to the next: which columns, which order. A file of lines, each a
//! word and what was chosen, in the home directory.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use drover_host::files;
use nix::unistd::geteuid;

use super::columns::{Columns, Field};
use super::view::{Sort, View};

/// No such file is longer.
const BYTES_MAX: usize = 4096;

const COLUMNS: [(&str, Columns); 3] =
    [("cpu", Columns::Cpu), ("drover", Columns::Drover), ("io", Columns::Io)];
const SORTS: [(&str, Sort); 11] = [
    ("used", Sort::Used),
    ("run", Sort::Run),
    ("ready", Sort::Ready),
    ("costop", Sort::Costop),
    ("wait", Sort::Wait),
    ("name", Sort::Name),
    ("owed", Sort::Owed),
    ("hazard", Sort::Hazard),
    ("to-guest", Sort::ToGuest),
    ("to-device", Sort::ToDevice),
    ("moved", Sort::Moved),
];

/// Where it is kept; none: there is no home directory, or it is another's, as with some settings of sudo: who owns it
/// could have root write elsewhere.
pub fn path() -> Option<PathBuf> {
    let home = PathBuf::from(env::var_os("HOME")?);
    let is_own = fs::metadata(&home).is_ok_and(|home| home.uid() == geteuid().as_raw());
    is_own.then(|| home.join(".config/drover/top"))
}

/// What was chosen the last time; of a file that is not there, or of lines that nobody knows, nothing.
pub fn read(path: &Path) -> View {
    let mut view = View::default();
    let text = files::kernel_lines(path, BYTES_MAX).unwrap_or_default();
    for line in text.lines() {
        let Some((word, value)) = line.split_once(' ') else { continue };
        match word {
            "columns" => view.columns = of(&COLUMNS, value).unwrap_or_default(),
            "sort" => view.sort = of(&SORTS, value).unwrap_or_default(),
            "hide" => {
                view.hidden.extend(Field::CHOSEN.iter().find(|it| it.1 == value).map(|it| it.0))
            }
            _ => {}
        }
    }
    view
}

fn of<T: Copy>(all: &[(&str, T)], name: &str) -> Option<T> {
    all.iter().find(|(known, _)| *known == name).map(|(_, it)| *it)
}

fn text(view: &View) -> String {
    let name =
        |all: &[(&'static str, Sort)]| all.iter().find(|it| it.1 == view.sort).map(|it| it.0);
    let columns = COLUMNS.iter().find(|it| it.1 == view.columns).map(|it| it.0);
    let mut text = format!(
        "columns {}\nsort {}\n",
        columns.unwrap_or_default(),
        name(&SORTS).unwrap_or_default()
    );
    for (_, name) in Field::CHOSEN.iter().filter(|(field, _)| view.hidden.contains(field)) {
        text += &format!("hide {name}\n");
    }
    text
}

/// Keeps what is chosen, if that is another than before.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, view: &View) -> Result<()> {
    let text = text(view);
    if text == self::text(&read(path)) {
        return Ok(());
    }
    let cannot = || format!("the choice of columns is not kept: cannot write {}", path.display());
    files::replace(path, text.as_bytes()).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_chosen_is_there_the_next_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/top");
        let mut view = View::default();
        (view.columns, view.sort) = (Columns::Drover, Sort::Hazard);
        view.hidden.extend([Field::Pid, Field::GuestP99]);
        write(&path, &view).unwrap();
        let read = read(&path);
        assert_eq!((read.columns, read.sort), (view.columns, view.sort));
        assert_eq!(read.hidden, view.hidden);
    }

    #[test]
    fn nothing_is_written_where_nothing_was_chosen_and_nonsense_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("top");
        write(&path, &View::default()).unwrap();
        assert!(!path.exists());
        fs::write(&path, "sort nonsense\nhide \u{1b}[2J\ncolumns io\nx\n").unwrap();
        let read = read(&path);
        assert_eq!((read.columns, read.sort, read.hidden.len()), (Columns::Io, Sort::Used, 0));
    }
}
