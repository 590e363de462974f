// SPDX-License-Identifier: GPL-2.0-only
//! Chooses what to draw of results.

use super::colors::{Color, of_scheduler, of_vm};
use crate::kinds::{Kind, all_kinds, kinds};
use crate::summary::{Spread, Subject, Summary};
use drover_scenario::Clock;
use drover_scenario::results::{Run, VmFigures, WakeupUs};

/// With more VMs than that in all cases together, a picture shows those of a kind together.
const GROUPS_MAX: usize = 24;
/// A point of a line stands for at least this time, ms.
const POINT_MS: u32 = 50;

/// Some panels of the same kind beside each other, with one legend.
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) y_title: String,
    /// Names of the colours, where labels do not say them.
    pub(super) series: Vec<(String, Color)>,
    /// What the marks across bars stand for; none where there are no marks.
    pub(super) mark: Option<String>,
    /// Whether all panels have the same scale, to be compared with each other.
    pub(super) one_scale: bool,
    /// Whether its bars lie even where they could stand.
    pub(super) lies: bool,
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
    /// What stands under them, or at their left.
    pub(super) labels: [String; 2],
    pub(super) bars: Vec<Bar>,
}

/// One bar.
pub(super) struct Bar {
    pub(super) color: Color,
    pub(super) value: Spread,
    pub(super) mark: Option<f64>,
}

