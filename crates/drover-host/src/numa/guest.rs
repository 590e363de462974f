// SPDX-License-Identifier: GPL-2.0-only
//! The nodes that a guest has (vNUMA), and the devices passed through to it: by the command line and the memory map of
//! its process.
//!
//! Idea. QEMU is told of each virtual node its vCPUs and the memory backend it has, and of each backend its kind and
//! size; libvirt writes just these options, the backends as JSON. A backend is one mapping of the process, of exactly its
//! size and with a name by its kind. Backends of one kind and size, as virtual nodes mostly have, differ in nothing:
//! QEMU maps them in the order of its options, and the kernel gives out addresses from the highest down, so the first is
//! the highest.
//!
//! Worked example. `-object memory-backend-ram,id=a,size=4G -object memory-backend-ram,id=b,size=4G -numa
//! node,cpus=0-3,memdev=a -numa node,cpus=4-7,memdev=b`: two mappings of 4 GiB without a name are there; the upper one
//! is the memory of vCPUs 0 to 3, the lower one that of 4 to 7.
//!
//! Who runs a VM writes its command line and chooses what is mapped. So all of it is bounded, and what is not
//! understood leaves the guest without virtual nodes here: its memory is spread evenly, as of any other. With lies
//! one can have one's own memory put on the wrong nodes, and nobody else's.
//!
//! Limitations. Other VMMs than QEMU are not known. Virtual nodes whose vCPUs are not in one piece, that have no
//! vCPUs or no memory backend (`mem=`), and `-numa cpu` are not followed. With an unlimited stack the kernel gives out
//! addresses upwards; the heap is above them then, and equal backends are not told apart.

use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// QEMU has no more nodes.
const NODES_MAX: usize = 128;
/// KVM has no more vCPUs.
const VCPUS_MAX: u32 = 4096;
const PAGE_BYTES: u64 = 4096;

/// A virtual node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualNode {
    /// Its vCPUs, which come after those of the nodes before it.
    pub vcpus: u32,
    /// The first address of its memory in the process; it is one mapping.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
}

/// What is known of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Guest {
    /// Its nodes, in the order of their vCPUs; empty: it has none, or they are not understood.
    pub nodes: Vec<VirtualNode>,
    /// Why they are not understood.
    pub not_followed: Option<&'static str>,
    /// The host's node of the first device passed through to it that has one.
    pub device: Option<usize>,
}

impl Guest {
    /// From the arguments of its process and the text of /proc/PID/maps. `node_of`: of the PCI device
    /// with that address.
    pub fn of(args: &[String], maps: &str, node_of: &dyn Fn(&str) -> Option<usize>) -> Self {
        let (nodes, not_followed) = match virtual_nodes(args, maps) {
            Ok(nodes) => (nodes, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        Self {
            nodes,
            not_followed,
            device: devices(args).iter().find_map(|device| node_of(device)),
        }
    }
}

/// Whether a guest has nodes, understood or not, by the arguments of its process; none: that is no QEMU.
pub fn knows_nodes(args: &[String]) -> Option<bool> {
    let program = args.first()?.rsplit('/').next()?;
    (program.starts_with("qemu") || program.ends_with("kvm"))
        .then(|| given(args, "numa").any(|it| matches!(it.kind.as_str(), "node" | "cpu")))
}

/// What an option is given: `KIND,key=value,key=value`, or the same as JSON.
#[derive(Debug, Default)]
struct Given {
    kind: String,
    pairs: Vec<(String, String)>,
}

impl Given {
    fn of(text: &str) -> Self {
        let pairs = match serde_json::from_str::<serde_json::Map<String, Value>>(text) {
            Ok(json) => json.into_iter().map(|(key, value)| (key, plain(&value))).collect(),
            Err(_) => pairs_of(text),
        };
        let mut given = Self::default();
        for (key, value) in pairs {
            match key.as_str() {
                "" | "type" | "qom-type" | "driver" => given.kind = value,
                _ => given.pairs.push((key, value)),
            }
        }
        given
    }

    /// All values of that key.
    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |it| it.0 == key).map(|it| it.1.as_str())
    }

