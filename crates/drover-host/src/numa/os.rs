// SPDX-License-Identifier: GPL-2.0-only
//! What is asked of the kernel about memory of processes.

use super::guest::Guest;
use super::maps::Maps;
use crate::helper::{Helper, Op};
use crate::{files, names};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Looks at memory and moves it; the kernel does, or a test.
pub trait Os: Send {
    /// Where the memory of the process lies, and what its guest has.
    ///
    /// # Errors
    /// When it is gone or may not be looked at.
    fn look(&mut self, pid: u32) -> io::Result<(Maps, Guest)>;
    /// The node of each of these pages; below 0 where there is none.
    ///
    /// # Errors
    /// As [`Os::look`].
    fn nodes_of(&mut self, pid: u32, pages: &[u64]) -> io::Result<Vec<i32>>;
    /// Moves each of these pages to its node, as far as they can be.
    ///
    /// # Errors
    /// When none can be, and why.
    fn move_pages(&mut self, pid: u32, pages: &[u64], nodes: &[usize]) -> io::Result<()>;
}

/// The kernel, by who may look into others.
#[derive(Debug)]
pub struct Linux(pub Arc<Helper>);

impl Linux {
    fn ask(&self, op: Op, pid: u32, pages: &[u64], nodes: Vec<i32>) -> io::Result<Vec<u8>> {
        self.0.memory.ask(op, pid, (pages.to_vec(), nodes))
    }

    /// What the kernel says of each page.
    fn statuses(&self, op: Op, pid: u32, pages: &[u64], nodes: Vec<i32>) -> io::Result<Vec<i32>> {
        let bytes = self.ask(op, pid, pages, nodes)?;
        let words =
            bytes.chunks_exact(4).map(|it| i32::from_ne_bytes(it.try_into().expect("four")));
        let statuses: Vec<i32> = words.collect();
        let is_whole = statuses.len() == pages.len();
        is_whole.then_some(statuses).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl Os for Linux {
    fn look(&mut self, pid: u32) -> io::Result<(Maps, Guest)> {
        let read = |op: Op| self.ask(op, pid, &[], Vec::new());
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let maps = text(read(Op::Maps)?);
        let args = names::arguments_of(&read(Op::CommandLine)?);
        let numa_maps = text(read(Op::NumaMaps)?);
        Ok((Maps::of(&maps, &numa_maps), Guest::of(&args, &maps, &node_of_device)))
    }

    fn nodes_of(&mut self, pid: u32, pages: &[u64]) -> io::Result<Vec<i32>> {
        self.statuses(Op::NodesOf, pid, pages, Vec::new())
    }

    fn move_pages(&mut self, pid: u32, pages: &[u64], nodes: &[usize]) -> io::Result<()> {
        assert_eq!(pages.len(), nodes.len(), "each page has its node");
        let number = |&node: &usize| i32::try_from(node).map_err(|_| io::ErrorKind::InvalidInput);
        let nodes = nodes.iter().map(number).collect::<Result<Vec<i32>, _>>()?;
        let status = self.statuses(Op::MovePages, pid, pages, nodes)?;
        let full = status.contains(&-libc::ENOMEM);
        if full { Err(io::Error::from_raw_os_error(libc::ENOMEM)) } else { Ok(()) }
    }
}

/// The node of the PCI device with that address; none: the host does not say.
fn node_of_device(address: &str) -> Option<usize> {
    let file = format!("/sys/bus/pci/devices/{address}/numa_node");
    files::kernel(Path::new(&file)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_lies_somewhere() {
        let memory = vec![1u8; 1 << 20];
        let page = memory.as_ptr() as u64 & !4095;
        // Hosts without NUMA have no such files.
        let mut linux = Linux(Helper::for_test());
        if let Ok((maps, _)) = linux.look(std::process::id()) {
            assert!(maps.lies_mib().values().sum::<u64>() > 0);
            let nodes = linux.nodes_of(std::process::id(), &[page + 4096, 4096]).unwrap();
            assert!(nodes[0] >= 0 && nodes[1] < 0, "{nodes:?}");
        }
        assert!(linux.look(0x3fff_fff0).is_err(), "nobody has that number");
    }
}
