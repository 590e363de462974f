// SPDX-License-Identifier: GPL-2.0-only
//! Linux guests under QEMU/KVM, as a user's host runs them: the image they boot and QEMU's command line.
//!
//! The guest is the lab's own kernel with a small initramfs: busybox, the programs that are workloads, the
//! modules of its disk and its network, and an init that runs one command line. It boots in seconds even inside the lab. The
//! command line travels on the kernel's, as hex digits, because quotes do not survive there.
//!
//! A disk or a network makes another machine of it. The smallest, microvm, has devices in memory only, and who rings a
//! doorbell there has KVM emulate the instruction. In the lab KVM refuses that at times (seen on 6.18: "KVM
//! internal error. Suberror: 3"): after an exception in the guest QEMU's CPU emulation leaves behind of what
//! kind it was, and KVM looks at the kind only, and takes it for an event under way. So such a guest is
//! the old PC, and its devices are of the first kind of virtio, whose doorbell is an I/O port.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::{Cache, write_file};
use crate::disk::Disk;
use crate::initramfs::Initramfs;
use crate::kernel::{self, Kernel, KernelChoice};
use crate::network::Network;
use crate::programs;
use crate::qemu::Qemu;

/// Programs that guests have beside busybox, with the package that brings them.
pub const PROGRAMS: [(&str, &str); 3] =
    [("sysbench", "sysbench"), ("hackbench", "rt-tests"), ("cyclictest", "rt-tests")];

/// What QEMU loads into a guest itself.
const FIRMWARE: [&str; 7] = [
    "bios-256k.bin",
    "bios-microvm.bin",
    "kvmvapic.bin",
    "linuxboot_dma.bin",
    "multiboot_dma.bin",
    "pvh.bin",
    "qboot.rom",
];

/// Where the lab has the image of its guests.
const KERNEL_IN_LAB: &str = "/usr/lib/drover/guest/vmlinuz";
const INITRAMFS_IN_LAB: &str = "/usr/lib/drover/guest/initramfs";

/// What the guest's init prints before the exit status, once the command has ended.
pub const END_MARK: &str = "drover-guest: the command ended with status ";

const INIT: &str = r#"#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
for module in /lib/modules/*.ko; do insmod "$module"; done
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
address=$(sed -n 's/.*drover\.address=\([0-9.]*\).*/\1/p' /proc/cmdline)
if [ "$address" ]; then
    for module in /lib/network-modules/*.ko; do insmod "$module"; done
    ip link set lo up
    ip address add "$address/24" dev eth0
    ip link set eth0 up
fi
hex=$(sed -n 's/.*drover\.run=\([0-9a-f]*\).*/\1/p' /proc/cmdline)
run=$(printf "$(echo "$hex" | sed 's/../\\x&/g')")
sh -c "$run" </dev/null
echo "drover-guest: the command ended with status $?"
reboot -f
"#;

/// The longest command line that fits on the kernel's, whose length is 2048 bytes.
const RUN_LEN_MAX: usize = 800;

/// The files a guest boots from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestImage {
    /// The kernel.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initramfs: PathBuf,
}

impl GuestImage {
    /// The image in a lab that was made with [`crate::Lab::with_qemu_guests`].
    #[must_use]
    pub fn in_lab() -> Self {
        Self { kernel: KERNEL_IN_LAB.into(), initramfs: INITRAMFS_IN_LAB.into() }
    }

    /// An image on this machine, for guests without a lab around them: the lab's kernel, from the cache or
    /// fetched, and an initramfs written to `dir`.
    ///
    /// # Errors
    /// When no kernel can be had or a program is missing.
    pub fn on_this_machine(dir: &Path, tell: &mut dyn FnMut(&str)) -> Result<Self> {
        let kernel = kernel::provide(&Cache::open()?, &KernelChoice::Default, tell)?;
        let initramfs = dir.join("guest-initramfs");
        write_file(&initramfs, &build(&kernel.guest_modules()?)?)?;
        Ok(Self { kernel: kernel.image(), initramfs })
    }
}

