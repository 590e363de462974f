// SPDX-License-Identifier: GPL-2.0-only
//! Looks where the memory of VMs lies and moves it to their homes, a step at a time.
//!
//! A step is one look at a VM's memory, or at most 2 MiB of pages of one VM that are asked for and, where
//! they lie elsewhere, moved. What follows says how long to wait before the next: a moved byte is paid for
//! by the budget, and one that was only asked for with a sixteenth of that. Between two steps everything
//! may change: VMs come and go, homes and budget too; nothing is left half done but that some pages lie
//! here and some there.

use super::guest::Guest;
use super::maps::{Layout, Maps, Range};
use super::os::Os;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{Duration, Instant};

/// How often a VM's memory is looked at, and how many times longer than it takes.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
const LOOK_COST_FACTOR: u32 = 1000;
/// The most that one step moves.
const STEP_BYTES: u64 = 2 << 20;
/// Memory of which less than that part stays can be moved.
const STAYS_PART: u64 = 10;
/// What did not move is taken to be fixed for so long. Then its VM may have another home, and it is tried once.
const FIXED_FOR: Duration = Duration::from_secs(3600);
/// After a pass in vain the next is made so much later, and twice that each time: up to half an hour.
const TRIED_AGAIN: Duration = Duration::from_secs(1);
const TRIED_AGAIN_DOUBLES: u32 = 11;
/// A page that stays costs so much of one that moves.
const ASKED_PART: f64 = 1.0 / 16.0;
const MIB: f64 = 1_048_576.0;

/// A VM whose memory is looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The VMM process.
    pub pid: u32,
    /// Where its memory is to lie; on no nodes: it is only looked at.
    pub to: Layout,
}

/// What is known of a VM's memory.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Where it lies.
    pub maps: Maps,
    /// What its guest has.
    pub guest: Guest,
    /// What was moved, MiB.
    pub moved_mib: f64,
    /// A good part of all did not move when it should: it is fixed where it lies.
    pub is_stuck: bool,
    /// Why nothing of it is moved or known.
    pub refused: Option<String>,
}

/// A way through all memory of a VM.
#[derive(Debug)]
struct Pass {
    to: Layout,
    ranges: Vec<Range>,
    /// Where it is in the last of these.
    at: u64,
    moved_bytes: u64,
    stayed_bytes: u64,
}

#[derive(Debug, Default)]
struct Known {
    looked: Option<Instant>,
    next_look: Option<Instant>,
    to: Layout,
    /// So many passes on end have moved next to nothing, and no other is made before then.
    in_vain: u32,
    waits_until: Option<Instant>,
    /// What did not move, whatever its home is meanwhile.
    fixed: Option<Fixed>,
    pass: Option<Pass>,
    report: Report,
}

/// Memory that did not move: so much, and when that was last seen.
#[derive(Debug, Clone, Copy)]
struct Fixed {
    bytes: u64,
    since: Instant,
}

/// Does the steps.
#[derive(Debug)]
pub struct Mover<O> {
    os: O,
    known: HashMap<u64, Known>,
    /// Whose step was the last.
    last: u64,
}

impl<O: Os> Mover<O> {
    /// With nobody to look after yet.
    pub fn new(os: O) -> Self {
        Self { os, known: HashMap::new(), last: 0 }
    }

    /// One step for these VMs, by their ids; how long to wait before the next. `told` hears of what is
    /// new.
    pub fn step(
        &mut self,
        targets: &BTreeMap<u64, Target>,
        mib_per_s: u32,
        now: Instant,
        told: &mut dyn FnMut(u64, Report),
    ) -> Duration {
        self.known.retain(|id, _| targets.contains_key(id));
        for (&id, target) in targets {
            let known = self.known.entry(id).or_default();
            if known.to != target.to {
                let (to, report) = (target.to.clone(), known.report.clone());
                *known = Known { to, report, fixed: known.fixed, ..Known::default() };
            }
            if known.next_look.is_none_or(|next| next <= now) && known.pass.is_none() {
                known.look(&mut self.os, target.pid, now, mib_per_s > 0);
                told(id, known.report.clone());
                return Duration::ZERO;
            }
        }
        let moves = |id: &&u64| self.known[id].pass.is_some();
        let next = targets.range(self.last + 1..).map(|(id, _)| id).find(moves);
        let Some(&id) = next.or_else(|| targets.keys().find(moves)) else {
            return self.until_next_look(now);
        };
        self.last = id;
        let known = self.known.get_mut(&id).expect("it was found there");
        let paid_mib = known.move_some(&mut self.os, targets[&id].pid, now);
        if known.pass.is_none() {
            told(id, known.report.clone());
        }
        Duration::from_secs_f64(paid_mib / f64::from(mib_per_s.max(1)))
    }

