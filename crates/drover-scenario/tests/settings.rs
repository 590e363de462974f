// SPDX-License-Identifier: GPL-2.0-only
//! What `--set` lays over a scenario, and what of it is refused.

use drover_core::params::Params;
use drover_scenario::{Clock, Scenario};

const FILE: &str = r#"name = "x"
host = "two.toml"
[[vm]]
name = "web"
vcpus = 2
workload = { kind = "cpu" }
[[vm]]
name = "db"
vcpus = 2
workload = { kind = "cpu", duty_pct = 50 }
[[case]]
name = "1:7"
"#;

fn read(set: &[&str]) -> Result<Scenario, String> {
    let set: Vec<String> = set.iter().map(|&it| it.to_owned()).collect();
    let file = |name: &str| match name {
        "two.toml" => Ok("# two\ncores = 2\n".to_owned()),
        _ => Err("no such file".to_owned()),
    };
    Scenario::parse_set(FILE, "dir/x.toml", &file, &set).map_err(|error| error.to_string())
}

fn refused(setting: &str) -> String {
    let line = read(&[setting]).unwrap_err();
    assert!(line.starts_with(&format!("--set {setting}: ")) && !line.contains('\n'), "{line}");
    line
}

#[test]
fn any_key_is_set_by_its_path() {
    let scenario = read(&[
        "host.cores=16",
        "vm.web.shares=high",
        "vm.db.workload.duty_pct = 25",
        "clock=real",
        "seed=7",
        "duration_s=1",
        "schedulers=[\"drover\"]",
        "case.\"1:7\".vm.db.vcpus=3",
    ])
    .unwrap();
    assert_eq!((scenario.host.pcpus(), scenario.clock, scenario.seed), (16, Clock::Real, 7));
    assert_eq!((scenario.duration_s, scenario.schedulers.len()), (1.0, 1));
    let [web, db] = &scenario.cases[0].vms[..] else { panic!("two VMs") };
    assert_eq!((web.shares_of_all(), db.vcpus), (4000, 3));
    assert!(format!("{:?}", db.workload).contains("25"), "{:?}", db.workload);
    assert_eq!(read(&["vm.\"*\".shares=5"]).unwrap().cases[0].vms[1].shares_of_all(), 5);
    assert_eq!(read(&["host={ cores = 3 }"]).unwrap().host.pcpus(), 3);
    assert_eq!(read(&["host.cores=3", "host.cores=5"]).unwrap().host.pcpus(), 5);
}

#[test]
fn parameters_of_the_policy_are_set_by_their_names() {
    assert_eq!(read(&[]).unwrap().policy, Params::default());
    let policy = read(&["slice_ms=2", "policy.preempt_gain_ms=0.5"]).unwrap().policy;
    assert_eq!((policy.slice_ns, policy.preempt_gain_ns), (2_000_000, 500_000));
}

#[test]
fn what_cannot_be_set_is_refused_in_one_line_that_names_the_nearest() {
    for (setting, said) in [
        ("host.croes=16", "did you mean \"cores\"?"),
        ("hots.cores=16", "did you mean \"host\"?"),
        ("slcie_ms=2", "did you mean \"slice_ms\"?"),
        ("policy.slise_ms=2", "did you mean \"slice_ms\"?"),
        ("duratoin_s=2", "did you mean \"duration_s\"?"),
        ("vm.wab.shares=1", "there is no [[vm]] \"wab\"; did you mean \"web\"?"),
        ("vm.web.share=1", "did you mean \"shares\"?"),
        ("case.\"1:8\".ple=true", "did you mean \"1:7\"?"),
        ("vm.web=1", "is a table of [[vm]]"),
        ("name.x=1", "name is no table"),
        ("host.cores=0", "cores = 0 is invalid in [host]; give a whole number from 1 to 1024"),
        ("host.cores=many", "cores = \"many\" is invalid in [host]"),
        ("slice_ms=0", "give a number from 0.1 to 1000"),
        ("host=\"three.toml\"", "cannot read dir/three.toml: no such file"),
        ("cores", "give KEY=VALUE"),
        ("=3", "give KEY=VALUE"),
        ("seed=", "give KEY=VALUE"),
    ] {
        let line = refused(setting);
        assert!(line.contains(said), "{line}");
    }
}

#[test]
fn faults_of_files_keep_their_lines() {
    let file = |_: &str| Ok("# two\ncroes = 2\n".to_owned());
    let set = ["host.threads=2".to_owned()];
    let error = Scenario::parse_set(FILE, "dir/x.toml", &file, &set).unwrap_err();
    assert!(error.to_string().starts_with("dir/two.toml:2: unknown key \"croes\""), "{error}");
    let file = |_: &str| Ok("cores = 2\n".to_owned());
    let broken = FILE.replace("vcpus = 2", "vcpu = 2");
    let error = Scenario::parse_set(&broken, "x.toml", &file, &["seed=3".to_owned()]);
    assert!(error.unwrap_err().to_string().starts_with("x.toml:5: unknown key"));
}
