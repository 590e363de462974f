// SPDX-License-Identifier: GPL-2.0-only
//! A sched_ext scheduler that is not ours: the least the kernel accepts.

use std::process::Command;

use libbpf_rs::{Link, MapCore, Object, ObjectBuilder};

const SOURCE: &str = r#"
struct sched_ext_ops { char name[128]; };
__attribute__((section(".struct_ops.link"), used))
struct sched_ext_ops foreign_ops = { .name = "foreign" };
char _license[] __attribute__((section("license"), used)) = "GPL";
"#;

/// Compiles it with the clang that compiled ours.
pub fn compile() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join("foreign.bpf.c"), dir.path().join("foreign.bpf.o"));
    std::fs::write(&source, SOURCE).unwrap();
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
    let open = ObjectBuilder::default().open_file(path).unwrap();
    let mut object = open.load().unwrap();
    let mut map = object.maps_mut().find(|map| map.name() == "foreign_ops").unwrap();
    let link = map.attach_struct_ops().unwrap();
    Foreign { _link: link, _object: object }
}
