// SPDX-License-Identifier: GPL-2.0-only
//! Draws who ran where: time across, pCPUs down, one colour for each VM, a shade of it for each vCPU.
//!
//! vCPUs of a VM that run together stand above each other in shades of one colour, between the same
//! two moments: a gang is a block as high as it is wide in vCPUs.

use super::axis::Scale;
use super::colors::{Color, GRID, INK, of_vm};
use super::layout::MARGIN;
use super::render::text_width;
use super::shapes::{Align, Drawing, fitting, wrapped};
use crate::kinds::{Kind, kinds};
use drover_scenario::schedule::{Schedule, ScheduledVm, Span, Who};
use std::collections::HashMap;

/// Wider than other pages: what is shown is fine.
const PAGE_WIDTH: f64 = 900.0;
/// Room left of the rows for the numbers of pCPUs.
const NUMBER_WIDTH: f64 = 62.0;
/// Height of all rows of a schedule, where there are neither very few nor very many pCPUs.
const ROWS_HEIGHT: f64 = 320.0;
/// A row is no lower and no higher.
const ROW_HEIGHT: (f64, f64) = (3.0, 30.0);
/// Size of the numbers, and so the least distance between two.
const NUMBER_SIZE: f64 = 12.0;
/// Nobody runs.
const IDLE: Color = (240, 240, 240);
/// Tasks of the host.
const OF_HOST: Color = (70, 70, 70);
/// How pale the palest vCPU of a VM is; 1 would be white.
const PALEST: f64 = 0.55;
/// What is narrower than that is not drawn by itself, but with what is beside it: a pixel of the PNG.
const SPAN_MIN: f64 = 0.5;
/// Of so many such pieces is a schedule made at most, whatever ran.
const PIECES_MAX: f64 = 40_000.0;
/// Shades of a VM in the legend.
const SHADES_SHOWN: u32 = 4;

/// The page for some schedules of a scenario; none where there are none.
pub(super) fn page(scenario: &str, ground: &str, schedules: &[Schedule]) -> Option<Drawing> {
    let first = schedules.first()?;
    let mut drawing = Drawing { width: PAGE_WIDTH, ..Drawing::default() };
    let width = PAGE_WIDTH - 2.0 * MARGIN;
    let title = format!("{scenario}: who ran where");
    drawing.text(MARGIN, 38.0, &fitting(&title, 22.0, width), 22.0, Align::Left);
    let length_ms = first.length_ns as f64 / 1e6;
    let vms = all_vms(schedules);
    let names: Vec<&str> = vms.iter().map(|vm| vm.name.as_str()).collect();
    let palette = match kinds(&names) {
        None => Palette::of_vms(&vms),
        Some(kinds) => Palette::of_kinds(&kinds),
    };
    let colors = match palette.of.values().any(|(_, shade)| shade.is_some()) {
        false => "a colour for each VM, a shade for each of its vCPUs",
        true => "a colour for each kind of VM, a shade for each of them",
    };
    let told =
        format!("{ground}, {length_ms:.0} ms of each run; time across, pCPUs down, {colors}");
    let mut y = 48.0;
    for line in wrapped(&told, 13.0, width) {
        y += 18.0;
        drawing.faint_text(MARGIN, y, &line, 13.0, Align::Left);
    }
    y = draw_legend(&mut drawing, &palette, y + 28.0);
    for schedule in schedules {
        y = draw_schedule(&mut drawing, schedule, &palette, y + 26.0);
    }
    drawing.height = y + MARGIN / 2.0;
    Some(drawing)
}

/// All VMs, in the order in which they come; of those that are in several schedules the widest.
fn all_vms(schedules: &[Schedule]) -> Vec<ScheduledVm> {
    let mut all: Vec<ScheduledVm> = Vec::new();
    for vm in schedules.iter().flat_map(|schedule| &schedule.vms) {
        match all.iter_mut().find(|known| known.name == vm.name) {
            Some(known) => known.vcpus = known.vcpus.max(vm.vcpus),
            None => all.push(vm.clone()),
        }
    }
    all
}

