//! What every engine's worker does alike: it runs tasks, talks with other workers about branches, and
//! counts.
//!
//! ```text
//!   tasks ──► hub ── asks ──► engine ── requests ──► outbox ──► other workers
//!                               ▲                       │
//!                               └────── replies ────────┘
//! ```
//! An engine says what a request and a reply are, and what happens at commit; how they travel is here.

use super::branches::Header;
use super::calls::Calls;
use super::exchange::Exchange;
use super::hub::{Ask, Branch, Errand, Hub};
use super::outbox::{BranchKey, Outbox};
use super::slot::Slot;
use super::tasks::Tasks;
use super::timers::Timers;
use crate::client::{ClientId, Relay, Request};
use crate::engine::{Counters, Effect, Effects, Event};
use crate::operation::{ANSWER, Answer, Operation};
use crate::procedure::Procedures;
use crate::transaction_id::TransactionId;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{Aborted, Epoch, Error, NodeId, Result, ShardId, Time, WorkerId};

/// After this the worker goes on with what a step left.
pub(crate) const TURN: Duration = Duration::from_micros(1);

/// An engine's messages, as far as execution has to make them.
pub(crate) trait Envelope: Clone {
    /// What a coordinator asks of a participant.
    type Request;

    /// A request to a branch.
    fn request(header: Header, request: Self::Request) -> Self;

    /// Between the node that a client asked and the one that serves it.
    fn relay(relay: Relay) -> Self;
}

/// See the module. `M` is what the engine's workers say to each other.
pub(crate) struct Desk<M> {
    pub(crate) hub: Rc<Hub>,
    pub(crate) tasks: Tasks,
    pub(crate) counters: Counters,
    calls: Calls,
    outbox: Outbox<M>,
    sleeping: Timers<Rc<Slot<()>>>,
    /// How many participants of a transaction that is decided have not confirmed it yet.
    unresolved: BTreeMap<u64, usize>,
}

impl<M: Envelope> Desk<M> {
    pub(crate) fn new(hub: Rc<Hub>, procedures: &Arc<Procedures>) -> Desk<M> {
        Desk {
            tasks: Tasks::default(),
            calls: Calls::new(&hub, procedures),
            outbox: Outbox::new(hub.limits.retry_after, hub.limits.shard_wait_max),
            counters: Counters::default(),
            sleeping: Timers::default(),
            unresolved: BTreeMap::new(),
            hub,
        }
    }

    /// A client asks for something.
    pub(crate) fn request(&mut self, from: ClientId, request: Request) {
        self.tasks.extend(self.calls.request(from, request));
    }

    /// Another node passes something on.
    pub(crate) fn relayed(&mut self, from: NodeId, relay: Relay) {
        self.tasks.extend(self.calls.relayed(from, relay));
    }

    /// Sends again what was not answered in time.
    pub(crate) fn repeat(&mut self, now: Time, effects: &mut Effects<M>) {
        let resent = &mut self.counters.resent;
        self.outbox.overdue(now, |to, message| {
            *resent += 1;
            effects.push(Effect::Send { to, message: message.clone() });
        });
    }

    /// How much each table of what all engines share holds.
    pub(crate) fn sizes(&self) -> Vec<(&'static str, usize)> {
        let [sessions, sessions_over, calls_known, calls_running] = self.calls.sizes();
        let [requests, requests_due] = self.outbox.sizes();
        vec![
            ("tasks", self.tasks.size()),
            ("sleeping tasks", self.sleeping.len()),
            ("transactions that wait for room", self.hub.admission.queued()),
            ("requests without an answer", requests),
            ("times at which to repeat requests", requests_due),
            ("transactions not confirmed by participants", self.unresolved.len()),
            ("numbers of transactions not over", self.hub.sequences.borrow().len()),
            ("interactive transactions", sessions),
            ("interactive transactions that are over", sessions_over),
            ("call sessions", calls_known),
            ("calls that run", calls_running),
        ]
    }

    /// A step begins, with this event.
    pub(crate) fn begin_step(&self, now: Time, event: &Event<M>) {
        self.hub.begin_step(now);
        self.hub.end_some();
        self.hub.admission.step(matches!(event, Event::Timer));
    }

    /// Begins a round of the tasks that can go on now.
    pub(crate) fn begin_round(&mut self, now: Time) {
        self.sleeping.due(now, |slot| slot.fill(()));
        let swept = self.calls.sweep(now);
        self.tasks.extend(swept);
        self.hub.admission.turn(now);
        self.tasks.begin_round();
    }

    /// Does what tasks want of any engine, and gives the first of what they ask of this one.
    pub(crate) fn next_ask(&mut self, effects: &mut Effects<M>) -> Option<Ask> {
        while let Some(errand) = self.hub.next_errand() {
            match errand {
                Errand::Sleep { until, slot } => self.sleeping.add(until, slot),
                Errand::Reply { to, reply } => effects.push(Effect::Reply { to, reply }),
                Errand::Relay { to, relay } => {
                    effects.push(Effect::Send { to, message: M::relay(relay) });
                }
            }
        }
        self.hub.next_ask()
    }

