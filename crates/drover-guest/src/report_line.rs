// SPDX-License-Identifier: GPL-2.0-only
//! What benchmark programs say of their progress, line by line.
//!
//! | line | of | counts as |
//! |---|---|---|
//! | `[ 3s ] thds: 2 eps: 10309.91 lat (ms,95%): 0.21` | sysbench, each `--report-interval` | events (or transactions: `tps:`) of that interval |
//! | `Time: 0.043` | hackbench, at its end | one run |
//! | `T: 0 (241) P: 0 I:2000 C: 498 Min: 59 Act: 64 Avg: 73 Max: 471` | `cyclictest -q`, at its end, each thread | wake-ups |
//! | `000059 000012 000003` | `cyclictest -q -h US`, at its end | wake-ups this late (in µs), each thread |
//! | `progress 5` | a script of one's own | 5 |

/// What a line reports.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Report {
    /// This much more done.
    Count(u64),
    /// This much done in each second up to second `second` of the program's own time.
    Rate {
        /// Seconds since the program began.
        second: u64,
        /// Done in each second since the last report.
        per_s: f64,
    },
    /// Wake-ups, all equally late.
    Late {
        /// How late, µs.
        late_us: u64,
        /// How many.
        count: u64,
    },
}

/// Reads a line; none when it reports nothing.
pub(crate) fn parse(line: &str) -> Option<Report> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["[", second, "]", rest @ ..] => rate(second, rest),
        ["Time:", seconds] => seconds.parse::<f64>().ok().map(|_| Report::Count(1)),
        ["T:", _thread, rest @ ..] => value_after("C:", rest).map(Report::Count),
        ["progress", count] => count.parse().ok().map(Report::Count),
        [late_us, counts @ ..] if !counts.is_empty() => histogram_row(late_us, counts),
        _ => None,
    }
}

fn rate(second: &str, rest: &[&str]) -> Option<Report> {
    let second = second.strip_suffix('s')?.parse().ok()?;
    let per_s: f64 = value_after("eps:", rest).or_else(|| value_after("tps:", rest))?;
    (per_s.is_finite() && per_s >= 0.0).then_some(Report::Rate { second, per_s })
}

fn value_after<T: std::str::FromStr>(key: &str, words: &[&str]) -> Option<T> {
    let at = words.iter().position(|&word| word == key)?;
    words.get(at + 1)?.parse().ok()
}

/// Rows are told from other numbers by their leading zeros: six digits each.
fn histogram_row(late_us: &str, counts: &[&str]) -> Option<Report> {
    let number = |word: &str| {
        let digits = word.len() >= 6 && word.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| word.parse::<u32>().ok()).flatten().map(u64::from)
    };
    let late_us = number(late_us)?;
    let count = counts.iter().map(|&word| number(word)).sum::<Option<u64>>()?;
    Some(Report::Late { late_us, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sysbench_reports_rates() {
        let line = "[ 3s ] thds: 2 eps: 10309.91 lat (ms,95%): 0.21";
        assert_eq!(parse(line), Some(Report::Rate { second: 3, per_s: 10309.91 }));
        let line = "[ 10s ] thds: 4 tps: 512.25 qps: 10249.06 (r/w/o: 7173.5/2051.0/1024.5)";
        assert_eq!(parse(line), Some(Report::Rate { second: 10, per_s: 512.25 }));
    }

    #[test]
    fn hackbench_reports_runs() {
        assert_eq!(parse("Time: 0.043"), Some(Report::Count(1)));
        assert_eq!(parse("Time: limit"), None);
    }

    #[test]
    fn cyclictest_reports_wakeups() {
        let line =
            "T: 0 (28241) P: 0 I:2000 C:    498 Min:     59 Act:   64 Avg:   73 Max:    4071";
        assert_eq!(parse(line), Some(Report::Count(498)));
        assert_eq!(parse("000059 000012\t000003"), Some(Report::Late { late_us: 59, count: 15 }));
        assert_eq!(parse("000059 12"), None, "no row of a histogram");
    }

    #[test]
    fn scripts_report_counts() {
        assert_eq!(parse("progress 5"), Some(Report::Count(5)));
    }

    #[test]
    fn other_lines_report_nothing() {
        for line in [
            "",
            "[    1.234567] kernel: eps: 5",
            "Threads started!",
            "# Total: 000000498 000000399",
            "# Histogram Overflows: 00001 00002",
            "[ 3s ] thds: 2 eps: NaN",
            "progress report",
            "T: 0",
        ] {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_it_fail(line in "\\PC*") {
            parse(&line);
        }

        #[test]
        fn no_line_of_such_words_makes_it_fail(
            words in prop::collection::vec("(\\[|\\]|T:|C:|eps:|progress|Time:|[0-9]{0,25}s?|-1|1e999)", 0..12)
        ) {
            parse(&words.join(" "));
        }
    }
}
