//! Lists in place: the lines of an order and the shown part of C_DATA, which have a greatest length.

use shoal_types::wire::{BytesMut, Coded, Input, Malformed};
use std::ops::{Deref, DerefMut};

/// Up to `MAX` values, kept without an allocation. Encoded as a `Vec` of the same values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounded<T, const MAX: usize> {
    length: usize,
    values: [T; MAX],
}

impl<T: Copy + Default, const MAX: usize> Bounded<T, MAX> {
    /// A list of `length` default values.
    ///
    /// # Panics
    /// If `length` is more than `MAX`.
    pub fn of(length: usize) -> Bounded<T, MAX> {
        assert!(length <= MAX, "{length} of at most {MAX} values");
        Bounded { length, values: [T::default(); MAX] }
    }
}

impl<T: Copy + Default, const MAX: usize> Default for Bounded<T, MAX> {
    fn default() -> Bounded<T, MAX> {
        Bounded::of(0)
    }
}

impl<T, const MAX: usize> Deref for Bounded<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values[..self.length]
    }
}

impl<T, const MAX: usize> DerefMut for Bounded<T, MAX> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values[..self.length]
    }
}

impl<T: Coded + Copy + Default, const MAX: usize> Coded for Bounded<T, MAX> {
    const BYTES_MIN: usize = Vec::<T>::BYTES_MIN;

    fn put(&self, out: &mut BytesMut) {
        self.to_vec().put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<Bounded<T, MAX>, Malformed> {
        let taken = Vec::<T>::take(input)?;
        if taken.len() > MAX {
            return Err(input.wrong("more values than the list may have"));
        }
        let mut bounded = Bounded::of(taken.len());
        bounded.copy_from_slice(&taken);
        Ok(bounded)
    }
}
