// SPDX-License-Identifier: GPL-2.0-only
//! The known word nearest to a mistyped one.

use strsim::levenshtein;

/// The word of `known` that `word` was most likely meant to be; none when nothing is near.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters may be wrong: "shres" is shares, "colour" is nothing.
    let allowed = word.chars().count().div_ceil(3);
    known
        .map(|candidate| (levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How to fix a mistyped `word`: the nearest known one, or all of them.
pub fn hint<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(word, known.clone()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("known are {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// That nothing of a kind has that name, and how to fix it.
pub fn there_is_no<'a>(
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let fix = match known.clone().next() {
        None => format!("make it with `drover {kind} add`"),
        Some(_) => hint(name, known),
    };
    format!("there is no {kind} {name:?}; {fix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_nothing_far_is() {
        let known = ["name", "vcpus", "shares", "share_owed_pct"];
        let near = |word| nearest(word, known.into_iter());
        assert_eq!(near("share"), Some("shares"));
        assert_eq!(near("vcpu"), Some("vcpus"));
        assert_eq!(near("nmae"), Some("name"));
        assert_eq!(near("colour"), None);
        assert_eq!(near(""), None);
    }

    #[test]
    fn a_hint_names_the_nearest_word_or_all() {
        let known = ["lock", "sleep"];
        assert_eq!(hint("lokc", known.into_iter()), "did you mean \"lock\"?");
        assert_eq!(hint("zzz", known.into_iter()), "known are lock, sleep");
    }
}
