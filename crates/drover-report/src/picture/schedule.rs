// SPDX-License-Identifier: GPL-2.0-only
//! Draws who ran where: time across, pCPUs down, one colour for each VM, a shade of it for each vCPU.
//!
//! vCPUs of a VM that run together stand above each other in shades of one colour, between the same
//! two moments: a gang is a block as high as it is wide in vCPUs.

use super::axis::Scale;
use super::layout::{MARGIN, PAGE_WIDTH};
use super::render::text_width;
use super::shapes::{Align, Color, Colors, Drawing, GRID, INK, color_of, fitting};
use drover_core::schedule::{Schedule, ScheduledVm, Who};

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
/// Shades of a VM in the legend.
const SHADES_SHOWN: usize = 4;

/// The page for some schedules of a scenario; none where there are none.
pub(super) fn page(scenario: &str, ground: &str, schedules: &[Schedule]) -> Option<Drawing> {
    let first = schedules.first()?;
    let mut drawing = Drawing { width: PAGE_WIDTH, ..Drawing::default() };
    let width = PAGE_WIDTH - 2.0 * MARGIN;
    let title = format!("{scenario}: who ran where");
    drawing.text(MARGIN, 40.0, &fitting(&title, 26.0, width), 26.0, Align::Left);
    let length_ms = first.length_ns as f64 / 1e6;
    let told = format!(
        "{ground}, {length_ms:.0} ms of each run; time across, pCPUs down, a colour for each VM, a \
         shade for each of its vCPUs"
    );
    drawing.faint_text(MARGIN, 70.0, &fitting(&told, 15.0, width), 15.0, Align::Left);
    let vms = all_vms(schedules);
    let mut y = draw_legend(&mut drawing, &vms, 100.0);
    for schedule in schedules {
        y = draw_schedule(&mut drawing, schedule, &vms, y + 26.0);
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

/// Draws what colours stand for, in as many rows as it takes; returns the last row's y.
fn draw_legend(drawing: &mut Drawing, vms: &[ScheduledVm], mut y: f64) -> f64 {
    let of_vm = |(index, vm): (usize, &ScheduledVm)| {
        let last = vm.vcpus.saturating_sub(1);
        let shades = (0..vm.vcpus).take(SHADES_SHOWN).map(|shade| {
            let steps = vm.vcpus.min(SHADES_SHOWN as u32).saturating_sub(1).max(1);
            shade_of(color_of(Colors::Vms, index), shade * last / steps, vm.vcpus)
        });
        let name = match last {
            0 => vm.name.clone(),
            last => format!("{}, vCPUs 0 to {last}", vm.name),
        };
        (name, shades.collect())
    };
    let mut entries: Vec<(String, Vec<Color>)> = vms.iter().enumerate().map(of_vm).collect();
    entries.push(("the host's own tasks".to_owned(), vec![OF_HOST]));
    entries.push(("idle".to_owned(), vec![IDLE]));
    let mut x = MARGIN;
    for (name, colors) in entries {
        let name = fitting(&name, 14.0, 260.0);
        let swatches = 13.0 * colors.len() as f64;
        let width = swatches + 7.0 + text_width(&name, 14.0) + 24.0;
        if x + width > PAGE_WIDTH - MARGIN {
            (x, y) = (MARGIN, y + 22.0);
        }
        for (index, color) in colors.into_iter().enumerate() {
            drawing.filled(x + 13.0 * index as f64, y - 6.0, 13.0, 13.0, color);
        }
        drawing.text(x + swatches + 7.0, y, &name, 14.0, Align::Left);
        x += width;
    }
    y
}

/// Draws a schedule from `y` down; returns where it ends.
fn draw_schedule(drawing: &mut Drawing, schedule: &Schedule, vms: &[ScheduledVm], y: f64) -> f64 {
    let (left, width) = (MARGIN + NUMBER_WIDTH, PAGE_WIDTH - 2.0 * MARGIN - NUMBER_WIDTH);
    let Schedule { case, scheduler, pcpus, .. } = schedule;
    let title = fitting(&format!("{case}, {scheduler}"), 17.0, width);
    drawing.text(MARGIN, y + 10.0, &title, 17.0, Align::Left);
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
    for span in &schedule.spans {
        let color = color_of_who(schedule, vms, span.who);
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

fn color_of_who(schedule: &Schedule, vms: &[ScheduledVm], who: Who) -> Color {
    let (vm, number) = match who {
        Who::Host => return OF_HOST,
        Who::Helper(vm) => (vm, 0),
        Who::Vcpu(vm, number) => (vm, number),
    };
    let vm = &schedule.vms[vm as usize];
    let index = vms.iter().position(|other| other.name == vm.name).unwrap_or_default();
    shade_of(color_of(Colors::Vms, index), number, vm.vcpus)
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
    use drover_core::schedule::Span;

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
        assert_eq!(below.3, color_of(Colors::Vms, 0), "the first vCPU has the full colour");
        assert_ne!(above.3, below.3);
        assert_eq!((host.0, host.3), (below.0 + below.2, OF_HOST));
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
