// SPDX-License-Identifier: GPL-2.0-only
//! I/O delays, and the time lost for each MB, are told as they are, under the kernel's scheduler and under Drover.
//!
//! This process is a VM of which each wait is known. All its threads have one pCPU:
//!
//! ```text
//!  device    injects an interrupt, keeps the pCPU for 20 ms: the delay to the guest
//!  vCPU      rings the doorbell, keeps the pCPU for 20 ms: the delay to the device
//!  back end  answers the doorbell: reads a block of the disk
//! ```
//!
//! So are two VMs, a process each, that have a network. Their threads have one pCPU, too:
//!
//! ```text
//!  sender    a helper of the first: sends a packet to the tap, keeps the pCPU for 100 ms: the delay to the device
//!  receiver  a helper of the second: takes the packet from the tap, injects an interrupt, keeps the pCPU for 100 ms:
//!            the delay to the guest
//!  vCPU      of the second: takes notice, and halts
//! ```
//!
//! Who keeps the pCPU is a real-time thread meanwhile. The first is told when by another process, because a timer
//! of its own would be I/O, too.

use std::ffi::CStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use drover_lab::disk::Disk;
use drover_lab::network::Network;
use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{IoEventAddress, Kvm, NoDatamatch, VcpuExit, VcpuFd, VmFd};
use nix::unistd::Pid;
use serde_json::Value;
use vmm_sys_util::eventfd::EventFd;

use crate::host::{self, Daemon, say};
use crate::tasks::{confine, set_policy};
use crate::top::{reading, vm};
use crate::vms::{MicroVm, SLEEP};

/// How long each keeps the pCPU, and how far a mean may be from that, %.
const KEEPS: Duration = Duration::from_millis(20);
/// The same of a network: what is left of sending a packet once its receiver is awake, 1.4 ms here, is within the tolerance of that.
const NETWORK_KEEPS: Duration = Duration::from_millis(100);
const TOLERANCE_PCT: f64 = 2.0;
/// Who injects an interrupt, and how.
const INTERRUPT: u32 = 4;
const BEFORE_DOORBELL: u16 = 0x50;
const DOORBELL: u16 = 0x51;
const AFTER_DOORBELL: u16 = 0x52;
const MEMORY_BYTES: usize = 0x10000;
const CODE_AT: usize = 0x1000;
const HANDLER_AT: usize = 0x1080;
/// Real mode: set the interrupt controller up, then halt, ring and begin again.
const CODE: [u8; 31] = [
    0xb0, 0x11, 0xe6, 0x20, // mov al, 0x11; out 0x20, al
    0xb0, 0x20, 0xe6, 0x21, // vectors from 0x20
    0xb0, 0x04, 0xe6, 0x21, //
    0xb0, 0x01, 0xe6, 0x21, //
    0xb0, 0xef, 0xe6, 0x21, // interrupt 4 only
    0xfb, 0xf4, 0xfa, // again: sti; hlt; cli
    0xe6, 0x50, 0xe6, 0x51, 0xe6, 0x52, // out
    0xeb, 0xf5, // jmp again
];
/// mov al, 0x20; out 0x20, al; iret
const HANDLER: [u8; 5] = [0xb0, 0x20, 0xe6, 0x20, 0xcf];

/// What is read for each doorbell, and sent each time, with its head.
const BLOCK_BYTES: usize = 65_536;
const PACKET_BYTES: usize = 60_000;
const HEAD: [u8; 14] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
const TAP: &CStr = c"drover-tap";

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    confine(Pid::from_raw(0), &[0]);
    assert_eq!(Disk::make(), Disk::Device);
    let _sleeper = MicroVm::start("sleeper", 1, SLEEP);
    start_vm();
    under_both(&delays_are_true);
}

#[test]
#[ignore = "runs inside the lab"]
fn network() {
    host::must_be_lab();
    confine(Pid::from_raw(0), &[0]);
    let dir = tempfile::tempdir().unwrap();
    // It loads what a tap needs.
    let _network = Network::make(dir.path()).unwrap();
    let receiver = Part::start("io::receiver");
    let is_up = || Path::new("/sys/class/net/drover-tap").exists();
    host::wait_until("the tap is there", Duration::from_secs(30), is_up);
    let _sender = Part::start("io::sender");
    let delays_are_true = || {
        let reading = reading("8");
        is_late(&reading, receiver.0.id(), NETWORK_KEEPS, ("network_bytes", PACKET_BYTES));
        reading["scheduler"].clone()
    };
    under_both(&delays_are_true);
}

