// SPDX-License-Identifier: GPL-2.0-only
//! The control socket: how other commands talk to the daemon.
//!
//! One request and one answer a connection, each one line of JSON as `protocol` has it. Only root can
//! connect: the socket is mode 0600. What the daemon does with who connects is in `listener`.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use drover_core::arrange::Arrangement;
use drover_core::asked::{Asked, Key};
use drover_core::partition::PartitionChange;
use drover_core::sets::SetSpec;
use drover_core::tree::PoolChange;
use drover_core::why::Facts;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, socket as nix_socket,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files;
use crate::protocol;
use crate::readers::{READERS, READERS_PATH};
use crate::status::{
    Advice, Change, History, HostStatus, NodeStatus, OrderStatus, PartitionStatus, PlannedMove,
    PoolStatus, SetStatus, VmIo, VmStatus,
};

/// Where the daemon listens.
pub const SOCKET_PATH: &str = "/run/drover/control.sock";
/// Where the kernel says whether a scheduler is loaded.
const SCHED_EXT: &str = "/sys/kernel/sched_ext/state";
/// Where `drover observe` listens: it answers questions, and takes no orders.
pub const OBSERVER_PATH: &str = "/run/drover-observe/observe.sock";
/// An answer may not be longer than this: 2,047 VMs of 256 vCPUs, which is more than any host has.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// How long a command waits for a daemon that is in charge.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for one that is starting: the kernel checks the scheduler, beside busy VMs.
const START_PATIENCE: Duration = Duration::from_secs(120);
/// After that it says so.
const SILENCE: Duration = Duration::from_secs(1);

/// What may be asked of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// How the daemon and its host are.
    Status,
    /// All VMs and what they get.
    ListVms {
        /// Without vCPUs, profiles, and where settings and guarantees come from: a third of the work.
        #[serde(default)]
        brief: bool,
    },
    /// Change what is asked for a VM.
    SetVm {
        /// The VM's name.
        name: String,
        /// What is asked for it from now on.
        #[serde(default)]
        set: Asked,
        /// What is no longer asked for it by order: other sources count again.
        #[serde(default)]
        reset: Vec<Key>,
    },
    /// The same for a VM that runs, for as long as it does: it goes over what is kept, and is not kept itself.
    SetVmLive {
        /// The VM's name.
        name: String,
        /// What is asked for it.
        #[serde(default)]
        set: Asked,
        /// What is no longer asked for it in this way.
        #[serde(default)]
        reset: Vec<Key>,
    },
    /// What was ordered for VMs, whether they are here or not.
    ListOrders,
    /// Delete a VM's saved settings: other sources count again.
    ForgetVm {
        /// The VM's name.
        name: String,
    },
    /// All pools and what they get.
    ListPools,
    /// Make a pool.
    AddPool {
        /// The pool's name.
        name: String,
        /// What it has instead of the defaults.
        #[serde(default)]
        change: PoolChange,
    },
    /// Change a pool.
    SetPool {
        /// The pool's name.
        name: String,
        /// What is to change.
        #[serde(default)]
        change: PoolChange,
    },
    /// Remove a pool nobody is in.
    RemovePool {
        /// The pool's name.
        name: String,
    },
    /// All partitions and who is in them.
    ListPartitions,
    /// Make a partition.
    AddPartition {
        /// The partition's name.
        name: String,
        /// What it has instead of the defaults.
        #[serde(default)]
        change: PartitionChange,
    },
    /// Change a partition.
    SetPartition {
        /// The partition's name.
        name: String,
        /// What is to change.
        #[serde(default)]
        change: PartitionChange,
    },
    /// Remove a partition nobody is in.
    RemovePartition {
        /// The partition's name.
        name: String,
    },
    /// Arrange partitions by what VMs do, from now on, or no longer.
    SetAutoPartitions {
        /// Whether that is to be done.
        on: bool,
    },
    /// How partitions would be arranged by what VMs do; nothing is.
    PlanPartitions,
    /// All sets of VMs that belong together or apart.
    ListSets,
    /// Make a set.
    AddSet {
        /// The set.
        set: SetSpec,
    },
    /// Remove a set.
    RemoveSet {
        /// The set's name.
        name: String,
    },
    /// All NUMA nodes that may be a home, and who lives there.
    ListNodes,
    /// What would be moved to another home now; nothing is.
    PlanHomes,
    /// The virtual nodes that the guest of a VM should have.
    AdviseVm {
        /// The VM's name.
        name: String,
    },
    /// Where the time of a VM went lately, and who ran while it waited; `drover observe` knows.
    ExplainWaits {
        /// The VM's name, or the number of its process.
        vm: String,
        /// The last so many seconds.
        seconds: u32,
    },
    /// I/O of all VMs: bytes, and how late threads on the way of it ran; `drover observe` knows.
    ListIo,
    /// Figures of the past: what VMs got, were owed and waited for.
    ListHistory {
        /// The last so many seconds: a day at most.
        seconds: u32,
        /// The length of a step, s; longer where there are many VMs.
        step_s: u32,
    },
    /// Take the last order back.
    Undo,
    /// The configuration with all orders over it, as the text of a configuration file.
    ExportConfig,
    /// What an order would change, and whether it would be taken; nothing is changed.
    DryRun {
        /// The order.
        order: Box<Request>,
    },
    /// End the scheduler as an internal error would.
    #[cfg(feature = "fault-injection")]
    #[schemars(skip)]
    Break,
}

