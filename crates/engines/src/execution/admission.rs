//! Back-pressure: how many transactions a worker has at once, and how long others wait.

use super::slot::Slot;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use types::{Aborted, Result, Time};

/// Opens, or stays shut, for somebody who waits.
type Door = Rc<Slot<Result<()>>>;

/// Bounds the transactions of a worker that are not over: running, or certified and not committed.
#[derive(Debug)]
pub(crate) struct Admission {
    max: usize,
    wait_max: Duration,
    queue_max: usize,
    open: Cell<usize>,
    /// A leader that is not prepared lets nobody in.
    serving: Cell<bool>,
    queue: RefCell<VecDeque<(Time, Door)>>,
}

impl Admission {
    pub(crate) fn new(max: usize, queue_max: usize, wait_max: Duration) -> Admission {
        Admission {
            max,
            wait_max,
            queue_max,
            open: Cell::new(0),
            serving: Cell::new(false),
            queue: RefCell::default(),
        }
    }

    /// Waits until there is room for one more.
    ///
    /// # Errors
    /// [`Aborted::Overloaded`] where too many wait, or this one has waited too long.
    pub(crate) async fn enter(&self, now: Time) -> Result<()> {
        if self.has_room() && self.queue.borrow().is_empty() {
            self.open.set(self.open.get() + 1);
            return Ok(());
        }
        if self.queue.borrow().len() >= self.queue_max {
            return Err(self.refusal());
        }
        let slot = Rc::new(Slot::default());
        self.queue.borrow_mut().push_back((now + self.wait_max, Rc::clone(&slot)));
        let entry = Entry { admission: self, slot: Some(slot) };
        let slot = entry.slot.clone().expect("just put there");
        let outcome = slot.take().await;
        entry.arrived();
        outcome
    }

    /// One is over.
    pub(crate) fn leave(&self) {
        self.open.set(self.open.get().checked_sub(1).expect("who leaves has entered"));
    }

    /// From now on, or no longer, transactions are let in.
    pub(crate) fn serve(&self, serving: bool) {
        self.serving.set(serving);
    }

    /// Lets in whom there is room for, and refuses who has waited too long. Says how many.
    pub(crate) fn turn(&self, now: Time) -> u64 {
        let mut refused = 0;
        loop {
            let mut queue = self.queue.borrow_mut();
            let Some((until, _)) = queue.front() else { return refused };
            let admitted = self.has_room();
            if !admitted && *until > now {
                return refused;
            }
            let (_, slot) = queue.pop_front().expect("seen above");
            drop(queue);
            if admitted {
                self.open.set(self.open.get() + 1);
                slot.fill(Ok(()));
            } else {
                refused += 1;
                slot.fill(Err(self.refusal()));
            }
        }
    }

    /// When the next refusal is due.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.queue.borrow().front().map(|(until, _)| *until)
    }

    /// How many are in.
    pub(crate) fn open(&self) -> usize {
        self.open.get()
    }

    /// How many wait.
    pub(crate) fn queued(&self) -> usize {
        self.queue.borrow().len()
    }

    fn has_room(&self) -> bool {
        self.serving.get() && self.open.get() < self.max
    }

    fn refusal(&self) -> types::Error {
        Aborted::Overloaded { open: self.open.get(), limit: "open_max", max: self.max }.into()
    }
}

/// Somebody in the queue, who may lose patience.
struct Entry<'a> {
    admission: &'a Admission,
    slot: Option<Door>,
}

impl Entry<'_> {
    fn arrived(mut self) {
        self.slot = None;
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        let mut queue = self.admission.queue.borrow_mut();
        let before = queue.len();
        queue.retain(|(_, other)| !Rc::ptr_eq(other, &slot));
        if queue.len() == before && slot.is_filled_ok() {
            // Let in already, and nobody is there any more.
            drop(queue);
            self.admission.leave();
        }
    }
}

impl Slot<Result<()>> {
    fn is_filled_ok(&self) -> bool {
        self.peek(|value| value.is_some_and(Result::is_ok))
    }
}