    fn until_next_look(&self, now: Instant) -> Duration {
        let waits = self.known.values().filter_map(|known| known.next_look);
        waits.map(|next| next.saturating_duration_since(now)).min().unwrap_or(LOOK_INTERVAL)
    }
}

impl Known {
    fn look(&mut self, os: &mut dyn Os, pid: u32, now: Instant, may_move: bool) {
        let begun = Instant::now();
        let (maps, guest) = match os.look(pid) {
            Ok(seen) => seen,
            Err(error) => {
                self.note(&error);
                self.next_look = Some(now + LOOK_INTERVAL);
                return;
            }
        };
        let first = self.looked.is_none();
        let waits = self.waits_until.is_some_and(|until| now < until);
        if !waits {
            self.report.refused = None;
        }
        self.looked = Some(now);
        self.next_look = Some(now + LOOK_INTERVAL.max(begun.elapsed() * LOOK_COST_FACTOR));
        (self.report.maps, self.report.guest) = (maps, guest);
        self.fixed = self.fixed.filter(|fixed| now - fixed.since < FIXED_FOR);
        self.report.is_stuck = self.fixed.is_some();
        if self.to.nodes.is_empty() || !may_move || waits {
            return;
        }
        let to = self.to.clone();
        let ranges: Vec<Range> = {
            let all = self.report.maps.ranges.iter().rev();
            all.filter(|range| to.moves(range)).cloned().collect()
        };
        // What has stayed once is left alone until home is another; what is new is little.
        let is_worth_it = self.report.maps.local_pct(&to).is_some_and(|pct| pct < 99.0);
        if (first || is_worth_it) && !ranges.is_empty() {
            self.pass = Some(Pass { to, at: 0, ranges, moved_bytes: 0, stayed_bytes: 0 });
        }
    }

    /// The next pages; what that costs of the budget, MiB.
    fn move_some(&mut self, os: &mut dyn Os, pid: u32, now: Instant) -> f64 {
        let Some(pass) = &mut self.pass else { return 0.0 };
        let Some((pages, page_bytes)) = pass.next_pages() else {
            let in_vain = pass.stayed_bytes > 0 && pass.moved_bytes < pass.stayed_bytes / 99;
            let (moved_bytes, stayed_bytes) = (pass.moved_bytes, pass.stayed_bytes);
            let has_moved = moved_bytes > 0;
            self.note_fixed(moved_bytes, stayed_bytes, now);
            self.end_pass(in_vain, now);
            if has_moved && !in_vain {
                self.next_look = Some(now);
            }
            return 0.0;
        };
        match move_pages(os, pid, &pages, &pass.to) {
            Ok((moved, stayed)) => {
                let bytes = |pages: usize| pages as u64 * page_bytes;
                pass.moved_bytes += bytes(moved);
                pass.stayed_bytes += bytes(stayed);
                let mib = |pages: usize| bytes(pages) as f64 / MIB;
                self.report.moved_mib += mib(moved);
                mib(moved) + ASKED_PART * mib(pages.len() - moved)
            }
            Err(error) => {
                self.note(&error);
                self.end_pass(true, now);
                0.0
            }
        }
    }

    /// A pass has moved so much, and so much stayed. Some pages always stay: those in use for a moment. That what is not
    /// fixed goes home says nothing of what is.
    fn note_fixed(&mut self, moved_bytes: u64, stayed_bytes: u64, now: Instant) {
        let all_bytes = self.report.maps.lies_mib().values().sum::<u64>() << 20;
        if stayed_bytes > all_bytes / STAYS_PART {
            self.fixed = Some(Fixed { bytes: stayed_bytes, since: now });
        } else {
            self.fixed = self.fixed.filter(|fixed| moved_bytes < fixed.bytes);
        }
        self.report.is_stuck = self.fixed.is_some();
    }

