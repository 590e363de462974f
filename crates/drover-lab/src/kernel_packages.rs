// SPDX-License-Identifier: GPL-2.0-only
//! Which packages make up a kernel.
//!
//! Older Debian kernels are one package, `linux-image-VERSION`, with everything in it. Newer ones are split:
//! `linux-binary-VERSION` holds the image, `linux-modules-VERSION` the modules, `linux-base-VERSION` the
//! configuration, and `linux-image-VERSION` only depends on them. Ubuntu splits in yet another way. So the
//! dependencies of `linux-image-VERSION` are followed, as far as they carry the same version in their names.
//! An archive may have dropped one part of an old kernel already; such a kernel is not offered.

use std::collections::BTreeMap;

/// A package as apt describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Names of the packages it depends on; of alternatives, each.
    pub depends: Vec<String>,
}

/// A kernel the archive has, with the packages it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The kernel's version, as `uname -r` has it.
    pub version: String,
    /// The packages to download, each `NAME=VERSION`.
    pub packages: Vec<String>,
}

/// The flavour of kernel to look for: the smallest the distribution has.
#[must_use]
pub fn flavour(distribution: &str) -> &'static str {
    if distribution == "ubuntu" { "generic" } else { "cloud-amd64" }
}

/// The suites that hold other kernels than a stable release: newer ones, by names that move with the releases, and
/// that of Debian 12, which has no sched_ext: there Drover observes.
#[must_use]
pub fn suites(distribution: &str) -> &'static [&'static str] {
    if distribution == "ubuntu" { &["devel"] } else { &["stable-backports", "testing", "bookworm"] }
}

/// Parses records as `apt-cache search --full` prints them.
#[must_use]
pub fn parse(records: &str) -> Vec<Package> {
    records.split("\n\n").filter_map(parse_record).collect()
}

fn parse_record(record: &str) -> Option<Package> {
    let mut package = Package::default();
    for line in record.lines() {
        match line.split_once(": ") {
            Some(("Package", name)) => package.name = name.trim().to_owned(),
            Some(("Version", version)) => package.version = version.trim().to_owned(),
            Some(("Depends", list)) => package.depends = dependency_names(list),
            _ => {}
        }
    }
    (!package.name.is_empty() && !package.version.is_empty()).then_some(package)
}

fn dependency_names(list: &str) -> Vec<String> {
    list.split([',', '|'])
        .filter_map(|item| item.split_whitespace().next())
        .map(|name| name.split(':').next().unwrap_or(name).to_owned())
        .collect()
}

/// The kernels that can be had whole, newest first; with a prefix, those whose version begins with it.
#[must_use]
pub fn candidates(packages: &[Package], flavour: &str, prefix: Option<&str>) -> Vec<Candidate> {
    let by_name: BTreeMap<&str, &Package> = packages.iter().map(|p| (p.name.as_str(), p)).collect();
    let mut found: Vec<Candidate> = packages
        .iter()
        .filter_map(|package| {
            let version = package.name.strip_prefix("linux-image-")?;
            let wanted = version.starts_with(|c: char| c.is_ascii_digit())
                && version.ends_with(flavour)
                && prefix.is_none_or(|prefix| version_has_prefix(version, prefix));
            if wanted { whole(package, version, &by_name) } else { None }
        })
        .collect();
    found.sort_by_key(|candidate| std::cmp::Reverse(numbers(&candidate.version)));
    found
}

/// The kernel of a `linux-image` package, unless a part that holds image or modules is gone.
fn whole(image: &Package, version: &str, by_name: &BTreeMap<&str, &Package>) -> Option<Candidate> {
    let mut parts = vec![image];
    for name in &image.depends {
        if !name.ends_with(version) {
            continue;
        }
        match by_name.get(name.as_str()) {
            Some(part) => parts.push(part),
            // linux-base of a one-package kernel holds only documents; its loss does not matter.
            None if name.starts_with("linux-base-") => {}
            None => return None,
        }
    }
    let packages = parts.iter().map(|part| format!("{}={}", part.name, part.version)).collect();
    Some(Candidate { version: version.to_owned(), packages })
}

