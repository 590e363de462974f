// SPDX-License-Identifier: GPL-2.0-only
//! Looks into other processes, for the daemon, which may not.
//!
//! What is read of a process may wait for it: its command line, its maps and its memory for a lock that its threads take,
//! which a limit may hold for minutes; and to look into processes of others takes CAP_SYS_PTRACE, with which one is
//! root. So neither is the daemon's: processes of their own (`worker`), started before it gives up its privileges, do
//! what is in [`Op`] and nothing else, on requests and with answers of fixed size (`wire`).
//!
//! Several read at a time, those of names apart from those of memory, as a look at memory takes longer. A reader that does
//! not come to an end is ended by its own timer, and another takes its place: the kernel lets who waits for that lock to
//! read be killed. Who waits for it to move pages cannot be, until it is free: so of a process with a request that is
//! overdue the same is not asked again.
//!
//! Limitations. As many users as there are readers, whose processes all keep such a lock, keep pages of others from
//! being moved meanwhile, but not names from being known.

mod memory;
mod misses;
mod wire;
mod worker;

pub use misses::COUNTS;
pub use wire::{ITEMS_MAX, Op, Request};

use crate::cookies::Tagged;
use crate::privileges;
use anyhow::{Context, Result};
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, recv, send, shutdown, socketpair,
};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use wire::{ANSWER_BYTES, Part};

/// No more requests than that are under way in one pool.
const UNDER_WAY_MAX: usize = 64;
/// What has not come by then does not come.
const GIVEN_UP: Duration = Duration::from_secs(60);
/// A reader's own timer goes first.
const SLACK: Duration = Duration::from_millis(500);
/// No answer is longer: the longest list of mappings that is read.
const ANSWER_MAX: usize = 17 << 20;

/// The processes that look into others.
#[derive(Debug)]
pub struct Helper {
    /// For names: command lines, bytes, misses of caches.
    pub names: Pool,
    /// For memory.
    pub memory: Pool,
    /// Who was found with a cookie, where that is watched.
    cookies: OnceLock<Mutex<Receiver<Tagged>>>,
    /// The process that has the others as its children.
    #[cfg_attr(not(test), expect(dead_code, reason = "for tests to see it end"))]
    pid: Pid,
}

impl Helper {
    /// Starts them. This process must have one thread, and nothing open that they are not to have but what is closed for
    /// them. `watches`: they look for core-scheduling cookies, too.
    ///
    /// # Errors
    /// When there can be no process.
    pub fn start(watches: bool) -> Result<Arc<Self>> {
        let pair = || {
            let flags = SockFlag::SOCK_CLOEXEC;
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
        };
        let ((names, of_names), (memory, of_memory)) = (pair()?, pair()?);
        let pid = worker::start([&of_names, &of_memory], watches);
        let pid = pid.context("no process to look into others")?;
        drop((of_names, of_memory));
        let (names, memory) = (Pool::of(names), Pool::of(memory));
        tracing::debug!("process {pid} looks into others");
        Ok(Arc::new(Self { names, memory, cookies: OnceLock::new(), pid }))
    }

    /// Begins to take answers: by threads, which have what this one may still do, and no more.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn listen(&self) -> io::Result<()> {
        let (tell, cookies) = channel();
        let _ = self.cookies.set(Mutex::new(cookies));
        self.names.listen(Some(tell))?;
        self.memory.listen(None)
    }

    /// Those for a test.
    #[cfg(test)]
    pub fn for_test() -> Arc<Self> {
        let helper = Self::start(false).unwrap();
        helper.listen().unwrap();
        helper
    }

    /// Who has a core-scheduling cookie, if anybody was found.
    pub fn cookie(&self) -> Option<Tagged> {
        self.cookies.get()?.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
    }
}

/// Told of what was read, or that nothing was.
type Tell = Box<dyn FnOnce(io::Result<Vec<u8>>) + Send>;

/// Readers of one kind.
#[derive(Debug)]
pub struct Pool {
    socket: Arc<OwnedFd>,
    all: Arc<Mutex<UnderWay>>,
}

/// What was asked and is not answered.
#[derive(Default)]
struct UnderWay {
    last_id: u64,
    requests: HashMap<u64, Waiting>,
    /// The readers have ended.
    over: bool,
}

impl std::fmt::Debug for UnderWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} under way", self.requests.len())
    }
}

struct Waiting {
    op: Op,
    pid: u32,
    since: Instant,
    read: Vec<u8>,
    tell: Tell,
}

