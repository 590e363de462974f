// SPDX-License-Identifier: GPL-2.0-only
//! Zeroed memory for structs that only C knows.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Room for an array of structs of one size, zeroed.
#[derive(Debug)]
pub struct Room {
    base: *mut u8,
    each: usize,
    layout: Layout,
}

// SAFETY: the memory is owned by this one value and reached through it only.
unsafe impl Send for Room {}

impl Room {
    /// Room for `count` structs of `each` bytes.
    pub fn of(count: usize, each: usize) -> Self {
        let layout = Layout::from_size_align((count * each).max(1), 64).expect("a sane size");
        // SAFETY: the layout has a size above 0.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        Self { base, each, layout }
    }

    /// Where the struct with that number is.
    ///
    /// # Panics
    /// When there are not that many.
    pub fn at<T>(&self, index: usize) -> *mut T {
        assert!((index + 1) * self.each <= self.layout.size(), "no struct {index} in this room");
        // SAFETY: within the allocation, by the line above.
        unsafe { self.base.add(index * self.each).cast() }
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: allocated in `of` with this very layout.
        unsafe { dealloc(self.base, self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_zeroed_and_bounded() {
        let room = Room::of(3, 24);
        // SAFETY: the third struct of 24 bytes begins there.
        let word = unsafe { room.at::<u64>(2).read() };
        assert_eq!((word, room.bytes()), (0, 72));
        assert!(std::panic::catch_unwind(|| room.at::<u64>(3)).is_err());
    }
}
