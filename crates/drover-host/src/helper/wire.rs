// SPDX-License-Identifier: GPL-2.0-only
//! What is said to a reader and what it answers: a datagram each, exactly as long as its head says, and no longer than a
//! fixed size.

use std::io;

/// So many pages, or threads, one request names.
pub const ITEMS_MAX: usize = 512;
/// So much of an answer is in one datagram.
pub const DATA_MAX: usize = 8 << 10;
const HEAD_BYTES: usize = 24;
/// No request is longer,
pub const REQUEST_BYTES: usize = HEAD_BYTES + 12 * ITEMS_MAX;
/// and no datagram of an answer.
pub const ANSWER_BYTES: usize = HEAD_BYTES + DATA_MAX;

/// What a reader can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// The beginning of the command line.
    CommandLine,
    /// All of `maps`.
    Maps,
    /// All of `numa_maps`.
    NumaMaps,
    /// The node of each of these pages.
    NodesOf,
    /// Each of these pages to its node.
    MovePages,
    /// `io`.
    Io,
    /// The taps that it has open, a line each.
    Taps,
    /// Misses of the last-level cache of each of these threads, for a tenth of a second.
    Misses,
    /// Never ends.
    #[cfg(test)]
    Hang,
}

impl Op {
    const ALL: &'static [Self] = &[
        Op::CommandLine,
        Op::Maps,
        Op::NumaMaps,
        Op::NodesOf,
        Op::MovePages,
        Op::Io,
        Op::Taps,
        Op::Misses,
        #[cfg(test)]
        Op::Hang,
    ];

    /// After so many seconds a reader gives up.
    pub fn limit_s(self) -> u32 {
        match self {
            Op::Maps | Op::NumaMaps | Op::NodesOf | Op::MovePages => 10,
            Op::Misses => 2,
            _ => 1,
        }
    }
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"))
}

fn long_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight"))
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// By which the answer is known.
    pub id: u64,
    /// What is asked.
    pub op: Op,
    /// The process that is read.
    pub pid: u32,
    /// Pages or threads.
    pub items: Vec<u64>,
    /// The nodes for these pages.
    pub nodes: Vec<i32>,
}

impl Request {
    /// As it is sent.
    pub fn bytes(&self) -> Vec<u8> {
        let op = Op::ALL.iter().position(|op| *op == self.op).unwrap_or_default() as u32;
        let (items, nodes) = (self.items.len() as u32, self.nodes.len() as u32);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + 12 * self.items.len());
        bytes.extend(self.id.to_ne_bytes());
        [op, self.pid, items, nodes].iter().for_each(|it| bytes.extend(it.to_ne_bytes()));
        self.items.iter().take(ITEMS_MAX).for_each(|it| bytes.extend(it.to_ne_bytes()));
        self.nodes.iter().take(ITEMS_MAX).for_each(|it| bytes.extend(it.to_ne_bytes()));
        bytes
    }

    /// As it was sent; none: it was not.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let bytes = Some(bytes).filter(|bytes| bytes.len() >= HEAD_BYTES)?;
        let (word, long) = (|at| word_at(bytes, at), |at| long_at(bytes, at));
        let op = *Op::ALL.get(word(8) as usize)?;
        let (items, nodes) = (word(16) as usize, word(20) as usize);
        let of_nodes = HEAD_BYTES + 8 * items;
        if items > ITEMS_MAX || nodes > items || bytes.len() != of_nodes + 4 * nodes {
            return None;
        }
        Some(Self {
            id: long(0),
            op,
            pid: word(12),
            items: (0..items).map(|at| long(HEAD_BYTES + 8 * at)).collect(),
            nodes: (0..nodes).map(|at| word(of_nodes + 4 * at) as i32).collect(),
        })
    }
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The request that it answers; 0: none.
    pub id: u64,
    /// What went wrong, as the kernel says it; 0: nothing.
    pub errno: i32,
    /// There is more to come.
    pub more: bool,
    /// What was read.
    pub data: Vec<u8>,
}

