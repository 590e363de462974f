// SPDX-License-Identifier: GPL-2.0-only
//! A network of Linux guests, as a host has it: a bridge, and a tap on it for each guest's virtio-net card.
//!
//! QEMU makes the taps, and a script that it runs puts each on the bridge; a tap goes with its QEMU. Where the kernel
//! has vhost-net it moves the packets, on a thread of the guest's process, else QEMU's main loop does.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::init::{NETWORK_MODULES_DIR, load_modules};

const BRIDGE: &str = "drover-net";

/// A bridge that goes when dropped.
#[derive(Debug, PartialEq, Eq)]
pub struct Network {
    script: PathBuf,
    has_vhost: bool,
}

impl Network {
    /// Makes the bridge, on this host; `dir` is for a script, and stays as long as the network.
    ///
    /// # Errors
    /// When the kernel has no bridges, or not for this user.
    pub fn make(dir: &Path) -> Result<Self> {
        // In the lab nobody else loads them.
        load_modules(NETWORK_MODULES_DIR, "", c"");
        let script = dir.join("tap-up");
        let text =
            format!("#!/bin/sh\nip link set dev \"$1\" master {BRIDGE}\nip link set \"$1\" up\n");
        fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        // One that was left behind by a run that was killed.
        let _ = ip(&["link", "delete", BRIDGE]);
        ip(&["link", "add", "name", BRIDGE, "type", "bridge"])?;
        let network = Self { script, has_vhost: Path::new("/dev/vhost-net").exists() };
        ip(&["link", "set", BRIDGE, "up"])?;
        Ok(network)
    }

    /// What QEMU is told of a guest's card.
    pub(crate) fn card(&self, address: Ipv4Addr) -> String {
        let script = self.script.to_string_lossy().replace(',', ",,");
        let vhost = if self.has_vhost { "on" } else { "off" };
        let [a, b, c, d] = address.octets();
        format!(
            "-netdev tap,id=net0,script={script},downscript=no,vhost={vhost} \
             -device virtio-net-pci,disable-modern=on,netdev=net0,romfile=,\
             mac=52:54:{a:02x}:{b:02x}:{c:02x}:{d:02x}"
        )
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Without it no guest has lost anything.
        let _ = ip(&["link", "delete", BRIDGE]);
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    let result = Command::new("ip").args(arguments).output();
    let result = result.context("cannot run ip (package iproute2)")?;
    let said = String::from_utf8_lossy(&result.stderr);
    let first = said.lines().next().unwrap_or("it did not say why");
    ensure!(result.status.success(), "no network for guests: ip {}: {first}", arguments.join(" "));
    Ok(())
}

#[cfg(test)]
impl Network {
    /// One that nobody has made.
    pub(crate) fn for_test() -> Self {
        Self { script: "/run/a,b/tap-up".into(), has_vhost: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_a_card_of_its_own() {
        let network = std::mem::ManuallyDrop::new(Network::for_test());
        let card = network.card(Ipv4Addr::new(10, 0, 0, 17));
        assert!(card.contains("script=/run/a,,b/tap-up,") && card.contains("vhost=on"), "{card}");
        assert!(card.ends_with("mac=52:54:0a:00:00:11"), "{card}");
    }
}
