// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's end of the control socket: what listens, and who is being served.
//!
//! The daemon has other things to do, and no client is waited for. Each has what it has sent so far, or what is left of
//! its answer, and [`CLIENT_TIME`] for either. Where too many are there, who has been there longest without a whole
//! request has to go, but not before its [`GRACE`] is over: others wait to be let in meanwhile, and clients that come
//! again and again keep neither the daemon nor the host busy.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::fcntl::AT_FDCWD;
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, getsockopt, listen, socket,
};
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat};
use nix::unistd::{Gid, Uid, chown};

use crate::control::{Answer, Request};
use crate::files;
use crate::privileges::Writer;
use crate::protocol;

/// A request may not be longer than this.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// How long a client may take to send its request, and to take its answer.
const CLIENT_TIME: Duration = Duration::from_millis(2000);
/// So many are served at a time.
const CLIENTS_MAX: usize = 256;
/// So long nobody is sent away.
const GRACE: Duration = Duration::from_millis(250);
/// So many come in at a time.
const ACCEPTED_MAX: usize = 2 * CLIENTS_MAX;
/// While answers of so many bytes in all are not taken yet, nobody else is given one.
const UNSENT_BYTES_MAX: usize = 64 << 20;
/// Clients are served for so long, then the daemon looks after the host.
const TURN: Duration = Duration::from_millis(100);

/// What listens, and who is being served.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: PathBuf,
    /// The socket's file.
    file: FileId,
    /// The group that may connect, too.
    readers: Option<Gid>,
    /// Held for as long as this daemon lives: of several, one has it.
    lock: Flock<File>,
    clients: Vec<Client>,
}

/// A file by device and number: another one may have its name by now.
type FileId = (u64, u64);

impl Listener {
    /// Listen there, for root alone. A socket nobody answers on any more is replaced.
    ///
    /// # Errors
    /// When another daemon has it, or the directory cannot be written.
    pub fn bind(path: &Path) -> Result<Self> {
        Self::bind_for(path, None)
    }