    fn get<'a>(&'a self, key: &'a str) -> Option<&'a str> {
        self.all(key).last()
    }
}

/// `key=value` between commas; two commas are one that belongs to the value.
fn pairs_of(text: &str) -> Vec<(String, String)> {
    let pair = |part: &str| {
        let part = part.replace('\0', ",");
        let (key, value) = part.split_once('=').unwrap_or(("", &part));
        (key.to_owned(), value.to_owned())
    };
    // Arguments have no zeros.
    text.replace(",,", "\0").split(',').map(pair).collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What that option is given, each time.
fn given(args: &[String], option: &str) -> impl Iterator<Item = Given> {
    let is_it = move |arg: &str| {
        let dashless = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'));
        dashless == Some(option)
    };
    let pairs = args.windows(2).filter(move |pair| is_it(&pair[0]));
    pairs.map(|pair| Given::of(&pair[1]))
}

/// The PCI addresses of devices that are passed through.
fn devices(args: &[String]) -> Vec<String> {
    let is_vfio = |it: &Given| it.kind.starts_with("vfio-pci");
    let address = |it: Given| {
        let directory = it.get("sysfsdev").and_then(|path| path.rsplit('/').next());
        pci_address(it.get("host").or(directory)?)
    };
    given(args, "device").filter(is_vfio).filter_map(address).collect()
}

/// `0000:3b:00.0`, whose domain may be left out.
fn pci_address(text: &str) -> Option<String> {
    const FORM: &str = "hhhh:hh:hh.h";
    let whole = if text.len() == 7 { format!("0000:{text}") } else { text.to_owned() };
    let fits =
        |(form, is): (char, char)| if form == 'h' { is.is_ascii_hexdigit() } else { is == form };
    (whole.len() == FORM.len() && FORM.chars().zip(whole.chars()).all(fits)).then_some(whole)
}

/// A memory backend, in the order of the options.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Backend {
    place: usize,
    kind: String,
    bytes: u64,
    path: String,
    id: String,
}

impl Backend {
    fn of((place, it): (usize, Given)) -> Option<Self> {
        let kind = it.kind.strip_prefix("memory-backend-")?.to_owned();
        let bytes = bytes_of(it.get("size")?)?.checked_next_multiple_of(PAGE_BYTES)?;
        let text = |key| it.get(key).unwrap_or_default().to_owned();
        Some(Self { place, kind, bytes, path: text("mem-path"), id: text("id") })
    }

    /// Can that mapping be this backend?
    fn is(&self, mapping: &Mapping) -> bool {
        let name = mapping.name.strip_suffix(" (deleted)").unwrap_or(mapping.name);
        let is_named = match self.kind.as_str() {
            // Anonymous, also if it is shared.
            "ram" => name.is_empty() || name == "/dev/zero" || name.starts_with("/memfd:"),
            "memfd" => name.starts_with("/memfd:"),
            // The file, or one that QEMU made in that directory.
            "file" => match name.strip_prefix(self.path.as_str()) {
                Some("") => true,
                Some(rest) => rest.trim_start_matches('/').contains(self.id.as_str()),
                None => false,
            },
            _ => false,
        };
        is_named && mapping.end - mapping.start == self.bytes
    }
}

/// `1073741824`, `512M`, `4G`.
fn bytes_of(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" | "B" | "b" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|&bytes| bytes > 0)
}

/// A mapping that may be written to.
#[derive(Debug)]
struct Mapping<'a> {
    start: u64,
    end: u64,
    name: &'a str,
}

/// `7f12a4000000-7f12b4000000 rw-p 00000000 00:00 0    /memfd:memory-backend-memfd (deleted)`
fn mapping_of(line: &str) -> Option<Mapping<'_>> {
    let (start, end, writable) = super::maps::bounds_of(line)?;
    let name = line.splitn(6, ' ').nth(5).unwrap_or_default().trim();
    writable.then_some(Mapping { start, end, name })
}

