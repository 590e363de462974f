// SPDX-License-Identifier: GPL-2.0-only
//! The page of `drover report` in a browser: headless Chromium, where there is one.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use drover_report::html::{Report, Timeline, page};
use drover_scenario::schedule::{Schedule, ScheduledVm, Span, Wait, Who};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Does what a reader does, and writes what came of it into the page, a line each.
const READER: &str = r#"
<script>
const seen = [];
// Without a window no frames are drawn.
window.requestAnimationFrame = draw => setTimeout(draw, 0);
const frame = () => new Promise(done => setTimeout(done, 50));
const canvas = document.querySelector('canvas.schedule');
const at = (part, row) => {
	const box = canvas.getBoundingClientRect();
	return {clientX: box.left + 62 + part * (box.width - 62), clientY: box.top + row, bubbles: true};
};
const view = async what => {
	await frame();
	seen.push(what + ' ' + canvas.dataset.view);
};
const button = label => document.querySelector(`button[aria-label="${label}"]`);
(async () => {
	await view('all');
	button('Zoom in').click();
	await view('in');
	button('Show all').click();
	canvas.dispatchEvent(new WheelEvent('wheel', {deltaY: -1, cancelable: true, ...at(0, 5)}));
	await view('wheel');
	canvas.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', cancelable: true}));
	await view('right');
	button('Show all').click();
	await frame();
	canvas.dispatchEvent(new PointerEvent('pointermove', at(0.25, 5)));
	seen.push(document.getElementById('tip').textContent.split(', at ')[0]);
	seen.push(document.querySelectorAll('section').length + ' sections');
	seen.push('fits: ' + (document.documentElement.scrollWidth <= innerWidth));
	const text = document.createElement('pre');
	text.id = 'seen';
	text.textContent = seen.join('\n');
	document.body.append(text);
})();
</script>
"#;

#[test]
fn a_reader_clicks_zooms_and_hovers_and_the_browser_has_no_complaint() {
    let Some(browser) = BROWSERS.into_iter().find(|name| is_there(name)) else {
        // Past the harness, which keeps what passing tests print to itself.
        let _ = writeln!(io::stderr(), "page: skipped: no Chromium; apt-get install chromium");
        return;
    };
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join("page.html");
    let text = page(&report()).replace("</body>", &format!("{READER}</body>"));
    fs::write(&file, text).unwrap();
    for width in [1280, 500] {
        let seen = seen(browser, &dir, &file, width);
        assert_eq!(
            seen,
            [
                "all 0 200000000",
                "in 50000000 150000000",
                "wheel 0 160000000",
                "right 32000000 192000000",
                "&lt;b&gt;web&lt;/b&gt;/1 on pCPU 0, ran 100.000 ms",
                "4 sections",
                "fits: true",
            ],
            "{width} wide"
        );
    }
}

/// What the reader saw in a window so wide.
fn seen(browser: &str, dir: &Path, file: &Path, width: u32) -> Vec<String> {
    let ran = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .args(["--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("--window-size={width},900"))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let (dom, log) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let complaints: Vec<_> = log.lines().filter(|line| line.contains(":CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    let (_, seen) = dom.split_once("<pre id=\"seen\">").unwrap_or_else(|| panic!("{log}\n{dom}"));
    let (seen, _) = seen.split_once("</pre>").unwrap();
    seen.lines().map(str::to_owned).collect()
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|ran| ran.status.success())
}

/// Two runs of a VM whose name would be a tag if it were not text.
fn report() -> Report {
    let run = |scheduler: &str| Schedule {
        case: "beside".to_owned(),
        scheduler: scheduler.to_owned(),
        from_s: 0.0,
        length_ns: 200_000_000,
        pcpus: 2,
        vms: vec![ScheduledVm { name: "<b>web</b>".to_owned(), vcpus: 2 }],
        spans: vec![Span { pcpu: 0, from_ns: 0, to_ns: 100_000_000, who: Who::Vcpu(0, 1) }],
        waits: vec![Wait { vm: 0, vcpu: 0, from_ns: 0, to_ns: 3_000_000 }],
    };
    Report {
        title: "two".to_owned(),
        about: vec!["200 ms".to_owned()],
        tables: "a table".to_owned(),
        timelines: ["eevdf", "drover"].map(|name| Timeline::of_schedule(&run(name))).into(),
    }
}
