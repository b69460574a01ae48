//! Back-pressure: how many transactions a worker has at once, and how long others wait.

use super::limits::{Limits, TURN};
use super::slot::ResultSlot;
use super::slot_pool::{PooledSlot, SlotPool, SlotUse};
use super::tasks::LocalWakeups;
use shoal_types::{Aborted, NodeId, Result, Time};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Bounds the transactions of a worker that are not over: running, or certified and not committed. And
/// bounds how many begin at once: a worker finishes before it begins. What has reached it meanwhile,
/// answers that others wait for above all, has its turn before more new work; so only the steps of a
/// timer let transactions in, which comes after that, and each only so many.
#[derive(Debug)]
pub struct Admission {
    node: NodeId,
    limits: Limits,
    open: Cell<usize>,
    /// How many more this step may let in.
    share: Cell<usize>,
    /// A node that serves no shard lets none in.
    serving: Cell<bool>,
    /// Since when each waits, and what it waits for.
    queue: RefCell<VecDeque<(Time, SlotUse)>>,
    /// The answers to those that wait.
    gates: SlotPool<Result<AdmissionTimes>>,
    /// Transactions inside that are about to begin another attempt. They go first.
    again: RefCell<VecDeque<Rc<ResultSlot<()>>>>,
}

/// When a transaction asked to be let in, and when it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AdmissionTimes {
    pub(crate) asked: Time,
    pub(crate) entered: Time,
}

/// A transaction is inside until this is dropped by its caller, which may make several attempts; and, once it is shared
/// with the engine, until the engine has dropped it, too.
#[derive(Debug)]
pub struct AdmissionPermit<'a> {
    admission: &'a Rc<Admission>,
    pub(crate) times: AdmissionTimes,
    /// What stands for it from the first operation on another shard on.
    shared: OnceCell<Rc<SharedPermit>>,
}

/// A permit that an engine shares, and what the engine keeps over all attempts.
#[derive(Debug)]
pub(crate) struct SharedPermit {
    admission: Rc<Admission>,
    pub(crate) kept: RefCell<Option<Box<dyn Any>>>,
}

impl AdmissionPermit<'_> {
    /// The permit, for as long as the engine needs it.
    pub(crate) fn share(&self) -> Rc<SharedPermit> {
        let share = || {
            let admission = Rc::clone(self.admission);
            Rc::new(SharedPermit { admission, kept: RefCell::default() })
        };
        Rc::clone(self.shared.get_or_init(share))
    }
}

impl Drop for AdmissionPermit<'_> {
    fn drop(&mut self) {
        if self.shared.get().is_none() {
            self.admission.leave();
        }
    }
}

impl Drop for SharedPermit {
    fn drop(&mut self) {
        self.admission.leave();
    }
}

#[cfg(test)]
impl SharedPermit {
    /// Of an admission that is not shared.
    pub(crate) fn alone() -> Rc<SharedPermit> {
        let admission =
            Admission::new(&Limits::default(), NodeId(0), &Rc::<LocalWakeups>::default());
        admission.enters();
        Rc::new(SharedPermit { admission, kept: RefCell::default() })
    }
}

impl Admission {
    pub(crate) fn new(limits: &Limits, node: NodeId, wakeups: &Rc<LocalWakeups>) -> Rc<Admission> {
        Rc::new(Admission {
            node,
            limits: limits.clone(),
            open: Cell::new(0),
            share: Cell::new(0),
            serving: Cell::new(false),
            queue: RefCell::default(),
            gates: SlotPool::new(wakeups, limits.faults),
            again: RefCell::default(),
        })
    }

