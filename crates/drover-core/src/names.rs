// SPDX-License-Identifier: GPL-2.0-only
//! Names of VMs, pools and the like, and patterns that mean several of them.

use crate::cpu_list::CpuList;

/// Whether `name` may stand in file names, commands and tables as it is.
pub fn is_plain_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=63).contains(&name.len()) && name.bytes().all(plain)
}

/// Whether a VM is meant by that name, or by a pattern: `web-*` means all whose names begin with `web-`,
/// `web-[1-3,8]` those of them with these numbers.
pub fn is_meant(pattern: &str, name: &str) -> bool {
    if let Some(begin) = pattern.strip_suffix('*') {
        return name.starts_with(begin);
    }
    let has_number = |(begin, numbers): (&str, &str)| {
        let digits = name.strip_prefix(begin)?;
        let number: u32 = digits.parse().ok().filter(|it: &u32| it.to_string() == digits)?;
        numbers.parse::<CpuList>().ok().map(|numbers| numbers.contains(number))
    };
    let range = pattern.strip_suffix(']').and_then(|pattern| pattern.rsplit_once('['));
    pattern == name || range.and_then(has_number).unwrap_or(false)
}

/// Whether a name of VMs is a pattern, which may mean several.
pub fn is_pattern(name: &str) -> bool {
    name.ends_with(['*', ']'])
}

/// The names and patterns of a list such as `web-*, db, vm[0-3,8]`.
pub fn each_name(names: &str) -> impl Iterator<Item = &str> {
    let mut in_range = false;
    let comma = move |letter| {
        in_range = letter == '[' || in_range && letter != ']';
        letter == ',' && !in_range
    };
    names.split(comma).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_vms_by_how_they_begin_or_by_their_numbers() {
        for (pattern, name, meant) in [
            ("web-1", "web-1", true),
            ("web-1", "web-10", false),
            ("web-*", "web-10", true),
            ("web-[1-3,8]", "web-2", true),
            ("web-[1-3,8]", "web-8", true),
            ("web-[1-3,8]", "web-4", false),
            ("web-[1-3]", "web-02", false),
            ("web-[1-3]", "web-", false),
            ("web-[1-3]", "db-1", false),
            ("web-[3-1]", "web-2", false),
        ] {
            assert_eq!(is_meant(pattern, name), meant, "{pattern} {name}");
        }
        let names: Vec<_> = each_name("web-*, vm[0,3], db").collect();
        assert_eq!(names, ["web-*", "vm[0,3]", "db"]);
    }
}
