// SPDX-License-Identifier: GPL-2.0-only
//! The processes that look into others: one that starts the rest, and starts another where one was ended.
//!
//! Each has CAP_SYS_PTRACE and CAP_SYS_NICE, opens nothing to write, and makes no system call but those below.

use super::memory::{MAPS_MAX, call_move_pages};
use super::misses::misses_of;
use super::wire::{ANSWER_BYTES, Op, Part, REQUEST_BYTES, Request};
use crate::cookies::{Tagged, cookie_of, tagged};
use crate::{cookies, files, io_bytes, names, privileges};
use anyhow::Result;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::{ForkResult, Pid, fork, getppid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// So many read in each pool.
pub const READERS: usize = 8;
const ALL: usize = 2 * READERS;
/// Where one ends again and again, so long is waited before the next.
const PAUSE: Duration = Duration::from_millis(20);

/// Starts them all, to be asked on these sockets.
pub fn start(sockets: [&OwnedFd; 2], watches: bool) -> Result<Pid> {
    // SAFETY: the daemon has one thread still. The child uses what it has copied, and never returns.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let ended = supervise(sockets.map(AsRawFd::as_raw_fd), watches);
            let code = if ended.is_ok() { 0 } else { 1 };
            // SAFETY: ends this process, and runs nothing of the daemon's.
            unsafe { libc::_exit(code) }
        }
    }
}

/// What each is doing, which who starts them reads when one was ended.
type Doing = &'static [AtomicU64; ALL];

fn supervise(sockets: [RawFd; 2], watches: bool) -> Result<()> {
    settle(sockets)?;
    privileges::keep_for_readers()?;
    seccompiler::apply_filter(&filter(&STARTS)?)?;
    let doing = shared()?;
    let socket_of = |place: usize| sockets[place / READERS];
    if watches {
        child(|| watch(sockets[0]))?;
    }
    let mut pids = Vec::with_capacity(ALL);
    for (place, its) in doing.iter().enumerate() {
        pids.push(child(|| read_all(socket_of(place), its))?);
    }
    loop {
        let (pid, by_itself) = match wait() {
            Ok(WaitStatus::Exited(pid, code)) => (pid, code == 0),
            Ok(WaitStatus::Signaled(pid, ..)) => (pid, false),
            Err(nix::errno::Errno::ECHILD) => return Ok(()),
            _ => continue,
        };
        let Some(place) = pids.iter().position(|it| *it == pid) else { continue };
        if by_itself {
            // Nobody asks any more.
            return Ok(());
        }
        let id = doing[place].swap(0, Ordering::SeqCst);
        if id != 0 {
            let late = Part { id, errno: libc::ETIMEDOUT, more: false, data: Vec::new() };
            // Where there is no room it is given up later.
            let _ = send(socket_of(place), &late.bytes(), MsgFlags::MSG_DONTWAIT);
        }
        std::thread::sleep(PAUSE);
        pids[place] = child(|| read_all(socket_of(place), &doing[place]))?;
    }
}

/// Has nothing open but these, and ends with who started it.
fn settle(mut sockets: [RawFd; 2]) -> Result<()> {
    end_with_parent()?;
    sockets.sort_unstable();
    let [first, second] = sockets.map(|fd| fd as libc::c_uint);
    for (from, to) in [(3, first - 1), (first + 1, second - 1), (second + 1, libc::c_uint::MAX)] {
        // SAFETY: nothing that is closed is used here any more.
        if from <= to && unsafe { libc::close_range(from, to, 0) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
    }
    let name = c"drover-reader";
    // SAFETY: the name ends with a NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    Ok(())
}

fn end_with_parent() -> Result<()> {
    let parent = getppid();
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    anyhow::ensure!(getppid() == parent && parent.as_raw() != 1, "it has gone already");
    Ok(())
}

/// A process that does that, and ends.
fn child(work: impl FnOnce() -> Result<()>) -> Result<Pid> {
    // SAFETY: who starts others has one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let ended = end_with_parent()
                .and_then(|()| Ok(seccompiler::apply_filter(&filter(&[])?)?))
                .and_then(|()| work());
            let code = if ended.is_ok() { 0 } else { 1 };
            // SAFETY: ends this process.
            unsafe { libc::_exit(code) }
        }
    }
}

fn shared() -> Result<Doing> {
    let length = NonZeroUsize::new(size_of::<[AtomicU64; ALL]>()).expect("it is not empty");
    let (prot, flags) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED);
    // SAFETY: new memory, of zeros, which stays for as long as this process.
    unsafe { Ok(mmap_anonymous(None, length, prot, flags)?.cast().as_ref()) }
}

/// Reads what is asked on that socket, until nobody asks any more.
fn read_all(socket: RawFd, doing: &AtomicU64) -> Result<()> {
    let mut bytes = vec![0; REQUEST_BYTES];
    loop {
        let length = match recv(socket, &mut bytes, MsgFlags::empty()) {
            Err(nix::errno::Errno::EINTR) => continue,
            Ok(length) if length > 0 => length,
            _ => return Ok(()),
        };
        let Some(request) = Request::of(&bytes[..length]) else { continue };
        doing.store(request.id, Ordering::SeqCst);
        // Ends this process, also while it waits for a lock.
        set_timer(request.op.limit_s());
        for part in Part::all(request.id, read(&request)) {
            if send(socket, &part.bytes(), MsgFlags::MSG_NOSIGNAL).is_err() {
                return Ok(());
            }
        }
        set_timer(0);
        doing.store(0, Ordering::SeqCst);
    }
}

