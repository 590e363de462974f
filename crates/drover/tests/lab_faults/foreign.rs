// SPDX-License-Identifier: GPL-2.0-only
//! A sched_ext scheduler that is not ours: the least the kernel accepts, for the host or for a cgroup.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use libbpf_rs::{Link, MapCore, Object, ObjectBuilder, OpenObject};

const SOURCE: &str = r#"
struct sched_ext_ops { char name[128]; MEMBERS };
__attribute__((section(".struct_ops.link"), used))
struct sched_ext_ops foreign_ops = { .name = "foreign" };
char _license[] __attribute__((section("license"), used)) = "GPL";
"#;

/// Where the number of its cgroup is in a sub-scheduler, behind the name.
const CGROUP_AT: usize = 128;

/// One for the host.
pub fn compile() -> Vec<u8> {
    compile_with("")
}

/// One for a cgroup: a sub-scheduler, which kernels know from 7.2 on.
pub fn compile_sub() -> Vec<u8> {
    compile_with("unsigned long long sub_cgroup_id;")
}

/// Compiles it with the clang that compiled ours.
fn compile_with(members: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join("foreign.bpf.c"), dir.path().join("foreign.bpf.o"));
    std::fs::write(&source, SOURCE.replace("MEMBERS", members)).unwrap();
    let versions = (16..40).rev().map(|major| format!("clang-{major}"));
    let compiled = std::iter::once("clang".to_owned()).chain(versions).any(|clang| {
        let arguments = ["-target", "bpf", "-g", "-O2", "-c"];
        let mut command = Command::new(clang);
        command.args(arguments).arg(&source).arg("-o").arg(&object);
        command.status().is_ok_and(|status| status.success())
    });
    assert!(compiled, "no clang compiles for BPF; run script/setup");
    std::fs::read(object).unwrap()
}

/// The foreign scheduler in force; gone when dropped.
pub struct Foreign {
    _link: Link,
    _object: Object,
}

/// Loads the compiled scheduler.
pub fn load(path: &str) -> Foreign {
    attach(ObjectBuilder::default().open_file(path).unwrap()).unwrap()
}

/// Loads the compiled sub-scheduler for that cgroup.
///
/// # Errors
/// When the kernel does not take it.
pub fn load_below(path: &str, cgroup: &Path) -> libbpf_rs::Result<Foreign> {
    let mut open = ObjectBuilder::default().open_file(path).unwrap();
    let mut map = open.maps_mut().find(|map| map.name() == "foreign_ops").unwrap();
    // A cgroup's number is that of its directory.
    let number = std::fs::metadata(cgroup).unwrap().ino().to_ne_bytes();
    let ops = map.initial_value_mut().unwrap();
    ops[CGROUP_AT..CGROUP_AT + number.len()].copy_from_slice(&number);
    attach(open)
}

fn attach(open: OpenObject) -> libbpf_rs::Result<Foreign> {
    let mut object = open.load()?;
    let mut map = object.maps_mut().find(|map| map.name() == "foreign_ops").unwrap();
    let link = map.attach_struct_ops()?;
    Ok(Foreign { _link: link, _object: object })
}
