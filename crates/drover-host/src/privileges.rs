// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon may still do once the scheduler is loaded.
//!
//! Loading takes CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN. After that programs and maps are reached by file
//! descriptors that are open, and no capability remains. Files are read and written as root's own: landlock says which.
//! Other processes are looked into by processes of their own (`helper`), which keep CAP_SYS_PTRACE, and CAP_SYS_NICE to move
//! their memory. The daemon's own calls for that are refused by seccomp, whatever a kernel would allow root.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};

use anyhow::{Context, Result};
use caps::{CapSet, Capability, CapsHashSet};
use landlock::{
    ABI, Access, AccessFs, BitFlags, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetError, RulesetStatus, make_bitflags, path_beneath_rules,
};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::files;
use crate::places::Places;

/// What those keep that look into others.
const OF_READERS: [Capability; 2] = [Capability::CAP_SYS_NICE, Capability::CAP_SYS_PTRACE];

/// Gives up every capability for good, and calls that reach into other processes, of this thread and of those it starts
/// from now on.
///
/// # Errors
/// When the kernel does not let it.
pub fn drop_all() -> Result<()> {
    give_up_all_but(&[]).and_then(|()| refuse_calls()).context("cannot give up privileges")
}

/// The same for who looks into others, which has calls of its own.
pub fn keep_for_readers() -> Result<()> {
    give_up_all_but(&OF_READERS)
}

/// By these one reaches memory and files of other processes, or more of the kernel than the daemon needs.
const REFUSED: [i64; 10] = [
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_ptrace,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
];

fn refuse_calls() -> Result<()> {
    let rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}

fn give_up_all_but(kept: &[Capability]) -> Result<()> {
    let had = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet = kept.iter().copied().filter(|one| had.contains(one)).collect();
    // To give up what is not in the bounding set takes a capability that is given up below.
    if had.contains(&Capability::CAP_SETPCAP) {
        for one in caps::read(None, CapSet::Bounding)?.difference(&kept) {
            caps::drop(None, CapSet::Bounding, *one)?;
        }
    }
    caps::clear(None, CapSet::Ambient)?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    caps::clear(None, CapSet::Inheritable)?;
    nix::sys::prctl::set_no_new_privs()?;
    Ok(())
}

/// What is read while it serves: processes; pCPUs and cgroups; libvirt's domains; the configuration and who is
/// who; pods. Directories, because files in them are replaced and some come later.
const READ: [&str; 5] = ["/proc", "/sys", "/run", "/etc", "/var/log"];

/// What may be done to files there.
const READS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
/// To keep orders and have the socket, in directories that are made anew where somebody has removed them: files are
/// written under another name, renamed and removed.
const WRITES: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | MakeDir | MakeReg | MakeSock | RemoveFile
});

/// Gives up all files but those that are still read, for good, of this thread and of those it starts from now on.
/// Kernels without landlock leave them as they are; older ones do of it what they can.
///
/// What writes has to be there before, and confines itself.
pub fn confine(places: &Places) {
    tell(give_up_files(places));
}

fn tell(status: Result<RulesetStatus, RulesetError>) {
    match status {
        Ok(RulesetStatus::NotEnforced) => tracing::debug!("this kernel has no landlock"),
        Ok(_) => tracing::debug!("landlock: nothing but its own files from here on"),
        Err(err) => tracing::warn!("landlock: {err}; going on without"),
    }
}

fn ruleset() -> Result<RulesetCreated, RulesetError> {
    // Of the 5th version: the 9th has sockets, and the service manager's is anywhere.
    Ruleset::default().handle_access(AccessFs::from_all(ABI::V5))?.create()
}

fn give_up_files(places: &Places) -> Result<RulesetStatus, RulesetError> {
    // A link to it leads to a directory of its own.
    let followed = fs::canonicalize(places.config).ok();
    let configs = [Some(places.config), followed.as_deref()];
    let configs = configs.into_iter().flatten().filter_map(Path::parent);
    let status = ruleset()?
        .add_rules(path_beneath_rules(READ, READS))?
        .add_rules(path_beneath_rules(configs, READS))?
        .restrict_self()?;
    Ok(status.ruleset)
}

