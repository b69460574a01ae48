//! The futures of a worker, polled by the worker.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, RawWakerVTable, Wake, Waker};

/// Something that runs on a worker beside the transactions of clients: a loader, a workload. It gets
/// at the data through [`LocalDatabase`](super::LocalDatabase), and is polled by the engine.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// All tasks of a worker. Which of them can go on is known from what woke them, in the order of the
/// wakings, so that the same events poll them in the same order.
pub struct Tasks {
    slots: Vec<Option<(Task, Waker)>>,
    free: Vec<usize>,
    wakeups: Rc<LocalWakeups>,
    /// What was woken, still to be polled in this round.
    round: VecDeque<usize>,
}

/// The slots of tasks that were woken, each with the number of the waking.
type Woken = VecDeque<(u64, usize)>;

/// What wakers have woken. Wakers must be free to move between threads, though here they never do.
#[derive(Debug, Default)]
struct ReadyQueue {
    /// The number of wakings, of all kinds.
    wakings: AtomicU64,
    woken: Mutex<Woken>,
}

struct TaskWaker {
    slot: usize,
    ready: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.slot);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.push(self.slot);
    }
}

/// How values of the worker wake its tasks: without a reference to a waker, which threads may share, and without its lock.
#[derive(Debug, Default)]
pub(crate) struct LocalWakeups {
    /// The task that is polled.
    polled: Cell<Option<PolledTask>>,
    /// What was woken in this way.
    woken: RefCell<Woken>,
    /// What was woken by wakers.
    ready: Arc<ReadyQueue>,
}

#[derive(Debug, Clone, Copy)]
struct PolledTask {
    slot: usize,
    /// Distinguishes its waker from others, such as those of futures that poll futures.
    waker: (*const (), &'static RawWakerVTable),
}

fn identity(waker: &Waker) -> (*const (), &'static RawWakerVTable) {
    (waker.data(), waker.vtable())
}

/// What is woken when a value comes.
#[derive(Debug)]
pub(crate) enum Wakeup {
    /// The task in this slot.
    Task(usize),
    /// The future within a task, or outside of all, that this waker is of.
    Waker(Waker),
}

impl LocalWakeups {
    /// Has `wakeup` wake what is polled with this waker.
    #[inline]
    pub(crate) fn update(&self, wakeup: &mut Option<Wakeup>, waker: &Waker) {
        let (data, vtable) = identity(waker);
        let is_polled = |task: &PolledTask| {
            std::ptr::eq(task.waker.0, data) && std::ptr::eq(task.waker.1, vtable)
        };
        match self.polled.get().filter(is_polled) {
            Some(task) => *wakeup = Some(Wakeup::Task(task.slot)),
            None => match wakeup {
                Some(Wakeup::Waker(known)) => known.clone_from(waker),
                _ => *wakeup = Some(Wakeup::Waker(waker.clone())),
            },
        }
    }

    /// Wakes it, if there is something to wake.
    #[inline]
    pub(crate) fn wake(&self, wakeup: Option<Wakeup>) {
        match wakeup {
            Some(Wakeup::Task(slot)) => {
                // Wakers that other threads have are not waited for: a number may be given twice then.
                let number = self.ready.wakings.load(Ordering::Relaxed);
                self.ready.wakings.store(number + 1, Ordering::Relaxed);
                self.woken.borrow_mut().push_back((number, slot));
            }
            Some(Wakeup::Waker(waker)) => waker.wake(),
            None => {}
        }
    }

    /// Moves the slots of what was woken, in the order of the wakings.
    fn take(&self, round: &mut VecDeque<usize>) {
        let mut local = self.woken.borrow_mut();
        let mut others = self.ready.woken.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let next = match (local.front(), others.front()) {
                (Some(a), Some(b)) if a.0 <= b.0 => local.pop_front(),
                (_, Some(_)) => others.pop_front(),
                (_, None) => local.pop_front(),
            };
            let Some((_, slot)) = next else { return };
            round.push_back(slot);
        }
    }
}

impl ReadyQueue {
    fn push(&self, slot: usize) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push_back((self.wakings.fetch_add(1, Ordering::Relaxed), slot));
    }
}

impl Tasks {
    /// None yet.
    pub(crate) fn new(wakeups: &Rc<LocalWakeups>) -> Tasks {
        Tasks {
            slots: Vec::new(),
            free: Vec::new(),
            wakeups: Rc::clone(wakeups),
            round: VecDeque::new(),
        }
    }

    /// Takes a task, to be polled when it is the worker's turn.
    pub fn spawn(&mut self, task: Task) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let ready = Arc::clone(&self.wakeups.ready);
        ready.push(slot);
        self.slots[slot] = Some((task, Waker::from(Arc::new(TaskWaker { slot, ready }))));
    }

    /// How many tasks there is room for: as many as there were at once.
    pub fn size(&self) -> usize {
        self.slots.len()
    }

    /// Takes a task, if there is one.
    pub fn extend(&mut self, task: Option<Task>) {
        task.into_iter().for_each(|task| self.spawn(task));
    }

    /// A round begins, of every task that was woken since the last one began.
    pub(crate) fn begin_round(&mut self) {
        assert!(self.round.is_empty(), "a round begins before the last one is over");
        self.wakeups.take(&mut self.round);
    }

    /// Polls the next task of the round. Says whether there was one.
    pub(crate) fn poll_next(&mut self) -> bool {
        let Some(slot) = self.round.pop_front() else { return false };
        // Woken twice, or late: nothing to do.
        let Some((mut task, waker)) = self.slots[slot].take() else { return true };
        self.wakeups.polled.set(Some(PolledTask { slot, waker: identity(&waker) }));
        let is_pending = task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
        self.wakeups.polled.set(None);
        if is_pending {
            self.slots[slot] = Some((task, waker));
        } else {
            self.free.push(slot);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::slot::ResultSlot;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn a_task_goes_on_when_it_is_woken() {
        let (slot, seen) = (Rc::new(ResultSlot::default()), Rc::new(Cell::new(0)));
        let mut tasks = Tasks::new(&Rc::default());
        let (waited, result) = (Rc::clone(&slot), Rc::clone(&seen));
        tasks.spawn(Box::pin(async move {
            result.set(1);
            result.set(waited.take().await);
        }));
        let mut round = || {
            tasks.begin_round();
            let any = tasks.poll_next();
            assert!(!tasks.poll_next());
            any
        };
        assert!(round());
        assert_eq!(seen.get(), 1);
        assert!(!round(), "the task was not woken");
        slot.fill(7);
        assert!(round());
        assert_eq!(seen.get(), 7);
    }
}
