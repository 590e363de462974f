// SPDX-License-Identifier: GPL-2.0-only
//! Zeroed memory that C code writes to.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::NonNull;

/// Room for an array of structs, zeroed.
pub struct Room<T> {
    base: NonNull<T>,
    count: usize,
}

// SAFETY: the memory is owned by this one value and reached through it only.
unsafe impl<T: Send> Send for Room<T> {}

impl<T> Room<T> {
    /// Room for `count` structs.
    pub fn of(count: usize) -> Self {
        let layout = Self::layout(count);
        // SAFETY: the layout has a size above 0.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base.cast()) else { handle_alloc_error(layout) };
        Self { base, count }
    }

    fn layout(count: usize) -> Layout {
        Layout::array::<T>(count.max(1)).expect("a sane size")
    }

    /// Where the struct with that number is.
    ///
    /// # Panics
    /// When there are not that many.
    pub fn at(&self, index: usize) -> *mut T {
        assert!(index < self.count, "no struct {index} in this room");
        // SAFETY: within the allocation, by the line above.
        unsafe { self.base.as_ptr().add(index) }
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        Self::layout(self.count).size()
    }
}

impl<T> fmt::Debug for Room<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes())
    }
}

impl<T> Drop for Room<T> {
    fn drop(&mut self) {
        // SAFETY: allocated in `of` with this very layout.
        unsafe { dealloc(self.base.as_ptr().cast(), Self::layout(self.count)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_zeroed_and_bounded() {
        let room = Room::<[u64; 3]>::of(3);
        // SAFETY: zeroes are a value of that type.
        let words = unsafe { room.at(2).read() };
        assert_eq!((words, room.bytes()), ([0; 3], 72));
        assert!(std::panic::catch_unwind(|| room.at(3)).is_err());
    }
}