/// Delays are true under the kernel's own scheduler, and under Drover. `delays_are_true` says which one was read.
fn under_both(delays_are_true: &dyn Fn() -> Value) {
    say("the kernel's own scheduler");
    assert_eq!(delays_are_true(), Value::Null);
    let mut daemon = Daemon::start();
    say("drover");
    assert_eq!(delays_are_true(), "drover");
    daemon.must_serve();
}

/// A VM in a process of its own, killed when dropped.
struct Part(Child);

impl Part {
    fn start(test: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Self(command.args(["--exact", "--ignored", "--nocapture", test]).spawn().unwrap())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "a part of network"]
fn receiver() {
    host::must_be_lab();
    let (handle, vcpu) = new_vm();
    let mut tap = open_tap();
    thread::spawn(move || halt(vcpu));
    let mut packet = vec![0; PACKET_BYTES];
    // It waits for the sender alone, and for nobody who happens to be ready when that stops.
    set_policy(take_part(), libc::SCHED_FIFO);
    loop {
        assert_eq!(tap.read(&mut packet).unwrap(), PACKET_BYTES, "nobody else sends there");
        interrupt(&handle);
        keep_the_pcpu(NETWORK_KEEPS);
    }
}

#[test]
#[ignore = "a part of network"]
fn sender() {
    host::must_be_lab();
    let (_handle, vcpu) = new_vm();
    thread::spawn(move || halt(vcpu));
    let mut packet = vec![0; PACKET_BYTES];
    packet[..HEAD.len()].copy_from_slice(&HEAD);
    let socket = open_socket();
    set_policy(take_part(), libc::SCHED_FIFO);
    for _ in BufReader::new(start_clock("0.4")).lines() {
        assert_eq!(nix::unistd::write(&socket, &packet).unwrap(), PACKET_BYTES);
        keep_the_pcpu(NETWORK_KEEPS);
    }
}

fn halt(mut vcpu: VcpuFd) {
    take_part();
    while vcpu.run().is_ok() {}
}

/// The far end of a tap that is up, and to which the kernel sends nothing of its own.
fn open_tap() -> File {
    let tap = File::options().read(true).write(true).open("/dev/net/tun").unwrap();
    let mut request = [0u8; 40];
    request[..TAP.count_bytes()].copy_from_slice(TAP.to_bytes());
    let flags = i16::try_from(libc::IFF_TAP | libc::IFF_NO_PI).unwrap();
    request[libc::IFNAMSIZ..][..2].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: the kernel reads and writes a struct ifreq, which is no longer than that.
    let made = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/drover-tap/disable_ipv6", "1");
    let mtu = (PACKET_BYTES - HEAD.len()).to_string();
    let up = ["link", "set", "dev", "drover-tap", "mtu", &mtu, "up"];
    assert!(Command::new("ip").args(up).status().unwrap().success());
    tap
}

/// A socket whose packets go to that tap.
fn open_socket() -> OwnedFd {
    // SAFETY: takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
    assert!(socket >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it was just opened, and is nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: plain numbers.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
    // SAFETY: a name that ends with NUL.
    to.sll_ifindex = i32::try_from(unsafe { libc::if_nametoindex(TAP.as_ptr()) }).unwrap();
    let length = u32::try_from(size_of_val(&to)).unwrap();
    // SAFETY: an address of that length, which the kernel copies.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const to).cast(), length) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    socket
}

/// Each wait of that VM was so long, and so was what each piece of so many bytes lost, but for one at either end.
fn is_late(reading: &Value, pid: u32, keeps: Duration, (bytes, piece): (&str, usize)) {
    let vms = reading["vms"].as_array().unwrap();
    let io = &vms.iter().find(|vm| vm["pid"] == pid).expect("it is a VM")["io"];
    println!("{io}");
    let moved = io[bytes].as_f64().unwrap();
    for direction in ["to_guest", "to_device"] {
        let delay = &io["delay_us"][direction];
        let (mean, count) = (delay["mean"].as_f64().unwrap(), delay["count"].as_f64().unwrap());
        let error_pct = 100.0 * (mean / keeps.as_secs_f64() / 1e6 - 1.0);
        assert!(error_pct.abs() <= TOLERANCE_PCT, "{direction} is off by {error_pct} %: {io}");
        assert!(count >= 10.0, "{direction}: {io}");
        let pieces = moved / piece as f64;
        assert!(pieces.fract() == 0.0 && (pieces - count).abs() <= 1.0, "{pieces}: {io}");
        let lost_ms = io["ms_per_mb"][direction].as_f64().unwrap();
        let error_pct = 100.0 * (lost_ms * moved / 1e6 / count / keeps.as_secs_f64() / 1e3 - 1.0);
        assert!(error_pct.abs() <= TOLERANCE_PCT, "{direction} of a MB: {error_pct} %: {io}");
    }
}

/// Who is in charge.
fn delays_are_true() -> Value {
    let reading = reading("2");
    is_late(&reading, std::process::id(), KEEPS, ("block_bytes", BLOCK_BYTES));
    let sleeper = &vm(&reading, "sleeper")["io"]["delay_us"];
    assert_eq!(sleeper["to_guest"], Value::Null, "a guest's own timer is no I/O");
    reading["scheduler"].clone()
}

fn start_vm() {
    let (handle, mut vcpu) = new_vm();
    let handle = Arc::new(handle);
    let doorbell = EventFd::new(0).unwrap();
    let address = IoEventAddress::Pio(DOORBELL.into());
    handle.register_ioevent(&doorbell, &address, NoDatamatch).unwrap();
    let clock = start_clock("0.1");
    thread::spawn(move || answer(&doorbell));
    thread::spawn(move || run(&mut vcpu));
    thread::spawn(move || inject(&handle, clock));
}

/// Says when: once in so many seconds.
fn start_clock(seconds: &str) -> ChildStdout {
    let mut clock = Command::new("sh");
    clock.args(["-c", &format!("while echo; do sleep {seconds}; done")]).stdout(Stdio::piped());
    clock.spawn().unwrap().stdout.unwrap()
}

/// A VM, and a vCPU that halts until it is interrupted.
pub fn new_vm() -> (VmFd, VcpuFd) {
    let handle = Kvm::new().unwrap().create_vm().unwrap();
    handle.create_irq_chip().unwrap();
    add_memory(&handle);
    let vcpu = handle.create_vcpu(0).unwrap();
    let mut sregs = vcpu.get_sregs().unwrap();
    (sregs.cs.base, sregs.cs.selector) = (0, 0);
    vcpu.set_sregs(&sregs).unwrap();
    let mut regs = vcpu.get_regs().unwrap();
    (regs.rip, regs.rflags, regs.rsp) = (CODE_AT as u64, 2, 0x8000);
    vcpu.set_regs(&regs).unwrap();
    (handle, vcpu)
}

fn add_memory(handle: &VmFd) {
    // SAFETY: new memory, which nobody else has; it is there until this process ends.
    let address = unsafe {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), MEMORY_BYTES, access, flags, -1, 0)
    };
    assert_ne!(address, libc::MAP_FAILED);
    // SAFETY: so many bytes were just mapped there, and are nobody else's.
    let memory = unsafe { std::slice::from_raw_parts_mut(address.cast::<u8>(), MEMORY_BYTES) };
    memory[CODE_AT..][..CODE.len()].copy_from_slice(&CODE);
    memory[HANDLER_AT..][..HANDLER.len()].copy_from_slice(&HANDLER);
    // Where the vector of the interrupt points to.
    memory[4 * 0x24..][..4].copy_from_slice(&[0x80, 0x10, 0, 0]);
    let region = kvm_userspace_memory_region {
        memory_size: MEMORY_BYTES as u64,
        userspace_addr: address as u64,
        ..Default::default()
    };
    // SAFETY: the memory is there until this process ends, and the VM with it.
    unsafe { handle.set_user_memory_region(region) }.unwrap();
}

