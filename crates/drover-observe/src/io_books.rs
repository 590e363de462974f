// SPDX-License-Identifier: GPL-2.0-only
//! I/O of VMs as `drover observe` keeps it: in the last second, and all since each VM was found.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use drover_core::io::{Bytes, DelaySum, IoStatus, IoSums};
use drover_host::io_bytes::HostBytes;

use crate::delays::{self, Delays, ThreadIo, VmDelays};
use crate::statuses::seconds;

/// Who asks often does not shorten the time that figures are of.
const CLOSE_NS: u64 = 900_000_000;

/// The last reading, and what is known since.
#[derive(Debug, Default)]
pub struct IoBooks {
    /// When it was; none: there was none.
    at_ns: Option<u64>,
    threads: Vec<ThreadIo>,
    bytes: HostBytes,
    vms: HashMap<u32, IoStatus>,
}

impl IoBooks {
    /// Takes a reading of the delays of these VMs' threads, and reads their bytes. `proc` is `/proc`, or a test's.
    pub fn look(
        &mut self,
        at_ns: u64,
        threads: &[ThreadIo],
        processes: &BTreeSet<u32>,
        proc: &Path,
    ) {
        if self.at_ns.is_some_and(|then| at_ns.saturating_sub(then) < CLOSE_NS) {
            return;
        }
        let passed_s = self.at_ns.map(|then| seconds(at_ns - then));
        let bytes = self.bytes.read(proc, processes);
        let delays = delays::between(&self.threads, threads);
        self.vms.retain(|process, _| processes.contains(process));
        for (process, bytes) in bytes {
            let new = delays.get(&process).copied().unwrap_or_default();
            let status = self.vms.entry(process).or_default();
            add(status, &new, bytes, passed_s);
        }
        (self.at_ns, self.threads) = (Some(at_ns), threads.to_vec());
    }

    /// Forgets the last reading: another observer counts from nothing.
    pub fn begin_anew(&mut self) {
        self.threads.clear();
    }

    /// What is known of that VM; none: nothing yet.
    pub fn of(&self, process: u32) -> Option<IoStatus> {
        self.vms.get(&process).filter(|status| status.over_s > 0.0).copied()
    }
}

/// What a VM did since the reading before, so long ago; none: it is not known how long.
fn add(status: &mut IoStatus, delays: &VmDelays, bytes: Bytes, passed_s: Option<f64>) {
    let IoSums { bytes: before, to_guest, to_device } = status.since_found;
    if let Some(passed_s) = passed_s {
        status.over_s = passed_s;
        status.lately = delays.figures().with_bytes(bytes.since(&before));
    }
    status.since_found = IoSums {
        bytes,
        to_guest: sum(to_guest, &delays.to_guest),
        to_device: sum(to_device, &delays.to_device),
    };
}

fn sum(before: DelaySum, new: &Delays) -> DelaySum {
    DelaySum { count: before.count + new.count(), seconds: before.seconds + seconds(new.sum_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delays::tests::delays;
    use std::fs;

    const S: u64 = 1_000_000_000;

    fn vcpu(each_ns: &[u64]) -> [ThreadIo; 1] {
        let delays = delays(each_ns);
        [ThreadIo { process: 7, thread: 8, found_ns: 5, is_vcpu: true, delays }]
    }

    fn write(proc: &Path, bytes: u64) {
        fs::create_dir_all(proc.join("7")).unwrap();
        fs::write(proc.join("7/io"), format!("read_bytes: {bytes}\nwrite_bytes: 0\n")).unwrap();
    }

    #[test]
    fn rates_are_of_the_last_second_and_sums_of_all_time() {
        let dir = tempfile::tempdir().unwrap();
        let (mut books, here) = (IoBooks::default(), BTreeSet::from([7]));
        let mut look = |at_ns, each_ns: &[u64], bytes| {
            write(dir.path(), bytes);
            books.look(at_ns, &vcpu(each_ns), &here, dir.path());
            books.of(7)
        };
        assert_eq!(look(S, &[5_000], 100), None, "it is not known in what time");
        let io = look(3 * S, &[5_000, 2_000_000, 4_000_000], 4_000_100).unwrap();
        let to_guest = io.lately.delay_us.to_guest.unwrap();
        assert_eq!((io.over_s, to_guest.count, to_guest.mean), (2.0, 2, 3000.0));
        assert_eq!(io.lately.ms_per_mb.map(|lost| lost.to_guest), Some(1.5));
        let sums = io.since_found;
        assert_eq!((sums.bytes.block_bytes, sums.bytes.network_bytes), (Some(4_000_000), None));
        assert_eq!((sums.to_guest.count, sums.to_guest.seconds), (3, 0.006_005));
        let again = look(3 * S + S / 2, &[], 5_000_000).unwrap();
        assert_eq!(again, io, "asked too soon");
        books.look(5 * S, &[], &BTreeSet::new(), dir.path());
        assert_eq!(books.of(7), None, "it has gone");
    }

    #[test]
    fn another_observer_counts_from_nothing_and_sums_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let (mut books, here) = (IoBooks::default(), BTreeSet::from([7]));
        write(dir.path(), 0);
        books.look(S, &vcpu(&[5_000, 5_000]), &here, dir.path());
        books.begin_anew();
        books.look(2 * S, &vcpu(&[7_000]), &here, dir.path());
        assert_eq!(books.of(7).unwrap().since_found.to_guest.count, 3);
    }
}
