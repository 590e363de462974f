// SPDX-License-Identifier: GPL-2.0-only
//! docs/seeds.md: what came of the documents' claims, on one page.

use super::{Cell, Row, cells};
use drover_scenario::claims::{Cause, DOCUMENTS, Kind};
use std::collections::BTreeSet;

/// The page.
pub fn page(rows: &[Row], cells: &[Cell]) -> String {
    [
        HEAD,
        &earlier(rows),
        &summary(rows),
        ABOUT,
        &pictures(rows),
        &misses(rows),
        &cells::behind(cells),
        &beside(rows),
    ]
    .concat()
}

const HEAD: &str = "\
# What the seed documents say, and what we measure

Written by `make seeds`. The five documents Drover comes from make 197 claims about how a system behaves. The simulator measures
each: the median of 5 seeds of randomness. All rows, with figures, pictures and notes: [000](seeds/000.md), [001](seeds/001.md),
[002](seeds/002.md), [003](seeds/003.md), [004](seeds/004.md), and as data in [claims.json](seeds/claims.json).

- A **number** holds when the median and four of the five seeds are within 10 % or 3 percentage points, whichever is more, and is *near* when the
  median is within twice that. Of a ratio the change counts.
- A **direction** holds when every seed is as said, and is *near* when only the median is.
- A **mechanism** is shown by a test that fails when the mechanism is taken out ([mechanisms.md](mechanisms.md)).
- *Pending*: it could be shown and is not. *Outside*: no scheduler is in it (a device, a setting, a unit).

Bounds come from the documents' words, never from what was measured. Fitted to rows, which say so, are SPECjbb's misses, kernel-compile's
working set, what a piece of I/O costs dom0, how long dbench and `lru_lock` are held, and the work between two stops of a boot; SPECjbb's
traffic to a measurement of none of the documents. All else is predicted. Values of most figures are lost with their pictures: then the direction that the text gives is the claim.
";

const ABOUT: &str = "
## The documents

- **000** tells how ESX divides CPU time by shares, reservations and limits, and keeps the vCPUs of a VM in step. ESX 4 stops only the vCPU that is
  ahead, and has no cells of pCPUs any more, so load spreads over more caches. It measures less co-scheduling overhead and more
  throughput than ESX 3.5, and more again where a wide VM spreads over nodes. Models of both, `esx4` and `esx35`, are compared here, and Drover stands beside them.
- **001** shows that one scheduler serves computing VMs and I/O VMs badly, as the driver domain is scheduled in and out. Pools of pCPUs with a scheduler
  each give I/O short waits and computing long slices, at little CPU time lost. A VM in the wrong pool loses, so a monitor should place VMs. Drover has these
  as partitions and `drover partition auto`.
- **002** finds that pause-loop exiting helps VMs of ten vCPUs and fails at twenty, where directed yields fight over locks in the host. Gangs do four times as
  much, and so does a patch that throttles yields and keeps siblings apart. Big VMs gain by virtual nodes that lie where their vCPUs run. Drover throttles yields,
  keeps siblings in rounds and places virtual nodes by itself.
- **003** places Xen VMs on NUMA nodes when they start, by free memory, and prefers near pCPUs without pinning. That brings 12 to 18 % over the worst case, and
  nearly as much as pins. It expects the heuristic that spreads VMs to be best, and less gain with more VMs. Drover chooses homes by wanted pCPUs and memory, and moves VMs and memory later, too.
- **004** compares six ways to pin VMs with automatic placement on a host of 384 CPUs. For computing, pins saturate earlier and the gap closes with
  load; for OLTP default and relaxed pins win. Pins make results more consistent, and worst waits shorter. Drover runs the same cases beside EEVDF.
";

/// The scenarios whose rows were measured before sources that they hang on changed.
fn earlier(rows: &[Row]) -> String {
    let files = rows.iter().filter(|row| row.earlier).flat_map(|row| &row.files);
    let files: BTreeSet<String> = files.map(|file| format!("`{file}`")).collect();
    let files: Vec<String> = files.into_iter().collect();
    match files.is_empty() {
        true => String::new(),
        false => format!(
            "\nKept from an earlier run, before simulator, policy or scenario changed: rows of {}.\n",
            files.join(", ")
        ),
    }
}

/// The picture of each document.
fn pictures(rows: &[Row]) -> String {
    let mut text = "\n## Said and measured\n".to_owned();
    for (number, title) in DOCUMENTS {
        if rows.iter().any(|row| row.document() == number && row.numbers.is_some()) {
            text += &format!("\n![{number}, {title}: said and measured](seeds/{number}.svg)\n");
        }
    }
    text
}

