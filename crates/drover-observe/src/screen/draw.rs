// SPDX-License-Identifier: GPL-2.0-only
//! The screen: a line of what is going on, pCPUs, a table of VMs, a line of keys.

use std::time::Duration;

use drover_core::io::{DelayUs, MsPerMb};
use drover_core::printable::{one_line, printable};
use jiff::tz::TimeZone;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{self, Cell, Paragraph, Table};

use super::bars;
use super::columns::{self, Columns, Field};
use super::view::{Row, View};
use crate::figures::{Figures, Terms, Times};

/// A vCPU that is ready for more than so much is worth a look, or trouble: %.
const READY_HIGH: f64 = 5.0;
const READY_TOO_HIGH: f64 = 10.0;

const KEYS: &str = "h help  c CPU  d Drover  i I/O  f columns  URCWNOHGDB sort  / filter  q quit";

const HELP: &str = "\
drover top: where the time of VMs goes, in % of one pCPU

  %USED  CPU time charged to it; of a VM: to all its threads, helpers too
  %RUN   it ran
  %RDY   it was ready and others ran: over 5 (yellow) look, over 10 (red) act
  %CSTP  it was ready and stopped for the sake of its siblings, by Drover
  %WAIT  it had nothing to do, or waited for something
  Of each vCPU %RUN + %RDY + %CSTP + %WAIT = 100; of a VM it is the sum.
  %OWED  what Drover owed it; %HZD: of its time, one ran and a sibling could not
  HOME   its NUMA nodes; N%L: so much of its memory is there, %
  I/O, from wake-up to run: to guest, of a halted vCPU that a device woke;
  to device, of a helper (vhost, VMM) that a vCPU or the host woke; lost a MB

  c d i f          show CPU time, what Drover knows, I/O; choose columns
  U P R C W        sort by %USED, %RUN, %RDY, %CSTP, %WAIT
  O H G D B N      by %OWED, %HZD, mean delay to guest, to device; MB/s; by name
  Up Down Page Up, Page Down, Home, End: move
  e Enter + - *    show or hide the vCPUs of the VM; * those of all VMs
  /                only VMs with that in their names; Enter: done, Esc: all VMs
  Space            freeze what is shown, or go on
  h, ?, F1         this page
  q, F10, Ctrl-C   quit; columns and order are kept for the next time

Any key goes back. Bars: green is time in guests, blue the rest.";

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, figures: &Figures, interval: Duration, view: &mut View) {
    if view.help {
        frame.render_widget(Paragraph::new(HELP), frame.area());
        return;
    }
    if view.is_choosing {
        frame.render_widget(Paragraph::new(choice(view)), frame.area());
        return;
    }
    let shown = columns::shown(view, frame.area().width);
    let bars = bars::lines(&figures.pcpus, frame.area().width);
    let notes: Vec<Line<'_>> =
        figures.notes.iter().map(|note| one_line(note).yellow().into()).collect();
    let height = |lines: &[Line<'_>]| Constraint::Length(u16::try_from(lines.len()).unwrap_or(0));
    let over: Vec<Line<'_>> = columns::line_over(&shown)
        .map(|over| Line::from(over).right_aligned())
        .into_iter()
        .collect();
    let parts = [
        Constraint::Length(1),
        height(&bars),
        height(&notes),
        height(&over),
        Constraint::Fill(1),
        Constraint::Length(1),
    ];
    let [top, middle, below, above, rest, bottom] = Layout::vertical(parts).areas(frame.area());
    let of_table = |area: Rect| Rect { width: area.width.min(columns::width(&shown)), ..area };
    let (above, rest) = (of_table(above), of_table(rest));
    frame.render_widget(Line::from(title(figures, interval, view)).bold(), top);
    frame.render_widget(Text::from(bars), middle);
    frame.render_widget(Text::from(notes), below);
    frame.render_widget(Text::from(over), above);
    frame.render_widget(keys(view), bottom);
    let rows = view.rows(figures);
    view.place_cursor(&rows);
    let table = table(&rows, figures, view, &shown);
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
        figures.time.to_zoned_datetime(TimeZone::system()).strftime("%H:%M:%S"),
        figures.vms.len(),
        figures.pcpus.len(),
        interval.as_secs_f64(),
        figures.scheduler.as_deref().unwrap_or("the kernel's"),
    )
}

/// Which columns there are, each with its letter, in two halves side by side: a terminal has 24 lines.
fn choice(view: &View) -> String {
    let one = |(letter, (field, name)): (char, &(Field, &str))| {
        let mark = if view.hidden.contains(field) { ' ' } else { 'x' };
        format!("  {letter} [{mark}] {name}")
    };
    let all: Vec<String> = ('a'..).zip(&Field::CHOSEN).map(one).collect();
    let (left, right) = all.split_at(all.len().div_ceil(2));
    let beside = right.iter().map(String::as_str).chain([""]);
    let lines: Vec<String> = left.iter().zip(beside).map(|(l, r)| format!("{l:<32}{r}")).collect();
    format!(
        "Columns: its letter shows or hides one\n\n{}\n\nAny other key goes back.",
        lines.join("\n")
    )
}

