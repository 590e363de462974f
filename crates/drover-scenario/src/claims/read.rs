// SPDX-License-Identifier: GPL-2.0-only
//! Reads `scenarios/seeds/claims.toml`.

use super::{Behind, Cause, Claim, DOCUMENTS, JudgedBy, Kind};
use drover_core::tables;
use drover_core::toml_file::{FileError, Read, Source, Table};

use serde::de::IgnoredAny;

tables! {
    "top level" ClaimsFile {
        claim: Option<IgnoredAny>;
        behind: Option<IgnoredAny>;
    }

    "[[behind]]" BehindTable {
        scenario: String;
        figure: String;
        cases: Option<Vec<String>>;
        why: String;
    }

    "[[claim]]" ClaimTable {
        id: String;
        section: String;
        host: String;
        vms: String;
        workload: String;
        compares: String;
        metric: String;
        says: String;
        kind: Kind;
        quote: String;
        judged_by: Option<JudgedBy>;
        tests: Option<Vec<String>>;
        pending: Option<String>;
        outside: Option<String>;
        cause: Option<Cause>;
        note: Option<String>;
    }
}

/// Reads claims; `file` is the file's name in messages.
///
/// # Errors
/// The first fault: where, what, and how to fix it.
pub fn parse(text: &str, file: &str) -> Result<Vec<Claim>, FileError> {
    let read = |_: &str| Err("claims name no files".to_owned());
    let source = Source::new(file, text, "scenarios/seeds/claims.toml", &read);
    let tables = source.table()?.read::<ClaimsFile>()?.tables::<ClaimTable>("claim")?;
    let mut claims: Vec<Claim> = Vec::new();
    for table in &tables {
        let claim = read_claim(table)?;
        if claims.iter().any(|other| other.id == claim.id) {
            let what = format!("two claims have the id \"{}\"", claim.id);
            return Err(table.error("id", what, "give each its own"));
        }
        claims.push(claim);
    }
    Ok(claims)
}

/// Reads why Drover is behind EEVDF where it is.
///
/// # Errors
/// The first fault: where, what, and how to fix it.
pub fn parse_behind(text: &str, file: &str) -> Result<Vec<Behind>, FileError> {
    let read = |_: &str| Err("claims name no files".to_owned());
    let source = Source::new(file, text, "scenarios/seeds/claims.toml", &read);
    let tables = source.table()?.read::<ClaimsFile>()?.tables::<BehindTable>("behind")?;
    let behind = |table: &Table<BehindTable>| Behind {
        scenario: table.scenario.clone(),
        figure: table.figure.clone(),
        cases: table.cases.clone(),
        why: table.why.clone(),
    };
    Ok(tables.iter().map(behind).collect())
}

fn read_claim(table: &Table<ClaimTable>) -> Read<Claim> {
    let claim = Claim {
        id: table.id.clone(),
        section: table.section.clone(),
        says: table.says.clone(),
        kind: table.kind,
        judged_by: table.judged_by.unwrap_or_default(),
        tests: table.tests.clone().unwrap_or_default(),
        pending: table.pending.clone(),
        outside: table.outside.clone(),
        cause: table.cause,
        note: table.note.clone(),
    };
    if DOCUMENTS.iter().all(|(number, _)| *number != claim.document()) {
        let what = format!("claim \"{}\" is of no document", claim.id);
        return Err(table.error("id", what, "begin it with 000- to 004-"));
    }
    Ok(claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[[claim]]\nid = \"000-a\"\nsection = \"2.1\"\nhost = \"-\"\nvms = \"any\"\n\
        workload = \"any\"\ncompares = \"-\"\nmetric = \"time\"\nsays = \"Twice.\"\nkind = \"number\"\n\
        quote = \"twice\"\n";

    #[test]
    fn causes_of_what_is_behind_read() {
        let text =
            format!("{GOOD}[[behind]]\nscenario = \"s\"\nfigure = \"work\"\nwhy = \"slices\"\n");
        let behind = parse_behind(&text, "c.toml").unwrap();
        assert!(behind[0].is_of("s", "any", "work") && !behind[0].is_of("s", "any", "wait"));
        assert!(parse(&text, "c.toml").is_ok());
        let error = parse_behind("[[behind]]\nscenario = \"s\"\n", "c.toml").unwrap_err();
        assert!(error.to_string().starts_with("c.toml:1: "), "{error}");
    }

    #[test]
    fn claims_read_and_each_fault_has_its_line() {
        let claims = parse(GOOD, "c.toml").unwrap();
        assert_eq!((claims[0].id.as_str(), claims[0].kind), ("000-a", Kind::Number));
        for (text, fault) in [
            (format!("{GOOD}{GOOD}"), "c.toml:13: two claims have the id \"000-a\""),
            (GOOD.replace("000-a", "005-a"), "c.toml:2: claim \"005-a\" is of no document"),
            (GOOD.replace("number", "figure"), "c.toml:10: unknown kind \"figure\""),
            (format!("{GOOD}test = \"x\"\n"), "c.toml:12: unknown key \"test\""),
        ] {
            let error = parse(&text, "c.toml").unwrap_err().to_string();
            assert!(error.starts_with(fault), "{error}");
        }
    }
}