impl Part {
    /// All parts of an answer.
    pub fn all(id: u64, read: io::Result<Vec<u8>>) -> Vec<Self> {
        let data = match read {
            Ok(data) => data,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(match error.kind() {
                    io::ErrorKind::FileTooLarge => libc::EFBIG,
                    _ => libc::EINVAL,
                });
                return vec![Self { id, errno, more: false, data: Vec::new() }];
            }
        };
        let part = |data: &[u8], more| Self { id, errno: 0, more, data: data.to_owned() };
        let mut parts: Vec<Self> = data.chunks(DATA_MAX).map(|data| part(data, true)).collect();
        match parts.last_mut() {
            Some(last) => last.more = false,
            None => parts.push(part(&[], false)),
        }
        parts
    }

    /// As it is sent.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.data.len());
        bytes.extend(self.id.to_ne_bytes());
        bytes.extend(self.errno.to_ne_bytes());
        bytes.extend(u32::from(self.more).to_ne_bytes());
        bytes.extend((self.data.len() as u64).to_ne_bytes());
        bytes.extend(&self.data);
        bytes
    }

    /// As it was sent; none: it was not.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let bytes = Some(bytes).filter(|bytes| bytes.len() >= HEAD_BYTES)?;
        let length = usize::try_from(long_at(bytes, 16)).ok().filter(|it| *it <= DATA_MAX)?;
        let data = Some(&bytes[HEAD_BYTES..]).filter(|data| data.len() == length)?.to_owned();
        let (errno, more) = (word_at(bytes, 8) as i32, word_at(bytes, 12) != 0);
        Some(Self { id: long_at(bytes, 0), errno, more, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_comes() {
        let (id, pid) = (7 << 40, 4711);
        let full = Request {
            id,
            op: Op::MovePages,
            pid,
            items: (0..ITEMS_MAX as u64).map(|it| it << 33).collect(),
            nodes: (0..ITEMS_MAX as i32).map(|it| 1 - it).collect(),
        };
        let none = Request { op: Op::Io, items: Vec::new(), nodes: Vec::new(), ..full.clone() };
        for request in [full, none] {
            assert_eq!(Request::of(&request.bytes()), Some(request));
        }
        for length in [0, 1, DATA_MAX, DATA_MAX + 1] {
            let parts = Part::all(id, Ok(vec![1; length]));
            assert_eq!(parts.iter().map(|part| part.data.len()).sum::<usize>(), length);
            assert!(
                parts.iter().rev().skip(1).all(|part| part.more) && !parts[parts.len() - 1].more
            );
            assert!(parts.iter().all(|part| Part::of(&part.bytes()).as_ref() == Some(part)));
        }
        let gone = Part::all(id, Err(io::Error::from_raw_os_error(libc::ESRCH)));
        assert_eq!((gone.len(), gone[0].errno), (1, libc::ESRCH));
    }

    #[test]
    fn nonsense_is_nothing() {
        assert_eq!((Request::of(b"x"), Part::of(b"x")), (None, None));
        assert_eq!(
            (Request::of(&[0; HEAD_BYTES - 1]), Part::of(&[0; HEAD_BYTES - 1])),
            (None, None)
        );
        assert_eq!(Request::of(&[0xff; REQUEST_BYTES]), None);
        let longer = |mut bytes: Vec<u8>| {
            bytes.push(0);
            bytes
        };
        let request = Request { id: 1, op: Op::Io, pid: 1, items: vec![2], nodes: vec![0] };
        assert_eq!(Request::of(&longer(request.bytes())), None);
        let part = Part { id: 1, errno: 0, more: false, data: vec![3] };
        assert_eq!(Part::of(&longer(part.bytes())), None);
        assert_eq!(Part::of(&part.bytes()[..HEAD_BYTES]), None);
        assert_eq!(Part::of(&[0xff; ANSWER_BYTES]), None);
    }
}
