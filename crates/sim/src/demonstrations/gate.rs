//! How clients of one worker begin their transactions: one at a time, when the worker has nothing else
//! to do, and only so many execute at once. So a worker that is never idle still gets on with its
//! messages, as a server does that reads its sockets before it goes round again and has a bounded number
//! of procedures running. Transactions that have executed and wait for the engine do not count.

use engines::Local;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Transactions that may execute at once.
const EXECUTING_MAX: usize = 16;

/// The shortest sleep: until the next step, whatever brings it about.
const NEXT_STEP: Duration = Duration::from_nanos(1);

/// Where nobody wants to begin, or nobody may, this passes until the next look.
const PAUSE: Duration = Duration::from_micros(5);

/// See the module. Shared by the clients of one worker.
#[derive(Debug, Default)]
pub(super) struct Gate {
    waiting: RefCell<VecDeque<(Rc<Cell<bool>>, Waker)>>,
    executing: Cell<usize>,
    looks: Cell<u64>,
    idle: Cell<u64>,
}

/// Somebody executes.
#[derive(Debug)]
pub(super) struct Permit<'a>(&'a Gate);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.executing.set(self.0.executing.get() - 1);
    }
}

impl Gate {
    /// Waits for its turn; another attempt of what was let in before has precedence.
    pub(super) async fn pass(&self, again: bool) -> Permit<'_> {
        let passed = Rc::new(Cell::new(false));
        let mut queued = false;
        poll_fn(|context| {
            if passed.get() {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut queued, true) {
                let entry = (Rc::clone(&passed), context.waker().clone());
                let mut waiting = self.waiting.borrow_mut();
                if again { waiting.push_front(entry) } else { waiting.push_back(entry) }
            }
            Poll::Pending
        })
        .await;
        Permit(self)
    }

    /// Lets clients begin until `stop` is set and nobody waits any more. A step in which there is nothing
    /// to do costs `event`: where the one before took no longer, nothing waits for the worker.
    pub(super) async fn attend(&self, db: &Local, event: Duration, stop: &Cell<bool>) {
        let mut last = db.now();
        loop {
            let none = self.waiting.borrow().is_empty();
            if none && stop.get() {
                return;
            }
            let has_time = db.now() - last <= event + 2 * NEXT_STEP;
            last = db.now();
            let mut pause = NEXT_STEP;
            if has_time {
                self.looks.set(self.looks.get() + 1);
                self.idle.set(self.idle.get() + u64::from(none));
                if !self.open() {
                    pause = PAUSE;
                }
            }
            db.sleep(pause).await;
        }
    }

    /// How often it looked for clients since the last time it was asked, and how often there was none:
    /// a worker whose gate always finds some is busy all the time.
    pub(super) fn take_looks(&self) -> (u64, u64) {
        (self.looks.take(), self.idle.take())
    }

    /// Lets one begin, if one may.
    fn open(&self) -> bool {
        if self.executing.get() >= EXECUTING_MAX {
            return false;
        }
        let Some((passed, waker)) = self.waiting.borrow_mut().pop_front() else { return false };
        self.executing.set(self.executing.get() + 1);
        passed.set(true);
        waker.wake();
        true
    }
}
