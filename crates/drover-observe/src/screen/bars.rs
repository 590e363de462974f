// SPDX-License-Identifier: GPL-2.0-only
//! pCPUs as bars, socket by socket and core by core: a few each with a bar of its own, more with one letter each.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use crate::figures::Pcpu;

/// Lines of bars at most, and how wide one is at least where there are two or more in a line.
const ROWS_MAX: usize = 4;
const BAR_WIDTH: u16 = 40;
/// A bar is no wider.
const BAR_MAX: usize = 64;
/// pCPUs in a line of letters, and in a group of it.
const IN_LINE: usize = 64;
const IN_GROUP: usize = 8;
/// Lines of letters at most.
const LINES_MAX: usize = 8;

const GUEST: Style = Style::new().fg(Color::Green);
const OTHER: Style = Style::new().fg(Color::Blue);

/// The lines that show these pCPUs, so wide.
pub fn lines(pcpus: &[Pcpu], width: u16) -> Vec<Line<'static>> {
    let mut pcpus = pcpus.to_vec();
    pcpus.sort_by_key(|pcpu| (pcpu.socket, pcpu.core, pcpu.pcpu));
    let in_line = usize::from(width / BAR_WIDTH).max(2);
    if pcpus.len() > ROWS_MAX * in_line {
        let sockets: Vec<&[Pcpu]> = pcpus.chunk_by(|a, b| a.socket == b.socket).collect();
        let many = sockets.len() > 1;
        let lines = sockets.iter().flat_map(|socket| socket.chunks(IN_LINE));
        return lines.take(LINES_MAX).map(|pcpus| letters(pcpus, many)).collect();
    }
    let rows = pcpus.len().div_ceil(in_line).max(pcpus.len().min(ROWS_MAX).div_ceil(2));
    let columns = pcpus.len().div_ceil(rows.max(1)).max(2);
    let width = (usize::from(width) / columns).min(BAR_MAX);
    let line = |row: usize| {
        let ones = pcpus.iter().skip(row).step_by(rows);
        Line::from_iter(ones.flat_map(|pcpu| bar(pcpu, width)))
    };
    (0..rows).map(line).collect()
}

/// `  3 [||||||||||||         52.0%] `
fn bar(pcpu: &Pcpu, width: usize) -> Vec<Span<'static>> {
    let (begin, end) = (format!("{:>3} [", pcpu.pcpu), format!("{:>6.1}%] ", pcpu.busy_pct));
    let room = width.saturating_sub(begin.len() + end.len());
    let of_room = |pct: f64| {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let letters = (pct.clamp(0.0, 100.0) / 100.0 * room as f64).round() as usize;
        letters
    };
    let busy = of_room(pcpu.busy_pct);
    let guest = of_room(pcpu.guest_pct).min(busy);
    vec![
        Span::raw(begin),
        Span::styled("|".repeat(guest), GUEST),
        Span::styled("|".repeat(busy - guest), OTHER),
        Span::raw(" ".repeat(room - busy)),
        Span::raw(end),
    ]
}

/// A letter each, as high as the pCPU is busy.
fn letters(pcpus: &[Pcpu], by_socket: bool) -> Line<'static> {
    const HEIGHTS: [&str; 9] = [".", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    let letter = |(index, pcpu): (usize, &Pcpu)| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let height = (pcpu.busy_pct.clamp(0.0, 100.0) / 100.0 * 8.0).round() as usize;
        let style = if pcpu.guest_pct * 2.0 >= pcpu.busy_pct { GUEST } else { OTHER };
        let gap = if index > 0 && index % IN_GROUP == 0 { " " } else { "" };
        [Span::raw(gap), Span::styled(HEIGHTS[height], style)]
    };
    let first = pcpus.first().map_or((0, 0), |pcpu| (pcpu.socket, pcpu.pcpu));
    let label = match by_socket {
        true => format!("S{:<3} ", first.0),
        false => format!("{:>4} ", first.1),
    };
    let label = Span::raw(label);
    Line::from_iter([label].into_iter().chain(pcpus.iter().enumerate().flat_map(letter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pcpus(count: u32) -> Vec<Pcpu> {
        let pcpu = |pcpu| Pcpu {
            pcpu,
            socket: 0,
            core: pcpu,
            busy_pct: f64::from(pcpu % 9) * 12.5,
            guest_pct: 0.0,
        };
        (0..count).map(pcpu).collect()
    }

    fn text(line: &Line<'_>) -> String {
        line.spans.iter().map(|span| span.content.as_ref()).collect()
    }

    #[test]
    fn few_have_bars_and_many_have_letters() {
        let three = lines(&pcpus(3), 80);
        assert_eq!(three.len(), 2);
        assert_eq!(
            text(&three[0]),
            "  0 [                             0.0%]   2 [|||||||                     25.0%] "
        );
        let many = lines(&pcpus(384), 80);
        assert_eq!(many.len(), 6);
        assert!(text(&many[1]).starts_with("  64 ▁▂▃▄▅▆▇█ .▁"), "{}", text(&many[1]));
        assert!(many.iter().all(|line| line.width() <= 80));
        assert_eq!(lines(&pcpus(4096), 80).len(), LINES_MAX);
    }

    #[test]
    fn a_bar_fits_whatever_the_width() {
        for width in [0, 1, 13, 14, 40, 80] {
            assert_eq!(lines(&pcpus(8), width).len(), 4);
        }
        for (count, width) in [(1, 250), (8, 250), (24, 250), (9, 130)] {
            let lines = lines(&pcpus(count), width);
            assert!(lines.len() <= ROWS_MAX && text(&lines[0]).contains('['), "{count}: {lines:?}");
            assert!(lines.iter().all(|line| line.width() <= usize::from(width)));
        }
        assert!(lines(&[], 80).is_empty());
    }

    #[test]
    fn threads_of_a_core_stand_side_by_side_and_sockets_in_lines_of_their_own() {
        let mut pcpus = pcpus(16);
        for pcpu in &mut pcpus {
            (pcpu.socket, pcpu.core) = (pcpu.pcpu % 2, pcpu.pcpu % 8);
        }
        let lines: Vec<String> = lines(&pcpus, 80).iter().map(text).collect();
        // 0 and 8, 2 and 10, 4 and 12, 6 and 14; then those of the other socket.
        assert_eq!(lines, ["S0   .█▂▁▄▃▆▅", "S1   ▁.▃▂▅▄▇▆"]);
    }
}
