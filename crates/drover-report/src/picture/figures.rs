// SPDX-License-Identifier: GPL-2.0-only
//! Chooses what to draw of results.

use super::shapes::Colors;
use crate::kinds::{Kind, kinds};
use crate::summary::{Spread, Subject, Summary};
use drover_scenario::Clock;
use drover_scenario::results::{Run, VmFigures, WakeupUs};

/// A point of a line stands for at least this time, ms.
const POINT_MS: u32 = 50;

/// Some panels of the same kind beside each other, with one legend.
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) y_title: String,
    /// Names of the colours.
    pub(super) series: Vec<String>,
    /// Whether these are VMs or schedulers.
    pub(super) colors: Colors,
    /// What the marks across bars stand for; none where there are no marks.
    pub(super) mark: Option<&'static str>,
    /// Whether all panels have the same scale, to be compared with each other.
    pub(super) one_scale: bool,
    pub(super) panels: Vec<Panel>,
}

/// One pair of axes.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) content: Content,
}

/// What stands within the axes.
pub(super) enum Content {
    Bars(Vec<Group>),
    Lines(Vec<Line>),
}

/// Bars that stand together.
pub(super) struct Group {
    /// What stands under them, in up to two lines.
    pub(super) labels: [String; 2],
    pub(super) bars: Vec<Bar>,
}

/// One bar.
pub(super) struct Bar {
    pub(super) series: usize,
    pub(super) value: Spread,
    pub(super) mark: Option<f64>,
}

