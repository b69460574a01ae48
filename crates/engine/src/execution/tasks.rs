//! The futures of a worker, polled by the worker.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// Something that runs on a worker beside the transactions of clients: a loader, a workload. It gets
/// at the data through [`LocalDatabase`](super::LocalDatabase), and is polled by the engine.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// All tasks of a worker. Which of them can go on is known from their wakers, in the order of the
/// wakings, so that the same events poll them in the same order.
#[derive(Default)]
pub struct Tasks {
    slots: Vec<Option<(Task, Waker)>>,
    free: Vec<usize>,
    ready: Arc<ReadyQueue>,
    /// Taken from `ready`, still to be polled in this round.
    round: VecDeque<usize>,
}

/// Wakers must be free to move between threads, though here they never do.
#[derive(Default)]
struct ReadyQueue(Mutex<VecDeque<usize>>);

struct TaskWaker {
    slot: usize,
    ready: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.slot);
    }
}

impl ReadyQueue {
    fn push(&self, slot: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(slot);
    }
}

impl Tasks {
    /// Takes a task, to be polled when it is the worker's turn.
    pub fn spawn(&mut self, task: Task) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let waker = Waker::from(Arc::new(TaskWaker { slot, ready: Arc::clone(&self.ready) }));
        self.slots[slot] = Some((task, waker));
        self.ready.push(slot);
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
        let mut ready = self.ready.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *ready, &mut self.round);
    }

    /// Polls the next task of the round. Says whether there was one.
    pub(crate) fn poll_next(&mut self) -> bool {
        let Some(slot) = self.round.pop_front() else { return false };
        // Woken twice, or late: nothing to do.
        let Some((mut task, waker)) = self.slots[slot].take() else { return true };
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
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
        let mut tasks = Tasks::default();
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
