// SPDX-License-Identifier: GPL-2.0-only
//! Those who ask the daemon: root at the control socket, and who may only look at a socket of their own.
//!
//! Readers have what they cost a pCPU bounded: who asked for much is not listened to for a while, and neither orders nor
//! the host wait for that.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::unistd::Uid;

use crate::control::{Answer, Request};
use crate::listener::{self, Listener};
use crate::pace::{cpu_time, next_after};
use crate::privileges::Writer;
use crate::readers;

/// The part of a pCPU that answers to readers may take: one in so many.
const READERS_ONE_IN: u32 = 20;
/// No longer than that they are not listened to: a client has 2 s to take its answer.
const READERS_WAIT_MOST: Duration = Duration::from_millis(500);

/// Those who ask.
#[derive(Debug)]
pub struct Clients {
    control: Door,
    /// None where there is no group that may look.
    readers: Option<Door>,
    /// Readers see the VMs of all users.
    readers_see_all: bool,
    /// When readers are listened to again.
    readers_next: Instant,
}

/// A socket where somebody asks.
#[derive(Debug)]
struct Door {
    listener: Listener,
    /// What it is called.
    name: &'static str,
    /// It was said that nobody can.
    said: bool,
}

impl Clients {
    /// Listens at the control socket, and at that of readers where there is a group of them.
    ///
    /// # Errors
    /// When another daemon has the control socket, or it cannot be made.
    pub fn listen(control: &Path, readers: &Path, readers_see_all: bool) -> Result<Self> {
        let door = |listener, name| Door { listener, name, said: false };
        let control = door(Listener::bind(control)?, "control socket");
        let readers = readers::group().and_then(|group| {
            let bound = Listener::bind_for(readers, Some(group));
            let told = bound.inspect_err(|err| {
                tracing::warn!("the group {} cannot ask here: {err:#}", readers::READERS);
            });
            Some(door(told.ok()?, "socket of readers"))
        });
        Ok(Self { control, readers, readers_see_all, readers_next: Instant::now() })
    }

    /// Waits for them, no longer than that or until there is a signal; whether any is there.
    pub fn wait(&self, until: Instant) -> bool {
        let now = Instant::now();
        match &self.readers {
            Some(readers) if now >= self.readers_next => {
                listener::wait(&[&self.control.listener, &readers.listener], until)
            }
            Some(_) => self.control.listener.wait(until.min(self.readers_next)),
            None => self.control.listener.wait(until),
        }
    }

    /// Answers them.
    pub fn serve(&mut self, mut answer: impl FnMut(Request) -> Answer) {
        self.control.listener.serve(&mut answer);
        let Some(readers) = self.readers.as_mut().filter(|_| Instant::now() >= self.readers_next)
        else {
            return;
        };
        let (before, see_all) = (cpu_time(), self.readers_see_all);
        readers.listener.serve_users(|request, user: Uid| {
            readers::answer(request, readers::sees_only(user, see_all), &mut answer)
        });
        let rest = next_after(cpu_time() - before, Duration::ZERO, READERS_ONE_IN);
        self.readers_next = Instant::now() + rest.min(READERS_WAIT_MOST);
    }

    /// Has the sockets made anew where somebody has removed them.
    pub fn find_us(&mut self, writer: &Writer) {
        self.control.find_us(writer);
        self.readers.iter_mut().for_each(|readers| readers.find_us(writer));
    }

    /// Removes the sockets: this daemon ends.
    pub fn close(self, writer: &Writer) {
        let doors = [Some(self.control), self.readers].into_iter().flatten();
        doors.for_each(|door| door.listener.close(writer));
    }
}

impl Door {
    fn find_us(&mut self, writer: &Writer) {
        if self.listener.is_there() {
            return;
        }
        let name = self.name;
        match self.listener.renew(writer) {
            Ok(()) => tracing::warn!("somebody has removed the {name}; it is there again"),
            Err(err) if !self.said => tracing::warn!(
                "somebody has removed the {name}, and it cannot be made anew ({err:#}); restart drover \
                 (`systemctl restart drover`), VMs run on"
            ),
            Err(_) => {}
        }
        self.said = !self.listener.is_there();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ask;
    use nix::unistd::Gid;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    #[test]
    fn readers_are_answered_and_order_nothing_and_who_costs_much_waits_alone() {
        let dir = tempfile::tempdir().unwrap();
        let [control, readers] = ["control", "readers"].map(|name| dir.path().join(name));
        let door = |listener| Door { listener, name: "socket", said: false };
        let mut clients = Clients {
            control: door(Listener::bind(&control).unwrap()),
            readers: Some(door(Listener::bind_for(&readers, Some(Gid::current())).unwrap())),
            readers_see_all: true,
            readers_next: Instant::now(),
        };
        let stop = AtomicBool::new(false);
        let took = Duration::from_millis(10);
        let mut followed = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if clients.wait(Instant::now() + Duration::from_millis(5)) {
                        clients.serve(|request| {
                            let begun = cpu_time();
                            while request == Request::ListPools && cpu_time() - begun < took {}
                            followed.push(request);
                            Answer::Done
                        });
                    }
                }
            });
            let order = Request::ForgetVm { name: "web".to_owned() };
            let refused = ask(&readers, &order).unwrap_err().to_string();
            assert!(refused.contains("takes no orders"), "{refused}");
            let begun = Instant::now();
            assert_eq!(ask(&readers, &Request::ListPools).unwrap(), Answer::Done);
            assert_eq!(ask(&control, &order).unwrap(), Answer::Done);
            assert_eq!(ask(&readers, &Request::ListSets).unwrap(), Answer::Done);
            assert!(begun.elapsed() >= READERS_ONE_IN * took, "{:?}", begun.elapsed());
            stop.store(true, Ordering::Relaxed);
        });
        let order = Request::ForgetVm { name: "web".to_owned() };
        assert_eq!(followed, [Request::ListPools, order, Request::ListSets]);
    }
}