/// The same for a thread of its own, which needs no configuration and may write there.
pub fn confine_thread(writes: &[&str]) {
    let confined = ruleset().and_then(|all| {
        let all = all.add_rules(path_beneath_rules(READ, READS))?;
        all.add_rules(path_beneath_rules(writes, WRITES | AccessFs::RemoveDir))?.restrict_self()
    });
    tell(confined.map(|status| status.ruleset));
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that writes what the daemon writes, because who reads what others say may write nothing. It writes below
/// the directories in which those of the daemon are, as these may be removed and made anew.
#[derive(Debug)]
pub struct Writer {
    jobs: Sender<Job>,
}

impl Writer {
    /// Starts it, to write in these directories.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(dirs: &[&Path]) -> std::io::Result<Self> {
        // What is not there now cannot be allowed.
        dirs.iter().for_each(|dir| drop(files::make_private_dir(dir)));
        let above = dirs.iter().map(|dir| dir.parent().unwrap_or(dir).to_owned());
        let above: Vec<PathBuf> = above.collect();
        let (jobs, given) = channel::<Job>();
        let work = move || {
            let rules = path_beneath_rules(above, WRITES);
            let confined = ruleset().and_then(|all| all.add_rules(rules)?.restrict_self());
            tell(confined.map(|status| status.ruleset));
            given.into_iter().for_each(|job| job());
        };
        std::thread::Builder::new().name("drover-writer".to_owned()).spawn(work)?;
        Ok(Self { jobs })
    }

    /// Has it do that, and waits for the end.
    ///
    /// # Errors
    /// Those of the job.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, done) = channel();
        let job = move || {
            // Whoever asked waits.
            let _ = answer.send(job());
        };
        // Where it is gone, so is the other end.
        let _ = self.jobs.send(Box::new(job));
        done.recv().context("the thread that writes has ended; restart drover")?
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::listener::Listener;
    use crate::store::Store;
    use std::io::ErrorKind;
    use std::sync::{Arc, Barrier};

    /// Is that call refused before the kernel looks at what it is given?
    pub fn refused(call: i64) -> bool {
        // SAFETY: of no process, nothing is asked.
        let done = unsafe { libc::syscall(call, 0, 0, 0, 0, 0, 0) };
        done == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
    }

    #[test]
    fn no_capability_is_left_and_no_call_that_reaches_into_others() {
        // Of that thread only.
        let left = std::thread::spawn(|| {
            let before = [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev].map(refused);
            drop_all().unwrap();
            let sets = [CapSet::Permitted, CapSet::Effective, CapSet::Inheritable, CapSet::Ambient];
            let left = sets.map(|set| caps::read(None, set).unwrap());
            // Also of threads that come later.
            let after = std::thread::spawn(|| REFUSED.map(refused)).join().unwrap();
            (left, before, after)
        });
        let (left, before, after) = left.join().unwrap();
        assert!(left.iter().all(CapsHashSet::is_empty), "{left:?}");
        assert_eq!((before, after), ([false; 2], [true; REFUSED.len()]));
    }

    #[test]
    fn a_thread_writes_where_it_is_to_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let groups = dir.path().join("groups");
        fs::create_dir(&groups).unwrap();
        let (inside, outside) = (groups.join("one"), dir.path().join("other"));
        let done = std::thread::spawn(move || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            confine_thread(&[groups.to_str().unwrap()]);
            fs::create_dir(&inside).unwrap();
            fs::write(inside.join("tasks"), "1").unwrap();
            fs::remove_file(inside.join("tasks")).unwrap();
            fs::remove_dir(&inside).unwrap();
            fs::read_to_string("/proc/self/status").unwrap();
            fs::create_dir(&outside).is_err()
        });
        assert!(done.join().unwrap() || !has_landlock());
    }

    fn has_landlock() -> bool {
        fs::read_to_string("/sys/kernel/security/lsm").is_ok_and(|all| all.contains("landlock"))
    }

    #[test]
    fn who_reads_writes_nothing_and_who_writes_writes_where_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let at = move |name: &str| path.join(name);
        ["etc", "run", "lib", "home"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
        fs::write(at("home/secret"), "s").unwrap();
        fs::write(at("etc/drover.toml"), "").unwrap();
        let (config, state, socket) =
            (at("etc/drover.toml"), at("lib/drover"), at("run/drover/control.sock"));
        // In the middle somebody removes the directories.
        let (full, empty) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (is_full, is_empty) = (Arc::clone(&full), Arc::clone(&empty));
        let removed = [at("lib/drover"), at("run/drover")];
        let confined = std::thread::spawn(move || {
            let places =
                Places { config: &config, state: &state, socket: &socket, readers: &socket };
            let mut listener = Listener::bind(&socket).unwrap();
            let (mut store, saved) = Store::open(&state).unwrap();
            caps::clear(None, CapSet::Effective).unwrap();
            nix::sys::prctl::set_no_new_privs().unwrap();
            let writer = Arc::new(Writer::start(&[&state, socket.parent().unwrap()]).unwrap());
            store.write_by(Arc::clone(&writer));
            let status = give_up_files(&places).unwrap();
            // What has to work, with landlock or without.
            store.save(&saved).unwrap();
            is_full.wait();
            is_empty.wait();
            store.save(&saved).unwrap();
            store.save(&saved).unwrap();
            listener.renew(&writer).unwrap();
            assert!(state.is_dir() && listener.is_there());
            fs::read_to_string(&config).unwrap();
            fs::read_to_string("/proc/self/status").unwrap();
            assert!(fs::read_dir("/sys").unwrap().count() > 0);
            let kind = |result: std::io::Result<()>| result.map_err(|err| err.kind());
            let secret = at("home/secret");
            let foreign = [
                kind(fs::read(&secret).map(drop)),
                kind(fs::write(at("home/other"), "")),
                kind(fs::write(&config, "")),
                kind(fs::write(state.join("settings.json"), "")),
                kind(fs::write("/proc/self/comm", "x")),
                kind(fs::remove_file(&secret)),
                writer.run(move || Ok(kind(fs::read(secret).map(drop)))).unwrap(),
                writer.run(move || Ok(kind(fs::write(config, "")))).unwrap(),
            ];
            (status, foreign)
        });
        full.wait();
        removed.iter().for_each(|dir| fs::remove_dir_all(dir).unwrap());
        empty.wait();
        match confined.join().unwrap() {
            (RulesetStatus::NotEnforced, _) => println!("not tried: this kernel has no landlock"),
            (_, foreign) => assert_eq!(foreign, [Err(ErrorKind::PermissionDenied); 8]),
        }
    }
}
