// SPDX-License-Identifier: GPL-2.0-only
//! Which memory the kernel puts on huge pages by itself.

use crate::files;
use std::path::Path;

/// `always`, `madvise` or `never`; none: this kernel does not do that.
pub fn huge_by_itself(root: &Path) -> Option<String> {
    let text = files::kernel(&root.join("sys/kernel/mm/transparent_hugepage/enabled")).ok()?;
    let chosen = text.split_whitespace().find_map(|it| it.strip_prefix('[')?.strip_suffix(']'))?;
    Some(chosen.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;

    #[test]
    fn the_word_in_brackets_counts() {
        let path = "sys/kernel/mm/transparent_hugepage/enabled";
        let host = host(&[(path, "always [madvise] never\n")]);
        assert_eq!(huge_by_itself(host.path()).as_deref(), Some("madvise"));
        assert_eq!(huge_by_itself(Path::new("/nonexistent")), None);
    }
}
