// SPDX-License-Identifier: GPL-2.0-only

use super::*;

fn now(name: &str, ready_pcpus: f64) -> Now {
    let (name, owed_pcpus) = (name.to_owned(), Some(1.5));
    Now { name, pid: 7, user: 0, ready_pcpus, owed_pcpus, got_pcpus: 1.25 }
}

/// Has `ready` pCPUs for each second from `from` on; the history begins at 0.
fn kept(seconds: u32, ready: impl Fn(u32) -> f64) -> (Kept, Instant) {
    let (mut kept, begun) = (Kept::default(), Instant::now());
    kept.add([], begun);
    for second in 1..=seconds {
        kept.add([now("web", ready(second))], at(begun, second));
    }
    (kept, begun)
}

fn at(begun: Instant, second: u32) -> Instant {
    begun + Duration::from_secs(second.into())
}

fn known(figures: &[Option<u32>]) -> Vec<u32> {
    figures.iter().map(|mcpu| mcpu.expect("it is known")).collect()
}

#[test]
fn figures_are_kept_as_exactly_as_is_said() {
    let kept = |pcpus| Packed::of(Some(pcpus)).mcpu();
    assert_eq!((kept(0.0), kept(1.2345), kept(32.767)), (Some(0), Some(1235), Some(32_767)));
    assert_eq!(
        (kept(40.0), kept(256.128), kept(1e9)),
        (Some(40_000), Some(256_120), Some(327_660))
    );
    assert_eq!((Packed::of(None).mcpu(), kept(f64::NAN)), (None, None));
}

#[test]
fn a_second_a_point_and_steps_are_means() {
    let (kept, begun) = kept(9, f64::from);
    let told = kept.tell(4, 1, at(begun, 9));
    assert_eq!((told.first_step, told.steps, told.step_s, told.kept_s), (6, 4, 1, 9));
    let [web] = &told.vms[..] else { panic!("{told:?}") };
    assert_eq!((web.name.as_str(), web.first_step, web.is_here), ("web", 6, true));
    assert_eq!(known(&web.ready_mcpu), [6000, 7000, 8000, 9000]);
    assert_eq!((known(&web.owed_mcpu), known(&web.got_mcpu)), (vec![1500; 4], vec![1250; 4]));
    assert_eq!(web.peak, Some(Peak { ready_mcpu: 9000, at_s: 9 }));
    let told = kept.tell(100, 4, at(begun, 9));
    assert_eq!((told.first_step, told.steps), (0, 2), "the third step is not over");
    assert_eq!(known(&told.vms[0].ready_mcpu), [2000, 5500], "second 0 is not known");
}

#[test]
fn steps_keep_their_numbers_whenever_it_is_asked() {
    let (mut kept, begun) = kept(20, f64::from);
    let first = kept.tell(20, 5, at(begun, 20)).vms[0].clone();
    kept.add([now("web", 0.0)], at(begun, 21));
    kept.add([now("web", 0.0)], at(begun, 24));
    let then = kept.tell(10, 5, at(begun, 24));
    assert_eq!((then.first_step, then.steps), (3, 2));
    assert_eq!(then.vms[0].ready_mcpu[0], first.ready_mcpu[3], "step 3 is what it was");
}

#[test]
fn what_is_older_than_an_hour_is_kept_by_minutes_for_a_day() {
    let day = MINUTES * MINUTE;
    let (kept, begun) = kept(day + 7200, |second| f64::from(second / MINUTE % 2));
    let told = kept.tell(day, 60, at(begun, day + 7200));
    let web = &told.vms[0];
    assert_eq!((told.steps, web.ready_mcpu.len(), told.kept_s), (MINUTES, 1440, day));
    assert_eq!(&known(&web.ready_mcpu)[..4], [0, 1000, 0, 1000]);
    assert_eq!(kept.tell(day, 1, at(begun, day + 7200)).step_s, 60, "no shorter than a minute");
    assert_eq!(kept.tell(3600, 1, at(begun, day + 7200)).vms[0].ready_mcpu.len(), 3600);
}

#[test]
fn a_vm_takes_no_more_memory_than_is_said() {
    let (kept, _) = kept(2 * MINUTES * MINUTE, |_| 0.0);
    let series = kept.series.values().next().unwrap();
    let points = series.seconds.capacity() + series.minutes.capacity();
    assert_eq!(points * size_of::<Point>(), BYTES_A_VM);
    assert_eq!(BYTES_A_VM, 30_240);
}

#[test]
fn a_vm_that_has_gone_is_kept_for_a_day_and_of_many_the_last() {
    let (mut kept, begun) = kept(10, |_| 2.0);
    kept.add([now("db", 1.0)], at(begun, 12));
    let told = kept.tell(10, 1, at(begun, 12));
    let whose: Vec<_> = told.vms.iter().map(|vm| (vm.name.as_str(), vm.is_here)).collect();
    assert_eq!(whose, [("db", true), ("web", false)]);
    assert_eq!(told.vms[1].ready_mcpu.len(), 8, "seconds 3 to 10");
    for second in 0..2 * GONE_MAX as u32 {
        kept.add([now(&format!("vm{second}"), 1.0)], at(begun, 20 + second));
    }
    assert_eq!(kept.series.len(), GONE_MAX + 1, "one of them is here");
    kept.add([now("db", 1.0)], at(begun, 3 * MINUTES * MINUTE));
    assert_eq!(kept.series.len(), 1);
}

#[test]
fn a_look_stands_for_all_the_time_since_the_last_and_absence_is_a_gap() {
    let (mut kept, begun) = kept(3, |_| 1.0);
    kept.add([now("web", 4.0)], at(begun, 6));
    kept.add([], at(begun, 8));
    kept.add([now("web", 5.0)], at(begun, 9));
    kept.add([now("web", 9.0)], at(begun, 9));
    let told = kept.tell(9, 1, at(begun, 9));
    let ready = told.vms[0].ready_mcpu.clone();
    let is = |mcpu: u32| Some(1000 * mcpu);
    assert_eq!(ready, [is(1), is(1), is(1), is(4), is(4), is(4), None, None, is(5)]);
    kept.add([now("web", 1.0)], at(begun, 10_000));
    assert_eq!(kept.tell(3600, 1, at(begun, 10_000)).vms[0].ready_mcpu, [is(1)], "it was stopped");
}

#[test]
fn a_long_answer_has_longer_steps() {
    let (mut kept, begun) = (Kept::default(), Instant::now());
    kept.add([], begun);
    let vms = || (0..400).map(|number| now(&format!("vm{number}"), 0.0));
    (1..=2000).for_each(|second| kept.add(vms(), at(begun, second)));
    let told = kept.tell(2000, 1, at(begun, 2000));
    assert_eq!((told.step_s, told.vms.len()), (2, 400));
    let points: usize = told.vms.iter().map(|vm| vm.ready_mcpu.len()).sum();
    assert!(points <= POINTS_MAX as usize, "{points}");
}