/// Which colours stand for whom.
struct Palette {
    /// What each colour is called, and how many shades it has.
    entries: Vec<(String, u32)>,
    /// The colour of each VM, and its shade where all its vCPUs have one.
    of: HashMap<String, (usize, Option<u32>)>,
}

impl Palette {
    /// A colour for each VM, a shade for each of its vCPUs.
    fn of_vms(vms: &[ScheduledVm]) -> Self {
        let entry = |vm: &ScheduledVm| match vm.vcpus.saturating_sub(1) {
            0 => (vm.name.clone(), 1),
            last => (format!("{}, vCPUs 0 to {last}", vm.name), vm.vcpus),
        };
        let of = |(index, vm): (usize, &ScheduledVm)| (vm.name.clone(), (index, None));
        Self {
            entries: vms.iter().map(entry).collect(),
            of: vms.iter().enumerate().map(of).collect(),
        }
    }

    /// A colour for each kind, a shade for each VM of it.
    fn of_kinds(kinds: &[Kind]) -> Self {
        let entry = |kind: &Kind| (kind.title(), kind.vms.len() as u32);
        let mut of = HashMap::new();
        for (index, kind) in kinds.iter().enumerate() {
            let shades = (0..).zip(&kind.vms);
            of.extend(shades.map(|(shade, vm)| ((*vm).to_owned(), (index, Some(shade)))));
        }
        Self { entries: kinds.iter().map(entry).collect(), of }
    }

    fn color(&self, vm: &str, vcpu: u32) -> Color {
        let (index, shade) = self.of.get(vm).copied().unwrap_or_default();
        shade_of(of_vm(index), shade.unwrap_or(vcpu), self.entries[index].1)
    }
}

/// Draws what colours stand for, in as many rows as it takes; returns the last row's y.
fn draw_legend(drawing: &mut Drawing, palette: &Palette, mut y: f64) -> f64 {
    let of_entry = |(index, (name, shades)): (usize, &(String, u32))| {
        let shown = (*shades).min(SHADES_SHOWN);
        let last = shades.saturating_sub(1);
        let shade = |shown_at: u32| shown_at * last / shown.saturating_sub(1).max(1);
        let base = of_vm(index);
        let colors = (0..shown).map(|at| shade_of(base, shade(at), *shades)).collect();
        (name.clone(), colors)
    };
    let mut entries: Vec<(String, Vec<Color>)> =
        palette.entries.iter().enumerate().map(of_entry).collect();
    entries.push(("the host's own tasks".to_owned(), vec![OF_HOST]));
    entries.push(("idle".to_owned(), vec![IDLE]));
    let mut x = MARGIN;
    for (name, colors) in entries {
        let name = fitting(&name, 13.0, 260.0);
        let swatches = 13.0 * colors.len() as f64;
        let width = swatches + 7.0 + text_width(&name, 13.0) + 24.0;
        if x + width > PAGE_WIDTH - MARGIN {
            (x, y) = (MARGIN, y + 22.0);
        }
        for (index, color) in colors.into_iter().enumerate() {
            drawing.filled(x + 13.0 * index as f64, y - 6.0, 13.0, 13.0, color);
        }
        drawing.text(x + swatches + 7.0, y, &name, 13.0, Align::Left);
        x += width;
    }
    y
}

