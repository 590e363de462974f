// SPDX-License-Identifier: GPL-2.0-only
//! Whether two schedulers' figures differ by more than luck: the exact test of Mann and Whitney.
//!
//! All values are ranked together, equal ones by the mean of their ranks. The result is the part of all ways to deal these
//! ranks to the two in which the sum of one is as far from its mean as it is, or further.
//!
//! Worked example: 1, 2, 3 and 4, 5, 6 can be dealt in 20 ways; two are as far apart: 0.1.

/// How likely luck alone sets these values as far apart as they are, or further; none where one has no value.
pub fn by_luck(ones: &[f64], others: &[f64]) -> Option<f64> {
    if ones.is_empty() || others.is_empty() {
        return None;
    }
    let all: Vec<f64> = ones.iter().chain(others).copied().collect();
    let ranks: Vec<usize> = all.iter().map(|value| twice_the_rank(*value, &all)).collect();
    let got: usize = ranks[..ones.len()].iter().sum();
    let ways = ways(&ranks, ones.len());
    // Twice the rank is all.len() + 1 on average.
    let mean = ones.len() * (all.len() + 1);
    let as_far = |(sum, _): &(usize, &f64)| sum.abs_diff(mean) >= got.abs_diff(mean);
    let all_ways: f64 = ways.iter().sum();
    Some(ways.iter().enumerate().filter(as_far).map(|(_, ways)| ways).sum::<f64>() / all_ways)
}

/// Whole numbers, where equal values share the mean of two ranks.
fn twice_the_rank(value: f64, all: &[f64]) -> usize {
    let below = all.iter().filter(|other| **other < value).count();
    let equal = all.iter().filter(|other| **other == value).count();
    2 * below + equal + 1
}

/// In how many ways so many of the ranks have each sum.
fn ways(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0; most + 1]; chosen + 1];
    ways[0][0] = 1.0;
    for rank in ranks {
        for count in (1..=chosen).rev() {
            for sum in (*rank..=most).rev() {
                ways[count][sum] += ways[count - 1][sum - rank];
            }
        }
    }
    ways.swap_remove(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_further_apart_the_less_likely_by_luck() {
        let p = |ones: &[f64], others: &[f64]| by_luck(ones, others).unwrap();
        assert!((p(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]) - 0.1).abs() < 1e-12);
        // As tables of the exact test have it for 5 and 5: U = 0 and U = 2.
        let five = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert!((p(&five, &[6.0, 7.0, 8.0, 9.0, 10.0]) - 2.0 / 252.0).abs() < 1e-12);
        let nearly = p(&[1.0, 2.0, 3.0, 4.0, 7.0], &[5.0, 6.0, 8.0, 9.0, 10.0]);
        assert!((nearly - 8.0 / 252.0).abs() < 1e-12, "{nearly}");
        assert_eq!(p(&five, &five), 1.0);
        assert_eq!(by_luck(&[], &five), None);
    }

    #[test]
    fn equal_values_share_their_ranks() {
        let all_equal = by_luck(&[1.0, 1.0], &[1.0, 1.0, 1.0]).unwrap();
        assert_eq!(all_equal, 1.0);
        // Of ten ways to take two, one has both low ones; none is as far off the mean at the other end.
        let low = by_luck(&[1.0, 1.0], &[2.0, 2.0, 2.0]).unwrap();
        assert!((low - 0.1).abs() < 1e-12, "{low}");
    }
}
