// SPDX-License-Identifier: GPL-2.0-only
//! Which of the cgroups that are pools have a place, where there are places for some only. Pure.

use std::collections::{BTreeMap, HashSet};

/// A pool that wants a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its cgroup.
    pub path: String,
    /// The user who owns the delegated cgroup; 0: it is root's.
    pub user: u32,
    /// How many pools it is deep.
    pub depth: usize,
    /// It has a limit.
    pub is_limited: bool,
}

impl Wanted {
    /// Of whose part it is: a user's, or that of one of the root's uppermost cgroups.
    fn whose(&self) -> (u32, &str) {
        let top = self.path.split('/').nth(1).unwrap_or_default();
        (self.user, if self.user == 0 { top } else { "" })
    }
}

/// The pools that have places: everybody has as many as all others who want so many, and of these the outermost goes
/// first, so that nothing leaves it, then those with limits, then the outer ones.
pub fn divide(wanted: &[Wanted], places: usize) -> HashSet<String> {
    let path = |it: &&Wanted| it.path.clone();
    if wanted.len() <= places {
        return wanted.iter().map(|it| path(&it)).collect();
    }
    let mut parts: BTreeMap<(u32, &str), Vec<&Wanted>> = BTreeMap::new();
    wanted.iter().for_each(|it| parts.entry(it.whose()).or_default().push(it));
    let mut parts: Vec<Vec<&Wanted>> = parts.into_values().collect();
    parts.sort_by_key(Vec::len);
    let (mut left, mut others) = (places, parts.len());
    let mut placed = HashSet::new();
    for mut part in parts {
        let outermost = part.iter().map(|it| it.depth).min();
        part.sort_by_key(|it| (Some(it.depth) != outermost, !it.is_limited, it.depth));
        let before = placed.len();
        placed.extend(part.iter().take(left / others).map(path));
        left -= placed.len() - before;
        others -= 1;
    }
    placed
}