    /// The same, for root and that group.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn bind_for(path: &Path, readers: Option<Gid>) -> Result<Self> {
        let dir = path.parent().context("the socket path has no directory")?;
        make_dir(dir, readers).with_context(|| format!("cannot make {}", dir.display()))?;
        let lock = lock(path)?;
        let (listener, file) = listen_on(path, readers)?;
        Ok(Self { listener, path: path.to_owned(), file, readers, lock, clients: Vec::new() })
    }

    /// Whether its socket is where clients look for it.
    pub fn is_there(&self) -> bool {
        id(&self.path) == Some(self.file)
    }

    /// Makes its socket anew, and the directory that is in: somebody has removed it.
    ///
    /// # Errors
    /// When that cannot be.
    pub fn renew(&mut self, writer: &Writer) -> Result<()> {
        let (path, readers) = (self.path.clone(), self.readers);
        let locked = self.lock.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        let (lock, (listener, file)) = writer.run(move || {
            make_dir(path.parent().unwrap_or(&path), readers)?;
            let is_locked = locked.is_some() && id(&lock_path(&path)) == locked;
            let lock = if is_locked { None } else { Some(lock(&path)?) };
            Ok((lock, listen_on(&path, readers)?))
        })?;
        (self.listener, self.file) = (listener, file);
        if let Some(lock) = lock {
            self.lock = lock;
        }
        Ok(())
    }

    /// Removes its socket: this daemon ends.
    pub fn close(self, writer: &Writer) {
        if self.is_there() {
            let path = self.path.clone();
            // One that stays is replaced by the next daemon.
            let _ = writer.run(move || Ok(fs::remove_file(path)?));
        }
    }

    /// Waits for clients, no longer than that or until there is a signal; whether any is there.
    pub fn wait(&self, until: Instant) -> bool {
        wait(&[self], until)
    }

    /// What to wait for.
    fn waits_for(&self) -> impl Iterator<Item = PollFd<'_>> {
        let new = events(self.has_room(), PollFlags::POLLIN);
        let is_full = self.unsent() >= UNSENT_BYTES_MAX;
        let new = PollFd::new(self.listener.as_fd(), new);
        let clients = self.clients.iter().map(move |client| client.waits_for(is_full));
        [new].into_iter().chain(clients)
    }

    /// There is room for one more, or will be: somebody has not asked yet, and could have.
    fn has_room(&self) -> bool {
        self.clients.len() < CLIENTS_MAX || self.idle().is_some()
    }

    /// Who has to go first.
    fn idle(&self) -> Option<usize> {
        let is_idle = |client: &Client| !client.is_heard && client.came.elapsed() >= GRACE;
        self.clients.iter().position(is_idle)
    }

    /// Bytes of answers that are not taken yet.
    fn unsent(&self) -> usize {
        self.clients.iter().map(|client| client.unsent.len()).sum()
    }

    /// Goes on with all who have sent something, or may be sent something. A client that misbehaves is answered and
    /// forgotten.
    pub fn serve(&mut self, mut answer: impl FnMut(Request) -> Answer) {
        self.serve_users(|request, _| answer(request));
    }

    /// The same, told which user asks.
    pub fn serve_users(&mut self, mut answer: impl FnMut(Request, Uid) -> Answer) {
        self.accept();
        let (begun, mut unsent) = (Instant::now(), self.unsent());
        self.clients.retain_mut(|client| {
            client.hear();
            if client.is_heard && client.unsent.is_empty() {
                if unsent >= UNSENT_BYTES_MAX || begun.elapsed() >= TURN {
                    return true;
                }
                if client.has_gone() {
                    return false;
                }
                client.answer(&mut answer);
                unsent += client.unsent.len();
            }
            client.send()
        });
    }

    /// Takes in who has come.
    fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            if !self.has_room() {
                return;
            }
            let Ok((stream, _)) = self.listener.accept() else { return };
            let Ok(mut client) = Client::new(stream) else { continue };
            // Most have asked by now.
            client.hear();
            if self.clients.len() >= CLIENTS_MAX {
                if let Some(idle) = self.idle() {
                    self.clients.remove(idle);
                }
            }
            self.clients.push(client);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Nobody may who is confined; it is closed then.
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Waits for clients of all these, no longer than that or until there is a signal; whether any is there.
pub fn wait(listeners: &[&Listener], until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    let mut fds: Vec<PollFd> = listeners.iter().flat_map(|it| it.waits_for()).collect();
    let left = PollTimeout::try_from(left.as_micros().div_ceil(1000));
    // To ask for clients that are not there would have the kernel make and free a socket each time.
    poll(&mut fds, left.unwrap_or(PollTimeout::MAX)).is_ok_and(|ready| ready > 0)
}

/// What to wait for, or for nothing.
fn events(waits: bool, events: PollFlags) -> PollFlags {
    if waits { events } else { PollFlags::empty() }
}

/// Who has connected.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    /// Whose it was when it connected.
    user: Uid,
    came: Instant,
    /// When it has to have sent its request, or taken its answer.
    until: Instant,
    /// What it has sent.
    said: Vec<u8>,
    /// There is no more to come of that.
    is_heard: bool,
    /// What is left of its answer.
    unsent: Vec<u8>,
}

impl Client {
    fn new(stream: UnixStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        let user = Uid::from_raw(getsockopt(&stream, PeerCredentials)?.uid());
        let came = Instant::now();
        Ok(Self {
            stream,
            user,
            came,
            until: came + CLIENT_TIME,
            said: Vec::new(),
            is_heard: false,
            unsent: Vec::new(),
        })
    }