/// The virtual nodes with their vCPUs and backends, in the order of the vCPUs.
fn told(args: &[String]) -> Result<Vec<(u32, Backend)>, &'static str> {
    // Numbers of NUMA nodes mean nothing where there is but one.
    if given(args, "numa").filter(|it| it.kind == "node").count() < 2 {
        return Ok(Vec::new());
    }
    let objects = given(args, "object").enumerate();
    let mut backends: BTreeMap<String, Backend> = BTreeMap::new();
    for backend in objects.filter_map(Backend::of) {
        backends.insert(backend.id.clone(), backend);
    }
    let mut nodes = Vec::new();
    for it in given(args, "numa") {
        match it.kind.as_str() {
            "node" => {}
            "cpu" => return Err("their vCPUs are given one by one (-numa cpu)"),
            _ => continue,
        }
        let cpus = vcpus_of(&it).ok_or("the vCPUs of one are not in one piece")?;
        let backend = it.get("memdev").and_then(|id| backends.remove(id));
        nodes.push((cpus, backend.ok_or("one has no memory backend of its own")?));
    }
    if nodes.len() > NODES_MAX {
        return Err("they are too many");
    }
    nodes.sort();
    let mut next = 0;
    let mut sized = Vec::new();
    for ((first, last), backend) in nodes {
        if first != next {
            return Err("their vCPUs have gaps, or belong to several");
        }
        next = last + 1;
        sized.push((next - first, backend));
    }
    Ok(sized)
}

/// The first and the last vCPU of a node, if they are in one piece.
fn vcpus_of(node: &Given) -> Option<(u32, u32)> {
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last < VCPUS_MAX).then_some((first, last))
    };
    let mut ranges = node.all("cpus").map(range).collect::<Option<Vec<_>>>()?;
    ranges.sort_unstable();
    let is_next = |pair: &[(u32, u32)]| pair[0].1 + 1 == pair[1].0;
    let whole = Some((ranges.first()?.0, ranges.last()?.1));
    whole.filter(|_| ranges.windows(2).all(is_next))
}

