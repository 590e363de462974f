// SPDX-License-Identifier: GPL-2.0-only
//! Guaranteed delay: the longest that a ready vCPU of a VM may wait on a host.
//!
//! Two promises hold at once, and the shorter counts.
//!
//! What counts of the host is where the VM's threads may run ([`Reach`]): the pCPUs of the narrowest set
//! that one of them is confined to, and how those stand in domains (the run queues, one for each
//! last-level cache). On a host of one domain, where the VM may run everywhere, both are the host.
//!
//! *By turns* (policy/guarantee/wait_bound.h), whatever the shares: with n threads of its own and m of
//! others, p being the fewest pCPUs that a thread of it may use of a domain it may wait in, where nobody
//! runs unasked for longer than U (a slice and a tick),
//!
//! ```text
//!     2 B(n, p) + W / 4 + (1 + m / p) U,    B(n, p) = n / p * 25 slices, W at least, 8 W at most
//! ```
//!
//! three times B where a thread may wait in several domains. In a crowd B is longer: a slice for each
//! thread of all, divided among the pCPUs of its set, at least. A thread that may run on one single
//! pCPU waits for W + B(n + m, 1) + (n + m) U, and a VM that has one is
//! promised the longer of both.
//!
//! *By its reservation* r, in pCPUs, where all its threads may run on the same pCPUs and these hold all
//! that is reserved there (policy/share/share.h): it may be ahead of its reservation by a slice for
//! each thread and one more; then it is due, and each of its n threads runs once in its turn, and all
//! but one once more, being a slice behind (policy/share/share.h); and at each pick others that are due,
//! or have a turn, may come first, once each, and those that are overdue, which they may be by four slices S:
//!
//! ```text
//!     3 n U / r + (1 + m / p) U + 4 S
//! ```
//!
//! and U more where there are several domains: for a pCPU of another one to ask.
//!
//! With a mode that may have it wait beside an idle pCPU (policy/cosched/plan.h), for as long as that may
//! last on top: twice what it may be held for its vCPUs to start together. One with more threads than
//! pCPUs they may run on can never start them all together, is held again and again, and may get less
//! than its reservation: turns are all that is promised to it.
//!
//! The host's own tasks count as one thread a pCPU (policy/share/share.h). Time held back by a limit
//! (policy/limit/limit.h) is no waiting and is bounded apart: mostly it is some ms; at the latest a VM is let
//! go when what it used is forgotten, after 102.5 ms, and a debt of as much is paid.
//!
//! Worked example. 4 pCPUs, one domain, slices of 7 ms, ticks of 4 ms, U = 11 ms. A VM of one thread
//! with 100 % reserved beside 4 threads of others and the host's tasks: by turns 2 s + 0.25 s + 33 ms;
//! by its reservation 33 ms + 33 ms + 28 ms = 94 ms.
//!
//! Limitations: it knows no shares. A VM that is owed much by shares alone waits far less than
//! this, but what shares bring depends on who else comes. It counts all other threads of the host as
//! rivals, though they may be confined elsewhere. It holds for who is there now, and for
//! settings as they are now: a wait during which they change is measured by neither.

use crate::percent;
use crate::settings::Cosched;

/// What of a host decides how long VMs wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// pCPUs online.
    pub pcpus: u32,
    /// How long a thread runs before it is asked again.
    pub slice_ns: u64,
    /// The kernel's tick, at which slices end.
    pub tick_ns: u64,
    /// W: who waits longer has turns.
    pub wait_bound_ns: u64,
    /// How long a VM may be held for its vCPUs to start together.
    pub hold_max_ns: u64,
}

/// Where the threads of a VM may run, of the pCPUs online.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The fewest pCPUs that any of them may run on.
    pub pcpus: u32,
    /// The most domains that any of them may wait in.
    pub domains: u32,
    /// The fewest pCPUs that any of them may use of a domain it may wait in.
    pub of_domain: u32,
    /// All may run on the same.
    pub alike: bool,
}

