// SPDX-License-Identifier: GPL-2.0-only
//! `drover check`

use std::process::ExitCode;

use anyhow::Result;
use drover_host::check::{State, check_host, is_fit};

pub fn run() -> Result<ExitCode> {
    let points = check_host();
    for point in &points {
        let mark = match point.state {
            State::Good => "ok     ",
            State::Lacking => "lacking",
            State::Missing => "MISSING",
        };
        println!("{mark}  {:<18} {}", point.what, point.found);
        if !point.mend.is_empty() {
            println!("         {:<18} -> {}", "", point.mend);
        }
    }
    if is_fit(&points) {
        println!("\nThis host is fit: `drover serve` schedules it until stopped.");
        return Ok(ExitCode::SUCCESS);
    }
    println!("\nThis host is not fit yet; nothing was changed.");
    Ok(ExitCode::FAILURE)
}