/// One Linux guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest<'a> {
    /// Its name, by which Drover finds it.
    pub name: &'a str,
    /// Number of its vCPUs.
    pub vcpus: u32,
    /// Its memory in MiB.
    pub memory_mib: u32,
    /// Its disk, `/dev/vda`, if it has one.
    pub disk: Option<Disk>,
    /// The network it is in, and its address there; its card is `eth0`.
    pub network: Option<(&'a Network, Ipv4Addr)>,
    /// Command line its shell runs.
    pub run: &'a str,
}

/// The machine with devices. Its HPET would tick in QEMU's main loop for ever, and look like I/O.
const PC: &str = "pc,hpet=off";

impl Guest<'_> {
    /// The QEMU command line, program first. What the guest prints goes to the file `console`.
    ///
    /// # Errors
    /// When the guest's own command line is too long.
    pub fn command_line(&self, image: &GuestImage, console: &Path) -> Result<Vec<String>> {
        ensure!(
            self.run.len() <= RUN_LEN_MAX,
            "VM \"{}\": its command line has {} bytes; at most {RUN_LEN_MAX} fit",
            self.name,
            self.run.len()
        );
        let hex: String = self.run.bytes().map(|byte| format!("{byte:02x}")).collect();
        let console = console.to_string_lossy().replace(',', ",,");
        let disk = self.disk.map(Disk::options).unwrap_or_default();
        let card = self.network.map(|(network, address)| network.card(address));
        let card = card.unwrap_or_default();
        let machine = if self.disk.is_some() || self.network.is_some() { PC } else { "microvm" };
        let address = self.network.map(|(_, address)| format!("drover.address={address} "));
        let address = address.unwrap_or_default();
        let mut line: Vec<String> = format!(
            "qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
            -machine {machine},accel=kvm -cpu host -serial chardev:console {disk} {card}"
        )
        .split_whitespace()
        .map(str::to_owned)
        .collect();
        for (option, value) in [
            ("-name", format!("{},debug-threads=on", self.name.replace(',', ",,"))),
            ("-smp", self.vcpus.to_string()),
            ("-m", format!("{}M", self.memory_mib)),
            ("-kernel", image.kernel.to_string_lossy().into_owned()),
            ("-initrd", image.initramfs.to_string_lossy().into_owned()),
            ("-chardev", format!("file,id=console,path={console}")),
            (
                "-append",
                format!(
                    "console=ttyS0 quiet panic=-1 reboot=t cryptomgr.notests rdinit=/init \
                     {address}drover.run={hex}"
                ),
            ),
        ] {
            line.extend([option.to_owned(), value]);
        }
        Ok(line)
    }
}

/// The guest's initramfs, with modules to load in this order, and those that a network takes.
///
/// # Errors
/// When busybox or one of [`PROGRAMS`] is not installed, or a module is not there.
pub fn build([modules, network]: &[Vec<PathBuf>; 2]) -> Result<Vec<u8>> {
    let mut initramfs = Initramfs::with_busybox()?;
    for (program, package) in PROGRAMS {
        let host_path = programs::find(program).with_context(|| {
            format!("{program} is not installed; QEMU guests need it: install package {package}")
        })?;
        initramfs.add_program(&format!("/usr/bin/{program}"), &host_path)?;
    }
    initramfs.add_host_files("/lib/modules", modules)?;
    initramfs.add_host_files("/lib/network-modules", network)?;
    initramfs.add_bytes("/init", 0o755, INIT.as_bytes());
    initramfs.write(Vec::new())
}

/// Puts QEMU, its firmware and the guests' image into the lab's own initramfs.
///
/// # Errors
/// When something of it is not on this machine.
pub(crate) fn add_to_lab(lab: &mut Initramfs, qemu: &Qemu, kernel: &Kernel) -> Result<()> {
    lab.add_program("/usr/bin/qemu-system-x86_64", &qemu.program)?;
    for (path, host_path) in firmware(qemu)? {
        lab.add_host_file(&path, &host_path)?;
    }
    lab.add_host_file(KERNEL_IN_LAB, &kernel.image())?;
    lab.add_bytes(INITRAMFS_IN_LAB, 0o644, &build(&kernel.guest_modules()?)?);
    Ok(())
}