    /// Is the request for a branch here, at a shard that `led` says is served? Otherwise it is counted:
    /// its coordinator asks again, and by then things may be different.
    pub(crate) fn is_ours(&mut self, from: NodeId, header: &Header, led: bool) -> bool {
        let ours = led
            && self.hub.reign(header.shard).1 == header.reign
            && header.is_of(from, self.hub.place.worker);
        self.counters.dropped += u64::from(!ours);
        ours
    }

    /// When there will be something to do.
    pub(crate) fn next_due(&mut self) -> Option<Time> {
        let due = [
            self.outbox.next_due(),
            self.sleeping.next_due(),
            self.hub.admission.next_due(self.hub.now.get()),
            self.calls.next_due(),
        ];
        due.into_iter().flatten().min()
    }

    /// When to go on with what is rolled back in slices, which needs no lease.
    pub(crate) fn next_ending(&self) -> Option<Time> {
        (self.hub.ending() > 0).then(|| self.hub.now.get() + TURN)
    }

    /// How many transactions and requests are under way.
    pub(crate) fn pending(&self) -> usize {
        let admission = &self.hub.admission;
        admission.open() + admission.queued() + self.outbox.len() + self.hub.ending()
    }

    /// Are requests to other workers under way?
    pub(crate) fn awaits_answers(&self) -> bool {
        self.outbox.len() > 0
    }

    /// An answer to request `step` came. The branch, if that was waited for and `fits` the request: it
    /// may be a repetition, or not matter any more, or be nonsense.
    pub(crate) fn answered(
        &mut self,
        from: NodeId,
        (transaction, shard, step): (TransactionId, ShardId, u32),
        fits: impl FnOnce(&M) -> bool,
    ) -> Option<BranchKey> {
        let place = self.hub.place;
        let own = (transaction.node, transaction.worker) == (place.node, place.worker);
        let key = (transaction.sequence, shard);
        if own && self.outbox.answered(from, key, step, fits) {
            return Some(key);
        }
        self.counters.dropped += 1;
        None
    }

    /// Sends the operations that have gathered in an exchange. Says whether there were any.
    pub(crate) fn send_batches(
        &mut self,
        exchange: &Exchange,
        execute: impl Fn(Vec<Operation>) -> M::Request,
        effects: &mut Effects<M>,
    ) -> bool {
        let mut batches = Vec::new();
        exchange.take_batches(|remote, operations| {
            batches.push((remote.shard, (remote.node, remote.reign), remote.step, operations));
        });
        let any = !batches.is_empty();
        for (shard, reign, step, operations) in batches {
            self.send(exchange, shard, (reign, step), execute(operations), effects);
        }
        any
    }

    /// Sends the next request of a branch, made of the writes that have gathered.
    pub(crate) fn send_next(
        &mut self,
        exchange: &Exchange,
        shard: ShardId,
        request: impl FnOnce(Vec<Operation>) -> M::Request,
        effects: &mut Effects<M>,
    ) {
        let (reign, step, operations) = exchange.with_remote(shard, |remote| {
            ((remote.node, remote.reign), remote.next_step(), remote.take_writes())
        });
        self.send(exchange, shard, (reign, step), request(operations), effects);
    }

    /// Sends a request, again and again until it is answered.
    fn send(
        &mut self,
        exchange: &Exchange,
        shard: ShardId,
        ((node, reign), step): ((NodeId, Epoch), u32),
        request: M::Request,
        effects: &mut Effects<M>,
    ) {
        let oldest = self.hub.sequences.borrow().oldest();
        let (transaction, epoch) = (exchange.id, exchange.epoch);
        let header = Header { transaction, shard, step, oldest, epoch, reign };
        let message = M::request(header, request);
        let key = (transaction.sequence, shard);
        let (now, extra) = (self.hub.now.get(), self.hub.extra_wait(exchange.keys()));
        self.outbox.send((now, extra), key, (step, epoch), node, message.clone());
        effects.push(Effect::Send { to: node, message });
    }

    /// Tells the participants that have not ended their branches to undo them, and says so to nothing
    /// else.
    pub(crate) fn give_up(
        &mut self,
        exchange: &Exchange,
        abort: impl Fn() -> M::Request,
        effects: &mut Effects<M>,
    ) {
        let sequence = exchange.id.sequence;
        let open = exchange.open_branches();
        for shard in &open {
            self.outbox.forget((sequence, *shard));
            self.send_next(exchange, *shard, |_| abort(), effects);
        }
        self.expect_resolved(sequence, open.len());
    }

    /// The leader of `shard` is gone, and with it all that it was asked: nothing of that will be answered.
    /// Says which transactions had asked.
    pub(crate) fn lose_participant(&mut self, shard: ShardId) -> Vec<u64> {
        let asked = self.outbox.forget_shard(shard);
        let (ended, open) =
            asked.into_iter().partition(|sequence| self.unresolved.contains_key(sequence));
        let ended: Vec<u64> = ended;
        ended.into_iter().for_each(|sequence| self.resolved(sequence));
        open
    }