/// The virtual nodes and where their memory is; why they are not understood.
fn virtual_nodes(args: &[String], maps: &str) -> Result<Vec<VirtualNode>, &'static str> {
    const NOT_FOUND: &str = "their memory cannot be told from other memory of the process";
    let told = told(args)?;
    let is_one = |mapping: &Mapping| told.iter().any(|(_, backend)| backend.is(mapping));
    let mut mappings: Vec<Mapping> =
        maps.lines().filter_map(mapping_of).filter(is_one).take(2 * NODES_MAX).collect();
    mappings.sort_by_key(|mapping| Reverse(mapping.start));
    let fitting = |backend: &Backend| -> Vec<usize> {
        (0..mappings.len()).filter(|&at| backend.is(&mappings[at])).collect()
    };
    let all: Vec<Vec<usize>> = told.iter().map(|(_, backend)| fitting(backend)).collect();
    let heap = maps.lines().find(|line| line.ends_with("[heap]")).and_then(mapping_of);
    let goes_down = heap.is_none_or(|heap| mappings.iter().all(|it| it.start > heap.start));
    let mut nodes = Vec::new();
    for ((vcpus, backend), its) in told.iter().zip(&all) {
        // Those that fit it fit as many others: of these, the first has the highest.
        let alike = || told.iter().zip(&all).filter(|(_, other)| *other == its);
        let place = alike().filter(|((_, other), _)| other.place < backend.place).count();
        if its.len() != alike().count() || (its.len() > 1 && !goes_down) {
            return Err(NOT_FOUND);
        }
        let Mapping { start, end, .. } = mappings[its[place]];
        nodes.push(VirtualNode { vcpus: *vcpus, start, end });
    }
    let starts: BTreeSet<u64> = nodes.iter().map(|node| node.start).collect();
    if starts.len() < nodes.len() { Err(NOT_FOUND) } else { Ok(nodes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The mappings of a QEMU 10 with libvirt's options. Of equal backends, the first has the highest address.
    const MAPS: &str = "\
55579b50d000-55579c772000 rw-p 00000000 00:00 0                          [heap]
7f9110000000-7f9118000000 rw-p 00000000 00:00 0 
7f9120000000-7f9124000000 ---p 00000000 00:00 0 
7f9127dfe000-7f912bdfe000 rw-s 00000000 fe:00 9977928                    /dev/hugepages/qemu_back_mem.n2.x4vVmD (deleted)
7f912fdfe000-7f9133dfe000 rw-s 00000000 00:01 749                        /memfd:memory-backend-memfd (deleted)
7f9137e00000-7f913fe00000 rw-p 00000000 00:00 0 
7f9140000000-7f9144000000 r--s 00000000 fe:00 17                         /var/lib/ram/n2
7f9150000000-7f9154000000 rw-s 00000000 fe:00 18                         /var/lib/ram/n3
";

    fn guest(line: &str) -> Guest {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Guest::of(&args, MAPS, &|address| (address == "0000:3b:00.0").then_some(1))
    }

    fn nodes(line: &str) -> Vec<(u32, u64)> {
        let guest = guest(line);
        assert_eq!(guest.not_followed, None, "{line}");
        guest.nodes.iter().map(|node| (node.vcpus, node.start)).collect()
    }

    const TWO: &str = "qemu -object memory-backend-ram,id=a,size=128M -object \
        memory-backend-ram,id=b,size=134217728 ";

    #[test]
    fn equal_backends_are_told_apart_by_their_order() {
        let (upper, lower) = (0x7f91_37e0_0000, 0x7f91_1000_0000);
        let line = format!("{TWO} -numa node,cpus=0-3,memdev=a -numa node,cpus=4-5,memdev=b");
        assert_eq!(nodes(&line), [(4, upper), (2, lower)]);
        let line = format!(
            "{TWO} -numa dist,src=0,dst=1,val=20 --numa node,nodeid=0,cpus=2,cpus=3,memdev=a \
             -numa node,nodeid=1,memdev=b,cpus=0-1"
        );
        assert_eq!(nodes(&line), [(2, lower), (2, upper)], "in the order of their vCPUs");
    }

    #[test]
    fn files_have_names_and_libvirt_writes_json() {
        let line = r#"qemu -object {"qom-type":"memory-backend-memfd","id":"n1","size":67108864}
            -object {"qom-type":"memory-backend-file","id":"n2","mem-path":"/dev/hugepages","size":67108864}
            -object memory-backend-file,id=n3,mem-path=/var/lib/ram/n3,size=65536K
            -numa node,cpus=0,memdev=n1 -numa node,cpus=1,memdev=n2 -numa node,cpus=2,memdev=n3"#;
        let starts = [0x7f91_2fdf_e000, 0x7f91_27df_e000, 0x7f91_5000_0000];
        assert_eq!(nodes(line), starts.map(|start| (1, start)));
    }

    #[test]
    fn what_is_not_understood_is_named_and_one_node_is_none() {
        for (numa, words) in [
            ("-numa node,cpus=0,memdev=a -numa node,cpus=2,memdev=b", "have gaps"),
            ("-numa node,cpus=0-1,memdev=a -numa node,cpus=1-2,memdev=b", "belong to several"),
            ("-numa node,cpus=0,cpus=2,memdev=a -numa node,cpus=1,memdev=b", "not in one piece"),
            ("-numa node,cpus=0-99999,memdev=a -numa node,cpus=1,memdev=b", "not in one piece"),
            ("-numa node,cpus=0,memdev=a -numa node,memdev=b", "not in one piece"),
            ("-numa node,cpus=0,memdev=a -numa node,cpus=1,mem=64", "no memory backend"),
            ("-numa node,cpus=0,memdev=a -numa node,cpus=1,memdev=a", "no memory backend"),
            ("-numa node,memdev=a -numa node,memdev=b -numa cpu,node-id=0", "not in one piece"),
            (
                "-object memory-backend-ram,id=c,size=128M -numa node,cpus=0,memdev=a \
                 -numa node,cpus=1,memdev=b -numa node,cpus=2,memdev=c",
                "cannot be told",
            ),
            (
                "-object memory-backend-memfd,id=c,size=128M -numa node,cpus=0,memdev=a \
                 -numa node,cpus=1,memdev=c",
                "cannot be told",
            ),
        ] {
            let guest = guest(&format!("{TWO} {numa}"));
            assert!(guest.not_followed.is_some_and(|why| why.contains(words)), "{numa}: {guest:?}");
            assert_eq!(guest.nodes, []);
        }
        for numa in ["", "-numa", "-numa node", "-numa node,cpus=0-3,memdev=a"] {
            assert_eq!(nodes(&format!("{TWO} {numa}")), []);
        }
        let upwards = MAPS.replace("55579b50d000-55579c772000", "7ff000000000-7ff000100000");
        let line = format!("{TWO} -numa node,cpus=0,memdev=a -numa node,cpus=1,memdev=b");
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        assert!(Guest::of(&args, &upwards, &|_| None).not_followed.is_some());
    }

    #[test]
    fn devices_have_the_node_of_the_first_that_has_one() {
        for (device, node) in [
            ("vfio-pci,host=3b:00.0,id=nic", Some(1)),
            (r#"{"driver":"vfio-pci","host":"0000:3b:00.0"}"#, Some(1)),
            ("vfio-pci-nohotplug,sysfsdev=/sys/bus/pci/devices/0000:3b:00.0", Some(1)),
            ("vfio-pci,host=0000:00:00.0 -device vfio-pci,host=3b:00.0", Some(1)),
            ("vfio-pci,sysfsdev=/sys/bus/mdev/devices/83b8f4f2-509f-382f-3c1e", None),
            ("vfio-pci,host=../../../etc", None),
            ("virtio-net-pci,host=3b:00.0", None),
        ] {
            assert_eq!(guest(&format!("qemu -device {device}")).device, node, "{device}");
        }
    }

    #[test]
    fn sizes_have_suffixes() {
        let sizes = ["4096", "4K", "2M", "1G", "1T", "0", "1.5G", "-1", "99999999T", "", "M"];
        let bytes = [12, 12, 21, 30, 40].map(|shift| Some(1u64 << shift));
        assert_eq!(sizes.map(bytes_of)[..5], bytes);
        assert_eq!(sizes.map(bytes_of)[5..], [None; 6]);
    }

    proptest! {
        /// Whatever is written there: no panic, no more nodes than QEMU has, in mappings that are there.
        #[test]
        fn command_lines_may_say_anything(
            words in prop::collection::vec(
                prop_oneof![
                    "-(numa|object|device)",
                    "(node|cpu|memory-backend-(ram|memfd|file)|vfio-pci)(,(cpus|memdev|size|id|mem-path|host)=\\PC{0,6}){0,5}",
                    "node,cpus=[0-9]{1,10}(-[0-9]{1,10})?,memdev=[ab]",
                    "memory-backend-(ram|memfd),id=[ab],size=(128M|64M|[0-9]{0,20}[TGE]?)",
                    "\\{(\"(size|id|qom-type)\":(\\[|\"|[0-9]|\\}){0,9},?){0,3}\\}",
                    "\\PC{0,20}",
                ],
                0..24,
            ),
        ) {
            let guest = Guest::of(&words, MAPS, &|_| Some(3));
            prop_assert!(guest.nodes.is_empty() || guest.not_followed.is_none());
            prop_assert!(guest.nodes.len() != 1 && guest.nodes.len() <= NODES_MAX);
            for node in &guest.nodes {
                let mapping = format!("{:x}-{:x} rw", node.start, node.end);
                prop_assert!(MAPS.contains(&mapping));
                prop_assert!((1..=VCPUS_MAX).contains(&node.vcpus));
            }
        }
    }
}