/// A value over time, s.
pub(super) struct Line {
    pub(super) series: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// All figures that results give cause for.
pub(super) fn figures(summary: &Summary) -> Vec<Figure> {
    let mut figures = Vec::new();
    if summary.has(|vm| vm.share_owed_pct.is_some()) {
        figures.extend(shares(summary));
    }
    figures.extend(timelines(summary));
    figures.extend(wakeups(summary));
    figures.extend(progress(summary));
    if figures.is_empty() {
        figures.extend(shares(summary));
    }
    figures
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Some panels with bars; none where there is no bar.
fn with_bars(figure: Figure) -> Option<Figure> {
    let bars = |panel: &Panel| match &panel.content {
        Content::Bars(groups) => groups.iter().any(|group| !group.bars.is_empty()),
        Content::Lines(lines) => !lines.is_empty(),
    };
    figure.panels.iter().any(bars).then_some(figure)
}

/// The bar of a VM, or of all of some VMs together, in a case under a scheduler.
fn share_bar(
    summary: &Summary,
    (case, scheduler): (&str, &str),
    vms: &[&str],
    series: usize,
) -> Option<Bar> {
    let subjects = || vms.iter().map(|vm| Subject { case, vm });
    let (value, mark) = if summary.has_promises() {
        let run = summary.runs(case, scheduler).next()?;
        let part_of = |run: &Run, cpu_s: f64| 100.0 * cpu_s / run.duration_s;
        let got = |run: &Run| {
            let each: Vec<f64> = vms.iter().filter_map(|vm| run.vm(vm)?.cpu_s).collect();
            (!each.is_empty()).then(|| part_of(run, each.iter().sum()))
        };
        let owed: Option<f64> = vms.iter().map(|vm| run.vm(vm)?.owed_cpu_s).sum();
        (summary.of_host(case, scheduler, got)?, owed.map(|owed_s| part_of(run, owed_s)))
    } else {
        let got = |run: &Run| {
            let each: Vec<f64> = vms.iter().filter_map(|vm| run.vm(vm)?.share_got_pct).collect();
            (!each.is_empty()).then(|| each.iter().sum())
        };
        let owed = subjects().map(|subject| summary.any_run_of(&subject)?.share_owed_pct).sum();
        (summary.of_host(case, scheduler, got)?, owed)
    };
    Some(Bar { series, value, mark })
}

/// For each scheduler what VMs got, beside what they are owed: a group for each case, or for each kind in it.
fn shares(summary: &Summary) -> Vec<Figure> {
    let (vms, in_pcpus) = (summary.vms(), summary.has_promises());
    let owed = summary.has(|vm| vm.share_owed_pct.is_some());
    let figure = |title: &str, series: Vec<String>, groups: &dyn Fn(&str, &str) -> Vec<Group>| {
        let panel = |scheduler: &&str| {
            let groups = summary.cases.iter().flat_map(|case| groups(case, scheduler)).collect();
            Panel { title: (*scheduler).to_owned(), content: Content::Bars(groups) }
        };
        with_bars(Figure {
            title: title.to_owned(),
            y_title: if in_pcpus { "% of one pCPU" } else { "% of all VMs' CPU time" }.to_owned(),
            series,
            colors: Colors::Vms,
            one_scale: true,
            mark: owed.then_some(if in_pcpus { "owed" } else { "owed by shares" }),
            panels: summary.schedulers.iter().map(panel).collect(),
        })
    };
    let Some(kinds) = kinds(&vms) else {
        let groups = |case: &str, scheduler: &str| {
            let bar = |series| share_bar(summary, (case, scheduler), &vms[series..=series], series);
            let labels = [case.to_owned(), String::new()];
            vec![Group { labels, bars: (0..vms.len()).filter_map(bar).collect() }]
        };
        return figure("CPU used by each VM", owned(&vms), &groups).into_iter().collect();
    };
    let titles: Vec<String> = kinds.iter().map(Kind::title).collect();
    let of_kinds = |each: bool| {
        let kinds = &kinds;
        move |case: &str, scheduler: &str| -> Vec<Group> {
            let group = |(series, kind): (usize, &Kind)| {
                let size = if each { 1 } else { kind.vms.len() };
                let bar = |vms: &[&str]| share_bar(summary, (case, scheduler), vms, series);
                let bars: Vec<Bar> = kind.vms.chunks(size).filter_map(bar).collect();
                let labels = [kind.name.to_owned(), case.to_owned()];
                (!bars.is_empty()).then_some(Group { labels, bars })
            };
            kinds.iter().enumerate().filter_map(group).collect()
        }
    };
    let totals = figure("CPU used by all VMs of a kind", titles.clone(), &of_kinds(false));
    let each = figure("CPU used by each VM", titles, &of_kinds(true));
    totals.into_iter().chain(each).collect()
}

/// Bars of all schedulers side by side, a group for each VM of each case; or for each kind, from the least to the most
/// of its VMs.
fn by_scheduler(
    summary: &Summary,
    title: &str,
    value: impl Fn(&Subject, &str) -> Option<Spread>,
) -> Panel {
    let vms = summary.vms();
    let single = || vms.iter().map(|vm| Kind { name: vm, vms: vec![vm] }).collect();
    let kinds = kinds(&vms).unwrap_or_else(single);
    let of_kind = |case: &str, kind: &Kind, scheduler: &str| {
        let each = kind.vms.iter().filter_map(|vm| value(&Subject { case, vm }, scheduler));
        let each: Vec<Spread> = each.collect();
        match each.as_slice() {
            [one] if kind.vms.len() == 1 => Some(*one),
            each => Spread::of(&each.iter().map(|one| one.median).collect::<Vec<_>>()),
        }
    };
    let group = |case: &str, kind: &Kind| {
        let bar = |(series, scheduler): (usize, &&str)| {
            Some(Bar { series, value: of_kind(case, kind, scheduler)?, mark: None })
        };
        let bars: Vec<Bar> = summary.schedulers.iter().enumerate().filter_map(bar).collect();
        let labels = [case.to_owned(), kind.title()];
        (!bars.is_empty()).then_some(Group { labels, bars })
    };
    let of_case =
        |case: &&str| -> Vec<Group> { kinds.iter().filter_map(|kind| group(case, kind)).collect() };
    let groups = summary.cases.iter().flat_map(of_case).collect();
    Panel { title: title.to_owned(), content: Content::Bars(groups) }
}

/// Mean and 99th percentile of wake-up latency.
fn wakeups(summary: &Summary) -> Option<Figure> {
    let panel = |title: &str, figure: fn(&WakeupUs) -> f64| {
        by_scheduler(summary, title, |subject, scheduler| {
            summary.of_vm(subject, scheduler, |vm: &VmFigures| vm.wakeup_us.as_ref().map(figure))
        })
    };
    let panels =
        vec![panel("mean", |wakeup| wakeup.mean), panel("99th percentile", |wakeup| wakeup.p99)];
    with_bars(Figure {
        title: "Wake-up latency".to_owned(),
        y_title: "latency, us".to_owned(),
        series: owned(&summary.schedulers),
        colors: Colors::Schedulers,
        one_scale: false,
        mark: None,
        panels,
    })
}

/// Progress compared with the first scheduler's; not on the exact clock, where it means nothing.
fn progress(summary: &Summary) -> Option<Figure> {
    if summary.results.clock == Some(Clock::Exact) || summary.schedulers.len() < 2 {
        return None;
    }
    let first = *summary.schedulers.first()?;
    // A sleeper's progress is its wake-ups, which its latency says more about.
    let progress =
        |vm: &VmFigures| vm.progress.filter(|_| vm.wakeup_us.is_none()).map(|count| count as f64);
    let panel = by_scheduler(summary, "", |subject, scheduler| {
        let base = summary.of_vm(subject, first, progress).filter(|base| base.median > 0.0)?;
        Some(summary.of_vm(subject, scheduler, progress)?.over(base.median))
    });
    with_bars(Figure {
        title: format!("Progress, {first} = 1"),
        y_title: format!("times {first}"),
        series: owned(&summary.schedulers),
        colors: Colors::Schedulers,
        one_scale: false,
        mark: None,
        panels: vec![panel],
    })
}

/// The CPU time of a VM over time, % of a pCPU.
fn points_of(vm: &VmFigures) -> Option<Vec<(f64, f64)>> {
    let timeline = vm.timeline.as_ref()?;
    // Intervals of a few ms show slices, not what a VM gets.
    let together = POINT_MS.div_ceil(timeline.interval_ms.max(1)) as usize;
    let interval_s = f64::from(timeline.interval_ms) / 1000.0 * together as f64;
    let point = |(index, cpu_s): (usize, &[f64])| {
        let used_s: f64 = cpu_s.iter().sum();
        ((index as f64 + 0.5) * interval_s, 100.0 * used_s / interval_s)
    };
    Some(timeline.cpu_s.chunks_exact(together).enumerate().map(point).collect())
}

/// Two of these together, as far as both go.
fn sum(one: Vec<(f64, f64)>, other: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    one.into_iter().zip(other).map(|((at_s, a), (_, b))| (at_s, a + b)).collect()
}

/// CPU time of each VM, or of all of a kind together, over time, from the first repeat: a panel for each case and scheduler.
fn timelines(summary: &Summary) -> Option<Figure> {
    let vms = summary.vms();
    let single = || vms.iter().map(|vm| Kind { name: vm, vms: vec![vm] }).collect();
    let kinds: Vec<Kind> = kinds(&vms).unwrap_or_else(single);
    let mut panels = Vec::new();
    for case in &summary.cases {
        for scheduler in &summary.schedulers {
            let Some(run) = summary.runs(case, scheduler).next() else { continue };
            let line = |(series, kind): (usize, &Kind)| {
                let points = kind.vms.iter().filter_map(|vm| points_of(run.vm(vm)?)).reduce(sum)?;
                (!points.is_empty()).then_some(Line { series, points })
            };
            let lines: Vec<Line> = kinds.iter().enumerate().filter_map(line).collect();
            if !lines.is_empty() {
                let title = match summary.cases.len() {
                    1 => (*scheduler).to_owned(),
                    _ => format!("{case}, {scheduler}"),
                };
                panels.push(Panel { title, content: Content::Lines(lines) });
            }
        }
    }
    with_bars(Figure {
        title: "CPU used over time".to_owned(),
        y_title: "% of one pCPU".to_owned(),
        series: kinds.iter().map(Kind::title).collect(),
        colors: Colors::Vms,
        one_scale: true,
        mark: None,
        panels,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use drover_scenario::results::Results;

    fn titles(results: &Results) -> Vec<String> {
        figures(&Summary::new(results)).into_iter().map(|figure| figure.title).collect()
    }

    #[test]
    fn what_is_drawn_follows_from_what_was_measured() {
        assert_eq!(titles(&sample::shares()), ["CPU used by each VM"]);
        assert_eq!(titles(&sample::sleep()), ["Wake-up latency", "Progress, eevdf = 1"]);
        assert_eq!(titles(&sample::timeline()), ["CPU used by each VM", "CPU used over time"]);
        let mut bare = sample::sleep();
        for vm in bare.runs.iter_mut().flat_map(|run| &mut run.vms) {
            (vm.wakeup_us, vm.progress) = (None, None);
        }
        assert_eq!(titles(&bare), ["CPU used by each VM"], "better than nothing");
    }

    #[test]
    fn shares_have_a_panel_for_each_scheduler_and_marks_for_what_is_owed() {
        let results = sample::shares();
        let figures = figures(&Summary::new(&results));
        assert_eq!((figures[0].panels.len(), figures[0].mark), (2, Some("owed by shares")));
        let Content::Bars(groups) = &figures[0].panels[1].content else { panic!("no bars") };
        assert_eq!((groups.len(), groups[0].bars.len()), (7, 2));
        assert_eq!(groups[0].bars[0].mark, Some(12.5));
        assert!((groups[0].bars[0].value.median - 12.5).abs() < 1e-9);
    }

    #[test]
    fn where_something_is_promised_bars_and_marks_are_in_percent_of_a_pcpu() {
        let mut results = sample::shares();
        for vm in results.runs.iter_mut().flat_map(|run| &mut run.vms) {
            (vm.limit_pct, vm.owed_cpu_s, vm.cpu_s) = (Some(150), Some(6.0), Some(5.0));
        }
        let figures = figures(&Summary::new(&results));
        assert_eq!((figures[0].y_title.as_str(), figures[0].mark), ("% of one pCPU", Some("owed")));
        let Content::Bars(groups) = &figures[0].panels[0].content else { panic!("no bars") };
        let bar = &groups[0].bars[0];
        assert_eq!((bar.value.median, bar.mark), (125.0, Some(150.0)), "of 4 s");
    }

    #[test]
    fn many_vms_are_told_apart_by_kind() {
        let results = sample::fifty();
        let figures = figures(&Summary::new(&results));
        assert_eq!(figures[0].title, "CPU used by all VMs of a kind");
        assert_eq!(figures[0].series, ["web: 40 VMs", "db: 9 VMs", "monitor"]);
        let groups = |figure: usize| match &figures[figure].panels[0].content {
            Content::Bars(groups) => groups,
            Content::Lines(_) => panic!("no bars"),
        };
        let got = |group: usize| groups(0)[group].bars[0].value.median;
        assert!((got(0) + got(1) + got(2) - 100.0).abs() < 1e-6, "of all VMs' time");
        assert_eq!((groups(1)[0].bars.len(), groups(1)[1].bars.len()), (40, 9));
        let progress = groups(2);
        assert_eq!(progress[0].labels, ["all", "web: 40 VMs"]);
        assert_eq!((progress.len(), progress[0].bars.len()), (3, 2));
    }

    #[test]
    fn sleepers_are_left_out_of_progress() {
        let results = sample::sleep();
        let figures = figures(&Summary::new(&results));
        let Content::Bars(groups) = &figures[1].panels[0].content else { panic!("no bars") };
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].labels, ["beside", "busy"]);
    }
}
