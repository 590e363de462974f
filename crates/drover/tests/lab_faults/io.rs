// SPDX-License-Identifier: GPL-2.0-only
//! I/O delays are told as long as they are, under the kernel's scheduler and under Drover.
//!
//! This process is a VM of which each wait is known. All its threads have one pCPU:
//!
//! ```text
//!  device    injects an interrupt, keeps the pCPU for 20 ms: the delay to the guest
//!  vCPU      rings the doorbell, keeps the pCPU for 20 ms: the delay to the device
//!  back end  answers the doorbell
//! ```
//!
//! Who keeps the pCPU is a real-time thread meanwhile. The device is told when by another process, because a timer
//! of its own would be I/O, too.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

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

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    confine(Pid::from_raw(0), &[0]);
    let _sleeper = MicroVm::start("sleeper", 1, SLEEP);
    start_vm();
    say("the kernel's own scheduler");
    assert_eq!(delays_are_true(), Value::Null);
    let mut daemon = Daemon::start();
    say("drover");
    assert_eq!(delays_are_true(), "drover");
    daemon.must_serve();
}

/// Who is in charge.
fn delays_are_true() -> Value {
    let reading = reading("2");
    let vms = reading["vms"].as_array().unwrap();
    let this = vms.iter().find(|vm| vm["pid"] == std::process::id()).expect("this is a VM");
    for direction in ["to_guest", "to_device"] {
        let delay = &this["io"]["delay_us"][direction];
        println!("{direction}: {delay}");
        let (mean, count) = (delay["mean"].as_f64().unwrap(), delay["count"].as_u64().unwrap());
        let error_pct = 100.0 * (mean / KEEPS.as_secs_f64() / 1e6 - 1.0);
        assert!(error_pct.abs() <= TOLERANCE_PCT, "{direction} is off by {error_pct} %: {delay}");
        assert!(count >= 10, "{direction}: {delay}");
    }
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
    let mut clock = Command::new("sh");
    clock.args(["-c", "while echo; do sleep 0.1; done"]).stdout(Stdio::piped());
    let clock = clock.spawn().unwrap().stdout.unwrap();
    thread::spawn(move || answer(&doorbell));
    thread::spawn(move || run(&mut vcpu));
    thread::spawn(move || inject(&handle, clock));
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

fn keep_the_pcpu() {
    let begun = Instant::now();
    while begun.elapsed() < KEEPS {}
}

fn inject(handle: &VmFd, clock: ChildStdout) {
    set_policy(take_part(), libc::SCHED_FIFO);
    for _ in BufReader::new(clock).lines() {
        for level in [true, false] {
            handle.set_irq_line(INTERRUPT, level).unwrap();
        }
        keep_the_pcpu();
    }
}

fn run(vcpu: &mut VcpuFd) {
    let this = take_part();
    loop {
        match vcpu.run().unwrap() {
            VcpuExit::IoOut(BEFORE_DOORBELL, _) => set_policy(this, libc::SCHED_FIFO),
            VcpuExit::IoOut(AFTER_DOORBELL, _) => {
                keep_the_pcpu();
                set_policy(this, libc::SCHED_OTHER);
            }
            other => panic!("the guest did {other:?}"),
        }
    }
}

fn answer(doorbell: &EventFd) {
    take_part();
    while doorbell.read().is_ok() {}
}
