// SPDX-License-Identifier: GPL-2.0-only
//! A group of pCPUs, such as those of a last-level cache, as run-queue domains that are narrow enough for the
//! policy, which keeps the pCPUs of a domain in a word (policy/base/types.h).

/// The cores of a group, each with its pCPUs, as domains of `most` pCPUs at most: as few as there can be, of
/// like width, no core in two. A core that is wider than `most` is a domain of its own.
///
/// # Panics
/// When `most` is 0.
pub fn split<T: Clone>(cores: &[Vec<T>], most: usize) -> Vec<Vec<T>> {
    let pcpus: usize = cores.iter().map(Vec::len).sum();
    let into = |count: usize| -> Vec<Vec<T>> {
        let of_part = |part: usize| part * cores.len() / count..(part + 1) * cores.len() / count;
        (0..count).map(|part| cores[of_part(part)].concat()).collect()
    };
    let fits = |parts: &Vec<Vec<T>>| parts.iter().all(|part| part.len() <= most);
    let counts = pcpus.div_ceil(most)..=cores.len();
    counts.map(into).find(fits).unwrap_or_else(|| into(cores.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widths(cores: usize, threads: usize, most: usize) -> Vec<usize> {
        let cores: Vec<Vec<usize>> =
            (0..cores).map(|core| (core * threads..(core + 1) * threads).collect()).collect();
        split(&cores, most).iter().map(Vec::len).collect()
    }

    #[test]
    fn a_wide_group_is_split_evenly_and_cores_stay_whole() {
        assert_eq!(widths(32, 2, 64), [64]);
        assert_eq!(widths(48, 2, 64), [48, 48]);
        assert_eq!(widths(33, 2, 64), [32, 34]);
        assert_eq!(widths(3, 2, 5), [2, 4]);
        assert_eq!(widths(3, 2, 3), [2, 2, 2]);
        assert_eq!(widths(2, 4, 3), [4, 4]);
        assert_eq!(widths(0, 2, 64), [0usize; 0]);
    }
}
