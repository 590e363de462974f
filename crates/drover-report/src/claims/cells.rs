// SPDX-License-Identifier: GPL-2.0-only
//! Drover with nothing set beside EEVDF, in each case of the documents' scenarios: docs/seeds/eevdf.json.

use serde::{Deserialize, Serialize};

/// What VMs that do the same work have under Drover, beside EEVDF.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The scenario.
    pub scenario: String,
    /// Its case.
    pub case: String,
    /// Which VMs, where others do other work; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vms: String,
    /// What is compared; more is better.
    pub figure: String,
    /// How many times EEVDF's it is: the median of the seeds of randomness.
    pub ratio: f64,
    /// The least of the seeds.
    pub least: f64,
    /// The most of them.
    pub most: f64,
    /// Why it is less, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Cell {
    /// What Drover is to have of EEVDF's figure.
    const ASKED: f64 = 0.99;

    /// Whether Drover has less than that.
    pub fn is_behind(&self) -> bool {
        self.ratio < Self::ASKED
    }
}

/// The cells as JSON, a line each.
///
/// # Errors
/// None that is known.
pub fn write_cells(cells: &[Cell]) -> Result<String, serde_json::Error> {
    let lines = cells.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

/// The cells in which Drover is behind: a row for each scenario, figure and cause.
pub(super) fn behind(cells: &[Cell]) -> String {
    let behind: Vec<&Cell> = cells.iter().filter(|cell| cell.is_behind()).collect();
    let mut text = format!(
        "\n## Where Drover is behind EEVDF\n\nEach case of these scenarios, with nothing set that only Drover knows: {} figures, of the \
         work of VMs that do the same and of how soon their vCPUs run once woken. In {} Drover has less than 0.99 of what EEVDF \
         has (the median, with the least and the most of the seeds). All are in [eevdf.json](seeds/eevdf.json).\n",
        cells.len(),
        behind.len()
    );
    if behind.is_empty() {
        return text;
    }
    text += "\n| scenario | of EEVDF's | case: how much | why |\n|---|---|---|---|\n";
    let alike =
        |a: &&Cell, b: &&Cell| (&a.scenario, &a.figure, &a.why) == (&b.scenario, &b.figure, &b.why);
    for of in behind.chunk_by(alike) {
        let each: Vec<String> = of.iter().map(|cell| one(cell)).collect();
        let why = of[0].why.as_deref().unwrap_or("not known");
        text +=
            &format!("| {} | {} | {} | {why} |\n", of[0].scenario, of[0].figure, each.join("; "));
    }
    text
}

fn one(cell: &Cell) -> String {
    let vms = if cell.vms.is_empty() { String::new() } else { format!(" ({})", cell.vms) };
    format!("{}{vms}: {:.3} ({:.3} to {:.3})", cell.case, cell.ratio, cell.least, cell.most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_that_are_behind_stand_together_with_their_cause() {
        let cell = |case: &str, ratio: f64| Cell {
            scenario: "s".to_owned(),
            case: case.to_owned(),
            vms: String::new(),
            figure: "work".to_owned(),
            ratio,
            least: ratio - 0.01,
            most: ratio + 0.01,
            why: (ratio < 0.99).then(|| "slices".to_owned()),
        };
        let text = behind(&[cell("a", 0.95), cell("b", 0.9), cell("c", 0.99)]);
        assert!(text.contains("3 figures") && text.contains("In 2 Drover"), "{text}");
        let row = "| s | work | a: 0.950 (0.940 to 0.960); b: 0.900 (0.890 to 0.910) | slices |\n";
        assert!(text.ends_with(row), "{text}");
        assert!(behind(&[cell("c", 1.0)]).contains("In 0 Drover"));
    }
}
