// SPDX-License-Identifier: GPL-2.0-only
//! Numbers drawn from a seed: SplitMix64, which has no bad seeds and fits into one word.

/// A source of numbers; equal seeds give equal numbers, on every machine.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Begins at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`, which is above 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is no number below 0");
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// True so often in 100.
    pub fn chance_pct(&mut self, pct: u64) -> bool {
        self.below(100) < pct
    }

    /// One of the things.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len() as u64) as usize]
    }
}

/// Stirs a word so that every bit of it touches every bit of the answer.
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_itself_and_spreads() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            let number = a.below(10);
            assert_eq!(number, b.below(10));
            seen[number as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
        assert_ne!(Rng::new(1).bits(), Rng::new(2).bits());
    }

    #[test]
    fn chances_are_kept() {
        let mut rng = Rng::new(3);
        let hits = (0..10_000).filter(|_| rng.chance_pct(25)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!(*rng.pick(&[4]) == 4 && !rng.chance_pct(0) && rng.chance_pct(100));
    }
}