impl Request {
    /// Of an order for a VM: its name, what is asked for it and what no more.
    pub fn of_vm(&self) -> Option<(&str, &Asked, &[Key])> {
        match self {
            Self::SetVm { name, set, reset } | Self::SetVmLive { name, set, reset } => {
                Some((name, set, reset))
            }
            _ => None,
        }
    }
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// To `Status`.
    Status {
        /// How they are.
        status: Box<HostStatus>,
    },
    /// To `ListVms`.
    Vms {
        /// In the order they were found.
        vms: Vec<VmStatus>,
    },
    /// To `ListOrders`.
    Orders {
        /// By name.
        orders: Vec<OrderStatus>,
    },
    /// To `ListPools`.
    Pools {
        /// Parents before their children.
        pools: Vec<PoolStatus>,
    },
    /// To `ListPartitions`.
    Partitions {
        /// `default`, then the others in the order they were made.
        partitions: Vec<PartitionStatus>,
    },
    /// To `PlanPartitions`.
    Arrangement {
        /// Whether it is done, once it has been the same for long enough.
        is_on: bool,
        /// What would be done, and why.
        arrangement: Arrangement,
    },
    /// To `ListSets`.
    Sets {
        /// Those of the configuration, then the others in the order they were made.
        sets: Vec<SetStatus>,
    },
    /// To `ListNodes`.
    Nodes {
        /// By number; empty on a host of one node, where VMs have no homes.
        nodes: Vec<NodeStatus>,
    },
    /// To `PlanHomes`.
    Moves {
        /// In the order they would be made; none: this host has one node.
        moves: Option<Vec<PlannedMove>>,
    },
    /// To `AdviseVm`.
    Advice {
        /// None: this host has one node.
        advice: Option<Advice>,
    },
    /// To `ExplainWaits`.
    Waits {
        /// What is known of it.
        facts: Box<Facts>,
    },
    /// To `ListIo`.
    Io {
        /// By process.
        vms: Vec<VmIo>,
    },
    /// To `ListHistory`.
    History {
        /// As far as it is kept.
        history: Box<History>,
    },
    /// To `ExportConfig`.
    Config {
        /// As /etc/drover/drover.toml has it.
        text: String,
    },
    /// To `DryRun`: it would be taken.
    Changes {
        /// Of VMs, then pools, partitions and sets.
        changes: Vec<Change>,
    },
    /// To `Undo`: it is in force, and saved.
    Undone {
        /// What the order was for: a VM, a pool, a partition or a set.
        whose: String,
        /// What is another now.
        changes: Vec<Change>,
    },
    /// The order is in force in the kernel and saved.
    Done,
    /// It is not; nothing was changed.
    Refused {
        /// One line: what is wrong and how to fix it.
        reason: String,
    },
}

/// Ask the daemon at that socket.
///
/// # Errors
/// When no daemon answers; a refusal by the daemon is an error too.
pub fn ask(socket: &Path, request: &Request) -> Result<Answer> {
    ask_on(UnixStream::connect(socket).map_err(|err| no_connection(socket, &err))?, request)
}

/// Who answered a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The daemon that schedules.
    Scheduler,
    /// The one that looks only.
    Observer,
}

