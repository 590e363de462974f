// SPDX-License-Identifier: GPL-2.0-only
//! Figures on a terminal, and what keys do.

mod bars;
mod columns;
mod draw;
mod kept;
mod view;

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::figures::Figures;
use crate::meter::Meter;
use view::View;

/// The first figures are of so long: nobody waits for a whole interval to see anything.
const FIRST: Duration = Duration::from_millis(300);
/// A signal ends the wait for a key; one that comes just before it is noticed after so long.
const PATIENCE: Duration = Duration::from_millis(500);

/// The terminal, as it was again when dropped. A panic puts it back as well, before it is told.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self> {
        Ok(Self(ratatui::try_init().context("cannot use this terminal; try --batch or --json")?))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Of a terminal that is gone nothing needs to be put back.
        let _ = ratatui::try_restore();
    }
}

/// Shows figures until somebody quits, `stop` is set, or as many were shown as asked for.
///
/// # Errors
/// When the kernel does not tell, or the terminal is no good.
pub fn run(
    meter: &mut Meter,
    interval: Duration,
    iterations: Option<u64>,
    stop: &AtomicBool,
) -> Result<()> {
    let kept = kept::path();
    let mut screen = Screen::open()?;
    // From now on a terminal of another size is a signal that ends a wait.
    event::poll(Duration::ZERO)?;
    let mut view = kept.as_deref().map_or_else(View::default, kept::read);
    let mut due = Instant::now() + FIRST.min(interval);
    let mut figures: Option<Figures> = None;
    let mut shown = 0;
    screen
        .0
        .draw(|frame| frame.render_widget("drover top: the first figures come", frame.area()))?;
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() >= due {
            if iterations.is_some_and(|most| shown >= most) {
                break;
            }
            let measured = meter.measure()?;
            if !view.is_frozen || figures.is_none() {
                figures = Some(measured);
            }
            due = Instant::now() + interval;
            shown += 1;
        }
        if let Some(figures) = &figures {
            let drawn = screen.0.draw(|frame| draw::draw(frame, figures, interval, &mut view));
            if drawn.is_err() {
                // The terminal is gone, and with it everybody to be told.
                break;
            }
        }
        if quit_at_keys(due, figures.as_ref(), &mut view)? {
            break;
        }
    }
    drop(screen);
    kept.map_or(Ok(()), |path| kept::write(&path, &view))
}

/// Waits until the screen is to be drawn anew; whether somebody quits.
fn quit_at_keys(due: Instant, figures: Option<&Figures>, view: &mut View) -> Result<bool> {
    let stdin = io::stdin();
    let mut keys = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let rest = due.saturating_duration_since(Instant::now()).min(PATIENCE);
    match poll(&mut keys, PollTimeout::try_from(rest.as_micros().div_ceil(1000))?) {
        Ok(0) | Err(Errno::EINTR) => return Ok(false),
        waited => waited.context("cannot wait for keys")?,
    };
    // It was closed: crossterm would read on and on.
    let closed = PollFlags::POLLHUP | PollFlags::POLLERR;
    if keys[0].revents().is_none_or(|events| events.intersects(closed)) {
        return Ok(true);
    }
    while event::poll(Duration::ZERO)? {
        match event::read()? {
            Event::Key(key) if quits(key, view.is_typing) => return Ok(true),
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                if let Some(figures) = figures {
                    view.press(key.code, figures);
                }
            }
            _ => {}
        }
    }
    Ok(false)
}

/// On a raw terminal Ctrl-C is a key. Where letters are typed `q` is one of them.
fn quits(key: KeyEvent, is_typing: bool) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    (key.code == KeyCode::Char('q') && !is_typing)
        || key.code == KeyCode::F(10)
        || (control && key.code == KeyCode::Char('c'))
}
