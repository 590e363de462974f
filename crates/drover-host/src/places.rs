// SPDX-License-Identifier: GPL-2.0-only
//! Where a daemon reads, keeps and listens.

use std::path::Path;

/// The files and directories of a daemon.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The configuration file; need not be there.
    pub config: &'a Path,
    /// Directory of saved settings.
    pub state: &'a Path,
    /// The control socket.
    pub socket: &'a Path,
    /// The socket of those who may only look.
    pub readers: &'a Path,
}
