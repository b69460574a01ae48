//! Store sessions at rest, so that a transaction does not make its own.

use shoal_store::{Session, Store};
use shoal_types::{Aborted, Error, Rejected, Result};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;

/// A worker keeps at most so many for itself; the others may have to share what there is.
const IDLE_MAX: usize = 256;

/// The idle sessions that one worker has of one store.
pub struct SessionPool {
    store: Arc<Store>,
    #[expect(clippy::vec_box, reason = "a box is what moves in and out")]
    idle: RefCell<Vec<Box<Session>>>,
    /// Sessions whose last transactions are not rolled back as a whole.
    ending: RefCell<VecDeque<Box<Session>>>,
    /// So many writes are rolled back at once.
    slice: usize,
}

/// A session in use; it goes back when this goes.
pub struct PooledSession {
    /// Always there until the drop.
    session: Option<Box<Session>>,
    home: Rc<SessionPool>,
}

/// A transaction on a shard's store.
pub type StoreBranch = shoal_store::Transaction<PooledSession>;

impl SessionPool {
    /// Transactions of the pool's sessions roll back `slice` writes at once, and the rest in `end_some`.
    pub fn new(store: Arc<Store>, slice: usize) -> Rc<SessionPool> {
        Rc::new(SessionPool { store, idle: RefCell::default(), ending: RefCell::default(), slice })
    }

    /// The store of the sessions.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Goes on with rolling back what was dropped, by one slice. Says whether there was one.
    pub(crate) fn end_some(&self) -> bool {
        let Some(mut session) = self.ending.borrow_mut().pop_front() else { return false };
        match session.end_some() {
            true => self.rest(session),
            false => self.ending.borrow_mut().push_front(session),
        }
        true
    }

    /// How many transactions are dropped, and not rolled back as a whole.
    pub fn ending(&self) -> usize {
        self.ending.borrow().len()
    }

    /// Keeps a session that is at rest, if there are not too many.
    fn rest(&self, session: Box<Session>) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < IDLE_MAX {
            idle.push(session);
        }
    }

    /// A session at rest, or a new one.
    ///
    /// # Errors
    /// [`Aborted::Overloaded`] where all are in use: there will be some again.
    pub fn take(self: &Rc<Self>) -> Result<PooledSession> {
        let idle = self.idle.borrow_mut().pop();
        let session = match idle {
            Some(session) => session,
            None => {
                let mut session = Box::new(self.store.session().map_err(overloaded)?);
                session.end_in_slices(self.slice);
                session
            }
        };
        Ok(PooledSession { session: Some(session), home: Rc::clone(self) })
    }
}

fn overloaded(error: Error) -> Error {
    match error {
        Error::Rejected(Rejected::TooManyTransactions { max }) => {
            Aborted::Overloaded { open: max, limit: "sessions_max", max }.into()
        }
        other => other,
    }
}

impl Deref for PooledSession {
    type Target = Session;
    #[inline]
    fn deref(&self) -> &Session {
        self.session.as_ref().expect("there until the drop")
    }
}

impl DerefMut for PooledSession {
    #[inline]
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("there until the drop")
    }
}

impl Drop for PooledSession {
    fn drop(&mut self) {
        let mut session = self.session.take().expect("this is the drop");
        match session.is_ending() {
            true => self.home.ending.borrow_mut().push_back(session),
            false => self.home.rest(session),
        }
    }
}
