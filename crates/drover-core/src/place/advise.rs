// SPDX-License-Identifier: GPL-2.0-only
//! The virtual nodes (vNUMA) that a guest wider than a node should have.
//!
//! Idea. A guest that knows of no nodes takes all of its memory to be equally near, and keeps no thread beside what
//! that uses. So one that is split into parts is to have a virtual node for each ([`super::client`]), with an even
//! part of the memory, and each begins on the host node where the placer would put that part if nobody else were there.
//!
//! Worked example. A VM of 8 vCPUs and 8 GiB on two nodes of four cores and 16 GiB: two sockets of four cores, vCPUs
//! 0 to 3 with 4 GiB on node 0 and 4 to 7 with 4 GiB on node 1. With 7 vCPUs the parts have 3 and 4: a socket for each
//! vCPU then, for no socket may lie on two nodes.
//!
//! Limitations. Distances between virtual nodes are the hypervisor's usual ones. The daemon knows what a VM's process
//! has mapped, which may be a little more than the guest's memory.

use super::client::{Client, Part, Shape, even_parts};
use super::{Heuristic, Host, Node, place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A virtual node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestNode {
    /// The host's node on which its memory is to begin; none: anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_node: Option<u32>,
    /// Its first vCPU.
    pub first_vcpu: u32,
    /// Its last one.
    pub last_vcpu: u32,
    /// Its memory, MiB.
    pub memory_mib: u64,
}

impl GuestNode {
    fn vcpus(&self) -> String {
        match (self.first_vcpu, self.last_vcpu) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        }
    }
}

/// What a guest should be told of its CPUs and memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestTopology {
    /// Sockets.
    pub sockets: u32,
    /// Cores of each socket, of one thread.
    pub cores: u32,
    /// Its nodes.
    pub nodes: Vec<GuestNode>,
}

/// The virtual nodes of a VM of that shape on that host, whatever it has now; none: it needs none.
pub fn advise(host: &Host, shape: &Shape) -> Option<GuestTopology> {
    let parts = even_parts(host, shape);
    let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    if count < 2 {
        return None;
    }
    // MiB that do not divide evenly are the first nodes'.
    let (each_mib, rest) =
        (shape.memory_mib / u64::from(count), shape.memory_mib % u64::from(count));
    let memory_mib = |part: usize| each_mib + u64::from((part as u64) < rest);
    let client = |(part, Part { vcpus, .. }): (usize, &Part)| Client {
        wanted_pcpus: f64::from(vcpus.end - vcpus.start),
        memory_mib: memory_mib(part),
        ..Client::default()
    };
    let clients: Vec<Client> = parts.iter().enumerate().map(client).collect();
    let empty = |node: &Node| Node { free_mib: node.memory_mib, wanted_pcpus: 0.0, ..node.clone() };
    let empty = Host { nodes: host.nodes.iter().map(empty).collect(), ..host.clone() };
    let (homes, _) = place(&empty, &clients, &[], Heuristic::Auto, 0);
    let node = |(part, Part { vcpus, .. }): (usize, &Part)| GuestNode {
        host_node: homes[part].map(|home| host.nodes[home.node].number),
        first_vcpu: vcpus.start,
        last_vcpu: vcpus.end - 1,
        memory_mib: memory_mib(part),
    };
    let is_even = shape.vcpus % count == 0;
    let sockets = if is_even { count } else { shape.vcpus };
    let nodes = parts.iter().enumerate().map(node).collect();
    Some(GuestTopology { sockets, cores: shape.vcpus / sockets, nodes })
}

impl GuestTopology {
    /// As elements of a libvirt domain.
    pub fn libvirt(&self) -> String {
        let (sockets, cores) = (self.sockets, self.cores);
        let mut cells = String::new();
        let mut memnodes = String::new();
        for (id, node) in self.nodes.iter().enumerate() {
            let (cpus, memory_mib) = (node.vcpus(), node.memory_mib);
            let _ = writeln!(
                cells,
                "    <cell id='{id}' cpus='{cpus}' memory='{memory_mib}' unit='MiB'/>"
            );
            if let Some(on) = node.host_node {
                let _ = writeln!(
                    memnodes,
                    "  <memnode cellid='{id}' mode='preferred' nodeset='{on}'/>"
                );
            }
        }
        let numatune = match memnodes.is_empty() {
            true => String::new(),
            false => format!("<numatune>\n{memnodes}</numatune>\n"),
        };
        format!(
            "<cpu>\n  <topology sockets='{sockets}' cores='{cores}' threads='1'/>\n  <numa>\n{cells}  </numa>\n\
             </cpu>\n{numatune}"
        )
    }