/// Draws a schedule from `y` down; returns where it ends.
fn draw_schedule(drawing: &mut Drawing, schedule: &Schedule, palette: &Palette, y: f64) -> f64 {
    let (left, width) = (MARGIN + NUMBER_WIDTH, PAGE_WIDTH - 2.0 * MARGIN - NUMBER_WIDTH);
    let Schedule { case, scheduler, pcpus, .. } = schedule;
    let title = fitting(&format!("{case}, {scheduler}"), 15.0, width);
    drawing.text(MARGIN, y + 10.0, &title, 15.0, Align::Left);
    let top = y + 28.0;
    let row = (ROWS_HEIGHT / f64::from(*pcpus)).clamp(ROW_HEIGHT.0, ROW_HEIGHT.1);
    let bottom = top + row * f64::from(*pcpus);
    // Between rows that are high enough there is a line.
    let bar = if row < 6.0 { row } else { row - 2.0 };
    let every = (1.3 * NUMBER_SIZE / row).ceil() as usize;
    for pcpu in 0..*pcpus {
        let y = top + row * f64::from(pcpu);
        drawing.filled(left, y, width, bar, IDLE);
        if pcpu as usize % every == 0 {
            let number = format!("pCPU {pcpu}");
            drawing.faint_text(left - 8.0, y + bar / 2.0, &number, NUMBER_SIZE, Align::Right);
        }
    }
    let x = |at_ns: u64| left + width * at_ns as f64 / schedule.length_ns as f64;
    let piece = SPAN_MIN.max(width * f64::from(*pcpus) / PIECES_MAX);
    let piece_ns = (schedule.length_ns as f64 * piece / width) as u64;
    for span in drawn(&schedule.spans, piece_ns.max(1)) {
        let color = color_of_who(schedule, palette, span.who);
        let (from, y) = (x(span.from_ns), top + row * f64::from(span.pcpu));
        drawing.filled(from, y, x(span.to_ns) - from, bar, color);
    }
    let length_ms = schedule.length_ns as f64 / 1e6;
    let scale = Scale::up_to(length_ms);
    for tick in scale.ticks().into_iter().filter(|tick| *tick <= length_ms * 1.001) {
        let at = left + width * tick / length_ms;
        drawing.line(vec![(at, bottom), (at, bottom + 5.0)], 1.0, GRID);
        let label = format!("{}{}", scale.label(tick), if tick == 0.0 { " ms" } else { "" });
        drawing.text(at, bottom + 14.0, &label, NUMBER_SIZE, Align::Center);
    }
    drawing.line(vec![(left, bottom), (left + width, bottom)], 1.0, INK);
    bottom + 24.0
}

/// The spans as they are drawn: as they are, but for those that are shorter than a piece. Of these who ran longest
/// stands for all in the piece.
fn drawn(spans: &[Span], piece_ns: u64) -> Vec<Span> {
    let mut sorted: Vec<&Span> = spans.iter().collect();
    sorted.sort_by_key(|span| (span.pcpu, span.from_ns));
    let mut drawn = Vec::new();
    let mut short: Vec<&Span> = Vec::new();
    let place = |span: &Span| (span.pcpu, span.from_ns / piece_ns);
    for span in sorted {
        let is_short = span.to_ns - span.from_ns < piece_ns;
        if !is_short || short.first().is_some_and(|first| place(first) != place(span)) {
            drawn.extend(together(&std::mem::take(&mut short)));
        }
        if is_short {
            short.push(span);
        } else {
            drawn.push(*span);
        }
    }
    drawn.extend(together(&short));
    drawn
}

/// Short spans as one, of who ran longest.
fn together(short: &[&Span]) -> Option<Span> {
    let (first, last) = (short.first()?, short.last()?);
    let ran_ns = |who: Who| -> u64 {
        short.iter().filter(|span| span.who == who).map(|span| span.to_ns - span.from_ns).sum()
    };
    let longest = short.iter().max_by_key(|span| ran_ns(span.who))?;
    Some(Span { to_ns: last.to_ns, who: longest.who, ..**first })
}

fn color_of_who(schedule: &Schedule, palette: &Palette, who: Who) -> Color {
    match who {
        Who::Host => OF_HOST,
        Who::Helper(vm) => palette.color(&schedule.vms[vm as usize].name, 0),
        Who::Vcpu(vm, number) => palette.color(&schedule.vms[vm as usize].name, number),
    }
}

