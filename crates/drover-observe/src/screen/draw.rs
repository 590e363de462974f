// SPDX-License-Identifier: GPL-2.0-only
//! The screen: a line of what is going on, pCPUs, a table of VMs, a line of keys.

use std::time::Duration;

use chrono::Local;
use drover_core::io::{DelayUs, IoDelays};
use drover_core::printable::{one_line, printable};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{self, Cell, Paragraph, Table};

use super::bars;
use super::view::{Columns, Row, Sort, View};
use crate::figures::{Figures, Times};

/// A vCPU that is ready for more than so much is worth a look, or trouble: %.
const READY_HIGH: f64 = 5.0;
const READY_TOO_HIGH: f64 = 10.0;

const KEYS: &str = "h help  c CPU  i I/O  / filter  Space freeze  UPRCWGDN sort  e vCPUs  q quit";

/// So wide a screen has all columns, and so wide one those that matter most.
const WIDE: u16 = 80;
const HALF_WIDE: u16 = 56;

const HELP: &str = "\
drover top: where the time of VMs goes, in % of one pCPU

  %USED  CPU time charged to it; of a VM: to all its threads, helpers too
  %RUN   it ran
  %RDY   it was ready and others ran: over 5 (yellow) look, over 10 (red) act
  %CSTP  it was ready and stopped for the sake of its siblings, by Drover
  %WAIT  it had nothing to do, or waited for something
  Of each vCPU %RUN + %RDY + %CSTP + %WAIT = 100; of a VM it is the sum.
  Bars: green is time in guests, blue the rest.
  I/O, from wake-up to run: to guest, of a halted vCPU that a device woke;
  to device, of a helper (vhost, I/O thread, VMM) that a vCPU or the host woke

  c i              show CPU time, I/O delays
  U P R C W        sort by %USED, %RUN, %RDY, %CSTP, %WAIT
  G D N            sort by mean delay to guest, to device; by name
  Up Down Page Up, Page Down, Home, End: move
  e, Enter         show or hide the vCPUs of the VM; + shows, - hides
  *                show or hide those of all VMs
  /                only VMs with that in their names; Enter: done, Esc: all VMs
  Space            freeze what is shown, or go on
  h, ?, F1         this page
  q, F10, Ctrl-C   quit

Any key goes back.";

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, figures: &Figures, interval: Duration, view: &mut View) {
    if view.help {
        frame.render_widget(Paragraph::new(HELP), frame.area());
        return;
    }
    let bars = bars::lines(&figures.pcpus, frame.area().width);
    let notes: Vec<Line<'_>> =
        figures.notes.iter().map(|note| one_line(note).yellow().into()).collect();
    let height = |lines: &[Line<'_>]| Constraint::Length(u16::try_from(lines.len()).unwrap_or(0));
    let over: Vec<Line<'_>> = match view.columns {
        // Where there is no room for all columns, none are over them.
        Columns::Io if frame.area().width >= WIDE => {
            let over = IO_OVER.map(|text| format!(" {text:>IO_OVER_WIDTH$}")).concat();
            vec![Line::from(over).right_aligned()]
        }
        Columns::Cpu | Columns::Io => Vec::new(),
    };
    let parts = [
        Constraint::Length(1),
        height(&bars),
        height(&notes),
        height(&over),
        Constraint::Fill(1),
        Constraint::Length(1),
    ];
    let [top, middle, below, above, rest, bottom] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Line::from(title(figures, interval, view)).bold(), top);
    frame.render_widget(Text::from(bars), middle);
    frame.render_widget(Text::from(notes), below);
    frame.render_widget(Text::from(over), above);
    frame.render_widget(keys(view), bottom);
    let rows = view.rows(figures);
    view.place_cursor(&rows);
    let table = table(&rows, figures, view, rest.width);
    frame.render_stateful_widget(table, rest, &mut view.table);
}