/// A value over time, s.
pub(super) struct Line {
    pub(super) color: Color,
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

/// What a case is called beside others; where it is the only one there is nothing to say.
fn label_of(summary: &Summary, case: &str) -> String {
    if summary.cases.len() > 1 { case.to_owned() } else { String::new() }
}

fn schedulers(summary: &Summary) -> Vec<(String, Color)> {
    let named = |name: &&str| ((*name).to_owned(), of_scheduler(name));
    summary.schedulers.iter().map(named).collect()
}

fn vms(names: impl Iterator<Item = String>) -> Vec<(String, Color)> {
    names.enumerate().map(|(place, name)| (name, of_vm(place))).collect()
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
    color: Color,
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
    Some(Bar { color, value, mark })
}

/// One bar for some: the median of theirs, from the least to the most.
fn middle(mut bars: Vec<Bar>) -> Option<Bar> {
    if bars.len() < 2 {
        return bars.pop();
    }
    let value = Spread::of(&bars.iter().map(|bar| bar.value.median).collect::<Vec<_>>())?;
    let marks: Vec<f64> = bars.iter().filter_map(|bar| bar.mark).collect();
    Some(Bar { color: bars[0].color, value, mark: Spread::of(&marks).map(|mark| mark.median) })
}

/// For each scheduler what VMs got, beside what they are owed: a group for each case, or for each kind in it.
fn shares(summary: &Summary) -> Vec<Figure> {
    let (vms, in_pcpus) = (summary.vms(), summary.has_promises());
    let owed = summary.has(|vm| vm.share_owed_pct.is_some());
    let figure = |title: &str,
                  series: Vec<(String, Color)>,
                  groups: &dyn Fn(&str, &str) -> Vec<Group>| {
        let panel = |scheduler: &&str| {
            let groups = summary.cases.iter().flat_map(|case| groups(case, scheduler)).collect();
            Panel { title: (*scheduler).to_owned(), content: Content::Bars(groups) }
        };
        with_bars(Figure {
            title: if owed { format!("{title}, beside what is owed") } else { title.to_owned() },
            y_title: if in_pcpus { "% of one pCPU" } else { "% of all VMs' CPU time" }.to_owned(),
            series,
            one_scale: true,
            lies: false,
            mark: owed.then(|| if in_pcpus { "owed" } else { "owed by shares" }.to_owned()),
            panels: summary.schedulers.iter().map(panel).collect(),
        })
    };
    let Some(kinds) = kinds(&vms) else {
        let groups = |case: &str, scheduler: &str| {
            let bar =
                |place| share_bar(summary, (case, scheduler), &vms[place..=place], of_vm(place));
            let labels = [label_of(summary, case), String::new()];
            vec![Group { labels, bars: (0..vms.len()).filter_map(bar).collect() }]
        };
        let series = self::vms(vms.iter().map(|vm| (*vm).to_owned()));
        return figure("CPU time that each VM got", series, &groups).into_iter().collect();
    };
    let titles = self::vms(kinds.iter().map(Kind::title));
    let of_kinds = |each: bool| {
        let kinds = &kinds;
        move |case: &str, scheduler: &str| -> Vec<Group> {
            let group = |(place, kind): (usize, &Kind)| {
                let size = if each { 1 } else { kind.vms.len() };
                let bar = |vms: &[&str]| share_bar(summary, (case, scheduler), vms, of_vm(place));
                let bar = middle(kind.vms.chunks(size).filter_map(bar).collect())?;
                let labels = [kind.name.to_owned(), label_of(summary, case)];
                Some(Group { labels, bars: vec![bar] })
            };
            kinds.iter().enumerate().filter_map(group).collect()
        }
    };
    let totals = figure("CPU time that all VMs of a kind got", titles.clone(), &of_kinds(false));
    let each = figure(
        "CPU time that a VM got, from the least to the most of a kind",
        titles,
        &of_kinds(true),
    );
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
    let kinds = match summary.subjects().len() {
        0..=GROUPS_MAX => kinds(&vms).unwrap_or_else(single),
        _ => all_kinds(&vms),
    };
    let of_kind = |case: &str, kind: &Kind, scheduler: &str| {
        let each = kind.vms.iter().filter_map(|vm| value(&Subject { case, vm }, scheduler));
        let each: Vec<Spread> = each.collect();
        match each.as_slice() {
            [one] if kind.vms.len() == 1 => Some(*one),
            each => Spread::of(&each.iter().map(|one| one.median).collect::<Vec<_>>()),
        }
    };
    let group = |case: &str, kind: &Kind| {
        let bar = |scheduler: &&str| {
            let (color, value) = (of_scheduler(scheduler), of_kind(case, kind, scheduler)?);
            Some(Bar { color, value, mark: None })
        };
        let bars: Vec<Bar> = summary.schedulers.iter().filter_map(bar).collect();
        // Not all cases have all of a kind.
        let is_there = |vm: &&&str| summary.any_run_of(&Subject { case, vm }).is_some();
        let there = Kind { vms: kind.vms.iter().filter(is_there).copied().collect(), ..*kind };
        let labels = [label_of(summary, case), there.title()];
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
        vec![panel("mean", |wakeup| wakeup.mean), panel("99 % of wake-ups", |wakeup| wakeup.p99)];
    with_bars(Figure {
        title: "How late VMs woke from their timers".to_owned(),
        y_title: "us, less is better".to_owned(),
        series: schedulers(summary),
        one_scale: false,
        lies: false,
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
        title: format!("Work that VMs did, {first} = 1"),
        y_title: format!("times {first}, more is better"),
        series: schedulers(summary),
        one_scale: false,
        lies: false,
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
            let line = |(place, kind): (usize, &Kind)| {
                let points = kind.vms.iter().filter_map(|vm| points_of(run.vm(vm)?)).reduce(sum)?;
                (!points.is_empty()).then_some(Line { color: of_vm(place), points })
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
        title: "CPU time over time".to_owned(),
        y_title: "% of one pCPU".to_owned(),
        series: self::vms(kinds.iter().map(Kind::title)),
        one_scale: true,
        lies: false,
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
        let got = "CPU time that each VM got, beside what is owed";
        assert_eq!(titles(&sample::shares()), [got]);
        let late = "How late VMs woke from their timers";
        assert_eq!(titles(&sample::sleep()), [late, "Work that VMs did, eevdf = 1"]);
        assert_eq!(titles(&sample::timeline()), [got, "CPU time over time"]);
        let mut bare = sample::sleep();
        for vm in bare.runs.iter_mut().flat_map(|run| &mut run.vms) {
            (vm.wakeup_us, vm.progress) = (None, None);
        }
        assert_eq!(titles(&bare), ["CPU time that each VM got"], "better than nothing");
    }

    #[test]
    fn shares_have_a_panel_for_each_scheduler_and_marks_for_what_is_owed() {
        let results = sample::shares();
        let figures = figures(&Summary::new(&results));
        let mark = figures[0].mark.as_deref();
        assert_eq!((figures[0].panels.len(), mark), (2, Some("owed by shares")));
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
        let mark = figures[0].mark.as_deref();
        assert_eq!((figures[0].y_title.as_str(), mark), ("% of one pCPU", Some("owed")));
        let Content::Bars(groups) = &figures[0].panels[0].content else { panic!("no bars") };
        let bar = &groups[0].bars[0];
        assert_eq!((bar.value.median, bar.mark), (125.0, Some(150.0)), "of 4 s");
    }

    #[test]
    fn many_vms_are_told_apart_by_kind() {
        let results = sample::fifty();
        let figures = figures(&Summary::new(&results));
        assert!(figures[0].title.starts_with("CPU time that all VMs of a kind got"));
        let series: Vec<&str> = figures[0].series.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(series, ["web: 40 VMs", "db: 9 VMs", "monitor"]);
        let groups = |figure: usize| match &figures[figure].panels[0].content {
            Content::Bars(groups) => groups,
            Content::Lines(_) => panic!("no bars"),
        };
        let got = |group: usize| groups(0)[group].bars[0].value.median;
        assert!((got(0) + got(1) + got(2) - 100.0).abs() < 1e-6, "of all VMs' time");
        let [bar] = &groups(1)[0].bars[..] else { panic!("a bar for 40 VMs") };
        let apart = (bar.value.min - got(0) / 40.0).abs() + bar.value.max - bar.value.min;
        assert!(apart < 1e-6 && bar.mark == Some(2.0), "each has the same");
        let progress = groups(2);
        assert_eq!(progress[0].labels, ["", "web: 40 VMs"]);
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
