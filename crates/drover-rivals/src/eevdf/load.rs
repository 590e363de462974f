// SPDX-License-Identifier: GPL-2.0-only
//! How much of the last tenth of a second or so something was so, as PELT keeps it: what was 32 ms
//! ago counts half.
//!
//! It is so or not so, and changes at known moments; between these the mean follows from when it
//! changed last, and is worked out when it is asked for.
//!
//! Worked example. A thread ready for long has a mean of 1024. It sleeps for 32 ms: 512. It moves to
//! another pCPU: what is asked of the threads there has it at once.

/// The mean of what was always so.
pub const ALWAYS: u64 = 1024;
/// Means are kept in such parts.
const SCALE: u64 = 1 << 10;
/// A period, ns: 2^20 are 1.05 ms, 32 of which halve.
const PERIOD_SHIFT: u32 = 20;

/// 2^32 * 0.5^(n/32), the kernel's table.
const DECAY: [u32; 32] = [
    0xffff_ffff,
    0xfa83_b2da,
    0xf525_7d14,
    0xefe4_b99a,
    0xeac0_c6e6,
    0xe5b9_06e6,
    0xe0cc_deeb,
    0xdbfb_b796,
    0xd744_fcc9,
    0xd2a8_1d91,
    0xce24_8c14,
    0xc9b9_bd85,
    0xc567_2a10,
    0xc12c_4cc9,
    0xbd08_a39e,
    0xb8fb_af46,
    0xb504_f333,
    0xb123_f581,
    0xad58_3ee9,
    0xa9a1_5ab4,
    0xa5fe_d6a9,
    0xa270_4302,
    0x9ef5_325f,
    0x9b8d_39b9,
    0x9837_f050,
    0x94f4_efa8,
    0x91c3_d373,
    0x8ea4_398a,
    0x8b95_c1e3,
    0x8898_0e80,
    0x85aa_c367,
    0x82cd_8698,
];

/// Whether something is so, and its mean over the recent past.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Average {
    mean: u64,
    as_of_ns: u64,
    is_so: bool,
}

impl Average {
    /// It is not so, and was for so much of the recent past, of [`ALWAYS`].
    pub fn of(mean: u64, now_ns: u64) -> Self {
        Self { mean: mean * SCALE, as_of_ns: now_ns, is_so: false }
    }

    /// From now on it is so, or is not.
    pub fn set(&mut self, now_ns: u64, is_so: bool) {
        self.mean = self.scaled_at(now_ns);
        self.as_of_ns = now_ns;
        self.is_so = is_so;
    }

    /// The mean at that moment: 0 to [`ALWAYS`].
    pub fn at(&self, now_ns: u64) -> u64 {
        (self.scaled_at(now_ns) + SCALE / 2) / SCALE
    }

    fn scaled_at(&self, now_ns: u64) -> u64 {
        let since_ns = now_ns - self.as_of_ns;
        match self.is_so {
            true => ALWAYS * SCALE - decayed(ALWAYS * SCALE - self.mean, since_ns),
            false => decayed(self.mean, since_ns),
        }
    }
}

/// What is left of a value; within a period on a straight line.
fn decayed(value: u64, since_ns: u64) -> u64 {
    let periods = since_ns >> PERIOD_SHIFT;
    if periods >= 32 * 32 {
        return 0;
    }
    let after = |periods: u64| ((value >> (periods / 32)) * factor(periods)) >> 32;
    let rest_ns = since_ns & ((1 << PERIOD_SHIFT) - 1);
    let (now, next) = (after(periods), after(periods + 1));
    now - (((now - next) * rest_ns) >> PERIOD_SHIFT)
}

fn factor(periods: u64) -> u64 {
    match periods % 32 {
        0 => 1 << 32,
        part => DECAY[part as usize].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1 << PERIOD_SHIFT;

    #[test]
    fn half_is_forgotten_and_half_is_learned_in_32_ms() {
        let mut average = Average::of(ALWAYS, 5);
        assert_eq!(average.at(5 + 32 * MS), ALWAYS / 2);
        average.set(5 + 32 * MS, true);
        assert_eq!(average.at(5 + 64 * MS), ALWAYS * 3 / 4);
        assert_eq!(average.at(u64::MAX >> 1), ALWAYS);
        average.set(u64::MAX >> 1, false);
        assert_eq!(average.at(u64::MAX >> 1), ALWAYS);
        assert_eq!(average.at(u64::MAX), 0);
    }

    #[test]
    fn who_runs_a_tenth_of_a_short_period_has_a_tenth() {
        let mut average = Average::default();
        for turn in 0..1000 {
            average.set(turn * MS / 2, true);
            average.set(turn * MS / 2 + MS / 20, false);
        }
        let mean = average.at(1000 * MS / 2);
        assert!((95..=110).contains(&mean), "{mean}");
    }
}
