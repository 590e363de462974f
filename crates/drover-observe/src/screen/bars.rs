// SPDX-License-Identifier: GPL-2.0-only
//! pCPUs as bars: up to eight each with a bar of its own, more with one letter each.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use crate::figures::Pcpu;

/// pCPUs that have bars of their own, two in a line.
const BARS_MAX: usize = 8;
/// pCPUs in a line of letters, and in a group of it.
const IN_LINE: usize = 64;
const IN_GROUP: usize = 8;
/// Lines of letters at most.
const LINES_MAX: usize = 8;

const GUEST: Style = Style::new().fg(Color::Green);
const OTHER: Style = Style::new().fg(Color::Blue);

/// The lines that show these pCPUs, so wide.
pub fn lines(pcpus: &[Pcpu], width: u16) -> Vec<Line<'static>> {
    if pcpus.len() > BARS_MAX {
        return pcpus.chunks(IN_LINE).take(LINES_MAX).map(letters).collect();
    }
    let rows = pcpus.len().div_ceil(2);
    let line = |row: usize| {
        let both = [Some(row), (row + rows < pcpus.len()).then_some(row + rows)];
        let width = usize::from(width) / 2;
        Line::from_iter(both.into_iter().flatten().flat_map(|index| bar(&pcpus[index], width)))
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
fn letters(pcpus: &[Pcpu]) -> Line<'static> {
    const HEIGHTS: [&str; 9] = [".", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    let letter = |(index, pcpu): (usize, &Pcpu)| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let height = (pcpu.busy_pct.clamp(0.0, 100.0) / 100.0 * 8.0).round() as usize;
        let style = if pcpu.guest_pct * 2.0 >= pcpu.busy_pct { GUEST } else { OTHER };
        let gap = if index > 0 && index % IN_GROUP == 0 { " " } else { "" };
        [Span::raw(gap), Span::styled(HEIGHTS[height], style)]
    };
    let first = pcpus.first().map_or(0, |pcpu| pcpu.pcpu);
    let label = Span::raw(format!("{first:>4} "));
    Line::from_iter([label].into_iter().chain(pcpus.iter().enumerate().flat_map(letter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pcpus(count: u32) -> Vec<Pcpu> {
        let pcpu = |pcpu| Pcpu { pcpu, busy_pct: f64::from(pcpu % 9) * 12.5, guest_pct: 0.0 };
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
        for width in [0, 1, 13, 14, 40, 400] {
            assert!(lines(&pcpus(8), width).len() == 4);
        }
    }
}
