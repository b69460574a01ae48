//! Pointers to what a guard keeps.
//!
//! A version's value lies behind its header, a leaf around the header that a search came by, and what
//! leaves the shared structures is freed through the pointer that was found there. A reference to the header
//! allows none of this: a pointer derived from it reaches the header only, and may not be written through.
//! So the pointer is kept as it came, and lent out as references where that is enough.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

/// A pointer whose target a guard keeps during `'g`. Dereferences to the target; [`pointer`](Guarded::pointer)
/// is the pointer that it was made from, with all that it may reach.
pub(crate) struct Guarded<'g, T> {
    pointer: NonNull<T>,
    guard: PhantomData<&'g T>,
}

impl<'g, T> Guarded<'g, T> {
    /// # Safety
    /// A guard keeps the target during `'g`, and there is no exclusive reference to it.
    #[inline]
    pub(crate) unsafe fn new(pointer: NonNull<T>) -> Guarded<'g, T> {
        Guarded { pointer, guard: PhantomData }
    }

    /// `None` for null.
    ///
    /// # Safety
    /// As for [`new`](Guarded::new).
    #[inline]
    pub(crate) unsafe fn at(pointer: *mut T) -> Option<Guarded<'g, T>> {
        // SAFETY: the caller's promise.
        NonNull::new(pointer).map(|pointer| unsafe { Guarded::new(pointer) })
    }

    /// The pointer that it was made from.
    #[inline]
    pub(crate) fn pointer(self) -> NonNull<T> {
        self.pointer
    }

    /// The same pointer, to a `U` that begins where the target does.
    ///
    /// # Safety
    /// There is one, which the guard keeps too.
    #[inline]
    pub(crate) unsafe fn cast<U>(self) -> Guarded<'g, U> {
        Guarded { pointer: self.pointer.cast(), guard: PhantomData }
    }

    /// A reference, for as long as the guard keeps the target.
    #[inline]
    pub(crate) fn get(self) -> &'g T {
        // SAFETY: the promise of `new`.
        unsafe { self.pointer.as_ref() }
    }
}

impl<T> Deref for Guarded<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.get()
    }
}

// Not derived: that would ask the same of the target.
impl<T> Clone for Guarded<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Guarded<'_, T> {}

impl<T> fmt::Debug for Guarded<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.pointer, f)
    }
}
