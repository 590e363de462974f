// SPDX-License-Identifier: GPL-2.0-only
//! Load over the last tenth of a second or so, as PELT keeps it: what was 32 ms ago counts half.

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

/// A load and its mean over the recent past.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    mean: u64,
    as_of_ns: u64,
}

impl Load {
    /// The load has been `load` since this was last called.
    pub fn update(&mut self, now_ns: u64, load: u64) {
        let periods = (now_ns >> 20).saturating_sub(self.as_of_ns >> 20);
        if periods == 0 {
            return;
        }
        self.as_of_ns = now_ns;
        let kept = decayed(self.mean, periods);
        self.mean = kept + (load - decayed(load, periods));
    }

    /// The mean as of the last update.
    pub fn mean(&self) -> u64 {
        self.mean
    }
}

fn decayed(value: u64, periods: u64) -> u64 {
    if periods >= 32 * 64 {
        return 0;
    }
    let halved = value >> (periods / 32);
    ((u128::from(halved) * u128::from(DECAY[(periods % 32) as usize])) >> 32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_forgotten_in_32_ms() {
        let mut load = Load { mean: 1000, as_of_ns: 0 };
        load.update(32 << 20, 0);
        assert!((499..=500).contains(&load.mean()), "{}", load.mean());
        load.update(u64::MAX >> 1, 0);
        assert_eq!(load.mean(), 0);
    }

    #[test]
    fn a_steady_load_is_approached_from_below() {
        let mut load = Load::default();
        for ms in 1..1000 {
            load.update(ms << 20, 1024);
            assert!(load.mean() <= 1024);
        }
        assert!(load.mean() > 950, "{}", load.mean());
    }
}