/// This thread takes part; 0 is the calling one.
fn take_part() -> Pid {
    let this = Pid::from_raw(0);
    confine(this, &[1]);
    this
}

fn keep_the_pcpu(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {}
}

fn inject(handle: &VmFd, clock: ChildStdout) {
    set_policy(take_part(), libc::SCHED_FIFO);
    for _ in BufReader::new(clock).lines() {
        interrupt(handle);
        keep_the_pcpu(KEEPS);
    }
}

fn interrupt(handle: &VmFd) {
    for level in [true, false] {
        handle.set_irq_line(INTERRUPT, level).unwrap();
    }
}

fn run(vcpu: &mut VcpuFd) {
    let this = take_part();
    loop {
        match vcpu.run().unwrap() {
            VcpuExit::IoOut(BEFORE_DOORBELL, _) => set_policy(this, libc::SCHED_FIFO),
            VcpuExit::IoOut(AFTER_DOORBELL, _) => {
                keep_the_pcpu(KEEPS);
                set_policy(this, libc::SCHED_OTHER);
            }
            other => panic!("the guest did {other:?}"),
        }
    }
}

/// Takes a block from the disk, not from the page cache.
fn answer(doorbell: &EventFd) {
    take_part();
    let disk = File::options().read(true).custom_flags(libc::O_DIRECT).open("/dev/nullb0").unwrap();
    // The kernel wants it aligned.
    let mut block = vec![0; 2 * BLOCK_BYTES];
    let at = block.as_ptr().align_offset(4096);
    while doorbell.read().is_ok() {
        disk.read_exact_at(&mut block[at..][..BLOCK_BYTES], 0).unwrap();
    }
}