/// Asks a question of the daemon that schedules, at the socket where it can be ordered or the one for questions only; where
/// neither may be asked, of the daemon that looks only. A socket of one's own choice is asked and no other.
///
/// # Errors
/// As [`ask`].
pub fn ask_either(socket: &Path, request: &Request) -> Result<(Answer, By)> {
    use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
    let err = match UnixStream::connect(socket) {
        Ok(stream) => return Ok((ask_on(stream, request)?, By::Scheduler)),
        Err(err) => err,
    };
    let is_usual = socket == Path::new(SOCKET_PATH);
    if is_usual && [ConnectionRefused, NotFound, PermissionDenied].contains(&err.kind()) {
        for (other, by) in [(READERS_PATH, By::Scheduler), (OBSERVER_PATH, By::Observer)] {
            if let Ok(stream) = UnixStream::connect(other) {
                return Ok((ask_on(stream, request)?, by));
            }
        }
    }
    Err(match err.kind() {
        PermissionDenied if is_usual => anyhow::anyhow!(
            "{} is root's, and {READERS_PATH} the group {READERS}'s; use sudo",
            socket.display()
        ),
        _ => no_connection(socket, &err),
    })
}

/// Figures of the past, from the daemon that schedules or the one that looks on beside it: whichever keeps more.
///
/// # Errors
/// As [`ask_either`].
pub fn ask_history(socket: &Path, seconds: u32, step_s: u32) -> Result<History> {
    let request = Request::ListHistory { seconds, step_s };
    let history = |answer| match answer {
        Answer::History { history } => Ok(*history),
        _ => bail!("the daemon answered something else; is it of this version?"),
    };
    let (answer, by) = ask_either(socket, &request)?;
    let told = history(answer)?;
    if by == By::Scheduler && socket == Path::new(SOCKET_PATH) {
        let observer = UnixStream::connect(OBSERVER_PATH).ok();
        let other = observer.and_then(|stream| history(ask_on(stream, &request).ok()?).ok());
        return Ok(other.filter(|other| other.kept_s > told.kept_s).unwrap_or(told));
    }
    Ok(told)
}

/// Asks the daemon at that socket on behalf of others who wait: for so long, and no longer.
///
/// # Errors
/// As [`ask`], and when it does not answer within that time.
pub fn ask_within(socket: &Path, request: &Request, within: Duration) -> Result<Answer> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = nix_socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // Where others crowd in front of it that is refused, not waited for.
    connect(fd.as_raw_fd(), &UnixAddr::new(socket)?)
        .map_err(|err| no_connection(socket, &err.into()))?;
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(within))?;
    answered(stream, request, within)
}

fn ask_on(stream: UnixStream, request: &Request) -> Result<Answer> {
    answered(stream, request, patience(&files::kernel(Path::new(SCHED_EXT)).unwrap_or_default()))
}

fn answered(mut stream: UnixStream, request: &Request, patience: Duration) -> Result<Answer> {
    stream.write_all(protocol::line(request)?.as_bytes())?;
    wait(&stream, patience)?;
    stream.set_read_timeout(Some(PATIENCE.min(patience)))?;
    let line = read_line(&stream, ANSWER_BYTES_MAX)?;
    match protocol::answer(&line)? {
        Answer::Refused { reason } => bail!(reason),
        answer => Ok(answer),
    }
}

/// Whether a daemon listens at that socket.
pub fn is_there(socket: &Path) -> bool {
    !matches!(
        UnixStream::connect(socket).map_err(|error| error.kind()),
        Err(std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused)
    )
}

/// Waits for an answer to begin; says so where that takes long. Who gives up has asked nothing: the daemon follows no
/// order of a client that has gone.
fn wait(stream: &UnixStream, patience: Duration) -> Result<()> {
    if is_readable(stream, SILENCE.min(patience))? {
        return Ok(());
    }
    // Programs are told one line, in the end.
    if patience > SILENCE && std::io::stderr().is_terminal() {
        eprintln!(
            "drover: waiting for the daemon, for {} s; it may be starting",
            patience.as_secs()
        );
    }
    if is_readable(stream, patience.saturating_sub(SILENCE))? {
        return Ok(());
    }
    bail!(
        "the drover that runs here does not answer within {} s; is it stopped? What was asked is withdrawn",
        patience.as_secs()
    )
}

/// For how long the daemon may be silent, where sched_ext is in that state.
fn patience(sched_ext: &str) -> Duration {
    match sched_ext.trim() {
        "disabled" => START_PATIENCE,
        _ => PATIENCE,
    }
}

fn is_readable(stream: &UnixStream, within: Duration) -> Result<bool> {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    let within = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
    Ok(poll(&mut fds, within)? > 0)
}