/// Whether a version begins with a prefix that ends at a boundary: `6.1` is no prefix of `6.18.5`.
#[must_use]
pub fn version_has_prefix(version: &str, prefix: &str) -> bool {
    version.strip_prefix(prefix).is_some_and(|rest| {
        !rest.starts_with(|c: char| c.is_ascii_digit())
            || !prefix.ends_with(|c: char| c.is_ascii_digit())
    })
}

/// A version's numbers, for comparing: `7.2.12+deb14-cloud` is 7, 2, 12, 14.
#[must_use]
pub fn numbers(version: &str) -> Vec<u64> {
    version
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .map(|digits| digits.parse().unwrap_or(u64::MAX))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: &str = "\
Package: linux-image-7.9.2+x-cloud-amd64
Version: 7.9.2-1
Depends: dracut | initramfs-tools (>= 0.1), linux-base-7.9.2+x-cloud-amd64 (= 7.9.2-1), linux-binary-7.9.2+x-cloud-amd64 (= 7.9.2-1), linux-modules-7.9.2+x-cloud-amd64 (= 7.9.2-1)
Description: a: b

Package: linux-base-7.9.2+x-cloud-amd64
Version: 7.9.2-1

Package: linux-binary-7.9.2+x-cloud-amd64
Version: 7.9.2-1

Package: linux-modules-7.9.2+x-cloud-amd64
Version: 7.9.2-1

Package: linux-image-7.10.1+x-cloud-amd64
Version: 7.10.1-1
Depends: linux-binary-7.10.1+x-cloud-amd64, linux-modules-7.10.1+x-cloud-amd64

Package: linux-binary-7.10.1+x-cloud-amd64
Version: 7.10.1-1

Package: linux-image-6.18.15+x-cloud-amd64
Version: 6.18.15-1
Depends: kmod, linux-base-6.18.15+x-cloud-amd64 (= 6.18.15-1)

Package: linux-image-6.18.9+x-cloud-amd64
Version: 6.18.9-1

Package: linux-image-7.9.2+x-cloud-amd64-dbg
Version: 7.9.2-1

Package: linux-image-cloud-amd64
Version: 7.9.2-1
";

    fn versions(prefix: Option<&str>) -> Vec<String> {
        candidates(&parse(RECORDS), "cloud-amd64", prefix).into_iter().map(|c| c.version).collect()
    }

    #[test]
    fn whole_kernels_come_newest_first() {
        // 7.10.1 would be newest, but its modules are gone from the archive.
        assert_eq!(
            versions(None),
            ["7.9.2+x-cloud-amd64", "6.18.15+x-cloud-amd64", "6.18.9+x-cloud-amd64"]
        );
    }

    #[test]
    fn a_split_kernel_takes_all_of_its_parts() {
        let newest = &candidates(&parse(RECORDS), "cloud-amd64", None)[0];
        assert_eq!(newest.packages.len(), 4);
        assert!(newest.packages.contains(&"linux-modules-7.9.2+x-cloud-amd64=7.9.2-1".to_owned()));
    }

    #[test]
    fn a_prefix_chooses_an_older_kernel() {
        assert_eq!(versions(Some("6.18"))[0], "6.18.15+x-cloud-amd64");
        assert_eq!(versions(Some("6.18.9")), ["6.18.9+x-cloud-amd64"]);
        assert!(versions(Some("6.1")).is_empty());
    }

    #[test]
    fn records_without_name_or_version_are_skipped() {
        assert!(parse("Depends: x\n\nPackage: y\n").is_empty());
    }

    #[test]
    fn alternatives_and_architectures_are_taken_apart() {
        assert_eq!(dependency_names("a (>= 1) | b:any, c"), ["a", "b", "c"]);
    }

    #[test]
    fn each_distribution_has_flavour_and_suites() {
        assert_eq!(flavour("ubuntu"), "generic");
        assert_eq!(suites("debian").len(), 3);
    }
}