    /// What is in use for a moment, or finds no room for one, can be moved a little later.
    fn end_pass(&mut self, in_vain: bool, now: Instant) {
        self.in_vain = if in_vain { self.in_vain + 1 } else { 0 };
        let again = TRIED_AGAIN * (1 << self.in_vain.min(TRIED_AGAIN_DOUBLES));
        self.waits_until = in_vain.then(|| now + again);
        self.next_look = self.next_look.min(self.waits_until).or(self.next_look);
        self.pass = None;
    }

    /// It went wrong. One that has gone is no matter: it will be no target any more.
    fn note(&mut self, error: &io::Error) {
        let gone = [libc::ESRCH, libc::ENOENT].map(Some).contains(&error.raw_os_error());
        if !gone {
            self.report.refused = Some(match error.raw_os_error() {
                Some(libc::ENOMEM) => "that node has no memory left".to_owned(),
                Some(libc::EPERM | libc::EACCES) => {
                    "drover may not; it needs CAP_SYS_NICE and CAP_SYS_PTRACE as it starts"
                        .to_owned()
                }
                _ => error.to_string(),
            });
        }
    }
}

impl Pass {
    /// The next pages, of one size.
    fn next_pages(&mut self) -> Option<(Vec<u64>, u64)> {
        let range = loop {
            let range = self.ranges.last()?;
            if self.at < range.end {
                break range;
            }
            self.ranges.pop();
        };
        let (from, page_bytes) = (self.at.max(range.start), range.page_bytes);
        let to = range.end.min(from + STEP_BYTES.max(page_bytes));
        self.at = to;
        let step = usize::try_from(page_bytes).unwrap_or(usize::MAX);
        Some(((from..to).step_by(step).collect(), page_bytes))
    }
}