/// The shade of a VM's colour for that of its vCPUs: full for the first, pale for the last.
fn shade_of((red, green, blue): Color, number: u32, vcpus: u32) -> Color {
    let last = vcpus.saturating_sub(1).max(1);
    let paleness = PALEST * f64::from(number.min(last)) / f64::from(last);
    let paler = |part: u8| (f64::from(part) + paleness * (255.0 - f64::from(part))).round() as u8;
    (paler(red), paler(green), paler(blue))
}

#[cfg(test)]
mod tests {
    use super::super::shapes::Shape;
    use super::*;
    fn schedule(pcpus: u32, spans: Vec<Span>) -> Schedule {
        let vm = |name: &str, vcpus| ScheduledVm { name: name.to_owned(), vcpus };
        Schedule {
            case: "beside".to_owned(),
            scheduler: "drover".to_owned(),
            from_s: 1.9,
            length_ns: 200_000_000,
            pcpus,
            vms: vec![vm("barrier", 2), vm("busy", 2)],
            spans,
            waits: Vec::new(),
        }
    }

    fn span(pcpu: u32, from_ms: u64, to_ms: u64, who: Who) -> Span {
        Span { pcpu, from_ns: from_ms * 1_000_000, to_ns: to_ms * 1_000_000, who }
    }

    #[test]
    fn a_gang_is_a_block_in_shades_of_one_colour() {
        let spans = vec![
            span(0, 50, 100, Who::Vcpu(0, 1)),
            span(1, 50, 100, Who::Vcpu(0, 0)),
            span(1, 100, 150, Who::Host),
        ];
        let drawing = page("s", "in the lab", &[schedule(2, spans)]).unwrap();
        let boxes: Vec<_> = drawing
            .shapes
            .iter()
            .filter_map(|shape| match *shape {
                Shape::Box { x, y, width, color, .. } if color != IDLE && width > 20.0 => {
                    Some((x, y, width, color))
                }
                _ => None,
            })
            .collect();
        let [above, below, host] = boxes[..] else { panic!("{boxes:?}") };
        assert_eq!((above.0, above.2), (below.0, below.2), "the same time");
        assert!(above.1 < below.1, "pCPU 0 stands above");
        assert_eq!(below.3, of_vm(0), "the first vCPU has the full colour");
        assert_ne!(above.3, below.3);
        assert_eq!((host.0, host.3), (below.0 + below.2, OF_HOST));
    }

    #[test]
    fn a_schedule_is_drawn_in_pieces_that_can_be_seen() {
        let us =
            |from: u64, to: u64, who| Span { pcpu: 0, from_ns: from * 1000, to_ns: to * 1000, who };
        let (a, b) = (Who::Vcpu(0, 0), Who::Vcpu(1, 0));
        let spans = [us(0, 500, a), us(500, 510, b), us(510, 540, a), us(600, 620, b)];
        let pieces = drawn(&spans, 100_000);
        assert_eq!(pieces, [us(0, 500, a), us(500, 540, a), us(600, 620, b)]);
        // 6 million switches.
        let busy = (0..384).flat_map(|pcpu| {
            let span = move |at: u64| Span {
                pcpu,
                from_ns: at * 12_000,
                to_ns: at * 12_000 + 9_000,
                who: Who::Vcpu((at % 2) as u32, 0),
            };
            (0..16_000).map(span)
        });
        let drawing = page("s", "in the lab", &[schedule(384, busy.collect())]).unwrap();
        assert!(drawing.shapes.len() < 42_000, "{}", drawing.shapes.len());
    }

    #[test]
    fn texts_stay_apart_however_many_pcpus_there_are() {
        for pcpus in [1, 2, 16, 80, 384] {
            let schedules = vec![schedule(pcpus, Vec::new()); 3];
            let drawing = page("kvm-dbench-8x20", "in the simulator", &schedules).unwrap();
            drawing.assert_texts_apart();
        }
        assert!(page("s", "in the lab", &[]).is_none());
    }
}
