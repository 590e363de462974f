// SPDX-License-Identifier: GPL-2.0-only
//! Lists of CPUs as Linux writes them: `0-3,8,10-11`.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The highest CPU number a list may name.
const CPU_MAX: u32 = 4095;

/// A non-empty set of CPU numbers, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuList(Vec<u32>);

impl CpuList {
    /// All CPUs of a host with `pcpus` of them (at least one).
    pub fn all(pcpus: u32) -> Self {
        assert!(pcpus > 0, "a host has a CPU");
        Self((0..pcpus).collect())
    }

    /// A list of these CPUs; `None` when there are no CPUs.
    pub fn of(cpus: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        (!cpus.is_empty()).then_some(Self(cpus))
    }

    /// The CPU numbers, ascending, none twice.
    pub fn cpus(&self) -> &[u32] {
        &self.0
    }

    /// Is the CPU in the list?
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// The CPUs that are in both; `None` when there are none.
    pub fn common(&self, other: &Self) -> Option<Self> {
        Self::of(self.0.iter().copied().filter(|&cpu| other.contains(cpu)))
    }

    /// The CPUs that are not in the other; `None` when there are none.
    pub fn without(&self, other: &Self) -> Option<Self> {
        Self::of(self.0.iter().copied().filter(|&cpu| !other.contains(cpu)))
    }

    /// The highest CPU number in the list.
    pub fn highest(&self) -> u32 {
        *self.0.last().expect("a CPU list is never empty")
    }
}

/// A set of pCPUs in words.
pub fn cpus_text(cpus: &CpuList) -> String {
    let plural = if cpus.cpus().len() == 1 { "" } else { "s" };
    format!("pCPU{plural} {cpus}")
}

/// Why a text is no list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a list of CPUs such as \"0-3,8\"")]
pub struct CpuListError(String);

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let refused = || CpuListError(text.to_owned());
        let number = |digits: &str| match digits.trim().parse::<u32>() {
            Ok(cpu) if cpu <= CPU_MAX => Ok(cpu),
            _ => Err(refused()),
        };
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(refused());
            }
            cpus.extend(first..=last);
        }
        Self::of(cpus).ok_or_else(refused)
    }
}

impl Serialize for CpuList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(|error: CpuListError| {
            D::Error::custom(format!("{error}; give numbers and ranges with commas between"))
        })
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let follows = |a: &u32, b: &u32| a + 1 == *b;
        for (index, run) in self.0.chunk_by(follows).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match run {
                [only] => write!(f, "{comma}{only}")?,
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_and_single_cpus_are_read() {
        let list: CpuList = "8, 0-2,2".parse().unwrap();
        assert_eq!(list.cpus(), [0, 1, 2, 8]);
        assert_eq!(list.highest(), 8);
        assert_eq!(list.to_string(), "0-2,8");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", ",", "3-1", "a", "1-", "-1", "0-99999", "4294967296"] {
            assert!(text.parse::<CpuList>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn written_lists_read_back(cpus in prop::collection::btree_set(0u32..200, 1..40)) {
            let list = CpuList(cpus.into_iter().collect());
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }
    }
}
