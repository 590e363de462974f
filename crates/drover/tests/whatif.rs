// SPDX-License-Identifier: GPL-2.0-only
//! `drover whatif` on a scenario: who would wait where more VMs come, and what cannot be asked.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

const SCENARIO: &str = r#"name = "s"
schedulers = ["eevdf"]
host = { cores = 4 }
[[vm]]
name = "web"
vcpus = 1
workload = { kind = "program", steps = ["compute 5 ms", "sleep 5 ms", "count"] }
[[vm]]
name = "db"
vcpus = 2
reservation_pct = 100
workload = { kind = "cpu" }
"#;

struct File {
    dir: tempfile::TempDir,
}

impl File {
    fn new(text: &str) -> Self {
        let file = Self { dir: tempfile::tempdir().unwrap() };
        fs::write(file.path("s.toml"), text).unwrap();
        file
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn ask(&self, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command.arg("whatif").arg(self.path("s.toml")).args(more).output().unwrap()
    }

    fn answer(&self, more: &[&str]) -> String {
        let output = self.ask(more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn refusal(&self, more: &[&str]) -> String {
        let output = self.ask(more);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.lines().count() == 1, "{text}");
        assert!(output.stdout.is_empty());
        text
    }
}

/// The words of the line that begins so.
fn row<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let line = page.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap_or_else(|| panic!("{name}: {page}")).split_whitespace().collect()
}

#[test]
fn vms_that_come_wait_where_there_is_no_room() {
    let file = File::new(SCENARIO);
    let json = file.path("out.json");
    let page = file.answer(&["--add", "7xweb", "--json", json.to_str().unwrap()]);
    assert!(page.starts_with("eevdf: ") && page.contains("web (more than now)"), "{page}");
    assert_eq!(row(&page, "web")[1..4], ["1", "8", "0.50"], "{page}");
    assert!(page.contains(" of 4 pCPUs idle, 2.6 can still be promised."), "{page}");
    let results: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let cases: Vec<_> =
        results["runs"].as_array().unwrap().iter().map(|run| &run["case"]).collect();
    assert_eq!(cases, ["now", "then"]);
    assert_eq!(results["runs"][1]["vms"].as_array().unwrap().len(), 9);
}

#[test]
fn with_fewer_vms_or_more_pcpus_nobody_waits_and_what_fits_is_told() {
    let file = File::new(SCENARIO);
    let page = file.answer(&["--remove", "db"]);
    assert!(page.starts_with("eevdf: nobody waits"), "{page}");
    assert_eq!(row(&page, "db")[1..3], ["1", "-"], "{page}");
    // 3.5 pCPUs are idle, and web uses half of one.
    assert!(
        page.contains("That is room for 7 x web") || page.contains("That is room for 6 x web"),
        "{page}"
    );
    let page = file.answer(&["--pcpus", "8", "--add", "7xweb", "--scheduler", "eevdf,drover"]);
    assert!(page.contains("drover: nobody waits"), "{page}");
}

#[test]
fn settings_may_begin_with_a_vm() {
    let file = File::new(SCENARIO);
    let page = file.answer(&["--set", "web.limit_pct=10", "--scheduler", "drover"]);
    let used: Vec<f64> = row(&page, "web")[3..5].iter().map(|it| it.parse().unwrap()).collect();
    assert!(used[0] > 0.45 && used[1] < 0.15, "{page}");
}

#[test]
fn what_cannot_be_is_told_in_a_line() {
    let file = File::new(SCENARIO);
    for (more, said) in [
        (&[][..], "nothing would change: give --add"),
        (&["--add", "wab"], "there is no VM \"wab\"; did you mean \"web\""),
        (&["--add", "0xweb"], "10xweb"),
        (&["--add", "3xdb"], "VM \"db+3\": "),
        (&["--remove", "*"], "no VM is left"),
        (&["--set", "web.sharse=1"], "did you mean \"shares\""),
        (&["--set", "web.vcpus=0"], "give a whole number"),
        (&["--pcpus", "0"], "--pcpus"),
        (&["--add", "web", "--scheduler", "none"], "none"),
        (&["--add", "web", "--duration", "0"], "--duration: use 0.05 to 3600"),
    ] {
        let line = file.refusal(more);
        assert!(line.contains(said), "{more:?}: {line}");
    }
    let cases = format!("{SCENARIO}[[case]]\nname = \"one\"\n[[case]]\nname = \"two\"\n");
    let file = File::new(&cases);
    assert!(
        file.refusal(&["--add", "web"]).contains("several cases: say which with --only: one, two")
    );
    file.answer(&["--add", "web", "--only", "two"]);
    let cut = File::new("drover recording 1\nH");
    assert!(cut.refusal(&["--add", "web"]).contains("the recording ends before its head"));
}
