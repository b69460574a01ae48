//! Store sessions at rest, so that a transaction does not make its own.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;
use store::{Session, Store};
use types::{Aborted, Error, Rejected, Result};

/// A worker keeps at most so many for itself; the others may have to share what there is.
const IDLE_MAX: usize = 256;

/// The idle sessions that one worker has of one store.
pub(crate) struct Sessions {
    store: Arc<Store>,
    #[expect(clippy::vec_box, reason = "a box is what moves in and out")]
    idle: RefCell<Vec<Box<Session>>>,
}

/// A session in use; it goes back when this goes.
pub(crate) struct Pooled {
    /// Always there until the drop.
    session: Option<Box<Session>>,
    home: Rc<Sessions>,
}

impl Sessions {
    pub(crate) fn new(store: Arc<Store>) -> Rc<Sessions> {
        Rc::new(Sessions { store, idle: RefCell::new(Vec::new()) })
    }

    /// A session at rest, or a new one.
    ///
    /// # Errors
    /// [`Aborted::Overloaded`] where all are in use: there will be some again.
    pub(crate) fn take(self: &Rc<Self>) -> Result<Pooled> {
        let idle = self.idle.borrow_mut().pop();
        let session = match idle {
            Some(session) => session,
            None => Box::new(self.store.session().map_err(overloaded)?),
        };
        Ok(Pooled { session: Some(session), home: Rc::clone(self) })
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

impl Deref for Pooled {
    type Target = Session;
    fn deref(&self) -> &Session {
        self.session.as_ref().expect("there until the drop")
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("there until the drop")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut idle = self.home.idle.borrow_mut();
        if idle.len() < IDLE_MAX {
            idle.extend(self.session.take());
        }
    }
}
