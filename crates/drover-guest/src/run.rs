// SPDX-License-Identifier: GPL-2.0-only
//! The life of a micro VM's process: start the vCPU threads, wait for the end, end them.

use crate::vcpu::{End, run_until_stopped};
use crate::vm::Vm;
use crate::{GuestConfig, GuestError};
use kvm_ioctls::VcpuFd;
use nix::sys::pthread::pthread_kill;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::Pid;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Kicks vCPU threads out of the guest; nothing else in the process uses it.
const KICK: Signal = Signal::SIGUSR1;
/// A kick that arrives just before its thread enters the guest is lost, so it is repeated.
const KICK_INTERVAL: Duration = Duration::from_millis(1);

/// Runs a micro VM until SIGTERM or SIGINT, then ends it at once and returns.
///
/// Call it from the process's only thread: the process is the VM, and the two signals are kept from
/// all threads but this one from here on.
///
/// # Errors
/// When the VM cannot be made, with what is missing, or when a vCPU cannot go on.
pub fn run(config: &GuestConfig) -> Result<(), GuestError> {
    config.check()?;
    let ending = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect::<SigSet>();
    ending.thread_block().map_err(system(config, "block signals"))?;
    let ignore = SigAction::new(SigHandler::Handler(on_kick), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing at all, which is safe wherever it interrupts.
    unsafe { sigaction(KICK, &ignore) }.map_err(system(config, "set a signal handler"))?;

    let mut vm = Vm::new(config)?;
    let stop = Arc::new(AtomicBool::new(false));
    let fault = Arc::new(Mutex::new(None));
    let mut threads = Vec::new();
    let mut outcome =
        vm.back_ends.drain(..).try_for_each(|back_end| back_end.start()).map_err(|source| {
            GuestError::System {
                name: config.name.clone(),
                what: "start a device's thread",
                source,
            }
        });
    for (index, vcpu) in (0u32..).zip(vm.vcpus.drain(..)) {
        match spawn_vcpu(config, index, vcpu, &stop, &fault) {
            Ok(thread) => threads.push(thread),
            Err(error) => outcome = Err(error),
        }
    }
    if outcome.is_ok() {
        outcome = ending.wait().map(drop).map_err(system(config, "wait for signals"));
    }
    stop.store(true, Release);
    threads.into_iter().for_each(kick_until_ended);
    let fault = fault.lock().unwrap_or_else(PoisonError::into_inner).take();
    fault.map_or(outcome, Err)
}

extern "C" fn on_kick(_signal: libc::c_int) {}

fn system(config: &GuestConfig, what: &'static str) -> impl FnOnce(nix::Error) -> GuestError {
    let name = config.name.clone();
    move |errno| GuestError::System { name, what, source: errno.into() }
}

/// The first fault of any vCPU, for the main thread to report.
type FirstFault = Arc<Mutex<Option<GuestError>>>;

fn spawn_vcpu(
    config: &GuestConfig,
    index: u32,
    mut vcpu: VcpuFd,
    stop: &Arc<AtomicBool>,
    fault: &FirstFault,
) -> Result<JoinHandle<()>, GuestError> {
    let (stop, fault, name) = (Arc::clone(stop), Arc::clone(fault), config.name.clone());
    let body = move || {
        if let End::Fault(reason) = run_until_stopped(&mut vcpu, &stop) {
            let mut first = fault.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(GuestError::Fault { name, vcpu: index, reason });
            drop(first);
            // Wakes the main thread, which waits for this very signal. It cannot fail: the
            // process is our own.
            let _ = kill(Pid::this(), Signal::SIGTERM);
        }
    };
    let named = thread::Builder::new().name(format!("vcpu{index}"));
    named.spawn(body).map_err(|source| GuestError::System {
        name: config.name.clone(),
        what: "start a vCPU's thread",
        source,
    })
}

fn kick_until_ended(thread: JoinHandle<()>) {
    while !thread.is_finished() {
        // The thread has not been joined, so its id is still its own.
        let _ = pthread_kill(thread.as_pthread_t(), KICK);
        thread::sleep(KICK_INTERVAL);
    }
    // A thread that panicked has said so on stderr.
    let _ = thread.join();
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_scenario::Workload;

    #[test]
    fn a_bad_config_is_refused_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let config = GuestConfig {
            name: "vm0".to_owned(),
            vcpus: 0,
            workload: Workload::Mix {},
            stats_path: dir.path().join("stats"),
            wait_for_go: false,
            loops_per_ms: None,
            memory: crate::Touched::default(),
        };
        assert!(matches!(run(&config), Err(GuestError::VcpuCount { .. })));
        assert!(!config.stats_path.exists());
    }

    #[test]
    fn a_kicked_thread_ends_even_when_the_first_kick_is_lost() {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let action =
            SigAction::new(SigHandler::Handler(on_kick), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler does nothing at all.
        unsafe { sigaction(KICK, &action) }.unwrap();
        let thread = thread::spawn(move || {
            while !seen.load(std::sync::atomic::Ordering::Acquire) {
                // Stands for KVM_RUN: returns early only when a signal comes while it waits.
                // SAFETY: waits; touches no memory.
                unsafe { libc::usleep(10_000_000) };
            }
        });
        stop.store(true, Release);
        let begun = std::time::Instant::now();
        kick_until_ended(thread);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
