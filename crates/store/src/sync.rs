//! The atomics that the store is built from: the standard ones, or, with the feature `model`, those
//! of the permutation tester, which decides the order of every access (`tests/model.rs`).

#[cfg(not(feature = "model"))]
pub(crate) use std::{
    hint::spin_loop,
    sync::Mutex,
    sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(feature = "model")]
pub(crate) use shuttle::{
    hint::spin_loop,
    sync::Mutex,
    sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
};

/// Takes a lock whose holders cannot panic half-way, so that a poisoned one is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + '_ {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