impl Reach {
    /// Of threads that may run on these pCPUs each, on a host with these pCPUs online in its domains. A VM
    /// without threads, or whose threads may run nowhere, reaches all.
    pub fn of(domains: &[Vec<u32>], threads: &[impl Fn(u32) -> bool]) -> Self {
        let widths = |may_run: &dyn Fn(u32) -> bool| -> Vec<u32> {
            let of = |domain: &Vec<u32>| domain.iter().filter(|&&cpu| may_run(cpu)).count() as u32;
            domains.iter().map(of).filter(|&width| width > 0).collect()
        };
        let of_thread = |widths: Vec<u32>| Self {
            pcpus: widths.iter().sum(),
            domains: widths.len() as u32,
            of_domain: widths.iter().copied().min().unwrap_or(0),
            alike: true,
        };
        let narrower = |a: Self, b: Self| Self {
            pcpus: a.pcpus.min(b.pcpus),
            domains: a.domains.max(b.domains),
            of_domain: a.of_domain.min(b.of_domain),
            alike: true,
        };
        let each = threads.iter().map(|may_run| of_thread(widths(may_run)));
        let all = each.filter(|reach| reach.pcpus > 0).reduce(narrower);
        let same = |cpu: u32| threads.iter().all(|may_run| may_run(cpu) == threads[0](cpu));
        let alike = domains.iter().flatten().all(|&cpu| same(cpu));
        Self { alike, ..all.unwrap_or_else(|| of_thread(widths(&|_| true))) }
    }

    /// May a thread run on one pCPU only, of several?
    fn is_single(&self, host: &Host) -> bool {
        self.pcpus == 1 && host.pcpus > 1
    }
}

/// What of a VM decides how long it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vm {
    /// vCPUs and helpers.
    pub threads: u32,
    /// What can be kept of its reservation now, thousandths of a pCPU.
    pub reservation_mcpu: u32,
    /// It, or a pool above it, has a limit.
    pub limited: bool,
    /// Where its threads may run.
    pub reach: Reach,
    /// How its vCPUs are kept together.
    pub cosched: Cosched,
}

/// The longest a thread may be kept from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// Ready, while others run: what turns promise.
    pub by_turns_ns: u64,
    /// What its reservation promises; none where it promises nothing of that kind.
    pub by_reservation_ns: Option<u64>,
    /// Held back by a limit, on top; 0 without one.
    pub held_ns: u64,
}

impl Delay {
    /// The longest it may be ready while others run: the shorter of two promises.
    pub fn ready_ns(&self) -> u64 {
        self.by_reservation_ns.unwrap_or(u64::MAX).min(self.by_turns_ns)
    }
}

/// Turns take one part in so many of a domain's time.
const TURNS_TAKE_ONE_IN: u64 = 50;
/// B is at most so many W.
const THREAD_FACTOR: u64 = 8;
/// A VM that waits may be overdue by what so many slices pay for, and others with it.
const OVERDUE_SLICES: u64 = 4;
/// No limit holds a VM for longer (policy/limit/limit.h): a debt of what it brings in 100 ms, and what lets it start.
const LIMIT_HELD_NS: u64 = 110_000_000;

/// What that VM is guaranteed on that host, beside so many threads of other VMs.
pub fn guaranteed(host: &Host, vm: &Vm, other_threads: u32) -> Delay {
    let n = u64::from(vm.threads.max(1));
    let m = u64::from(other_threads) + u64::from(host.pcpus);
    let unasked_ns = host.slice_ns + host.tick_ns;
    let reach = &vm.reach;
    let (of_set, of_domain) = (u64::from(reach.pcpus.max(1)), u64::from(reach.of_domain.max(1)));
    let others_ns = unasked_ns + m.div_ceil(of_domain) * unasked_ns;
    let together_ns = if vm.cosched.may_wait() { 2 * host.hold_max_ns } else { 0 };
    let turns = if reach.domains > 1 { 3 } else { 2 };
    let on_each = (n + m).div_ceil(of_set);
    let of_several_ns =
        turns * sweep_ns(host, n, of_domain, on_each) + host.wait_bound_ns / 4 + others_ns;
    let of_one_ns = host.wait_bound_ns + sweep_ns(host, n + m, 1, n + m) + (n + m) * unasked_ns;
    let single = reach.is_single(host);
    let by_turns_ns = if single { of_several_ns.max(of_one_ns) } else { of_several_ns };
    let reserved = u64::from(vm.reservation_mcpu).min(n * 1000);
    let starts_in_parts = vm.cosched.may_wait() && n > of_set;
    let counts = reserved > 0 && reach.alike && !single && !starts_in_parts;
    let overdue_ns = OVERDUE_SLICES * host.slice_ns;
    let elsewhere_ns = if reach.domains > 1 { unasked_ns } else { 0 };
    let by_reservation_ns =
        3 * n * unasked_ns * 1000 / reserved.max(1) + others_ns + overdue_ns + elsewhere_ns;
    Delay {
        by_turns_ns: by_turns_ns + together_ns,
        by_reservation_ns: counts.then_some(by_reservation_ns + together_ns),
        held_ns: if vm.limited { LIMIT_HELD_NS } else { 0 },
    }
}