const OUTCOMES: [&str; 6] = ["holds", "near", "not", "by test", "pending", "outside"];

fn counts(of: &[&Row]) -> String {
    let count = |outcome: &str| of.iter().filter(|row| row.standing == outcome).count().to_string();
    let counts: Vec<String> = OUTCOMES.into_iter().map(count).collect();
    format!("{} | {}", of.len(), counts.join(" | "))
}

/// How many claims hold, by document and by kind.
fn summary(rows: &[Row]) -> String {
    let columns = "claims | hold | near | not | by test | pending | outside |\n|---|---|---|---|---|---|---|---|\n";
    let mut text = format!("\n| document | {columns}");
    for (number, title) in DOCUMENTS {
        let of: Vec<&Row> = rows.iter().filter(|row| row.document() == number).collect();
        text += &format!("| {number}: {title} | {} |\n", counts(&of));
    }
    text += &format!("| all | {} |\n", counts(&rows.iter().collect::<Vec<_>>()));
    text += &format!("\n| kind | {columns}");
    let kinds = [
        ("numbers", Kind::Number),
        ("directions", Kind::Direction),
        ("mechanisms", Kind::Mechanism),
    ];
    for (name, kind) in kinds {
        let of: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
        text += &format!("| {name} | {} |\n", counts(&of));
    }
    text
}

/// Why claims are missed, and what is to be said of each cause.
const CAUSES: [(Cause, &str); 6] = [
    (Cause::Drover, "Drover does less, or otherwise"),
    (
        Cause::Price,
        "What costs time on a host costs too little in the simulator: locks, I/O paths, co-stops, idle states",
    ),
    (
        Cause::Memory,
        "Caches, links and memory of the model: misses are fitted elsewhere, and bring less",
    ),
    (Cause::StandIn, "The system compared with is a stand-in, or not understood in full"),
    (Cause::Document, "The document says too little, or contradicts itself"),
    (Cause::Noise, "The effect is as small as the spread between seeds"),
];

/// What is not as the documents say, by cause: the figure that decides, and what it is held against.
fn misses(rows: &[Row]) -> String {
    let mut text = "\n## What is not as said, by cause\n".to_owned();
    for (cause, title) in CAUSES {
        let of: Vec<&Row> =
            rows.iter().filter(|row| row.is_missed() && row.cause == Some(cause)).collect();
        text += &format!("\n**{title}** ({}):\n\n", of.len());
        for row in of {
            let near = if row.standing == "near" { " *(near)*" } else { "" };
            let measured = row.measured.as_deref().unwrap_or("not measured");
            let asked = row.asked.as_deref().unwrap_or("nothing");
            let verb = if asked.starts_with(['<', '>']) { "asked" } else { "said" };
            text += &format!("- `{}`{near}: {measured}, {verb} {asked}\n", row.claim);
        }
    }
    text
}

