// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon may still do once the scheduler is loaded.
//!
//! Loading takes CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN. After that programs and maps are reached by file
//! descriptors that are open. What remains: the memory of VMs is looked at (CAP_SYS_PTRACE) and moved
//! (CAP_SYS_NICE). Files are read and written as root's own, which takes no capability: landlock says which.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use caps::{CapSet, Capability, CapsHashSet};
use landlock::{
    ABI, Access, AccessFs, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, make_bitflags, path_beneath_rules,
};

use crate::serve::Places;

/// What is kept.
const KEPT: [Capability; 2] = [Capability::CAP_SYS_NICE, Capability::CAP_SYS_PTRACE];

/// Gives up every other capability for good, of this thread and of those it starts from now on.
///
/// # Errors
/// When the kernel does not let it.
pub fn drop_others() -> Result<()> {
    give_up().context("cannot give up privileges")
}

fn give_up() -> Result<()> {
    let had = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet = KEPT.into_iter().filter(|one| had.contains(one)).collect();
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
/// Where orders are kept, and the socket: files are written under another name, renamed and removed.
const WRITES: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeSock | RemoveFile
});

/// Gives up all files but those that are still needed, for good, of this thread and of those it starts from now
/// on. Kernels without landlock leave them as they are; older ones do of it what they can.
///
/// Who is confined may not look into processes that are not, whatever his capabilities. So the thread that moves
/// the memory of VMs has to be there before.
pub fn confine(places: &Places) {
    match give_up_files(places) {
        Ok(RulesetStatus::NotEnforced) => tracing::debug!("this kernel has no landlock"),
        Ok(_) => tracing::debug!("landlock: nothing but its own files from here on"),
        Err(err) => tracing::warn!("landlock: {err}; going on without"),
    }
}

fn give_up_files(places: &Places) -> Result<RulesetStatus, RulesetError> {
    // What is not there now cannot be allowed. Where it cannot be made, orders are refused as they come.
    let _ = fs::create_dir_all(places.state);
    let socket = places.socket.parent();
    // A link to it leads to a directory of its own.
    let followed = fs::canonicalize(places.config).ok();
    let configs = [Some(places.config), followed.as_deref()];
    let configs = configs.into_iter().flatten().filter_map(Path::parent);
    let status = Ruleset::default()
        // Of the 5th version: the 9th has sockets, and the service manager's is anywhere.
        .handle_access(AccessFs::from_all(ABI::V5))?
        .create()?
        .add_rules(path_beneath_rules(READ, READS))?
        .add_rules(path_beneath_rules(configs, READS))?
        .add_rules(path_beneath_rules([places.state].into_iter().chain(socket), WRITES))?
        .restrict_self()?;
    Ok(status.ruleset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use std::io::ErrorKind;

    #[test]
    fn nothing_but_what_is_kept_is_left() {
        // Of that thread only.
        let left = std::thread::spawn(|| {
            drop_others().unwrap();
            [CapSet::Permitted, CapSet::Effective, CapSet::Inheritable, CapSet::Ambient]
                .map(|set| caps::read(None, set).unwrap())
        });
        for set in left.join().unwrap() {
            assert!(set.iter().all(|one| KEPT.contains(one)), "{set:?}");
        }
    }

    #[test]
    fn nothing_is_written_but_orders_and_the_socket_and_nothing_foreign_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let at = move |name: &str| path.join(name);
        ["etc", "run", "home"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
        fs::write(at("home/secret"), "s").unwrap();
        fs::write(at("etc/drover.toml"), "").unwrap();
        let (config, state, socket) =
            (at("etc/drover.toml"), at("lib/state"), at("run/control.sock"));
        let confined = std::thread::spawn(move || {
            let places = Places { config: &config, state: &state, socket: &socket };
            let listener = crate::control::Listener::bind(&socket).unwrap();
            caps::clear(None, CapSet::Effective).unwrap();
            nix::sys::prctl::set_no_new_privs().unwrap();
            let status = give_up_files(&places).unwrap();
            // What has to work, with landlock or without.
            let (store, saved) = Store::open(&state).unwrap();
            store.save(&saved).unwrap();
            store.save(&saved).unwrap();
            fs::read_to_string(&config).unwrap();
            fs::read_to_string("/proc/self/status").unwrap();
            assert!(fs::read_dir("/sys").unwrap().count() > 0);
            drop(listener);
            assert!(!socket.exists(), "the socket goes with the daemon");
            let kind = |result: std::io::Result<()>| result.map_err(|err| err.kind());
            let foreign = [
                kind(fs::read(at("home/secret")).map(drop)),
                kind(fs::write(at("home/other"), "")),
                kind(fs::write(&config, "")),
                kind(fs::write("/proc/self/comm", "x")),
                kind(fs::remove_file(at("home/secret"))),
            ];
            (status, foreign)
        });
        match confined.join().unwrap() {
            (RulesetStatus::NotEnforced, _) => println!("not tried: this kernel has no landlock"),
            (_, foreign) => assert_eq!(foreign, [Err(ErrorKind::PermissionDenied); 5]),
        }
    }
}