/// A signal by which this process ends, in so many seconds; 0: none.
fn set_timer(seconds: u32) {
    // SAFETY: all zeros are a timer.
    let mut timer: libc::itimerval = unsafe { std::mem::zeroed() };
    timer.it_value.tv_sec = seconds.into();
    // SAFETY: one timer is read, and none written.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}

fn read(request: &Request) -> io::Result<Vec<u8>> {
    let Request { op, pid, items, nodes, .. } = request;
    let process = Path::new("/proc").join(pid.to_string());
    let of_words = |words: Vec<i32>| words.iter().flat_map(|it| it.to_ne_bytes()).collect();
    match op {
        Op::CommandLine => names::command_line(&process),
        Op::Maps => files::whole(&process.join("maps"), MAPS_MAX),
        Op::NumaMaps => files::whole(&process.join("numa_maps"), MAPS_MAX),
        Op::NodesOf => call_move_pages(*pid, items, None).map(of_words),
        Op::MovePages => call_move_pages(*pid, items, Some(nodes)).map(of_words),
        Op::Io => files::kernel(&process.join("io")).map(String::into_bytes),
        Op::Taps => {
            let taps: Vec<String> = io_bytes::taps(&process).into_iter().collect();
            Ok(taps.join("\n").into_bytes())
        }
        Op::Misses => {
            let misses = misses_of(items);
            Ok(misses.iter().flat_map(|it| it.to_ne_bytes()).collect())
        }
        #[cfg(test)]
        Op::Hang => loop {
            std::thread::sleep(PAUSE);
        },
    }
}

/// Looks for core-scheduling cookies, and tells the first that was found.
fn watch(socket: RawFd) -> Result<()> {
    let found = cookies::watch(|| tagged(Path::new("/"), cookie_of));
    let Tagged { count, name, pid, tid } = found;
    let data = format!("{count}\n{pid}\n{tid}\n{name}").into_bytes();
    send(socket, &Part { id: 0, errno: 0, more: false, data }.bytes(), MsgFlags::MSG_NOSIGNAL)?;
    Ok(())
}

/// What was told so.
pub fn tagged_of(data: &[u8]) -> Option<Tagged> {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.splitn(4, '\n');
    let (count, pid, tid) =
        (lines.next()?.parse().ok()?, lines.next()?.parse().ok()?, lines.next()?.parse().ok()?);
    Some(Tagged { count, name: lines.next()?.to_owned(), pid, tid })
}

/// What readers call, but for `openat`: files and directories, sockets, pages and counters, memory of their own, their end.
const CALLS: [i64; 47] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_getdents64,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_fcntl,
    libc::SYS_poll,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_move_pages,
    libc::SYS_perf_event_open,
    libc::SYS_setitimer,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_tgkill,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_membarrier,
    libc::SYS_getuid,
    libc::SYS_geteuid,
];
/// What who starts them calls beside.
const STARTS: [i64; 4] = [libc::SYS_clone, libc::SYS_clone3, libc::SYS_wait4, libc::SYS_waitid];

/// Refuses all else: files are opened to read only.
fn filter(more: &[i64]) -> Result<BpfProgram> {
    let writes = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;
    let reads = SeccompCondition::new(
        2,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(writes as u64),
        libc::O_RDONLY as u64,
    )?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        CALLS.iter().chain(more).map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_openat, vec![SeccompRule::new(vec![reads])?]);
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)?.try_into()?)
}

const _: () = assert!(ANSWER_BYTES < 64 << 10, "a datagram is sent whole");

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn readers_write_nothing_start_nothing_and_reach_no_memory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        fs::write(&file, "x").unwrap();
        let refused = std::thread::spawn(move || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            seccompiler::apply_filter(&filter(&[]).unwrap()).unwrap();
            assert_eq!(fs::read(&file).unwrap(), b"x");
            let calls: [&dyn Fn() -> bool; 6] = [
                &|| fs::write(&file, "y").is_err(),
                &|| fs::write(file.with_extension("new"), "y").is_err(),
                &|| fs::remove_file(&file).is_err(),
                &|| std::os::unix::net::UnixStream::pair().is_err(),
                &|| privileges::tests::refused(libc::SYS_process_vm_writev),
                &|| privileges::tests::refused(libc::SYS_ptrace),
            ];
            calls.map(|call| call())
        });
        assert_eq!(refused.join().unwrap(), [true; 6]);
    }

    #[test]
    fn who_has_a_cookie_is_told() {
        let told = tagged_of(b"2\n20\n21\nvcpu0");
        assert_eq!(told, Some(Tagged { count: 2, name: "vcpu0".to_owned(), pid: 20, tid: 21 }));
        assert_eq!(tagged_of(b"2\n20"), None);
    }
}
