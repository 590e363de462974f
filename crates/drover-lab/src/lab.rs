// SPDX-License-Identifier: GPL-2.0-only
//! The lab as its users see it: say what the virtual host is to be and what to run in it, then run it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};

use crate::accelerator;
use crate::cache::{Cache, write_file};
use crate::console;
use crate::cpio::FileEntry;
use crate::first_pcpu;
use crate::guest_image;
use crate::init::{DISK_MODULES_DIR, JOB_PATH, Job, MODULES_DIR, NETWORK_MODULES_DIR};
use crate::initramfs::Initramfs;
use crate::kernel::{self, Kernel, KernelChoice};
use crate::pinning::Pinning;
use crate::programs;
use crate::qemu::{Accelerator, Clock, Machine, Qemu};
use crate::supervise::{self, End, Patience};
use crate::system;
use crate::topology::Topology;
use crate::transport::Report;

/// How often a virtual host is booted, at most, when QEMU's own fault ends it.
///
/// Threads that race can make QEMU keep its translation of an instruction that the kernel has just patched:
/// about one boot in a hundred dies of it on a machine that is ten times overcommitted ([`STALE_BREAKPOINT`]).
const BOOTS_MAX: usize = 3;

/// What a kernel says that met a breakpoint of its own which it had taken away. No scheduler can cause it.
const STALE_BREAKPOINT: &str = "Oops: int3";

/// What the caller hears of while the lab works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// One line about the lab itself: what is fetched, what is odd.
    Notice(&'a str),
    /// One line the command printed, with its line end.
    Output(&'a str),
}

/// A virtual host to be booted, and the command to run in it.
#[derive(Clone, Debug)]
pub struct Lab {
    topology: Topology,
    clock: Clock,
    seed: u64,
    kernel: KernelChoice,
    kernel_arguments: Vec<String>,
    timeout: Duration,
    silence: Option<Duration>,
    files: Vec<(String, FileSource)>,
    qemu_guests: bool,
    drover: Option<PathBuf>,
    job: Job,
}

#[derive(Clone, Debug)]
enum FileSource {
    Bytes(Vec<u8>),
    Host(PathBuf),
    Program(PathBuf),
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct LabOutcome {
    /// Exit status of the command; 128 plus the signal's number when a signal ended it.
    pub exit_status: i32,
    /// The files it left in `/out`, by path relative to that.
    pub files: Vec<FileEntry>,
    /// Everything the virtual host's console showed.
    pub console: String,
    /// The kernel's log at the end.
    pub kernel_log: String,
    /// Lines of console and log that tell of lockups, stalls, warnings or crashes of the kernel.
    pub kernel_warnings: Vec<String>,
    /// Version of the kernel that ran.
    pub kernel_version: String,
    /// What executed the virtual host.
    pub accelerator: Accelerator,
    /// Wall-clock time from starting QEMU to its end, in seconds.
    pub wall_s: f64,
}

impl LabOutcome {
    /// Content of a file the command left in `/out`.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        self.files.iter().find(|file| file.path == path).map(|file| file.data.as_slice())
    }

    /// Writes the files that came back below a directory.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<()> {
        for file in &self.files {
            let path = dir.join(&file.path);
            let parent = path.parent().unwrap_or(dir);
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}", parent.display()))?;
            write_file(&path, &file.data)?;
        }
        Ok(())
    }
}

/// Time a run may take unless told otherwise: the exact clock runs several times slower than real time.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3600);

/// Room for an initramfs with Linux guests in it, and for what comes back.
const RUN_ROOM_MIB: u64 = 192;

/// Lines of the console shown when a lab did not come to its end.
const TAIL_LINES: usize = 12;

