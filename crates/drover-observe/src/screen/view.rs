// SPDX-License-Identifier: GPL-2.0-only
//! What of the figures is shown, in which order, and where the cursor is.
//!
//! The cursor stays with a VM or vCPU, not with a line: lines change places at every reading.

use std::collections::BTreeSet;

use drover_core::io::DelayUs;
use ratatui::crossterm::event::KeyCode;
use ratatui::widgets::TableState;

use super::columns::{Columns, Field};
use crate::figures::{Figures, Terms, Vcpu, Vm};

/// Order of VMs: the most of something first, or by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    #[default]
    Used,
    Run,
    Ready,
    Costop,
    Wait,
    Name,
    Owed,
    Hazard,
    ToGuest,
    ToDevice,
    Moved,
}

/// What an operator has chosen.
#[derive(Debug, Default)]
pub struct View {
    pub sort: Sort,
    pub columns: Columns,
    /// Columns that are left out.
    pub hidden: BTreeSet<Field>,
    /// They are being chosen.
    pub is_choosing: bool,
    pub help: bool,
    /// What is shown stays as it is.
    pub is_frozen: bool,
    /// VMs with that in their names are shown.
    pub filter: String,
    /// Letters go into the filter.
    pub is_typing: bool,
    pub table: TableState,
    open: BTreeSet<u32>,
    cursor: Option<RowId>,
}

/// A VM by its process, or a vCPU of it by its number.
type RowId = (u32, Option<u32>);

/// A line: a VM, or a vCPU of it.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub vm: &'a Vm,
    pub vcpu: Option<&'a Vcpu>,
}

impl Row<'_> {
    fn id(&self) -> RowId {
        (self.vm.pid, self.vcpu.map(|vcpu| vcpu.number))
    }
}

/// How far Page Up and Page Down go.
const PAGE: usize = 10;
/// A filter has so many letters at most.
const FILTER_MAX: usize = 40;