    /// Waits until there is room for one more.
    ///
    /// # Errors
    /// [`Aborted::Overloaded`] where too many wait, or this one has waited too long.
    pub(crate) async fn enter<'a>(self: &'a Rc<Self>, now: Time) -> Result<AdmissionPermit<'a>> {
        let permit = |times| AdmissionPermit { admission: self, times, shared: OnceCell::new() };
        if self.has_room() && self.queued() == 0 {
            return Ok(permit(self.let_in(now, now)));
        }
        if self.queue.borrow().len() >= self.limits.queue_max {
            return Err(self.refusal("queue_max", self.limits.queue_max));
        }
        let gate = self.gates.begin();
        self.queue.borrow_mut().push_back((now, gate.of()));
        let mut waiting = WaitingAdmission { admission: self, gate };
        std::pin::Pin::new(&mut waiting.gate).await.map(permit)
    }

    /// Waits until another attempt may begin, of one that is inside.
    pub(crate) async fn again(&self) {
        let turn = Rc::<ResultSlot<()>>::default();
        self.again.borrow_mut().push_back(Rc::clone(&turn));
        turn.take().await;
    }

    /// From now on, or no longer, transactions are let in.
    pub fn serve(&self, serving: bool) {
        self.serving.set(serving);
    }

    /// A step begins; that of a timer may let some in.
    pub(crate) fn step(&self, timer: bool) {
        self.share.set(if timer { self.limits.begins_max } else { 0 });
    }

    /// Lets in those for which there is room, and refuses those that have waited too long.
    pub(crate) fn turn(&self, now: Time) {
        // Newcomers get their part: those that meet conflicts come back again and again.
        let kept = usize::from(self.limits.begins_max > 1 && self.queued() > 0);
        while self.share.get() > kept {
            let Some(turn) = self.again.borrow_mut().pop_front() else { break };
            self.share.set(self.share.get() - 1);
            turn.fill(());
        }
        loop {
            let mut waiting = self.queue.borrow_mut();
            let Some((since, _)) = waiting.front() else { return };
            let (since, until) = (*since, *since + self.limits.queue_wait_max);
            let admitted = self.has_room();
            // Where there is room, its turn comes.
            if !admitted && (until > now || self.is_open()) {
                return;
            }
            let (_, gate) = waiting.pop_front().expect("seen above");
            drop(waiting);
            let outcome = match admitted {
                true => Ok(self.let_in(since, now)),
                false => Err(self.refusal("open_max", self.limits.open_max)),
            };
            self.gates.fill(gate, outcome);
        }
    }

    /// When the next step is due: soon, where some could have been let in but for their number; or when
    /// the next is to be refused.
    pub(crate) fn next_due(&self, now: Time) -> Option<Time> {
        let until =
            self.queue.borrow().front().map(|(since, _)| *since + self.limits.queue_wait_max);
        if !self.again.borrow().is_empty() || (until.is_some() && self.is_open()) {
            return Some(now + TURN);
        }
        until
    }

    /// How many are in.
    pub(crate) fn open(&self) -> usize {
        self.open.get()
    }

    /// How many wait.
    pub(crate) fn queued(&self) -> usize {
        self.queue.borrow().len()
    }

    fn is_open(&self) -> bool {
        self.serving.get() && self.open.get() < self.limits.open_max
    }

    fn has_room(&self) -> bool {
        self.is_open() && self.share.get() > 0
    }

    fn let_in(&self, asked: Time, entered: Time) -> AdmissionTimes {
        self.share.set(self.share.get() - 1);
        self.enters();
        AdmissionTimes { asked, entered }
    }

    fn enters(&self) {
        self.open.set(self.open.get() + 1);
    }

    fn leave(&self) {
        self.open.set(self.open.get() - 1);
    }

    fn refusal(&self, limit: &'static str, max: usize) -> shoal_types::Error {
        if !self.serving.get() {
            return Aborted::NotServing { node: self.node }.into();
        }
        let open = self.open.get() + self.queued();
        Aborted::Overloaded { open, limit, max }.into()
    }
}

/// One in the queue, which may lose patience.
struct WaitingAdmission<'a> {
    admission: &'a Admission,
    gate: PooledSlot<'a, Result<AdmissionTimes>>,
}