/// What keys do; while letters are typed, the filter.
fn keys(view: &View) -> Line<'static> {
    match view.is_typing {
        true => format!("VMs with this in their names: {}_", printable(&view.filter)).into(),
        false => Line::from(KEYS).dim(),
    }
}

fn title(figures: &Figures, interval: Duration, view: &View) -> String {
    let vcpus: usize = figures.vms.iter().map(|vm| vm.vcpus.len()).sum();
    let frozen = if view.is_frozen { "FROZEN " } else { "" };
    format!(
        "{frozen}drover top {}  VMs {}  vCPUs {vcpus}  pCPUs {}  every {} s  scheduler: {}",
        figures.time.with_timezone(&Local).format("%H:%M:%S"),
        figures.vms.len(),
        figures.pcpus.len(),
        interval.as_secs_f64(),
        figures.scheduler.as_deref().unwrap_or("the kernel's"),
    )
}

/// A column's head, whom it sorts by, and its width.
type Column = (&'static str, Option<Sort>, Constraint);

const CPU: [Column; 8] = [
    ("VM", Some(Sort::Name), Constraint::Fill(1)),
    ("PID", None, Constraint::Length(8)),
    ("VCPUS", None, Constraint::Length(5)),
    ("%USED", Some(Sort::Used), Constraint::Length(7)),
    ("%RUN", Some(Sort::Run), Constraint::Length(7)),
    ("%RDY", Some(Sort::Ready), Constraint::Length(7)),
    ("%CSTP", Some(Sort::Costop), Constraint::Length(7)),
    ("%WAIT", Some(Sort::Wait), Constraint::Length(7)),
];

const IO: [Column; 8] = [
    ("VM", Some(Sort::Name), Constraint::Fill(1)),
    ("PID", None, Constraint::Length(8)),
    ("WAKES/s", None, Constraint::Length(8)),
    ("MEAN us", Some(Sort::ToGuest), Constraint::Length(8)),
    ("P99 us", None, Constraint::Length(8)),
    ("WAKES/s", None, Constraint::Length(8)),
    ("MEAN us", Some(Sort::ToDevice), Constraint::Length(8)),
    ("P99 us", None, Constraint::Length(8)),
];

/// Over the columns of `IO`: three of eight letters each, and what is between them.
const IO_OVER: [&str; 2] = ["DELAYS TO GUEST", "TO DEVICE"];
const IO_OVER_WIDTH: usize = 26;

/// The columns for which a screen of that width has room.
fn fitting(columns: Columns, width: u16) -> &'static [usize] {
    match (columns, width) {
        (_, WIDE..) => &[0, 1, 2, 3, 4, 5, 6, 7],
        (Columns::Cpu, HALF_WIDE..) => &[0, 3, 4, 5, 6, 7],
        (Columns::Cpu, _) => &[0, 4, 5, 7],
        (Columns::Io, HALF_WIDE..) => &[0, 3, 4, 6, 7],
        (Columns::Io, _) => &[0, 3, 6],
    }
}

fn table<'a>(rows: &[Row<'a>], figures: &Figures, view: &View, width: u16) -> Table<'a> {
    let columns = if view.columns == Columns::Cpu { CPU } else { IO };
    let shown = fitting(view.columns, width);
    let head = shown.iter().map(|&column| {
        let (name, sort, _) = columns[column];
        let alignment = if name == "VM" { Alignment::Left } else { Alignment::Right };
        let name = Line::from(name).alignment(alignment);
        Cell::new(if sort == Some(view.sort) { name.bold().underlined() } else { name })
    });
    let row = |row: &Row<'a>| match view.columns {
        Columns::Cpu => cpu_row(row, view),
        Columns::Io => io_row(row, figures.interval_s),
    };
    let row = |one: &Row<'a>| {
        let cells = row(one);
        widgets::Row::new(shown.iter().map(move |&column| cells[column].clone()))
    };
    Table::new(rows.iter().map(row), shown.iter().map(|&column| columns[column].2))
        .header(widgets::Row::new(head).style(Modifier::REVERSED))
        .row_highlight_style(Modifier::REVERSED)
}