    /// As options of QEMU, one a line.
    pub fn qemu(&self) -> String {
        let (sockets, cores) = (self.sockets, self.cores);
        let all_mib: u64 = self.nodes.iter().map(|node| node.memory_mib).sum();
        let mut text = format!(
            "-smp {},sockets={sockets},cores={cores},threads=1\n-m {all_mib}M\n",
            sockets * cores
        );
        for (id, node) in self.nodes.iter().enumerate() {
            let (cpus, memory_mib) = (node.vcpus(), node.memory_mib);
            let on = node.host_node.map(|on| format!(",host-nodes={on},policy=preferred"));
            let on = on.unwrap_or_default();
            let _ = writeln!(
                text,
                "-object memory-backend-ram,id=node{id},size={memory_mib}M{on}\n\
                 -numa node,nodeid={id},cpus={cpus},memdev=node{id}"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(cores: &[u32], memory_mib: u64) -> Host {
        let node = |(number, &cores): (usize, &u32)| Node {
            number: u32::try_from(number).unwrap(),
            pcpus: 2 * cores,
            cores,
            memory_mib,
            ..Node::default()
        };
        Host { nodes: cores.iter().enumerate().map(node).collect(), ..Host::default() }
    }

    fn shape(vcpus: u32, memory_mib: u64) -> Shape {
        Shape { vcpus, memory_mib, ..Shape::default() }
    }

    #[test]
    fn the_worked_example() {
        let guest = advise(&host(&[4, 4], 16 << 10), &shape(8, 8 << 10)).unwrap();
        assert_eq!(
            guest.libvirt(),
            "<cpu>
  <topology sockets='2' cores='4' threads='1'/>
  <numa>
    <cell id='0' cpus='0-3' memory='4096' unit='MiB'/>
    <cell id='1' cpus='4-7' memory='4096' unit='MiB'/>
  </numa>
</cpu>
<numatune>
  <memnode cellid='0' mode='preferred' nodeset='0'/>
  <memnode cellid='1' mode='preferred' nodeset='1'/>
</numatune>
"
        );
        assert_eq!(
            guest.qemu(),
            "-smp 8,sockets=2,cores=4,threads=1
-m 8192M
-object memory-backend-ram,id=node0,size=4096M,host-nodes=0,policy=preferred
-numa node,nodeid=0,cpus=0-3,memdev=node0
-object memory-backend-ram,id=node1,size=4096M,host-nodes=1,policy=preferred
-numa node,nodeid=1,cpus=4-7,memdev=node1
"
        );
        let uneven = advise(&host(&[4, 4], 16 << 10), &shape(7, 8193)).unwrap();
        assert_eq!((uneven.sockets, uneven.cores), (7, 1));
        let vcpus: Vec<String> = uneven.nodes.iter().map(GuestNode::vcpus).collect();
        assert_eq!(vcpus, ["0-2", "3-6"]);
        assert_eq!(uneven.nodes.iter().map(|node| node.memory_mib).sum::<u64>(), 8193);
    }

    #[test]
    fn who_fits_a_node_needs_none_and_who_has_too_much_memory_does() {
        let host = host(&[4, 4], 16 << 10);
        assert_eq!(advise(&host, &shape(4, 16 << 10)), None);
        assert_eq!(advise(&host, &shape(2, 20 << 10)).unwrap().nodes.len(), 2);
        let narrow = Shape { max_per_node: Some(1), ..shape(2, 1 << 10) };
        assert_eq!(advise(&host, &narrow).unwrap().nodes.len(), 2);
        assert_eq!(advise(&host, &shape(1, 64 << 10)), None, "one vCPU cannot be split");
    }

    #[test]
    fn parts_begin_on_nodes_that_are_near_and_anywhere_if_they_fit_nowhere() {
        let mut four = host(&[4, 4, 4, 4], 16 << 10);
        let pair = |a: u32, b: u32| if a / 2 == b / 2 { 12 } else { 32 };
        four.distances = (0..4).map(|a| (0..4).map(|b| pair(a, b)).collect()).collect();
        let guest = advise(&four, &shape(8, 8 << 10)).unwrap();
        let on: Vec<u32> = guest.nodes.iter().filter_map(|node| node.host_node).collect();
        assert_eq!(on[0] / 2, on[1] / 2, "{on:?}");
        let huge = advise(&host(&[4, 4], 16 << 10), &shape(8, 64 << 10)).unwrap();
        assert!(huge.nodes.iter().all(|node| node.host_node.is_none()));
        assert!(!huge.libvirt().contains("numatune") && !huge.qemu().contains("host-nodes"));
    }
}