impl Drop for WaitingAdmission<'_> {
    fn drop(&mut self) {
        if self.gate.is_over() {
            return; // A long queue is not searched for those that have left it.
        }
        match self.gate.withdraw() {
            Some(Ok(_)) => self.admission.leave(),
            Some(Err(_)) => {}
            None => {
                let of = self.gate.of();
                self.admission.queue.borrow_mut().retain(|(_, other)| *other != of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    const QUEUE_WAIT_MAX: Duration = Duration::from_millis(1);
    const NOW: Time = Time(1000);

    /// An admission that has not been used yet, to four, two at once.
    fn shut() -> Rc<Admission> {
        let (queue_max, queue_wait_max) = (2, QUEUE_WAIT_MAX);
        let limits =
            Limits { open_max: 4, begins_max: 2, queue_max, queue_wait_max, ..Limits::default() };
        Admission::new(&limits, NodeId(0), &Rc::<LocalWakeups>::default())
    }

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    /// An admission that is open, in a step that may let in two.
    fn open() -> Rc<Admission> {
        let admission = shut();
        admission.serve(true);
        admission.step(true);
        admission
    }

    fn enter(admission: &Rc<Admission>) -> AdmissionPermit<'_> {
        poll(pin!(admission.enter(NOW))).expect("no need to wait").expect("let in")
    }

    #[test]
    fn a_step_lets_in_its_share_and_others_wait_for_the_next() {
        let admission = open();
        let (first, _second) = (enter(&admission), enter(&admission));
        let mut third = pin!(admission.enter(NOW));
        let mut last = pin!(admission.enter(NOW));
        let mut retry = pin!(admission.again());
        assert!(poll(third.as_mut()).is_none());
        assert!(poll(last.as_mut()).is_none());
        assert!(poll(retry.as_mut()).is_none());
        assert!(poll(pin!(admission.enter(NOW))).expect("at once").is_err(), "a full queue");
        admission.turn(NOW);
        assert!(poll(third.as_mut()).is_none(), "still the same step");
        assert_eq!(admission.next_due(NOW), Some(NOW + TURN));

        admission.step(false);
        admission.turn(NOW);
        assert!(poll(third.as_mut()).is_none(), "a message came first");

        admission.step(true);
        admission.turn(NOW);
        assert_eq!(poll(retry.as_mut()), Some(()), "another attempt goes first");
        let third = poll(third.as_mut()).expect("its turn").expect("let in");
        assert!(poll(last.as_mut()).is_none());

        admission.step(true);
        admission.turn(NOW);
        let fourth = poll(last.as_mut()).expect("its turn").expect("let in");
        assert_eq!((admission.open(), admission.queued()), (4, 0));

        let mut fifth = pin!(admission.enter(NOW));
        assert!(poll(fifth.as_mut()).is_none(), "it is full");
        assert_eq!(admission.next_due(NOW), Some(NOW + QUEUE_WAIT_MAX));
        drop((third, fourth));
        let shared = first.share();
        drop(first);
        assert_eq!(admission.open(), 2, "the engine has the first");
        admission.turn(NOW);
        assert!(poll(fifth.as_mut()).is_some());
        drop(shared);
        assert_eq!(admission.open(), 1, "the second");
        assert_eq!(admission.gates.len(), 0);
    }

    #[test]
    fn who_waits_too_long_is_refused() {
        let admission = shut();
        let mut patient = pin!(admission.enter(NOW));
        assert!(poll(patient.as_mut()).is_none(), "nothing is served yet");
        admission.turn(NOW + QUEUE_WAIT_MAX);
        assert!(poll(patient.as_mut()).expect("told").is_err());
        assert_eq!((admission.open(), admission.queued()), (0, 0));
    }

    #[test]
    fn who_goes_leaves_no_trace() {
        let admission = shut();
        let mut gone = Box::pin(admission.enter(NOW));
        assert!(poll(gone.as_mut()).is_none());
        drop(gone);
        assert_eq!((admission.queued(), admission.gates.len()), (0, 0));

        let mut late = Box::pin(admission.enter(NOW));
        assert!(poll(late.as_mut()).is_none());
        admission.serve(true);
        admission.step(true);
        admission.turn(NOW);
        assert_eq!(admission.open(), 1, "let in, and has not learned of it");
        drop(late);
        assert_eq!((admission.open(), admission.gates.len()), (0, 0));
    }
}