/// How many of these pages were moved, and how many lie elsewhere still.
fn move_pages(os: &mut dyn Os, pid: u32, pages: &[u64], to: &Layout) -> io::Result<(usize, usize)> {
    let is_far = |page, node: i32| usize::try_from(node).is_ok_and(|it| it != to.node_of(page));
    let before = os.nodes_of(pid, pages)?;
    let far = pages.iter().zip(before).filter(|&(&page, node)| is_far(page, node));
    let far: Vec<u64> = far.map(|(&page, _)| page).collect();
    if far.is_empty() {
        return Ok((0, 0));
    }
    let nodes: Vec<usize> = far.iter().map(|&page| to.node_of(page)).collect();
    os.move_pages(pid, &far, &nodes)?;
    let after = os.nodes_of(pid, &far)?;
    let stayed = far.iter().zip(after).filter(|&(&page, node)| is_far(page, node)).count();
    Ok((far.len() - stayed, stayed))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::maps::Own;
    use super::*;

    const PAGE: u64 = 4096;

    /// Processes whose memory is a vector of nodes, page by page from address 0x1000000 on, in mappings of 4 MiB.
    #[derive(Debug, Default)]
    pub struct Fake {
        pub nodes: HashMap<u32, Vec<i32>>,
        /// All pages stay where they are, or so many of each process: the first ones, which it shares with others.
        pub pinned: bool,
        pub shared: usize,
        pub error: Option<i32>,
    }

    const FIRST: u64 = 0x100_0000;

    impl Os for Fake {
        fn look(&mut self, pid: u32) -> io::Result<(Maps, Guest)> {
            let pages = self.nodes.get(&pid).ok_or(io::Error::from_raw_os_error(libc::ENOENT))?;
            let (mut maps, mut numa) = (String::new(), String::new());
            for (place, part) in pages.chunks(1024).enumerate() {
                let on = |node| part.iter().filter(|&&it| it == node).count();
                let start = FIRST + 1024 * PAGE * place as u64;
                maps += &format!("{start:x}-{:x} rw-p 0\n", start + part.len() as u64 * PAGE);
                numa += &format!("{start:x} default anon=1 N0={} N1={} \n", on(0), on(1));
            }
            // Nodes of which it has nothing are not named.
            let numa = numa.replace(" N0=0 ", " ").replace(" N1=0 ", " ");
            Ok((Maps::of(&maps, &numa), Guest::default()))
        }

        fn nodes_of(&mut self, pid: u32, pages: &[u64]) -> io::Result<Vec<i32>> {
            let all = self.nodes.get(&pid).ok_or(io::Error::from_raw_os_error(libc::ESRCH))?;
            Ok(pages.iter().map(|page| all[((page - FIRST) / PAGE) as usize]).collect())
        }

        fn move_pages(&mut self, pid: u32, pages: &[u64], nodes: &[usize]) -> io::Result<()> {
            if let Some(error) = self.error {
                return Err(io::Error::from_raw_os_error(error));
            }
            let all = self.nodes.get_mut(&pid).ok_or(io::Error::from_raw_os_error(libc::ESRCH))?;
            let stays = if self.pinned { all.len() } else { self.shared };
            for (page, node) in pages.iter().zip(nodes) {
                let at = ((page - FIRST) / PAGE) as usize;
                if at >= stays {
                    all[at] = *node as i32;
                }
            }
            Ok(())
        }
    }

    fn mover(pages: Vec<i32>) -> Mover<Fake> {
        Mover::new(Fake { nodes: HashMap::from([(7, pages)]), ..Fake::default() })
    }

    fn target(to: Option<usize>) -> BTreeMap<u64, Target> {
        BTreeMap::from([(1, Target { pid: 7, to: Layout::over(to.into_iter().collect()) })])
    }

    /// Steps until nothing is to be done for a while; how long that took, and what was told last.
    fn settle(mover: &mut Mover<Fake>, to: Option<usize>, now: &mut Instant) -> (Duration, Report) {
        let (begun, mut last) = (*now, Report::default());
        loop {
            let wait = mover.step(&target(to), 256, *now, &mut |_, report| last = report);
            if wait > Duration::from_secs(1) {
                return (*now - begun, last);
            }
            *now += wait;
        }
    }

    fn local_pct(report: &Report, nodes: &[usize]) -> Option<f64> {
        report.maps.local_pct(&Layout::over(nodes.to_vec()))
    }

    #[test]
    fn memory_follows_within_its_budget() {
        // 64 MiB, of which a quarter is not there, and another is at home already.
        let pages = (0..64).flat_map(|at| vec![[0, 0, 1, -2][at % 4]; 256]).collect();
        let (mut mover, mut now) = (mover(pages), Instant::now());
        let (_, looked) = settle(&mut mover, None, &mut now);
        assert_eq!((looked.moved_mib, local_pct(&looked, &[1]).unwrap().round()), (0.0, 33.0));
        let (took, moved) = settle(&mut mover, Some(1), &mut now);
        assert_eq!((moved.moved_mib, local_pct(&moved, &[1])), (32.0, Some(100.0)));
        // 32 MiB moved, 32 asked for, at 256 MiB/s.
        let expected_s = (32.0 + 32.0 / 16.0) / 256.0;
        assert!((took.as_secs_f64() - expected_s).abs() < 1e-3, "{took:?}");
        assert!(!moved.is_stuck && moved.refused.is_none());
    }

    #[test]
    fn memory_of_a_wide_vm_is_spread_over_its_homes() {
        let (mut mover, now) = (mover(vec![0; 4096]), Instant::now());
        let both = BTreeMap::from([(1, Target { pid: 7, to: Layout::over(vec![1, 0]) })]);
        let mut last = Report::default();
        while mover.step(&both, 256, now, &mut |_, report| last = report) < Duration::from_secs(1) {
        }
        let on = |node| mover.os.nodes[&7].iter().filter(|&&it| it == node).count();
        assert_eq!((on(0), on(1)), (2048, 2048));
        assert_eq!((last.moved_mib, local_pct(&last, &[0, 1])), (8.0, Some(100.0)));
        let chunk = |page: usize| {
            mover.os.nodes[&7][page..page + 512].iter().all(|it| *it == mover.os.nodes[&7][page])
        };
        assert!((0..8).all(|number| chunk(number * 512)), "huge pages stay whole");
    }

    #[test]
    fn mappings_with_nodes_of_their_own_go_there_and_the_rest_is_spread() {
        let (mut mover, now) = (mover(vec![0; 4096]), Instant::now());
        let own = |from: u64, node| Own {
            start: FIRST + from * PAGE,
            end: FIRST + (from + 1024) * PAGE,
            node,
        };
        let to = Layout { nodes: vec![0, 1], own: vec![own(0, 1), own(1024, 0)] };
        let targets = BTreeMap::from([(1, Target { pid: 7, to })]);
        while mover.step(&targets, 256, now, &mut |_, _| {}) < Duration::from_secs(1) {}
        let on = |from: usize, node| {
            mover.os.nodes[&7][from..from + 1024].iter().filter(|&&it| it == node).count()
        };
        assert_eq!((on(0, 1), on(1024, 0), on(2048, 0)), (1024, 1024, 512));
    }

    #[test]
    fn memory_that_is_where_it_should_be_is_not_asked_for_again_and_again() {
        // All of it is in chunks of one node: half of it is too much there, and can be nowhere else.
        let pages =
            (0..8).flat_map(|chunk| vec![if chunk % 2 == 0 { 0 } else { -2 }; 512]).collect();
        let (mut mover, begun) = (mover(pages), Instant::now());
        let both = BTreeMap::from([(1, Target { pid: 7, to: Layout::over(vec![0, 1]) })]);
        let (mut now, mut looks) = (begun, 0);
        while now - begun < Duration::from_secs(100) {
            now += mover.step(&both, 256, now, &mut |_, _| looks += 1).max(TRIED_AGAIN / 1000);
        }
        assert!(looks <= 2 * 11, "{looks} looks");
    }

    #[test]
    fn with_no_budget_nothing_moves() {
        let (mut mover, now) = (mover(vec![0; 512]), Instant::now());
        for _ in 0..20 {
            mover.step(&target(Some(1)), 0, now, &mut |_, report| {
                assert_eq!(report.moved_mib, 0.0);
            });
        }
        assert_eq!(mover.os.nodes[&7], [0; 512]);
    }

    #[test]
    fn memory_that_cannot_move_is_found_out_and_seldom_tried_again() {
        let (mut mover, begun) = (mover(vec![0; 2048]), Instant::now());
        mover.os.pinned = true;
        let (mut now, mut passes, mut stuck) = (begun, 0, false);
        while now - begun < Duration::from_secs(3600) {
            let wait =
                mover.step(&target(Some(1)), 256, now, &mut |_, report| stuck = report.is_stuck);
            passes += usize::from(mover.known[&1].pass.is_some() && wait.is_zero());
            now += wait.max(Duration::from_millis(1));
        }
        assert!(stuck && passes <= 13, "{passes} passes");
        // The pages are no longer in use.
        mover.os.pinned = false;
        let (_, report) = settle(&mut mover, Some(1), &mut (now + Duration::from_secs(3600)));
        assert!(!report.is_stuck && report.moved_mib == 8.0);
    }

    #[test]
    fn a_few_pages_that_stay_make_no_vm_stuck() {
        // Of 64 MiB 4 MiB are elsewhere, and stay there.
        let pages = [vec![1; 15360], vec![0; 1024]].concat();
        let (mut mover, mut now) = (mover(pages), Instant::now());
        mover.os.pinned = true;
        let (_, report) = settle(&mut mover, Some(1), &mut now);
        assert!(!report.is_stuck && report.moved_mib == 0.0);
    }

    #[test]
    fn faults_put_off_the_moves_of_that_vm_and_are_named() {
        for (error, words) in [
            (libc::EPERM, "needs CAP_SYS_NICE"),
            (libc::ENOMEM, "no memory left"),
            (libc::ENODEV, "No such device"),
        ] {
            let (mut mover, mut now) = (mover(vec![0; 2048]), Instant::now());
            mover.os.error = Some(error);
            let (_, report) = settle(&mut mover, Some(1), &mut now);
            assert!(report.refused.as_ref().unwrap().contains(words), "{report:?}");
            // There is room again, or the right to do it.
            mover.os.error = None;
            now += Duration::from_secs(10);
            let (_, report) = settle(&mut mover, Some(1), &mut now);
            assert_eq!((report.refused, report.moved_mib), (None, 8.0));
        }
    }

    #[test]
    fn a_vm_that_goes_in_the_middle_of_a_move_is_forgotten() {
        let (mut mover, now) = (mover(vec![0; 4096]), Instant::now());
        let mut said = Vec::new();
        for _ in 0..3 {
            mover.step(&target(Some(1)), 256, now, &mut |_, report| said.push(report));
        }
        mover.os.nodes.clear();
        for _ in 0..3 {
            mover.step(&target(Some(1)), 256, now, &mut |_, report| said.push(report));
        }
        assert!(said.iter().all(|report| report.refused.is_none()));
        mover.step(&BTreeMap::new(), 256, now, &mut |_, _| panic!("nobody is there"));
        assert!(mover.known.is_empty());
    }
}