fn right(text: String) -> Cell<'static> {
    Cell::new(Line::from(text).right_aligned())
}

fn cpu_row<'a>(row: &Row<'a>, view: &View) -> Vec<Cell<'a>> {
    let (vm, times) = (row.vm, row.vcpu.map_or(&row.vm.times, |vcpu| &vcpu.times));
    let [name, pid, vcpus] = match row.vcpu {
        Some(vcpu) => [format!("    vCPU {}", vcpu.number), vcpu.tid.to_string(), String::new()],
        None => {
            let mark = if view.is_open(vm) { '-' } else { '+' };
            [
                format!("{mark} {}", printable(&vm.name)),
                vm.pid.to_string(),
                vm.vcpus.len().to_string(),
            ]
        }
    };
    let vcpus_shown = if row.vcpu.is_some() { 1 } else { vm.vcpus.len() };
    let mut cells = vec![Cell::new(name), right(pid), right(vcpus)];
    cells.extend(shown(times).map(|pct| right(format!("{pct:.1}"))));
    #[allow(clippy::cast_precision_loss, reason = "a VM has no 2^52 vCPUs")]
    let style = ready_style(times.ready_pct / vcpus_shown as f64);
    cells[5] = cells[5].clone().style(style);
    cells
}

fn io_row<'a>(row: &Row<'a>, interval_s: f64) -> Vec<Cell<'a>> {
    let IoDelays { to_guest, to_device } = row.vm.io.delay_us;
    let mut cells =
        vec![Cell::new(format!("  {}", printable(&row.vm.name))), right(row.vm.pid.to_string())];
    for delay in [to_guest, to_device] {
        #[allow(clippy::cast_precision_loss, reason = "there are no 2^52")]
        let per_s = delay.map_or(0.0, |delay| delay.count as f64 / interval_s);
        let us = |of: fn(&DelayUs) -> f64| delay.as_ref().map_or("-".to_owned(), |it| us(of(it)));
        cells.extend([format!("{per_s:.0}"), us(|it| it.mean), us(|it| it.p99)].map(right));
    }
    cells
}

/// With a digit behind the point where there is room.
fn us(us: f64) -> String {
    if us < 10_000.0 { format!("{us:.1}") } else { format!("{us:.0}") }
}

fn shown(times: &Times) -> [f64; 5] {
    [times.used_pct, times.run_pct, times.ready_pct, times.costop_pct, times.wait_pct]
}