fn lock(all: &Mutex<UnderWay>) -> MutexGuard<'_, UnderWay> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    fn of(socket: OwnedFd) -> Self {
        Self { socket: Arc::new(socket), all: Arc::default() }
    }

    fn listen(&self, cookies: Option<Sender<Tagged>>) -> io::Result<()> {
        let (socket, all) = (Arc::clone(&self.socket), Arc::clone(&self.all));
        let body = move || {
            privileges::confine_thread(&[]);
            listen(&socket, &all, cookies.as_ref());
        };
        std::thread::Builder::new().name("drover-answers".to_owned()).spawn(body)?;
        Ok(())
    }

    /// Asks, and waits for nothing: `tell` is called once, on another thread or at once.
    pub fn begin(
        &self,
        op: Op,
        pid: u32,
        (items, nodes): (Vec<u64>, Vec<i32>),
        tell: impl FnOnce(io::Result<Vec<u8>>) + Send + 'static,
    ) {
        let mut all = lock(&self.all);
        let is_over = |it: &Waiting| it.since.elapsed() >= GIVEN_UP;
        let (given_up, others) =
            std::mem::take(&mut all.requests).into_iter().partition(|(_, it)| is_over(it));
        all.requests = others;
        let given_up: HashMap<u64, Waiting> = given_up;
        let full = all.over || all.requests.len() >= UNDER_WAY_MAX;
        if full || all.requests.values().any(|it| (it.op, it.pid) == (op, pid)) {
            drop(all);
            return tell(Err(ErrorKind::WouldBlock.into()));
        }
        all.last_id += 1;
        let request = Request { id: all.last_id, op, pid, items, nodes };
        let since = Instant::now();
        let waiting = Waiting { op, pid, since, read: Vec::new(), tell: Box::new(tell) };
        all.requests.insert(request.id, waiting);
        let sent = send(self.socket.as_raw_fd(), &request.bytes(), MsgFlags::MSG_DONTWAIT);
        let unsent = match sent {
            Ok(_) => None,
            Err(error) => all.requests.remove(&request.id).map(|it| (it, error)),
        };
        drop(all);
        given_up.into_values().for_each(|it| (it.tell)(Err(ErrorKind::TimedOut.into())));
        if let Some((waiting, error)) = unsent {
            (waiting.tell)(Err(error.into()));
        }
    }

    /// Asks, and waits for the answer, or until it is late.
    ///
    /// # Errors
    /// When it cannot be read, or is not in time.
    pub fn ask(&self, op: Op, pid: u32, of: (Vec<u64>, Vec<i32>)) -> io::Result<Vec<u8>> {
        let (tell, told) = channel();
        self.begin(op, pid, of, move |read| {
            // Who has given up does not listen.
            let _ = tell.send(read);
        });
        let limit = Duration::from_secs(op.limit_s().into()) + SLACK;
        told.recv_timeout(limit).map_err(|_| io::Error::from(ErrorKind::TimedOut))?
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // They end, and so does who listens.
        lock(&self.all).over = true;
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
    }
}

/// Takes answers until the readers have ended.
fn listen(socket: &OwnedFd, all: &Mutex<UnderWay>, cookies: Option<&Sender<Tagged>>) {
    let mut bytes = vec![0; ANSWER_BYTES];
    loop {
        match recv(socket.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
            Err(nix::errno::Errno::EINTR) => {}
            Ok(length) if length > 0 => {
                let Some(part) = Part::of(&bytes[..length]) else { continue };
                match cookies {
                    Some(cookies) if part.id == 0 => {
                        // Where nobody watches nobody listens.
                        let _ = worker::tagged_of(&part.data).map(|it| cookies.send(it));
                    }
                    _ => take(all, part),
                }
            }
            _ => break,
        }
    }
    let mut all = lock(all);
    let was_over = std::mem::replace(&mut all.over, true);
    let requests = std::mem::take(&mut all.requests);
    drop(all);
    if !was_over {
        tracing::error!(
            "the processes that look into others have ended: new VMs have no names of their own, and no memory is \
             moved; restart drover"
        );
    }
    requests.into_values().for_each(|it| (it.tell)(Err(ErrorKind::BrokenPipe.into())));
}

fn take(all: &Mutex<UnderWay>, part: Part) {
    let mut all = lock(all);
    // Nobody knows one that is late.
    let Some(waiting) = all.requests.get_mut(&part.id) else { return };
    waiting.read.extend(&part.data);
    if part.errno == 0 && part.more && waiting.read.len() <= ANSWER_MAX {
        return;
    }
    let Some(waiting) = all.requests.remove(&part.id) else { return };
    drop(all);
    let read = match part.errno {
        0 => Ok(waiting.read),
        errno => Err(io::Error::from_raw_os_error(errno)),
    };
    (waiting.tell)(read);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

    fn none() -> (Vec<u64>, Vec<i32>) {
        (Vec::new(), Vec::new())
    }

    #[test]
    fn readers_read_and_one_that_hangs_stops_nobody_and_is_replaced() {
        let helper = Helper::for_test();
        let pool = &helper.names;
        let own = pool.ask(Op::CommandLine, std::process::id(), none()).unwrap();
        assert_eq!(own, std::fs::read("/proc/self/cmdline").unwrap());
        let gone = pool.ask(Op::CommandLine, 0x3fff_fff0, none()).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound);
        let (tell, told) = channel();
        for pid in 0..2 * worker::READERS as u32 {
            let tell = tell.clone();
            pool.begin(Op::Hang, pid, none(), move |read| tell.send(read).unwrap());
        }
        // The same is not asked again of a process, and memory is for others to read.
        let again = pool.ask(Op::Hang, 1, none()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::WouldBlock);
        let begun = Instant::now();
        let maps = helper.memory.ask(Op::Maps, std::process::id(), none()).unwrap();
        assert!(String::from_utf8_lossy(&maps).contains("[stack]"));
        assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
        for _ in 0..2 * worker::READERS {
            let late = told.recv_timeout(Duration::from_secs(20)).unwrap().unwrap_err();
            assert_eq!(late.kind(), ErrorKind::TimedOut);
        }
        assert!(pool.ask(Op::CommandLine, std::process::id(), none()).is_ok());
    }

    #[test]
    fn readers_end_with_who_asks() {
        let helper = Helper::for_test();
        let pid = helper.pid;
        drop(helper);
        let until = Instant::now() + Duration::from_secs(10);
        while waitpid(pid, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive) {
            assert!(Instant::now() < until, "they live");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
