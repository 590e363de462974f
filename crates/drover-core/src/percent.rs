// SPDX-License-Identifier: GPL-2.0-only
//! CPU as people give it, in % of one pCPU, and as the scheduler takes it, in thousandths of a pCPU.

/// The most that can be asked for, thousandths of a pCPU.
pub const MCPU_MAX: u32 = 4_096_000;

/// Thousandths of a pCPU as a percentage: 1500 is `150%`, 125 is `12.5%`.
pub fn text(mcpu: u32) -> String {
    text64(mcpu.into())
}

/// [`text`] for sums.
pub fn text64(mcpu: u64) -> String {
    match mcpu % 10 {
        0 => format!("{}%", mcpu / 10),
        tenth => format!("{}.{tenth}%", mcpu / 10),
    }
}

/// A percentage, `150%` or `12.5%`, as thousandths of a pCPU.
///
/// # Errors
/// When it is none, with what to give.
pub fn parse(text: &str) -> Result<u32, String> {
    let fix = || "use a percentage of one pCPU, such as 150% for one and a half".to_owned();
    let number = text.trim().strip_suffix('%').ok_or_else(fix)?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(tenths) || tenths.len() > 1 {
        return Err(fix());
    }
    let (whole, tenths): (u32, u32) =
        (whole.parse().map_err(|_| fix())?, tenths.parse().map_err(|_| fix())?);
    let mcpu = whole.checked_mul(10).and_then(|mcpu| mcpu.checked_add(tenths));
    let mcpu = mcpu.filter(|mcpu| *mcpu <= MCPU_MAX);
    mcpu.ok_or_else(|| format!("use {} at most", text_of_max()))
}

fn text_of_max() -> String {
    text(MCPU_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_go_there_and_back() {
        for (text, mcpu) in [("0%", 0), ("150%", 1500), ("12.5%", 125), ("409600%", MCPU_MAX)] {
            assert_eq!((parse(text), super::text(mcpu)), (Ok(mcpu), text.to_owned()));
        }
    }

    #[test]
    fn what_is_no_percentage_is_refused_with_the_mend() {
        for text in ["150", "", "%", "-5%", "1.55%", "1.%", ".5%", "+5%", "1e2%", "99999999999%"] {
            assert!(parse(text).unwrap_err().contains('%'), "{text}");
        }
        assert!(parse("409600.1%").unwrap_err().contains("409600%"));
    }
}