    /// Gives up the requests that were not answered for as long as a transaction waits for another shard. What is
    /// decided is said again until it is confirmed, or its epoch is `over` everywhere; of the others says whose they are,
    /// and which shard was asked. And says whether there were any of the open epoch: its end resolves what participants
    /// keep.
    pub(crate) fn expire(
        &mut self,
        now: Time,
        over: impl Fn(Epoch) -> bool,
    ) -> (Vec<BranchKey>, bool) {
        let unresolved = &self.unresolved;
        let kept =
            |(sequence, _): BranchKey, epoch| unresolved.contains_key(&sequence) && !over(epoch);
        let expired = self.outbox.expire(now, kept);
        let open = self.hub.epoch.get();
        let any = expired.iter().any(|(_, epoch, _)| *epoch == open);
        let gone = expired.into_iter().filter(|(.., gone)| *gone).map(|(key, ..)| key);
        let (decided, undecided): (Vec<_>, Vec<_>) =
            gone.partition(|(sequence, _)| self.unresolved.contains_key(sequence));
        decided.into_iter().for_each(|(sequence, _)| self.resolved(sequence));
        (undecided, any)
    }

    /// See [`Outbox::waiting`].
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = (BranchKey, NodeId, Time)> + '_ {
        self.outbox.waiting()
    }

    /// When the next request may have to be given up.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.outbox.next_expiry()
    }

    /// A transaction is decided; so many participants have to confirm it.
    pub(crate) fn expect_resolved(&mut self, sequence: u64, participants: usize) {
        match participants {
            0 => self.hub.sequences.borrow_mut().finish(sequence),
            _ => assert!(
                self.unresolved.insert(sequence, participants).is_none(),
                "{sequence} was decided twice"
            ),
        }
    }

    /// A participant has ended its branch, as it was told.
    pub(crate) fn resolved(&mut self, sequence: u64) {
        let Some(left) = self.unresolved.get_mut(&sequence) else {
            self.counters.dropped += 1;
            return;
        };
        *left -= 1;
        if *left == 0 {
            self.unresolved.remove(&sequence);
            self.hub.sequences.borrow_mut().finish(sequence);
        }
    }

    /// Tells a transaction that it has committed.
    pub(crate) fn commit(&mut self, exchange: &Exchange) {
        self.counters.committed += 1;
        let stages = exchange.marks.tell(&exchange.permit, self.hub.now.get());
        self.counters.stages += stages.unwrap_or_default();
        self.finish(exchange, Ok(()));
    }

    /// Tells a transaction its outcome.
    pub(crate) fn finish(&mut self, exchange: &Exchange, outcome: Result<()>) {
        if let Err(Error::Aborted(Aborted::Conflict(_))) = outcome {
            self.counters.conflicts += 1;
        }
        exchange.outcome.fill(outcome);
    }

    /// Does a participant's operations in order. An error of one that has an answer is that answer. Once the answers
    /// bring as much as one message may, those that would bring more are left for another request.
    pub(crate) fn perform(
        &mut self,
        branch: &Branch,
        operations: &[Operation],
    ) -> Result<Vec<Result<Answer>>> {
        self.counters.operations += operations.len() as u64;
        let (mut answers, mut room) = (Vec::new(), ANSWER);
        for operation in operations {
            if operation.brings_rows() && room.is_used_up() {
                answers.push(Ok(Answer::Later));
                continue;
            }
            match operation.perform(branch, room) {
                answer if operation.wants_answer() => {
                    room = answer.as_ref().map_or(room, |answer| room.after(answer));
                    answers.push(answer);
                }
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(answers)
    }

    /// Has the other workers of this node look at what they share.
    pub(crate) fn nudge_others(&self, effects: &mut Effects<M>) {
        let own = self.hub.place.worker;
        let workers = (0..self.hub.topology.workers()).map(WorkerId);
        for worker in workers.filter(|worker| *worker != own) {
            effects.push(Effect::Nudge { worker });
        }
    }
}

/// Can these be the answers to these operations?
pub(crate) fn answers_fit(operations: &[Operation], answers: &[Result<Answer>]) -> bool {
    let mut asked = operations.iter().filter(|operation| operation.wants_answer());
    answers.len() == asked.clone().count()
        && answers.iter().all(|answer| match (asked.next(), answer) {
            (None, _) => false,
            (Some(_), Err(_)) => true,
            (Some(Operation::Get { .. }), Ok(answer)) => {
                matches!(answer, Answer::Value(_) | Answer::Later)
            }
            (Some(Operation::Scan { .. }), Ok(answer)) => match answer {
                Answer::Rows(_) | Answer::Later => true,
                Answer::Page(rows) => !rows.is_empty(),
                Answer::Value(_) | Answer::Done => false,
            },
            (Some(_), Ok(answer)) => *answer == Answer::Done,
        })
}