/// Which promise gives it, and from what numbers.
pub fn why(host: &Host, vm: &Vm, other_threads: u32) -> String {
    let Delay { by_turns_ns, by_reservation_ns, held_ns } = guaranteed(host, vm, other_threads);
    let ms = |ns: u64| ns.div_ceil(1_000_000);
    let reserved = by_reservation_ns.filter(|by_ns| *by_ns < by_turns_ns);
    let promise = match reserved {
        Some(_) => format!("its reservation of {}", percent::text(vm.reservation_mcpu)),
        None => format!("turns, every {} ms at least", ms(host.wait_bound_ns)),
    };
    let domains = match vm.reach.domains {
        0 | 1 => String::new(),
        several => format!(" in {several} domains"),
    };
    let set = match vm.reach.pcpus {
        1 if host.pcpus > 1 => ", one of them confined to a single pCPU,".to_owned(),
        pcpus if pcpus < host.pcpus => format!(", confined to {pcpus} pCPUs,"),
        _ => String::new(),
    };
    let mut why = format!(
        "{promise}: {} threads{set} beside {other_threads} of others and the host's tasks, {} pCPUs{domains}, \
         each run up to {} ms",
        vm.threads,
        host.pcpus,
        ms(host.slice_ns + host.tick_ns),
    );
    if vm.cosched.may_wait() {
        why += &format!("; {} ms for its vCPUs to start together", ms(2 * host.hold_max_ns));
    }
    if held_ns > 0 {
        why += &format!("; on top {} ms while held by a limit", ms(held_ns));
    }
    why
}