/// Of one vCPU, or of one of a VM in the mean.
fn ready_style(ready_pct: f64) -> Style {
    match ready_pct {
        pct if pct > READY_TOO_HIGH => Color::Red.into(),
        pct if pct > READY_HIGH => Color::Yellow.into(),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::figures;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;
    use ratatui::crossterm::event::KeyCode;

    fn screen(width: u16, height: u16, figures: &Figures, view: &mut View) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, figures, Duration::from_secs(1), view)).unwrap();
        terminal.backend().buffer().clone()
    }

    fn text(buffer: &Buffer) -> Vec<String> {
        let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..buffer.area.height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn a_screen_of_80_by_24_has_it_all() {
        let mut view = View::default();
        let mut figures =
            figures(&[("web", 185, 50.0), ("build-with-a-long-name-indeed", 4_194_304, 7.0)]);
        figures.notes.push("KVM is not loaded: no VM runs here".to_owned());
        view.press(KeyCode::End, &figures);
        view.press(KeyCode::Char('e'), &figures);
        let lines = text(&screen(80, 24, &figures, &mut view));
        assert!(lines[0].starts_with("drover top "), "{lines:#?}");
        assert!(
            lines[0].ends_with("VMs 2  vCPUs 2  pCPUs 1  every 1 s  scheduler: the kernel's"),
            "{}",
            lines[0]
        );
        assert_eq!(lines[1], "  0 [||||||||||||||||||||        75.0%]");
        assert_eq!(lines[2], "KVM is not loaded: no VM runs here");
        assert_eq!(
            &lines[3..7],
            [
                "VM                             PID VCPUS   %USED    %RUN    %RDY   %CSTP   %WAIT",
                "+ build-with-a-long-name-  4194304     1    93.0    93.0     7.0     0.0     0.0",
                "- web                          185     1    50.0    50.0    50.0     0.0     0.0",
                "    vCPU 0                     186          50.0    50.0    50.0     0.0     0.0",
            ]
        );
        assert_eq!(lines[23], KEYS);
    }

    #[test]
    fn delays_fit_80_columns() {
        let mut view = View::default();
        let mut figures = figures(&[("web", 185, 50.0), ("db", 4_194_304, 7.0)]);
        let delay = |mean, p99| Some(DelayUs { count: 1234, mean, p50: mean, p99 });
        figures.vms[0].io.delay_us =
            IoDelays { to_guest: delay(61.25, 2097.152), to_device: delay(4.0, 123_456.0) };
        view.press(KeyCode::Char('i'), &figures);
        let lines = text(&screen(80, 24, &figures, &mut view));
        assert_eq!(
            &lines[2..6],
            [
                "                                      DELAYS TO GUEST                  TO DEVICE",
                "VM                     PID  WAKES/s  MEAN us   P99 us  WAKES/s  MEAN us   P99 us",
                "  db               4194304        0        -        -        0        -        -",
                "  web                  185     1234     61.2   2097.2     1234      4.0   123456",
            ]
        );
    }

    #[test]
    fn who_waits_too_long_stands_out() {
        let mut view = View::default();
        let figures = figures(&[("a", 1, 0.0), ("b", 2, 7.0), ("c", 3, 50.0)]);
        let buffer = screen(80, 24, &figures, &mut view);
        let colour = |y| buffer[(62, y)].fg;
        assert_eq!(
            [3, 4, 5].map(colour),
            [Color::Reset, Color::Yellow, Color::Red],
            "{:#?}",
            text(&buffer)
        );
    }

    #[test]
    fn a_narrow_screen_has_what_matters_most_and_a_wide_one_all() {
        let figures = figures(&[("web-with-a-long-name", 185, 50.0)]);
        let mut view = View::default();
        for (width, head) in [
            (40, "VM                   %RUN    %RDY   %WAIT"),
            (60, "VM                   %USED    %RUN    %RDY   %CSTP   %WAIT"),
        ] {
            let lines = text(&screen(width, 24, &figures, &mut view));
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&lines[2]), words(head), "{lines:#?}");
            assert!(lines[3].contains("web-with") && lines[3].contains(" 50.0"), "{lines:#?}");
        }
        let lines = text(&screen(250, 80, &figures, &mut view));
        assert!(lines[2].contains("PID") && lines[3].contains("web-with-a-long-name"));
    }

    #[test]
    fn a_frozen_screen_and_a_filter_are_seen() {
        let figures = figures(&[("web", 1, 50.0), ("db", 2, 50.0)]);
        let mut view = View::default();
        for key in [' ', '/', 'w', '\u{9b}'] {
            view.press(KeyCode::Char(key), &figures);
        }
        let lines = text(&screen(80, 24, &figures, &mut view));
        assert!(lines[0].starts_with("FROZEN drover top"), "{lines:#?}");
        assert_eq!(lines[23], "VMs with this in their names: w\u{fffd}_");
    }

    #[test]
    fn help_fits_and_any_size_is_drawn() {
        let (mut view, figures) = (View::default(), figures(&[("a", 1, 0.0)]));
        for (width, height) in [(1, 1), (20, 5), (80, 4), (300, 100)] {
            screen(width, height, &figures, &mut view);
        }
        view.press(KeyCode::Char('?'), &figures);
        let lines = text(&screen(80, 24, &figures, &mut view));
        assert!(lines.iter().any(|line| line == "Any key goes back."), "{lines:#?}");
        assert!(HELP.lines().all(|line| line.chars().count() <= 80));
    }
}