impl View {
    /// The lines, in their order.
    pub fn rows<'a>(&self, figures: &'a Figures) -> Vec<Row<'a>> {
        let filter = self.filter.to_lowercase();
        let is_asked_for = |vm: &&Vm| vm.name.to_lowercase().contains(&filter);
        let mut vms: Vec<&Vm> = figures.vms.iter().filter(is_asked_for).collect();
        let terms = |vm: &Vm, of: fn(&Terms) -> Option<f64>| {
            vm.terms.as_ref().and_then(of).unwrap_or_default()
        };
        let mean = |delay: Option<DelayUs>| delay.map_or(0.0, |delay| delay.mean);
        let of = |vm: &Vm| match self.sort {
            Sort::Used => vm.times.used_pct,
            Sort::Run => vm.times.run_pct,
            Sort::Ready => vm.times.ready_pct,
            Sort::Costop => vm.times.costop_pct,
            Sort::Wait => vm.times.wait_pct,
            Sort::Name => 0.0,
            Sort::Owed => terms(vm, |terms| terms.owed_pct),
            Sort::Hazard => terms(vm, |terms| terms.hazard_pct),
            Sort::ToGuest => mean(vm.io.delay_us.to_guest),
            Sort::ToDevice => mean(vm.io.delay_us.to_device),
            Sort::Moved => vm.io.bytes().mb_s(1.0).into_iter().flatten().sum(),
        };
        vms.sort_by(|a, b| of(b).total_cmp(&of(a)).then_with(|| a.name.cmp(&b.name)));
        let mut rows = Vec::new();
        for vm in vms {
            rows.push(Row { vm, vcpu: None });
            if self.is_open(vm) && self.columns != Columns::Io {
                rows.extend(vm.vcpus.iter().map(|vcpu| Row { vm, vcpu: Some(vcpu) }));
            }
        }
        rows
    }

    /// Are its vCPUs shown?
    pub fn is_open(&self, vm: &Vm) -> bool {
        self.open.contains(&vm.pid)
    }

    /// Puts the cursor where it belongs among these lines: to the first when its VM has gone.
    pub fn place_cursor(&mut self, rows: &[Row<'_>]) {
        let at = |id: RowId| rows.iter().position(|row| row.id() == id);
        let place = self.cursor.and_then(|id| at(id).or_else(|| at((id.0, None)))).unwrap_or(0);
        self.move_cursor(rows, place);
    }

    fn move_cursor(&mut self, rows: &[Row<'_>], place: usize) {
        let place = place.min(rows.len().saturating_sub(1));
        self.cursor = rows.get(place).map(Row::id);
        self.table.select(self.cursor.map(|_| place));
    }

    /// Does what that key says.
    pub fn press(&mut self, key: KeyCode, figures: &Figures) {
        if self.help {
            self.help = false;
            return;
        }
        if self.is_choosing {
            self.choose(key);
            return;
        }
        if self.is_typing {
            self.type_filter(key);
            let rows = self.rows(figures);
            self.place_cursor(&rows);
            return;
        }
        match key {
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char(' ') => self.is_frozen = !self.is_frozen,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.help = true,
            KeyCode::Char('U') => self.sort = Sort::Used,
            KeyCode::Char('P') => self.sort = Sort::Run,
            KeyCode::Char('R') => self.sort = Sort::Ready,
            KeyCode::Char('C') => self.sort = Sort::Costop,
            KeyCode::Char('W') => self.sort = Sort::Wait,
            KeyCode::Char('N') => self.sort = Sort::Name,
            KeyCode::Char('G') => self.sort = Sort::ToGuest,
            KeyCode::Char('D') => self.sort = Sort::ToDevice,
            KeyCode::Char('B') => self.sort = Sort::Moved,
            KeyCode::Char('O') => self.sort = Sort::Owed,
            KeyCode::Char('H') => self.sort = Sort::Hazard,
            KeyCode::Char('f') => self.is_choosing = true,
            KeyCode::Char('c') => self.columns = Columns::Cpu,
            KeyCode::Char('d') => self.columns = Columns::Drover,
            KeyCode::Char('i') => self.columns = Columns::Io,
            KeyCode::Char('*') => self.open_all(figures),
            _ => self.press_at_cursor(key, figures),
        }
        let rows = self.rows(figures);
        self.place_cursor(&rows);
    }

    /// The letter of a column shows or hides it; any other key goes back.
    fn choose(&mut self, key: KeyCode) {
        let KeyCode::Char(letter) = key else { return self.is_choosing = false };
        match Field::CHOSEN.iter().zip('a'..).find(|(_, its)| *its == letter) {
            Some(((field, _), _)) if self.hidden.contains(field) => drop(self.hidden.remove(field)),
            Some(((field, _), _)) => drop(self.hidden.insert(*field)),
            None => self.is_choosing = false,
        }
    }

    /// Enter leaves the filter as it is, Escape removes it.
    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_MAX => {
                self.filter.push(letter);
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            KeyCode::Enter => self.is_typing = false,
            _ => {}
        }
    }

    fn open(&mut self, pid: u32, open: bool) {
        self.open.retain(|&other| other != pid);
        self.open.extend(open.then_some(pid));
    }

    fn open_all(&mut self, figures: &Figures) {
        let all: BTreeSet<u32> = figures.vms.iter().map(|vm| vm.pid).collect();
        self.open = if all.is_subset(&self.open) { BTreeSet::new() } else { all };
    }

    fn press_at_cursor(&mut self, key: KeyCode, figures: &Figures) {
        let rows = self.rows(figures);
        self.place_cursor(&rows);
        let (Some(at), Some((pid, _))) = (self.table.selected(), self.cursor) else { return };
        match key {
            KeyCode::Up => self.move_cursor(&rows, at.saturating_sub(1)),
            KeyCode::Down => self.move_cursor(&rows, at + 1),
            KeyCode::PageUp => self.move_cursor(&rows, at.saturating_sub(PAGE)),
            KeyCode::PageDown => self.move_cursor(&rows, at + PAGE),
            KeyCode::Home => self.move_cursor(&rows, 0),
            KeyCode::End => self.move_cursor(&rows, rows.len()),
            KeyCode::Char('e') | KeyCode::Enter => self.open(pid, !self.open.contains(&pid)),
            KeyCode::Char('+') => self.open(pid, true),
            KeyCode::Char('-') => self.open(pid, false),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::figures;

    fn names(view: &View, figures: &Figures) -> Vec<String> {
        let name = |row: Row<'_>| match row.vcpu {
            None => row.vm.name.clone(),
            Some(vcpu) => format!("{}/{}", row.vm.name, vcpu.number),
        };
        view.rows(figures).into_iter().map(name).collect()
    }

    fn press(view: &mut View, keys: &[KeyCode], figures: &Figures) {
        keys.iter().for_each(|&key| view.press(key, figures));
    }

    #[test]
    fn the_most_of_what_is_asked_for_stands_first() {
        let (mut view, vms) =
            (View::default(), figures(&[("b", 1, 20.0), ("c", 2, 20.0), ("a", 3, 5.0)]));
        assert_eq!(names(&view, &vms), ["a", "b", "c"], "used");
        press(&mut view, &[KeyCode::Char('R')], &vms);
        assert_eq!(names(&view, &vms), ["b", "c", "a"], "ready");
        press(&mut view, &[KeyCode::Char('N')], &vms);
        assert_eq!(names(&view, &vms), ["a", "b", "c"], "by name");
    }

    #[test]
    fn columns_change_and_who_has_the_longest_delays_stands_first() {
        let (mut view, mut vms) = (View::default(), figures(&[("a", 1, 0.0), ("b", 2, 0.0)]));
        let delay = DelayUs { count: 1, mean: 9.0, p50: 9.0, p99: 9.0 };
        vms.vms[1].io.delay_us.to_device = Some(delay);
        press(&mut view, &[KeyCode::Char('D'), KeyCode::Char('*')], &vms);
        assert_eq!(names(&view, &vms), ["b", "b/0", "a", "a/0"]);
        press(&mut view, &[KeyCode::Char('i'), KeyCode::Char('G')], &vms);
        assert_eq!((view.columns, names(&view, &vms)), (Columns::Io, vec!["a".into(), "b".into()]));
        vms.vms[1].io.network_bytes = Some(7);
        press(&mut view, &[KeyCode::Char('B')], &vms);
        assert_eq!(names(&view, &vms), ["b", "a"], "bytes");
        press(&mut view, &[KeyCode::Char('c')], &vms);
        assert_eq!(view.columns, Columns::Cpu);
    }

    #[test]
    fn a_vm_opens_and_closes() {
        let (mut view, vms) = (View::default(), figures(&[("a", 1, 0.0), ("b", 2, 0.0)]));
        press(&mut view, &[KeyCode::Down, KeyCode::Char('e')], &vms);
        assert_eq!(names(&view, &vms), ["a", "b", "b/0"]);
        press(&mut view, &[KeyCode::Down, KeyCode::Char('-')], &vms);
        assert_eq!(names(&view, &vms), ["a", "b"]);
        assert_eq!(view.table.selected(), Some(1), "from its vCPU to the VM");
        press(&mut view, &[KeyCode::Char('*')], &vms);
        assert_eq!(names(&view, &vms), ["a", "a/0", "b", "b/0"]);
        press(&mut view, &[KeyCode::Char('*')], &vms);
        assert_eq!(names(&view, &vms), ["a", "b"]);
    }

    #[test]
    fn the_cursor_stays_with_its_vm() {
        let mut view = View::default();
        press(&mut view, &[KeyCode::End], &figures(&[("a", 1, 10.0), ("b", 2, 20.0)]));
        assert_eq!(view.table.selected(), Some(1));
        let later = figures(&[("a", 1, 20.0), ("b", 2, 10.0)]);
        view.place_cursor(&view.rows(&later));
        assert_eq!(view.table.selected(), Some(0), "it is the first now");
        let gone = figures(&[("a", 1, 20.0)]);
        view.place_cursor(&view.rows(&gone));
        assert_eq!(view.table.selected(), Some(0));
        view.place_cursor(&[]);
        assert_eq!(view.table.selected(), None);
        press(&mut view, &[KeyCode::Down, KeyCode::Char('e')], &figures(&[]));
    }

    #[test]
    fn a_filter_shows_who_has_it_in_the_name() {
        let (mut view, vms) =
            (View::default(), figures(&[("web", 1, 0.0), ("db-Web", 2, 0.0), ("q", 3, 0.0)]));
        let keys = ['/', 'w', 'e', 'q'].map(KeyCode::Char);
        press(&mut view, &keys, &vms);
        assert!(names(&view, &vms).is_empty() && view.is_typing);
        press(&mut view, &[KeyCode::Backspace, KeyCode::Enter, KeyCode::Char('R')], &vms);
        assert_eq!((names(&view, &vms).len(), view.filter.as_str()), (2, "we"));
        assert_eq!((view.sort, view.is_typing), (Sort::Ready, false));
        press(&mut view, &[KeyCode::Esc], &vms);
        assert_eq!(names(&view, &vms).len(), 3);
    }

    #[test]
    fn letters_hide_columns_and_show_them_again() {
        let (mut view, vms) = (View::default(), figures(&[("a", 1, 0.0)]));
        press(&mut view, &['f', 'a', 'b', 'b'].map(KeyCode::Char), &vms);
        assert_eq!(view.hidden.iter().copied().collect::<Vec<_>>(), [Field::Pid]);
        assert!(view.is_choosing);
        press(&mut view, &[KeyCode::Enter, KeyCode::Char('d')], &vms);
        assert!(!view.is_choosing && view.columns == Columns::Drover);
    }

    #[test]
    fn help_goes_with_any_key() {
        let (mut view, vms) = (View::default(), figures(&[("a", 1, 0.0)]));
        press(&mut view, &[KeyCode::Char('h')], &vms);
        assert!(view.help);
        press(&mut view, &[KeyCode::Char('e')], &vms);
        assert!(!view.help && names(&view, &vms) == ["a"]);
    }
}
