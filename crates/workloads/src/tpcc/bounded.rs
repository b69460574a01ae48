//! Lists in place: the lines of an order and the shown part of C_DATA, which have a greatest length.

use shoal_types::wire::Coded;
use std::ops::{Deref, DerefMut};

/// Up to `MAX` values, kept without an allocation. Encoded as a `Vec` of the same values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
#[coded(via = Vec<T>)]
pub struct Bounded<T: Copy + Default, const MAX: usize> {
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

impl<T: Copy + Default, const MAX: usize> Deref for Bounded<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values[..self.length]
    }
}

impl<T: Copy + Default, const MAX: usize> DerefMut for Bounded<T, MAX> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values[..self.length]
    }
}

impl<T: Copy + Default, const MAX: usize> From<&Bounded<T, MAX>> for Vec<T> {
    fn from(bounded: &Bounded<T, MAX>) -> Vec<T> {
        bounded.to_vec()
    }
}

impl<T: Copy + Default, const MAX: usize> TryFrom<Vec<T>> for Bounded<T, MAX> {
    type Error = &'static str;

    fn try_from(values: Vec<T>) -> Result<Bounded<T, MAX>, &'static str> {
        if values.len() > MAX {
            return Err("more values than the list may have");
        }
        let mut bounded = Bounded::of(values.len());
        bounded.copy_from_slice(&values);
        Ok(bounded)
    }
}
