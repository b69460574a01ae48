//! A pool of idle sessions, so that a transaction does not create its own.
//!
//! Each thread has a slot of its own (shared only where there are more threads than slots), so taking a session and
//! returning it touches nothing that another core uses.

use super::durable::DurableLog;
use crossbeam_utils::CachePadded;
use crossbeam_utils::atomic::AtomicCell;
use shoal_store::{Session, Store};
use shoal_types::{Result, TableId};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const SLOTS: usize = 64;

/// The slot of a thread's session. A pointer, so that taking it is one instruction.
type Slot = CachePadded<AtomicCell<Option<Box<Session>>>>;

/// The sessions of one database that no transaction uses.
pub(super) struct Pool {
    store: Arc<Store>,
    /// The log of a database on disk.
    log: Option<DurableLog>,
    near: Box<[Slot]>,
    /// Sessions whose slots were occupied.
    #[expect(clippy::vec_box, reason = "sessions move in and out as boxes")]
    far: Mutex<Vec<Box<Session>>>,
}

impl Pool {
    pub(super) fn new(store: Arc<Store>, log: Option<DurableLog>) -> Pool {
        let near = (0..SLOTS).map(|_| CachePadded::new(AtomicCell::new(None))).collect();
        Pool { store, log, near, far: Mutex::new(Vec::new()) }
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    #[inline]
    pub(super) fn log(&self) -> Option<&DurableLog> {
        self.log.as_ref()
    }

    /// The table of this name; creates it if there is none.
    pub(super) fn table(&self, name: &str) -> Result<TableId> {
        match &self.log {
            Some(log) => log.table(&self.store, name),
            None => self.store.table(name),
        }
    }

    /// An idle session, or a new one.
    ///
    /// # Errors
    /// [`TooManyTransactions`](shoal_types::Rejected::TooManyTransactions) where all are in use.
    #[inline]
    pub(super) fn take(&self) -> Result<Pooled<'_>> {
        Ok(Pooled { session: Some(self.take_session()?), home: PoolHome::Borrowed(self) })
    }

    /// The same, and keeps the pool alive.
    ///
    /// # Errors
    /// As for [`take`](Pool::take).
    pub(super) fn take_owned(self: &Arc<Self>) -> Result<Pooled<'static>> {
        Ok(Pooled { session: Some(self.take_session()?), home: PoolHome::Shared(Arc::clone(self)) })
    }

    #[inline]
    fn take_session(&self) -> Result<Box<Session>> {
        match self.near[thread_slot()].take() {
            Some(session) => Ok(session),
            None => self.take_far(),
        }
    }

    #[cold]
    fn take_far(&self) -> Result<Box<Session>> {
        if let Some(session) = self.far().pop() {
            return Ok(session);
        }
        match self.store.session() {
            Ok(session) => Ok(Box::new(session)),
            // The last idle sessions may be in the slots of other threads.
            Err(error) => self.near.iter().find_map(|slot| slot.take()).ok_or(error),
        }
    }

    fn give_back(&self, session: Box<Session>) {
        if let Some(displaced) = self.near[thread_slot()].swap(Some(session)) {
            self.far().push(displaced);
        }
    }

    #[expect(clippy::vec_box, reason = "see the field")]
    fn far(&self) -> std::sync::MutexGuard<'_, Vec<Box<Session>>> {
        self.far.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session in use. Returns to its pool when dropped.
pub(super) struct Pooled<'db> {
    /// Empty only while it is being dropped.
    session: Option<Box<Session>>,
    home: PoolHome<'db>,
}

/// The pool of a session. Most transactions end before their database does, and borrow it: a reference count
/// would be a word that all cores write.
enum PoolHome<'db> {
    Borrowed(&'db Pool),
    Shared(Arc<Pool>),
}

impl Pooled<'_> {
    /// The pool that it returns to.
    #[inline]
    pub(super) fn pool(&self) -> &Pool {
        match &self.home {
            PoolHome::Borrowed(pool) => pool,
            PoolHome::Shared(pool) => pool,
        }
    }
}

impl Deref for Pooled<'_> {
    type Target = Session;
    fn deref(&self) -> &Session {
        self.session.as_ref().expect("a session in use")
    }
}

impl DerefMut for Pooled<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("a session in use")
    }
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        let session = self.session.take();
        session.into_iter().for_each(|session| self.pool().give_back(session));
    }
}

/// The slot of the calling thread.
pub(super) fn thread_slot() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SLOT: usize = THREADS.fetch_add(1, Ordering::Relaxed) % SLOTS;
    }
    SLOT.with(|slot| *slot)
}
