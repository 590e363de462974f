// SPDX-License-Identifier: GPL-2.0-only
//! The picture of a document: each claim that was measured, and how far it is from what is said.

use super::{Row, figures};
use crate::picture::{Dot, Picture};
use crate::summary::Spread;
use drover_scenario::claims::Standing;

/// The picture; none where nothing of the document was measured.
pub fn dots(number: &str, rows: &[Row]) -> Option<Picture> {
    let of = rows.iter().filter(|row| row.document() == number);
    let dots: Vec<Dot> = of.filter_map(dot).collect();
    let title = format!(
        "Document {number}: what is measured, as a part of what is said. Of several figures of a claim the one that decides, with \
         the least and the most of five seeds of randomness."
    );
    Picture::of_dots(&title, &dots)
}

fn dot(row: &Row) -> Option<Dot> {
    let standing = match row.standing.as_str() {
        "holds" => Standing::Holds,
        "near" => Standing::Near,
        "not" => Standing::Not,
        _ => return None,
    };
    let of = row.numbers.filter(|of| of.said > 0.0)?;
    let (median, min, max) = (of.median / of.said, of.least / of.said, of.most / of.said);
    let asked = row.asked.clone().unwrap_or_default();
    // Its bounds, without what they are of.
    let said = asked.split(" of ").next().unwrap_or_default();
    Some(Dot {
        label: row.claim.split_once('-').map_or("", |(_, name)| name).to_owned(),
        said: said.to_owned(),
        measured: figures::precise(of.median),
        ratio: Spread { median, min, max },
        standing,
    })
}