fn table<'a>(rows: &[Row<'a>], figures: &Figures, view: &View, shown: &[Field]) -> Table<'a> {
    let head = shown.iter().map(|&field| {
        let alignment = if field == Field::Vm { Alignment::Left } else { Alignment::Right };
        let name = Line::from(field.head().0).alignment(alignment);
        let sorts = field.sort() == Some(view.sort);
        Cell::new(if sorts { name.bold().underlined() } else { name })
    });
    let row = |row: &Row<'a>| {
        let cell = |&field: &Field| match field {
            Field::Vm => Cell::new(name(row, view)),
            _ => right(text(field, row, figures.interval_s)).style(style(field, row)),
        };
        widgets::Row::new(shown.iter().map(cell).collect::<Vec<_>>())
    };
    let width = |field: &Field| match field {
        Field::Vm => Constraint::Fill(1),
        _ => Constraint::Length(field.head().1),
    };
    Table::new(rows.iter().map(row), shown.iter().map(width))
        .header(widgets::Row::new(head).style(Modifier::REVERSED))
        .row_highlight_style(Modifier::REVERSED)
}

fn right(text: String) -> Cell<'static> {
    Cell::new(Line::from(text).right_aligned())
}

fn name(row: &Row<'_>, view: &View) -> String {
    let mark = match view.columns {
        Columns::Io => ' ',
        _ if view.is_open(row.vm) => '-',
        _ => '+',
    };
    match row.vcpu {
        Some(vcpu) => format!("    vCPU {}", vcpu.number),
        None => format!("{mark} {}", printable(&row.vm.name)),
    }
}

/// What stands in a column. Of vCPUs, where the time went; the rest is of VMs.
fn text(field: Field, row: &Row<'_>, interval_s: f64) -> String {
    let (vm, times) = (row.vm, times(row));
    let pct = |pct: f64| format!("{pct:.1}");
    match field {
        Field::Used => pct(times.used_pct),
        Field::Run => pct(times.run_pct),
        Field::Ready => pct(times.ready_pct),
        Field::Costop => pct(times.costop_pct),
        Field::Wait => pct(times.wait_pct),
        Field::Pid => row.vcpu.map_or(vm.pid, |vcpu| vcpu.tid).to_string(),
        _ if row.vcpu.is_some() => String::new(),
        Field::Vcpus => vm.vcpus.len().to_string(),
        Field::Vm => printable(&vm.name),
        Field::Shares
        | Field::Owed
        | Field::Hazard
        | Field::Limited
        | Field::Yields
        | Field::InVain
        | Field::Home
        | Field::Local => {
            vm.terms.as_ref().and_then(|terms| told(field, terms)).unwrap_or_else(absent)
        }
        Field::Profile => {
            let class = vm.terms.as_ref().and_then(|terms| terms.profile);
            class.map_or_else(absent, |class| class.to_string())
        }
        Field::Block | Field::Network => {
            let [disk, network] = vm.io.bytes().mb_s(interval_s);
            let mb_s = if field == Field::Block { disk } else { network };
            mb_s.map_or_else(absent, |mb_s| format!("{mb_s:.1}"))
        }
        Field::GuestLost | Field::DeviceLost => {
            let lost = |lost: MsPerMb| match field {
                Field::GuestLost => lost.to_guest,
                _ => lost.to_device,
            };
            vm.io.ms_per_mb.map_or_else(absent, |it| brief(lost(it)))
        }
        Field::GuestWakes | Field::GuestMean | Field::GuestP99 => {
            delay(field, vm.io.delay_us.to_guest, interval_s)
        }
        Field::DeviceWakes | Field::DeviceMean | Field::DeviceP99 => {
            delay(field, vm.io.delay_us.to_device, interval_s)
        }
    }
}

fn absent() -> String {
    "-".to_owned()
}

/// What Drover tells; none: it does not know.
fn told(field: Field, terms: &Terms) -> Option<String> {
    let pct = |pct: f64| format!("{pct:.1}");
    match field {
        Field::Shares => Some(terms.shares.to_string()),
        Field::Owed => terms.owed_pct.map(pct),
        Field::Hazard => terms.hazard_pct.map(pct),
        Field::Limited => terms.limited_pct.map(pct),
        Field::Yields => terms.yields_s.map(brief),
        Field::InVain => terms.yields_in_vain_pct.map(pct),
        Field::Local => terms.local_pct.map(|pct| format!("{pct:.0}")),
        Field::Home if !terms.home.is_empty() => {
            Some(terms.home.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
        }
        _ => None,
    }
}

fn delay(field: Field, delay: Option<DelayUs>, interval_s: f64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "there are no 2^52")]
    let per_s = |delay: DelayUs| delay.count as f64 / interval_s;
    match (field, delay) {
        (Field::GuestWakes | Field::DeviceWakes, _) => format!("{:.0}", delay.map_or(0.0, per_s)),
        (_, None) => absent(),
        (Field::GuestMean | Field::DeviceMean, Some(delay)) => brief(delay.mean),
        (_, Some(delay)) => brief(delay.p99),
    }
}