impl Lab {
    /// A virtual host of this shape, with the exact clock, seed 1 and the default kernel.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            clock: Clock::Exact,
            seed: 1,
            kernel: KernelChoice::Default,
            kernel_arguments: Vec::new(),
            timeout: DEFAULT_TIMEOUT,
            silence: None,
            files: Vec::new(),
            qemu_guests: false,
            drover: None,
            job: Job::default(),
        }
    }

    /// Sets how time passes.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the seed of everything random, which only the exact clock heeds.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the kernel.
    #[must_use]
    pub fn kernel(mut self, kernel: KernelChoice) -> Self {
        self.kernel = kernel;
        self
    }

    /// Adds to what the kernel is told when it boots.
    #[must_use]
    pub fn kernel_argument(mut self, argument: &str) -> Self {
        self.kernel_arguments.push(argument.to_owned());
        self
    }

    /// Sets how long QEMU may run, in real time.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Give up, too, when the command prints no line for so long.
    #[must_use]
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = Some(silence);
        self
    }

    /// Puts a file with this content at an absolute path of the lab.
    #[must_use]
    pub fn file_bytes(mut self, path: &str, data: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), FileSource::Bytes(data.into())));
        self
    }

    /// Puts a file of this machine at an absolute path of the lab.
    #[must_use]
    pub fn file(mut self, path: &str, host_path: &Path) -> Self {
        self.files.push((path.to_owned(), FileSource::Host(host_path.to_owned())));
        self
    }

    /// Puts a program of this machine, with the shared libraries it needs, at an absolute path of the lab.
    #[must_use]
    pub fn program(mut self, path: &str, host_path: &Path) -> Self {
        self.files.push((path.to_owned(), FileSource::Program(host_path.to_owned())));
        self
    }

    /// Puts QEMU and the image of its Linux guests into the lab, see [`crate::guest_image`]. It takes about
    /// 100 MiB of the lab's memory.
    #[must_use]
    pub fn with_qemu_guests(mut self) -> Self {
        self.qemu_guests = true;
        self
    }

    /// Has the system in this tar archive start, with its own init as the first process; the command is run in
    /// it at once, while it starts. The lab's memory must hold both, archive and system.
    #[must_use]
    pub fn system(self, archive: &Path) -> Self {
        self.file(system::ARCHIVE, archive)
    }

    /// Takes another `drover` binary than the running program, for callers that are not `drover` themselves.
    #[must_use]
    pub fn drover(mut self, binary: &Path) -> Self {
        self.drover = Some(binary.to_owned());
        self
    }

    /// Sets the command to run, as root, in `/root`. `drover` is there, see [`Lab::drover`].
    #[must_use]
    pub fn command<S: Into<String>>(mut self, command: impl IntoIterator<Item = S>) -> Self {
        self.job.command = command.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a variable to the command's environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.job.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Boots the virtual host, runs the command and brings back what it left.
    ///
    /// # Errors
    /// When the lab cannot be set up, or did not come to its end: it timed out or its kernel crashed. A command
    /// that fails is no error; its status is in the outcome.
    pub fn run(&self, on_event: &mut dyn FnMut(Event)) -> Result<LabOutcome> {
        self.topology.check()?;
        ensure!(!self.job.command.is_empty(), "lab: no command to run");
        let qemu = Qemu::find()?;
        let cache = Cache::open()?;
        let kernel =
            kernel::provide(&cache, &self.kernel, &mut |line| on_event(Event::Notice(line)))?;
        let accelerator = match self.clock {
            Clock::Exact => Accelerator::Tcg,
            Clock::Real => accelerator::choose(&cache, &qemu, &kernel),
        };
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.warn(&qemu, cpus, on_event);
        self.boot(&cache, &qemu, &kernel, accelerator, on_event)
    }

    /// Boots with the accelerator given.
    pub(crate) fn boot(
        &self,
        cache: &Cache,
        qemu: &Qemu,
        kernel: &Kernel,
        accelerator: Accelerator,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<LabOutcome> {
        cache.need_room(RUN_ROOM_MIB, "a run of the lab")?;
        let run_dir = RunDir::new(cache)?;
        let dir = run_dir.dir.path();
        self.write_initramfs(cache, qemu, kernel, &dir.join("initramfs"))?;
        let (topology, clock, seed) = (self.topology, self.clock, self.seed);
        let image = kernel.image();
        let machine = Machine {
            topology,
            clock,
            accelerator,
            seed,
            kernel: &image,
            kernel_arguments: &self.kernel_arguments,
            dir,
        };
        let started = Instant::now();
        let (report, exit_status, console) =
            self.to_the_end(qemu, &machine.arguments(), accelerator, dir, on_event)?;
        let both = format!("{console}\n{}", report.kernel_log);
        let mut kernel_warnings = console::kernel_warnings(&both);
        kernel_warnings.sort();
        kernel_warnings.dedup();
        Ok(LabOutcome {
            exit_status,
            files: report.files,
            console,
            kernel_log: report.kernel_log,
            kernel_warnings,
            kernel_version: kernel.version.clone(),
            accelerator,
            wall_s: started.elapsed().as_secs_f64(),
        })
    }

    /// Has QEMU run the host until the command ends: its report, its exit status and the kernel's console.
    fn to_the_end(
        &self,
        qemu: &Qemu,
        arguments: &[String],
        accelerator: Accelerator,
        dir: &Path,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<(Report, i32, String)> {
        let patience =
            Patience { whole: self.timeout, silence: self.silence.unwrap_or(self.timeout) };
        let races = self.clock == Clock::Real && accelerator == Accelerator::Tcg;
        let on_start = |process| {
            if let Some(error) =
                races.then(|| first_pcpu::keep_sane(&qemu.program, process).err()).flatten()
            {
                tracing::warn!("lab: pCPU 0 may lose its interrupts on the real clock: {error:#}");
            }
        };
        let mut boots_left = if races { BOOTS_MAX } else { 1 };
        loop {
            boots_left -= 1;
            let pinning = (self.clock == Clock::Real).then(|| Pinning::new(self.topology.pcpus()));
            let end =
                supervise::run(qemu, arguments, dir, patience, pinning, &on_start, &mut |line| {
                    on_event(Event::Output(line));
                })?;
            let console = fs::read(dir.join("console")).unwrap_or_default();
            let console = String::from_utf8_lossy(&console).into_owned();
            let report = Report::parse(&fs::read(dir.join("report")).unwrap_or_default())?;
            if let Some(exit_status) = report.exit_status {
                return Ok((report, exit_status, console));
            }
            let why = self.why_no_end(end, &report, &console);
            let again = match (end, report.booted) {
                (End::Finished, false) => {
                    "the virtual host crashed while it booted, and boots again"
                }
                (End::Finished, true) if console.contains(STALE_BREAKPOINT) => {
                    "the virtual host met a stale breakpoint, which is a fault of QEMU's emulation; \
                     it boots again, and the command starts anew"
                }
                _ => bail!("{why}"),
            };
            ensure!(boots_left > 0, "{why}");
            tracing::debug!("{why}");
            on_event(Event::Notice(again));
        }
    }

    /// Says what may spoil figures, on a machine with so many CPUs.
    fn warn(&self, qemu: &Qemu, cpus: usize, on_event: &mut dyn FnMut(Event)) {
        let pcpus = self.topology.pcpus();
        if self.clock == Clock::Real && pcpus as usize > cpus {
            on_event(Event::Notice(&format!(
                "{pcpus} virtual CPUs on {cpus} real ones: with the real clock they disturb each other; \
                 take fewer, or --clock exact"
            )));
        }
        if !qemu.is_fair() {
            on_event(Event::Notice(&format!(
                "{} is less fair between virtual CPUs than QEMU 10; script/setup installs a newer one",
                qemu.version
            )));
        }
    }

    fn write_initramfs(
        &self,
        cache: &Cache,
        qemu: &Qemu,
        kernel: &Kernel,
        path: &Path,
    ) -> Result<()> {
        let mut initramfs = Initramfs::with_busybox()?;
        self.add_drover(cache, &mut initramfs)?;
        initramfs.add_host_file(&format!("/boot/config-{}", kernel.version), &kernel.config())?;
        initramfs.add_host_files(MODULES_DIR, &kernel.modules()?)?;
        if self.qemu_guests {
            initramfs.add_host_files(NETWORK_MODULES_DIR, &kernel.network_modules()?)?;
            initramfs.add_host_files(DISK_MODULES_DIR, &kernel.disk_modules()?)?;
            guest_image::add_to_lab(&mut initramfs, qemu, kernel)?;
        }
        self.add_job(&mut initramfs)?;
        let file =
            fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        initramfs.write(std::io::BufWriter::with_capacity(1 << 20, file))?;
        Ok(())
    }

    fn add_drover(&self, cache: &Cache, initramfs: &mut Initramfs) -> Result<()> {
        let drover = match &self.drover {
            Some(binary) => binary.clone(),
            None => std::env::current_exe().context("cannot find this program's own file")?,
        };
        initramfs.add_program("/usr/bin/drover", &drover)?;
        initramfs.add_host_file("/usr/bin/drover", &programs::stripped(cache, &drover)?)
    }

    /// Adds what the caller wants in the lab, and the command.
    fn add_job(&self, initramfs: &mut Initramfs) -> Result<()> {
        for (path, source) in &self.files {
            ensure!(path.starts_with('/'), "lab: path {path} must be absolute");
            match source {
                FileSource::Bytes(data) => initramfs.add_bytes(path, 0o644, data),
                FileSource::Host(host_path) => initramfs.add_host_file(path, host_path)?,
                FileSource::Program(host_path) => initramfs.add_program(path, host_path)?,
            }
        }
        initramfs.add_bytes(JOB_PATH, 0o644, &serde_json::to_vec(&self.job)?);
        Ok(())
    }

    /// The message for a lab that sent no exit status.
    fn why_no_end(&self, end: End, report: &Report, console: &str) -> String {
        let what = match (end, report.booted) {
            (End::TimedOut, true) => match self.silence {
                Some(silence) => {
                    format!("the virtual host did not say a word for {} s", silence.as_secs())
                }
                None => format!("the command did not end within {} s", self.timeout.as_secs()),
            },
            (End::TimedOut, false) => {
                format!("the virtual host did not boot within {} s", self.timeout.as_secs())
            }
            (End::Finished, true) => "the virtual host crashed while the command ran".to_owned(),
            (End::Finished, false) => "the virtual host did not boot".to_owned(),
        };
        let first = console::kernel_warnings(console).into_iter().next();
        let said = first.map_or_else(String::new, |line| format!(" (its kernel: {line})"));
        let tail = console::tail(console, TAIL_LINES);
        format!("lab: {what}{said}; its console ended with:\n{tail}")
    }
}

/// A directory for one run. What a killed run left behind goes when the next one starts.
struct RunDir {
    dir: tempfile::TempDir,
    _lock: Flock<fs::File>,
}

impl RunDir {
    fn new(cache: &Cache) -> Result<Self> {
        let runs = cache.dir("runs")?;
        let _others_wait = cache.lock("runs")?;
        for entry in fs::read_dir(&runs)?.flatten() {
            if lock_of(&entry.path()).is_some() {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let dir = tempfile::tempdir_in(&runs)
            .with_context(|| format!("cannot write in {}", runs.display()))?;
        fs::File::create(dir.path().join("lock"))?;
        let lock = lock_of(dir.path()).context("cannot lock the lab's run directory")?;
        Ok(Self { dir, _lock: lock })
    }
}

/// The lock of a run directory, unless its run is still alive.
fn lock_of(dir: &Path) -> Option<Flock<fs::File>> {
    let file = fs::File::open(dir.join("lock")).ok()?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpio;
    use crate::transport::Reporter;

    #[test]
    fn what_a_killed_run_left_is_removed_and_a_living_run_kept() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(home.path()).unwrap();
        let living = RunDir::new(&cache).unwrap();
        let stale = cache.dir("runs/stale").unwrap();
        fs::write(stale.join("lock"), b"").unwrap();
        let another = RunDir::new(&cache).unwrap();
        assert!(!stale.exists());
        assert!(living.dir.path().exists() && another.dir.path().exists());
    }

    #[test]
    fn the_reason_of_a_missing_end_is_told_with_the_console() {
        let lab = Lab::new(Topology::flat(1)).timeout(Duration::from_secs(5));
        let booted = Report { booted: true, ..Report::default() };
        let text = lab.why_no_end(End::TimedOut, &booted, "one\ntwo\n");
        assert!(
            text.starts_with("lab: the command did not end within 5 s")
                && text.ends_with("one\ntwo")
        );
        let text = lab.why_no_end(End::Finished, &Report::default(), "");
        assert!(text.starts_with("lab: the virtual host did not boot;"));
    }

    /// How often a host boots that ends like this, and a notice is given of each boot but the first.
    fn boots(clock: Clock, accelerator: Accelerator, console: &str, report: &[u8]) -> usize {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path();
        let lab = Lab::new(Topology::flat(1)).clock(clock);
        fs::write(place.join("console"), console).unwrap();
        fs::write(place.join("report"), report).unwrap();
        let script = format!("echo boot >> {}", place.join("boots").display());
        let mut notices = 0;
        lab.to_the_end(
            &Qemu::for_test("/bin/sh"),
            &["-c".to_owned(), script],
            accelerator,
            place,
            &mut |event| notices += usize::from(matches!(event, Event::Notice(_))),
        )
        .unwrap_err();
        let boots = fs::read_to_string(place.join("boots")).unwrap().lines().count();
        assert_eq!(notices, boots - 1);
        boots
    }

    #[test]
    fn a_host_that_crashes_while_it_boots_boots_again_on_the_real_clock_only() {
        assert_eq!(boots(Clock::Real, Accelerator::Tcg, "", b""), BOOTS_MAX);
        assert_eq!(boots(Clock::Exact, Accelerator::Tcg, "", b""), 1);
        assert_eq!(boots(Clock::Real, Accelerator::Kvm, "", b""), 1);
    }

    #[test]
    fn a_host_that_meets_a_stale_breakpoint_boots_again_and_one_that_crashes_otherwise_does_not() {
        let mut started = Vec::new();
        Reporter::begin(&mut started).unwrap();
        let stale = "[ 33.66] Oops: int3: 0000 [#1] SMP NOPTI";
        let other = "[ 33.66] Oops: general protection fault: 0000 [#1] SMP NOPTI";
        assert_eq!(boots(Clock::Real, Accelerator::Tcg, stale, &started), BOOTS_MAX);
        assert_eq!(boots(Clock::Real, Accelerator::Tcg, other, &started), 1);
        assert_eq!(boots(Clock::Exact, Accelerator::Tcg, stale, &started), 1);
    }

    #[test]
    fn what_the_caller_wants_is_in_the_lab() {
        let lab = Lab::new(Topology::flat(1))
            .file_bytes("/job/scenario.toml", "name = 1")
            .file("/job/readme", Path::new("/etc/os-release"))
            .program("/usr/bin/scx_other", Path::new("/bin/ls"))
            .environment("DROVER_LOG", "debug")
            .command(["drover", "run"]);
        let mut initramfs = Initramfs::default();
        lab.add_job(&mut initramfs).unwrap();
        let (files, whole) = cpio::read(&initramfs.write(Vec::new()).unwrap()).unwrap();
        assert!(whole);
        let content = |path: &str| &files.iter().find(|file| file.path == path).unwrap().data;
        assert_eq!(content("job/scenario.toml"), b"name = 1");
        assert_eq!(content("job/readme"), &fs::read("/etc/os-release").unwrap());
        assert!(files.iter().any(|file| file.path.contains("libc.so")), "libraries come along");
        let job: Job = serde_json::from_slice(content(JOB_PATH.trim_start_matches('/'))).unwrap();
        assert_eq!(job.command, ["drover", "run"]);
        assert_eq!(job.environment["DROVER_LOG"], "debug");
    }

    #[test]
    fn a_path_that_is_not_absolute_is_refused() {
        let lab = Lab::new(Topology::flat(1)).file_bytes("job", "");
        let error = lab.add_job(&mut Initramfs::default()).unwrap_err();
        assert_eq!(error.to_string(), "lab: path job must be absolute");
    }

    #[test]
    fn more_virtual_cpus_than_real_ones_are_warned_of_with_the_real_clock_only() {
        let qemu = Qemu::for_test("/bin/true");
        let told = |clock, cpus| {
            let (lab, mut lines) = (Lab::new(Topology::flat(4)).clock(clock), Vec::new());
            lab.warn(&qemu, cpus, &mut |event| lines.push(format!("{event:?}")));
            lines
        };
        assert!(told(Clock::Real, 2)[0].contains("4 virtual CPUs on 2 real ones"));
        assert!(told(Clock::Real, 4).is_empty());
        assert!(told(Clock::Exact, 2).is_empty());
    }

    #[test]
    fn a_host_that_cannot_be_is_refused_before_anything_is_fetched() {
        let lab = Lab::new(Topology { threads: 3, ..Topology::flat(1) }).command(["true"]);
        assert!(lab.run(&mut |_| {}).unwrap_err().to_string().contains("threads = 3"));
    }

    #[test]
    fn outcomes_are_saved_below_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let outcome = LabOutcome {
            exit_status: 0,
            files: vec![FileEntry {
                path: "a/b.json".into(),
                permissions: 0o644,
                data: b"{}".to_vec(),
            }],
            console: String::new(),
            kernel_log: String::new(),
            kernel_warnings: Vec::new(),
            kernel_version: String::new(),
            accelerator: Accelerator::Tcg,
            wall_s: 0.0,
        };
        outcome.save(dir.path()).unwrap();
        assert_eq!(fs::read(dir.path().join("a/b.json")).unwrap(), b"{}");
        assert_eq!(outcome.file("a/b.json"), Some(&b"{}"[..]));
        assert_eq!(outcome.file("x"), None);
    }

    #[test]
    fn a_lab_without_a_command_is_refused() {
        let error = Lab::new(Topology::flat(1)).run(&mut |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "lab: no command to run");
    }
}