    fn waits_for(&self, is_full: bool) -> PollFd<'_> {
        let may_be_sent = events(!is_full || !self.unsent.is_empty(), PollFlags::POLLOUT);
        let for_what = if self.is_heard { may_be_sent } else { PollFlags::POLLIN };
        PollFd::new(self.stream.as_fd(), for_what)
    }

    /// Takes what it has sent by now.
    fn hear(&mut self) {
        let mut some = [0; 4096];
        while !self.is_heard {
            match self.stream.read(&mut some) {
                Ok(count) => {
                    self.said.extend(&some[..count]);
                    let is_whole = some[..count].contains(&b'\n');
                    self.is_heard = is_whole || count == 0 || self.said.len() > REQUEST_BYTES_MAX;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_heard = Instant::now() >= self.until;
                    return;
                }
                Err(_) => self.is_heard = true,
            }
        }
    }

    /// Whether it has given up: what it asked, it was told, will not be done. Who only has no more to say stays.
    fn has_gone(&self) -> bool {
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR;
        poll(&mut fds, PollTimeout::ZERO).is_ok()
            && fds[0].revents().is_some_and(|events| events.intersects(gone))
    }

    fn answer(&mut self, answer: &mut impl FnMut(Request, Uid) -> Answer) {
        let reply = match self.request() {
            Ok(request) => answer(request, self.user),
            Err(reason) => Answer::Refused { reason },
        };
        self.until = Instant::now() + CLIENT_TIME;
        self.unsent = protocol::line(&reply).unwrap_or_default().into_bytes();
    }

    fn request(&self) -> Result<Request, String> {
        if self.said.len() > REQUEST_BYTES_MAX {
            return Err(format!("a request may have {} KiB", REQUEST_BYTES_MAX >> 10));
        }
        let end = self.said.iter().position(|&byte| byte == b'\n').unwrap_or(self.said.len());
        let line = std::str::from_utf8(&self.said[..end]);
        protocol::request(line.map_err(|_| "this is not UTF-8".to_owned())?)
    }

    /// Sends what it takes of its answer; whether it is to be served any longer.
    fn send(&mut self) -> bool {
        while self.is_heard && !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Instant::now() < self.until;
                }
                Err(error) => {
                    tracing::debug!("a client went away: {error}");
                    return false;
                }
            }
        }
        !self.is_heard
    }
}

fn id(path: &Path) -> Option<FileId> {
    let meta = fs::symlink_metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// The directory of a socket: for its owner, and for all to pass where others may connect.
fn make_dir(dir: &Path, readers: Option<Gid>) -> std::io::Result<()> {
    let is_new = !dir.is_dir();
    files::make_private_dir(dir)?;
    match readers {
        // Whatever the umask is.
        Some(_) if is_new => fs::set_permissions(dir, Permissions::from_mode(0o755)),
        _ => Ok(()),
    }
}

fn lock_path(socket: &Path) -> PathBuf {
    socket.with_extension("lock")
}

/// Of two daemons that start at the same moment one gets it, and has it until it ends, in any way.
fn lock(socket: &Path) -> Result<Flock<File>> {
    let path = lock_path(socket);
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = files::open(&options, &path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        nix::errno::Errno::EWOULDBLOCK => {
            anyhow::anyhow!("drover already runs here (it has {}); stop it first", path.display())
        }
        error => anyhow::anyhow!("cannot lock {}: {error}", path.display()),
    })
}

