// SPDX-License-Identifier: GPL-2.0-only
//! What ends a run early.

/// Why a run has no figures.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something under test failed; that is a result, and the experiment goes on.
    Fault(String),
    /// The experiment itself cannot go on.
    Error(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Error(error)
    }
}
