// SPDX-License-Identifier: GPL-2.0-only
//! Tries to break the scheduler, and the host with it, in the lab: a real kernel with real KVM VMs.
//!
//! Each fault is a job: an ignored test of this very program, which the lab runs as root inside its
//! virtual host (see `boot`). A job panics when the host does not bear it well; whatever it did, the
//! kernel must have nothing to complain of. Jobs that measure time take the exact clock, on which
//! this machine's load does not show; jobs that look for races take the real one.
//!
//! To run one by hand: `cargo test -p drover --test lab_faults hotplug -- --nocapture`.

mod advise;
mod affinity;
mod boot;
mod daemon;
mod foreign;
mod hogs;
mod host;
mod hotplug;
mod idle;
mod io;
mod killed;
mod nodes;
mod observe;
mod orders;
mod partitions;
mod settings;
mod siblings;
mod soak;
mod starvation;
mod storm;
mod tasks;
mod top;
mod virtual_nodes;
mod vms;
mod waker;
mod without_faults;

use boot::Boot;
use drover_lab::Clock;

#[test]
fn vms_outlive_the_daemon_whatever_ends_it() {
    Boot::new("daemon::inside").run();
}

#[test]
fn orders_that_cannot_be_followed_are_refused_in_one_line() {
    let boot = Boot::new("orders::inside").file("/foreign.bpf.o", foreign::compile());
    boot.file("/sub.bpf.o", foreign::compile_sub()).run();
}

#[test]
fn settings_stay_whole_and_follow_their_sources() {
    Boot::new("settings::inside").pcpus(4).run();
}

#[test]
fn vms_and_pcpus_change_partitions_under_load() {
    Boot::new("partitions::inside").pcpus(6).run();
}

/// On the newest kernel they do in partitions, above.
#[test]
fn pcpus_come_and_go_under_load() {
    Boot::new("hotplug::inside").pcpus(4).oldest_kernel().run();
}

#[test]
fn threads_are_confined_stopped_moved_and_killed_at_any_moment() {
    Boot::new("affinity::inside").pcpus(4).nodes(2).run();
}

#[test]
fn siblings_that_cannot_run_stop_nobody() {
    Boot::new("siblings::inside").memory_mib(2048).run();
}

#[test]
fn vms_killed_at_their_limit_go() {
    Boot::new("killed::inside").run();
}

#[test]
fn a_storm_of_two_hundred_vms_leaves_nothing() {
    Boot::new("storm::inside").memory_mib(2048).run();
}

#[test]
fn a_storm_of_two_hundred_vms_on_pcpus_that_race_leaves_nothing() {
    Boot::new("storm::inside").memory_mib(2048).clock(Clock::Real).run();
}

#[test]
fn memory_of_virtual_nodes_is_where_their_vcpus_are() {
    Boot::new("virtual_nodes::inside").pcpus(4).nodes(2).memory_mib(2048).qemu_guests().run();
}

/// On 6.18, where a periodic real-time thread once kept a vCPU's slice from ever ending.
#[test]
fn nobody_starves() {
    Boot::new("starvation::inside").oldest_kernel().run();
}

#[test]
fn no_pcpu_idles_while_somebody_waits() {
    Boot::new("idle::inside").pcpus(4).run();
}

#[test]
fn no_pcpu_idles_across_caches() {
    Boot::new("idle::inside").pcpus(4).sockets(2).run();
}

#[test]
fn threads_that_wake_each_other_are_drawn_to_one_cache() {
    Boot::new("waker::inside").pcpus(4).sockets(2).run();
}

#[test]
fn top_tells_the_truth_and_leaves_nothing_behind() {
    Boot::new("top::inside").run();
}

#[test]
fn an_observer_says_why_vms_wait() {
    Boot::new("observe::inside").pcpus(4).nodes(2).run();
}

#[test]
fn an_observer_says_why_vms_wait_on_the_oldest_kernel() {
    Boot::new("observe::briefly").pcpus(4).nodes(2).oldest_kernel().run();
}

/// Debian 12's kernel, which has no sched_ext; and KVM is loaded after the observer.
#[test]
fn an_observer_says_why_vms_wait_on_a_kernel_without_sched_ext() {
    Boot::new("observe::briefly").pcpus(4).nodes(2).kernel_if_there("6.1").run();
}

#[test]
fn advice_finds_what_was_planted_and_invents_nothing() {
    Boot::new("advise::inside").pcpus(4).nodes(2).run();
}

#[test]
fn advice_finds_what_was_planted_on_the_oldest_kernel() {
    Boot::new("advise::briefly").pcpus(4).nodes(2).oldest_kernel().run();
}

#[test]
fn io_delays_are_as_long_as_they_are() {
    Boot::new("io::inside").qemu_guests().run();
}

#[test]
fn io_delays_of_a_network_are_as_long_as_they_are() {
    Boot::new("io::network").qemu_guests().run();
}

#[test]
fn mixed_load_soaks() {
    let seconds = soak::seconds();
    let clock = if soak::asked_seconds().is_some() { Clock::Real } else { Clock::Exact };
    Boot::new("soak::inside")
        .clock(clock)
        .environment(soak::SECONDS, &seconds.to_string())
        .timeout_s(seconds * 20 + 300)
        .run();
}