fn listen_on(path: &Path, readers: Option<Gid>) -> Result<(UnixListener, FileId)> {
    if UnixStream::connect(path).is_ok() {
        bail!("drover already runs here (it answers on {}); stop it first", path.display());
    }
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let bound = || -> nix::Result<OwnedFd> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        // The file has it from the first moment on.
        fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR)?;
        bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        if readers.is_some() {
            chown(path, None, readers)?;
            let both = Mode::S_IRUSR | Mode::S_IWUSR | Mode::S_IRGRP | Mode::S_IWGRP;
            fchmodat(AT_FDCWD, path, both, FchmodatFlags::FollowSymlink)?;
        }
        listen(&fd, Backlog::MAXCONN)?;
        Ok(fd)
    };
    let bound = bound().with_context(|| format!("cannot listen on {}", path.display()))?;
    let file = id(path).with_context(|| format!("{} has gone", path.display()))?;
    Ok((bound.into(), file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ask;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    /// A daemon that answers everybody; it ends with the test.
    fn serving<T>(path: &Path, test: impl FnOnce() -> T) -> T {
        let mut listener = Listener::bind(path).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if listener.wait(Instant::now() + Duration::from_millis(20)) {
                        listener.serve(|_| Answer::Pools { pools: Vec::new() });
                    }
                }
            });
            let result = test();
            stop.store(true, Ordering::Relaxed);
            result
        })
    }

    fn is_answered(path: &Path) -> bool {
        ask(path, &Request::ListPools).is_ok()
    }

    #[test]
    fn a_daemon_is_alone_with_its_socket_and_a_dead_socket_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let first = Listener::bind(&path).unwrap();
        // Its socket may be gone, and it is there all the same.
        for _ in 0..2 {
            let told = Listener::bind(&path).unwrap_err().to_string();
            assert!(told.contains("already runs") && !told.contains('\n'), "{told}");
            let _ = fs::remove_file(&path);
        }
        drop(first);
        // A daemon killed with -9 leaves its socket behind.
        drop(UnixListener::bind(&path).unwrap());
        drop(Listener::bind(&path).unwrap());
        assert!(!path.exists(), "the socket goes with the daemon");
    }

    #[test]
    fn of_daemons_that_start_at_the_same_moment_one_serves() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        for _ in 0..20 {
            let started: Vec<Result<Listener>> = thread::scope(|scope| {
                let each: Vec<_> = (0..4).map(|_| scope.spawn(|| Listener::bind(&path))).collect();
                each.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(started.iter().filter(|one| one.is_ok()).count(), 1);
            assert!(started.iter().flatten().all(Listener::is_there));
        }
    }

    #[test]
    fn a_socket_that_was_removed_is_made_anew_and_its_directory_too() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("run");
        let path = home.join("s");
        let mut listener = Listener::bind(&path).unwrap();
        let writer = Writer::start(&[&home]).unwrap();
        fs::remove_file(&path).unwrap();
        for _ in 0..2 {
            assert!(!listener.is_there());
            listener.renew(&writer).unwrap();
            assert!(listener.is_there() && UnixStream::connect(&path).is_ok());
            assert!(Listener::bind(&path).is_err(), "it is locked");
            fs::remove_dir_all(&home).unwrap();
        }
        // Another one's is not removed.
        let other = Listener::bind(&path).unwrap();
        listener.close(&writer);
        assert!(other.is_there());
    }

    #[test]
    fn links_are_not_followed() {
        for name in ["s", "s.lock"] {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            symlink(at("victim"), at(name)).unwrap();
            let told = format!("{:#}", Listener::bind(&at("s")).unwrap_err());
            assert!(told.contains(name) && !told.contains('\n'), "{told}");
            assert!(!at("victim").exists(), "{name}");
        }
    }

    #[test]
    fn directories_are_for_those_who_may_connect_and_who_asks_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let mode =
            |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        let _own = Listener::bind(&dir.path().join("a/own/s")).unwrap();
        let of_all = dir.path().join("b/s");
        let mut listener = Listener::bind_for(&of_all, Some(nix::unistd::getegid())).unwrap();
        assert_eq!((mode("a/own"), mode("b"), mode("b/s")), (0o700, 0o755, 0o660));
        let mut client = UnixStream::connect(&of_all).unwrap();
        client.write_all(b"{\"request\":\"list_pools\"}\n").unwrap();
        let mut users = Vec::new();
        listener.serve_users(|_, user| {
            users.push(user);
            Answer::Done
        });
        assert_eq!(users, [nix::unistd::geteuid()]);
    }

    #[test]
    fn only_the_owner_may_connect() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = Listener::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn four_hundred_clients_with_half_a_line_stop_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        serving(&path, || {
            let mut idle: Vec<UnixStream> = Vec::new();
            for round in 0..4 {
                idle.extend((0..100).map(|_| UnixStream::connect(&path).unwrap()));
                // Some may have been sent away by now.
                idle.iter_mut().for_each(|it| drop(it.write_all(b"{\"request\":")));
                assert!(is_answered(&path), "round {round}");
            }
        });
    }

    #[test]
    fn nobody_is_sent_away_at_once_for_others_that_come() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let mut listener = Listener::bind(&path).unwrap();
        let idle: Vec<UnixStream> =
            (0..=CLIENTS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
        // So many come in at a time.
        for _ in 0..3 {
            listener.accept();
        }
        let first = listener.clients[0].came;
        assert!(
            listener.clients.len() == CLIENTS_MAX
                && (!listener.has_room() || first.elapsed() >= GRACE)
        );
        let _another = UnixStream::connect(&path).unwrap();
        listener.clients[0].came = first.checked_sub(GRACE).unwrap();
        listener.accept();
        assert!(listener.clients.len() == CLIENTS_MAX && listener.clients[0].came >= first);
        drop(idle);
    }

    /// Runs the daemon's side by hand: what takes longer than a turn is seen in one turn.
    #[test]
    fn nobody_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let mut listener = Listener::bind(&path).unwrap();
        let mut half = UnixStream::connect(&path).unwrap();
        half.write_all(b"{\"request\":\"list").unwrap();
        let mut never_takes = UnixStream::connect(&path).unwrap();
        never_takes.write_all(b"{\"request\":\"list_pools\"}\n").unwrap();
        let long = Answer::Refused { reason: "x".repeat(8 << 20) };
        let mut asked = 0;
        for _ in 0..3 {
            listener.serve(|_| {
                asked += 1;
                long.clone()
            });
        }
        assert_eq!((asked, listener.clients.len()), (1, 2), "both are kept meanwhile");
        // What comes in pieces is put together.
        half.write_all(b"_pools\"}\n").unwrap();
        listener.serve(|request| {
            assert_eq!(request, Request::ListPools);
            Answer::Done
        });
        assert_eq!(listener.clients.len(), 1);
        // Who is too slow is sent away.
        let slow = UnixStream::connect(&path).unwrap();
        listener.accept();
        listener.clients.iter_mut().for_each(|client| client.until = Instant::now());
        listener.serve(|_| panic!("it asked nothing"));
        assert!(listener.clients.is_empty());
        drop((slow, never_takes));
    }

    #[test]
    fn an_order_of_a_client_that_has_gone_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let mut listener = Listener::bind(&path).unwrap();
        let order = b"{\"request\":\"remove_pool\",\"name\":\"a\"}\n";
        let mut gives_up = UnixStream::connect(&path).unwrap();
        gives_up.write_all(order).unwrap();
        drop(gives_up);
        let mut says_no_more = UnixStream::connect(&path).unwrap();
        says_no_more.write_all(order).unwrap();
        says_no_more.shutdown(std::net::Shutdown::Write).unwrap();
        let mut followed = 0;
        listener.serve(|_| {
            followed += 1;
            Answer::Done
        });
        assert_eq!(followed, 1);
        let mut answer = String::new();
        says_no_more.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("done"), "{answer}");
    }

    #[test]
    fn the_host_is_looked_after_between_two_turns() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let mut listener = Listener::bind(&path).unwrap();
        let clients: Vec<UnixStream> = (0..9)
            .map(|_| {
                let mut client = UnixStream::connect(&path).unwrap();
                client.write_all(b"{\"request\":\"list_pools\"}\n").unwrap();
                client
            })
            .collect();
        let mut answered = Vec::new();
        while !listener.clients.is_empty() || answered.is_empty() {
            let mut asked = 0;
            listener.serve(|_| {
                asked += 1;
                thread::sleep(TURN);
                Answer::Done
            });
            answered.push(asked);
        }
        assert_eq!(answered, [1; 9], "each takes a whole turn");
        drop(clients);
    }

    #[test]
    fn what_is_said_without_end_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        serving(&path, || {
            let mut talkative = UnixStream::connect(&path).unwrap();
            // It is cut off at some point, which is an error here.
            let _ = talkative.write_all(&vec![b'x'; 1 << 20]);
            let mut answer = Vec::new();
            let _ = talkative.read_to_end(&mut answer);
            assert!(String::from_utf8_lossy(&answer).contains("may have 64 KiB"));
            assert!(is_answered(&path));
        });
    }
}