fn no_connection(socket: &Path, err: &std::io::Error) -> anyhow::Error {
    use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
    let is_observer = socket == Path::new(OBSERVER_PATH);
    match err.kind() {
        NotFound | ConnectionRefused if is_observer => {
            anyhow::anyhow!("nobody observes this host; start `drover observe`")
        }
        NotFound | ConnectionRefused if is_there(Path::new(OBSERVER_PATH)) => anyhow::anyhow!(
            "only `drover observe` runs here, which takes no orders; start `drover serve`"
        ),
        NotFound | ConnectionRefused => anyhow::anyhow!(
            "no drover is running here; start it with `drover serve`, or `drover observe` to look only"
        ),
        PermissionDenied if is_observer => {
            anyhow::anyhow!("{} is for root and the group drover; use sudo", socket.display())
        }
        PermissionDenied => anyhow::anyhow!("{} is root's; use sudo", socket.display()),
        _ => anyhow::anyhow!("{}: {err}", socket.display()),
    }
}

fn read_line(stream: impl Read, bytes_max: u64) -> Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(bytes_max)).read_line(&mut line)?;
    if line.is_empty() {
        bail!("the other side hung up");
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::Listener;
    use crate::status::{VcpuState, VcpuStatus};
    use std::time::Instant;

    fn serve_once(path: &Path, reply: Answer) -> std::thread::JoinHandle<Option<Request>> {
        let mut listener = Listener::bind(path).unwrap();
        std::thread::spawn(move || {
            let mut seen = None;
            let mut is_served = false;
            // Until the client has all of its answer.
            for _ in 0..500 {
                let is_there = listener.wait(Instant::now() + Duration::from_millis(10));
                if is_served && !is_there {
                    break;
                }
                listener.serve(|request| {
                    seen = Some(request);
                    reply.clone()
                });
                is_served = seen.is_some();
            }
            seen
        })
    }

    #[test]
    fn a_request_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let server = serve_once(&path, Answer::Done);
        let request = Request::RemovePool { name: "web".into() };
        assert_eq!(ask(&path, &request).unwrap(), Answer::Done);
        assert_eq!(server.join().unwrap(), Some(request));
    }

    #[test]
    fn a_refusal_is_an_error_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let server = serve_once(&path, Answer::Refused { reason: "no VM named x".into() });
        let err = ask(&path, &Request::ListVms { brief: false }).unwrap_err();
        assert_eq!(err.to_string(), "no VM named x");
        server.join().unwrap();
    }

    #[test]
    fn nobody_there_is_said_with_the_mend() {
        let err = ask(Path::new("/nonexistent/s"), &Request::ListVms { brief: false }).unwrap_err();
        assert!(err.to_string().contains("drover serve"), "{err}");
    }

    /// A VM with that many vCPUs and every field that a large answer has.
    fn vm(index: u32, vcpus: u32) -> VmStatus {
        let counters = drover_core::counters::Counters {
            progressed_s: Some(1_234.567_89 + f64::from(index)),
            used_s: Some(99_999.123_456),
            yields: Some(drover_core::counters::Yields::default()),
            longest_ready_ms: Some(23.456_789),
            ..Default::default()
        };
        VmStatus {
            vcpu: (0..vcpus)
                .map(|number| VcpuStatus {
                    tid: Some(1_000_000 + number),
                    state: Some(VcpuState::Running),
                    counters,
                    ..VcpuStatus::numbered(number)
                })
                .collect(),
            counters,
            ..VmStatus::sample(&format!("default_a-virtual-machine-{index}"))
        }
    }

    #[test]
    fn two_thousand_vms_and_32000_vcpus_are_answered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let all = Answer::Vms { vms: (0..2000).map(|index| vm(index, 16)).collect() };
        let server = serve_once(&path, all.clone());
        let began = Instant::now();
        assert!(
            ask(&path, &Request::ListVms { brief: false }).unwrap() == all,
            "all of it came over"
        );
        let bytes = protocol::line(&all).unwrap().len();
        println!("{bytes} bytes in {:?}", began.elapsed());
        assert!(bytes > 4 << 20, "it is more than a request may be");
        server.join().unwrap();
    }

    #[test]
    fn who_asks_for_others_waits_for_no_longer_than_he_may() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let silent = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let begun = Instant::now();
        let within = Duration::from_millis(300);
        let late =
            ask_within(&path, &Request::ListVms { brief: false }, within).unwrap_err().to_string();
        assert!(begun.elapsed() < within * 3, "{:?}: {late}", begun.elapsed());
        drop(silent);
        assert!(
            ask_within(&path, &Request::ListVms { brief: false }, within).is_err(),
            "nobody is there"
        );
    }

    #[test]
    fn a_silent_daemon_is_said_in_words() {
        let (stream, _daemon) = UnixStream::pair().unwrap();
        let told = wait(&stream, SILENCE).unwrap_err().to_string();
        assert!(told.contains("does not answer within 1 s"), "{told}");
        assert_eq!((patience("disabled\n"), patience("enabled\n")), (START_PATIENCE, PATIENCE));
    }
}