fn times<'a>(row: &Row<'a>) -> &'a Times {
    row.vcpu.map_or(&row.vm.times, |vcpu| &vcpu.times)
}

/// With a digit behind the point where there is room.
fn brief(figure: f64) -> String {
    if figure < 10_000.0 { format!("{figure:.1}") } else { format!("{figure:.0}") }
}

fn style(field: Field, row: &Row<'_>) -> Style {
    #[allow(clippy::cast_precision_loss, reason = "a VM has no 2^52 vCPUs")]
    let vcpus = if row.vcpu.is_some() { 1.0 } else { row.vm.vcpus.len() as f64 };
    match field {
        Field::Ready => ready_style(times(row).ready_pct / vcpus),
        _ => Style::new(),
    }
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
    use drover_core::io::{Bytes, IoDelays};
    use drover_core::profile::Class;
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
        let moved = Bytes { block_bytes: None, network_bytes: Some(25_000_000) };
        figures.vms[0].io = figures.vms[0].io.with_bytes(moved);
        view.press(KeyCode::Char('i'), &figures);
        let lines = text(&screen(80, 24, &figures, &mut view));
        assert_eq!(
            &lines[2..6],
            [
                "                      MOVED MB/s         DELAYS TO GUEST        DELAYS TO DEVICE",
                "VM                  DISK     NET MEAN us  P99 us   ms/MB MEAN us  P99 us   ms/MB",
                "  db                   -       -       -       -       -       -       -       -",
                "  web                  -    25.0    61.2  2097.2     3.0     4.0  123456     0.2",
            ]
        );
        let lines = text(&screen(40, 24, &figures, &mut view));
        assert_eq!(
            &lines[2..5],
            [
                "                    MB/s   GUEST  DEVICE",
                "VM                   NET MEAN us MEAN us",
                "  db                   -       -       -",
            ]
        );
        let lines = text(&screen(120, 24, &figures, &mut view));
        let words: Vec<_> = lines[3].split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "VM PID DISK NET WAKES/s MEAN us P99 us ms/MB WAKES/s MEAN us P99 us ms/MB"
        );
    }

    #[test]
    fn what_drover_knows_fits_80_columns_and_stands_beside_cpu_time_on_a_wide_screen() {
        let mut figures = figures(&[("web", 185, 50.0), ("db", 7, 7.0)]);
        figures.vms[0].terms = Some(Terms {
            shares: 20_000,
            owed_pct: Some(12_345.6),
            hazard_pct: Some(25.0),
            limited_pct: Some(75.0),
            yields_s: Some(12_500.0),
            yields_in_vain_pct: Some(98.5),
            home: vec![0, 1],
            local_pct: Some(87.5),
            profile: Some(Class::Memory),
        });
        let mut view = View::default();
        view.press(KeyCode::Char('d'), &figures);
        view.press(KeyCode::Char('O'), &figures);
        let lines = text(&screen(80, 24, &figures, &mut view));
        assert_eq!(
            &lines[2..5],
            [
                "VM                    %USED    %RDY  SHARES   %OWED   %HZD    HOME   N%L PROFILE",
                "+ web                  50.0    50.0   20000 12345.6   25.0     0,1    88  memory",
                "+ db                   93.0     7.0       -       -      -       -     -       -",
            ]
        );
        view.press(KeyCode::Char('c'), &figures);
        let lines = text(&screen(250, 80, &figures, &mut view));
        let words: Vec<_> = lines[2].split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "VM PID VCPUS %USED %RUN %RDY %CSTP %WAIT SHARES %OWED %HZD %MLMTD YLD/s %VAIN HOME N%L PROFILE"
        );
        let web: Vec<_> = lines[3].split_whitespace().collect();
        assert_eq!(web[web.len() - 7..], ["25.0", "75.0", "12500", "98.5", "0,1", "88", "memory"]);
    }

    #[test]
    fn columns_are_chosen_from_a_list() {
        let (mut view, figures) = (View::default(), figures(&[("a", 1, 0.0)]));
        view.press(KeyCode::Char('f'), &figures);
        view.press(KeyCode::Char('a'), &figures);
        let lines = text(&screen(80, 24, &figures, &mut view));
        assert!(lines[2].starts_with("  a [ ] PID  ") && lines[3].starts_with("  b [x] VCPUS  "));
        assert!(
            lines[2].ends_with("  n [x] HOME") && lines[14].ends_with("  z [x] to device: ms/MB")
        );
        assert_eq!(lines[16], "Any other key goes back.");
        view.press(KeyCode::Esc, &figures);
        let lines = text(&screen(80, 24, &figures, &mut view));
        assert!(!lines[2].contains("PID"), "{lines:#?}");
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
        assert!(lines[2].len() < 175, "figures stand near the names they are of: {}", lines[2]);
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
        assert!(lines[23].starts_with("Any key goes back."), "{lines:#?}");
        assert!(HELP.lines().all(|line| line.chars().count() <= 80));
    }
}