/// What Drover does where a document speaks of another system.
fn beside(rows: &[Row]) -> String {
    let mut text = "\n## What Drover does in the same place\n\nNot judged; the first such figure of each claim.\n\n".to_owned();
    for row in rows {
        let figure = row.drover.iter();
        text.extend(figure.map(|figure| format!("- `{}`: {figure}\n", row.claim)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Shown, document, lines, read, write};
    use super::*;
    use drover_scenario::claims::{Claim, JudgedBy, Measured};
    use drover_scenario::expect::{Expect, Metric, Verdict};
    use std::fs;
    use std::path::Path;

    fn shown(id: &str, kind: Kind, median: Option<f64>) -> Shown {
        let expect = Expect { published: Some(1.17), ..Expect::of(Metric::TotalProgress) };
        let row = drover_scenario::expect::Row {
            scheduler: "drover".to_owned(),
            case: Some("4.1".to_owned()),
            vm: None,
            metric: expect.metric,
            measured: median,
            range: median.map(|it| (it - 0.01, it + 0.01)),
            of_repeats: median.into_iter().collect(),
            published: expect.published,
            asked: ">= 1".to_owned(),
            verdict: Verdict::Pass,
            note: None,
        };
        let claim = Claim {
            id: id.to_owned(),
            section: "4.7".to_owned(),
            says: "17 | 18 percent.".to_owned(),
            kind,
            judged_by: JudgedBy::Each,
            tests: Vec::new(),
            pending: median.is_none().then(|| "no scenario yet".to_owned()),
            outside: None,
            cause: Some(Cause::Memory),
            note: Some("As fitted.".to_owned()),
        };
        let figure = ("scenarios/seeds/x.toml".to_owned(), Measured { expect, row });
        Shown { claim, figures: median.map(|_| figure).into_iter().collect() }
    }

    fn all() -> Vec<Shown> {
        let mut tested = shown("000-c", Kind::Mechanism, None);
        tested.claim.pending = None;
        tested.claim.tests = vec!["policy: share_test (x)".to_owned()];
        let mut outside = shown("001-e", Kind::Number, None);
        (outside.claim.pending, outside.claim.outside) = (None, Some("of devices".to_owned()));
        let mut beside = shown("000-b", Kind::Number, Some(9.5));
        beside.figures[0].1.expect.beside = true;
        let mut missed = shown("000-b", Kind::Number, Some(2.5));
        missed.figures.extend(beside.figures);
        let first = shown("000-a", Kind::Number, Some(1.16));
        vec![first, missed, tested, shown("001-d", Kind::Direction, None), outside]
    }

    #[test]
    fn the_page_counts_claims_and_tells_what_is_missed_by_cause() {
        let rows: Vec<Row> = all().iter().map(|it| Row::of(it, "1")).collect();
        let text = page(&rows, &[]);
        for part in [
            "2010 | 3 | 1 | 0 | 1 | 1 | 0 | 0 |",
            "| all | 5 | 1 | 0 | 1 | 1 | 1 | 1 |",
            "| numbers | 3 | 1 | 0 | 1 | 0 | 0 | 1 |",
            "bring less** (1):\n\n- `000-b`: 2.50 (2.49 to 2.51), said 1.170\n",
            "- `000-b`: total progress, 4.1: 9.50 (9.49 to 9.51)\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(read(&write(&rows).unwrap()).unwrap(), rows);
        let lines = lines(&all());
        assert!(lines.starts_with("holds  000-a: total progress, 4.1: 1.160 ("), "{lines}");
        assert_eq!(lines.lines().count(), 2, "only what was measured");
    }

    #[test]
    fn a_document_has_each_picture_above_its_claims() {
        let rows: Vec<Row> = all().iter().map(|it| Row::of(it, "1")).collect();
        let pictures = BTreeSet::from(["x".to_owned()]);
        let text = document("000", &rows, &pictures) + &document("001", &rows, &pictures);
        for part in [
            "## x\n\n![x: said and measured](x.svg)\n\n| claim",
            "| `000-a` (4.7) | 17 \\| 18 percent. | total progress, 4.1: 1.160 (1.150 to 1.170), said 1.170 *As fitted.* | holds |",
            "<br>beside: total progress, 4.1: 9.50 (9.49 to 9.51) *As fitted.* | not |",
            "| policy: share_test (x) *As fitted.* |",
            "| pending: no scenario yet *As fitted.* |",
            "| outside: of devices *As fitted.* |",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(text.matches("![").count(), 1);
    }

    /// The pages say what the data say; with `DROVER_WRITE_DOCS` set they are written anew.
    #[test]
    fn the_published_pages_follow_from_the_published_data() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let text = fs::read_to_string(docs.join("seeds/claims.json")).unwrap();
        let rows = read(&text).unwrap();
        let cells = fs::read_to_string(docs.join("seeds/eevdf.json")).unwrap();
        let cells: Vec<Cell> = serde_json::from_str(&cells).unwrap();
        assert_eq!(write(&rows).unwrap(), text, "claims.json is as `make seeds` writes it");
        let names = fs::read_dir(docs.join("seeds")).unwrap().map(|it| it.unwrap().path());
        let pictures = names.filter(|it| it.extension().is_some_and(|it| it == "svg"));
        let pictures: BTreeSet<String> =
            pictures.map(|it| it.file_stem().unwrap().to_string_lossy().into_owned()).collect();
        let of_documents = DOCUMENTS
            .map(|(number, _)| (format!("seeds/{number}.md"), document(number, &rows, &pictures)));
        for (file, text) in
            of_documents.into_iter().chain([("seeds.md".to_owned(), page(&rows, &cells))])
        {
            let file = docs.join(file);
            if std::env::var_os("DROVER_WRITE_DOCS").is_some() {
                fs::write(&file, &text).unwrap();
            }
            let published = fs::read_to_string(&file).unwrap_or_default();
            assert!(
                published == text,
                "{}: DROVER_WRITE_DOCS=1 cargo test -p drover-report pages",
                file.display()
            );
        }
    }
}