/// B: how long each of n threads on p pCPUs waits for its turn, when so many wait for each pCPU.
fn sweep_ns(host: &Host, n: u64, p: u64, on_each: u64) -> u64 {
    let sweep_ns = n * (host.slice_ns / 2) * TURNS_TAKE_ONE_IN / p;
    let alone_ns = sweep_ns.clamp(host.wait_bound_ns, THREAD_FACTOR * host.wait_bound_ns);
    alone_ns.max(on_each * host.slice_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOST: Host = Host {
        pcpus: 4,
        slice_ns: 7_000_000,
        tick_ns: 4_000_000,
        wait_bound_ns: 1_000_000_000,
        hold_max_ns: 50_000_000,
    };
    const VM: Vm = Vm {
        threads: 1,
        reservation_mcpu: 0,
        limited: false,
        reach: Reach { pcpus: 4, domains: 1, of_domain: 4, alike: true },
        cosched: Cosched::Auto,
    };

    #[test]
    fn the_worked_example_of_the_header_holds() {
        assert_eq!(guaranteed(&HOST, &VM, 4).ready_ns(), 2_283_000_000);
        let reserved = Vm { reservation_mcpu: 1000, ..VM };
        let delay = guaranteed(&HOST, &reserved, 4);
        assert_eq!((delay.ready_ns(), delay.held_ns), (94_000_000, 0));
        assert_eq!(delay.by_turns_ns, 2_283_000_000);
    }

    #[test]
    fn turns_bound_what_a_small_reservation_would_not() {
        let little = Vm { reservation_mcpu: 1, ..VM };
        let ready_ns = |vm: &Vm| guaranteed(&HOST, vm, 8).ready_ns();
        assert_eq!(ready_ns(&little), ready_ns(&VM));
    }

    #[test]
    fn in_a_crowd_everybody_has_a_turn_of_half_a_slice_in_half_of_the_time() {
        let host = Host { pcpus: 1, ..HOST };
        let reach = Reach { pcpus: 1, of_domain: 1, ..VM.reach };
        // 400 threads, the host's own as one: 2.8 s for each turn, and before it all others once.
        let delay = guaranteed(&host, &Vm { threads: 2, reach, ..VM }, 397);
        assert_eq!(delay.ready_ns(), 2 * 400 * 7_000_000 + 250_000_000 + 399 * 11_000_000);
    }

    #[test]
    fn a_limit_and_vcpus_that_start_together_are_on_top() {
        let plain = guaranteed(&HOST, &VM, 8);
        let limited = guaranteed(&HOST, &Vm { limited: true, ..VM }, 8);
        assert_eq!((limited.ready_ns(), limited.held_ns), (plain.ready_ns(), LIMIT_HELD_NS));
        let gang = guaranteed(&HOST, &Vm { cosched: Cosched::Gang, ..VM }, 8);
        assert_eq!(gang.ready_ns(), plain.ready_ns() + 100_000_000);
    }

    #[test]
    fn who_can_never_start_all_together_is_promised_turns_only() {
        let promise = |threads, cosched| {
            let vm = Vm { reservation_mcpu: 500, threads, cosched, ..VM };
            guaranteed(&HOST, &vm, 4).by_reservation_ns
        };
        assert!(promise(4, Cosched::Strict).is_some() && promise(5, Cosched::Auto).is_some());
        assert_eq!(promise(5, Cosched::Strict), None);
    }

    #[test]
    fn it_is_told_which_promise_counts() {
        let reserved = why(&HOST, &Vm { reservation_mcpu: 1500, threads: 2, ..VM }, 4);
        assert_eq!(
            reserved,
            "its reservation of 150%: 2 threads beside 4 of others and the host's tasks, 4 pCPUs, \
             each run up to 11 ms"
        );
        let reach = Reach { domains: 2, of_domain: 2, ..VM.reach };
        let turns = why(&HOST, &Vm { limited: true, reach, ..VM }, 4);
        assert!(turns.starts_with("turns, every 1000 ms at least: 1 threads beside 4"), "{turns}");
        assert!(turns.contains("in 2 domains") && turns.ends_with("110 ms while held by a limit"));
    }

    #[test]
    fn a_reservation_promises_on_any_set_that_is_not_one_single_pcpu() {
        let two_nodes = [vec![0, 1, 2], vec![3]];
        let promise = |threads: &[fn(u32) -> bool]| {
            let reach = Reach::of(&two_nodes, threads);
            guaranteed(&HOST, &Vm { reservation_mcpu: 1000, reach, ..VM }, 4).by_reservation_ns
        };
        // One domain of three pCPUs: 8 of others and the host's on these are three each. Where it may
        // be on the node of one pCPU all eight may stand before it, and a pCPU from elsewhere must ask.
        assert_eq!(promise(&[|cpu| cpu < 3]), Some(33_000_000 + 4 * 11_000_000 + 28_000_000));
        assert_eq!(promise(&[|_| true]), Some(33_000_000 + 10 * 11_000_000 + 28_000_000));
        assert_eq!(promise(&[|cpu| cpu == 3]), None);
        assert_eq!(promise(&[|cpu| cpu < 2, |cpu| cpu < 3]), None);
    }

    #[test]
    fn what_is_reached_is_the_narrowest_of_what_its_threads_reach() {
        let nodes = [vec![0, 1, 2], vec![3], Vec::new()];
        let reach = |threads: &[fn(u32) -> bool]| Reach::of(&nodes, threads);
        let all = Reach { pcpus: 4, domains: 2, of_domain: 1, alike: true };
        assert_eq!((reach(&[]), reach(&[|_| true, |_| true])), (all, all));
        assert_eq!(reach(&[|cpu| cpu > 6]), all, "the kernel frees who may run nowhere");
        let narrow = Reach { pcpus: 2, domains: 2, of_domain: 1, alike: false };
        assert_eq!(reach(&[|_| true, |cpu| cpu < 2]), narrow);
    }

    proptest! {
        #[test]
        fn more_company_and_less_reservation_never_shorten_it(
            pcpus in 1u32..64, domains in 1u32..4, threads in 1u32..64, mcpu in 0u32..64_000,
            others in 0u32..500, of_set in 1u32..64, alike: bool,
        ) {
            let host = Host { pcpus, ..HOST };
            let of_set = of_set.min(pcpus);
            let domains = domains.min(of_set);
            let reach = Reach { pcpus: of_set, domains, of_domain: of_set / domains, alike };
            let vm = Vm { threads, reservation_mcpu: mcpu, reach, ..VM };
            let delay_ns = guaranteed(&host, &vm, others).ready_ns();
            let less = Vm { reservation_mcpu: mcpu / 2, ..vm };
            prop_assert!(guaranteed(&host, &vm, others + 1).ready_ns() >= delay_ns);
            prop_assert!(guaranteed(&host, &less, others).ready_ns() >= delay_ns);
        }
    }
}