/// The firmware files this QEMU has, with the path each is looked for at.
fn firmware(qemu: &Qemu) -> Result<Vec<(String, PathBuf)>> {
    let dirs = Command::new(&qemu.program).args(["-L", "help"]).output()?;
    let dirs = String::from_utf8_lossy(&dirs.stdout).into_owned();
    let mut found = Vec::new();
    for name in FIRMWARE {
        let place = dirs.lines().map(|dir| Path::new(dir).join(name)).find(|path| path.is_file());
        if let Some(path) = place {
            found.push((path.to_string_lossy().into_owned(), path));
        }
    }
    ensure!(
        !found.is_empty(),
        "QEMU's firmware is not installed: install packages qemu-system-data and seabios"
    );
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn line(run: &str) -> Result<String> {
        line_of(&Guest { name: "db,1", vcpus: 2, memory_mib: 256, disk: None, network: None, run })
    }

    fn line_of(guest: &Guest) -> Result<String> {
        Ok(guest.command_line(&GuestImage::in_lab(), Path::new("/tmp/c"))?.join(" "))
    }

    #[test]
    fn a_disk_is_on_an_io_thread() {
        let (disk, run) = (Some(Disk::MadeUp), "true");
        let guest = Guest { name: "db", vcpus: 1, memory_mib: 256, disk, network: None, run };
        let with = line_of(&guest).unwrap();
        assert!(with.contains("-machine pc,") && with.contains(",iothread=io0"), "{with}");
        let counted = line_of(&Guest { disk: Some(Disk::Device), ..guest.clone() }).unwrap();
        assert!(counted.contains("filename=/dev/nullb0,") && counted.contains("iothread=io0"));
        let without = line_of(&Guest { disk: None, ..guest }).unwrap();
        assert!(without.contains("-machine microvm,") && !without.contains("iothread"));
    }

    #[test]
    fn a_network_is_a_card_and_an_address() {
        let network = std::mem::ManuallyDrop::new(Network::for_test());
        let network = Some((&*network, Ipv4Addr::new(10, 0, 0, 2)));
        let (name, run) = ("web", "true");
        let line =
            line_of(&Guest { name, vcpus: 1, memory_mib: 256, disk: None, network, run }).unwrap();
        assert!(
            line.contains("-machine pc,") && line.contains("-device virtio-net-pci,"),
            "{line}"
        );
        assert!(line.contains(" drover.address=10.0.0.2 drover.run="), "{line}");
    }

    #[test]
    fn the_command_survives_any_quoting() {
        let line = line("echo \"a'b\" $x").unwrap();
        assert!(
            line.ends_with("drover.run=6563686f2022612762222024 78".replace(' ', "").as_str()),
            "{line}"
        );
    }

    #[test]
    fn the_name_is_what_drover_finds() {
        let line = line("true").unwrap();
        assert!(line.contains("-name db,,1,debug-threads=on") && line.contains("-smp 2"), "{line}");
    }

    #[test]
    fn a_command_that_does_not_fit_is_refused() {
        let message = line(&"x".repeat(RUN_LEN_MAX + 1)).unwrap_err().to_string();
        assert!(message.contains("db,1") && !message.contains('\n'));
    }

    #[test]
    fn the_init_says_how_the_command_ended() {
        assert!(INIT.contains(END_MARK));
    }

    #[test]
    fn the_image_has_the_programs_and_an_init() {
        let installed = PROGRAMS.iter().all(|(program, _)| programs::find(program).is_some());
        let dir = tempfile::tempdir().unwrap();
        let module = dir.path().join("00-virtio_blk.ko");
        fs::write(&module, "").unwrap();
        match build(&[vec![module], Vec::new()]) {
            Ok(bytes) => {
                let (files, whole) = crate::cpio::read(&bytes).unwrap();
                let names: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
                assert!(whole && names.contains(&"init") && names.contains(&"usr/bin/cyclictest"));
                assert!(names.contains(&"lib/modules/00-virtio_blk.ko"), "{names:?}");
            }
            Err(error) => {
                let text = error.to_string();
                assert!(!installed && text.contains("install package"), "{text}");
            }
        }
    }

    #[test]
    fn firmware_stays_where_qemu_looks_for_it() {
        let Ok(qemu) = Qemu::find() else { return };
        for (path, host_path) in firmware(&qemu).unwrap() {
            assert_eq!(Path::new(&path), host_path);
        }
    }
}
