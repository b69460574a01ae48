//! A worker's stream of one shard, and all that the worker keeps of it: what it says, what the leader appends to it, which
//! branches in it are in doubt, and which decisions in it are not acknowledged.
//!
//! ```text
//!   where the node follows            where it leads
//!   stream ── entries ──► replay      log ── entries ──► stream ── durable ──► replay
//!                                      ▲                                         │ taken over: prepared, decided
//!                                      └── outcomes, ends ── in doubt, decisions ◄┘
//! ```
//! Each part has its own invariants. Those that hold between parts:
//!
//! - P5: all that is in doubt has its clock in flight.
//! - P7: a shard is served once all that is in doubt here holds its locks.
//! - P8, P9: a decision is kept here only while the node leads the shard, and while the stream has it without its end.

use super::branch_writes::{BranchWrites, WritesToCome};
use super::in_doubt_branch::{DecidedBranch, InDoubt, InDoubtBranches, LockTurns};
use super::in_doubt_keys::{InDoubtKeys, OwnInDoubtKeys};
use super::leader_log::{ClosedRecords, DurableRecords, LeaderLog, RecordWaiter};
use super::leader_state::LeaderState;
use super::message::DecisionHome;
use super::open_decisions::{Decisions, Delivery};
use super::options::TwoPhaseCommitOptions;
use super::prepared_replay::{Checkpoint, PreparedReplay};
use super::record::{OpenRecords, PartSize, RecordEntry};
use super::shared::FIRST_EPOCH;
use shoal_engine::execution::session_pool::{PooledSession, SessionPool};
use shoal_engine::metrics::TransitTimes;
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::codec::StreamWrite;
use shoal_replication::in_flight_clocks::InFlight;
use shoal_replication::replica::ShardReplica;
use shoal_store::Locked;
use shoal_types::{Ballot, Clock, Epoch, Result, ShardId, Time};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What is sent to another leader again and again, until it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Resend {
    /// A branch in doubt asks its home for the decision.
    Inquiry(TransactionId),
    /// The home sends a participant the decision.
    Decision(TransactionId, ShardId),
}

/// One stream, as its worker sees it.
pub(super) struct ShardStream {
    log: LeaderLog,
    replay: PreparedReplay,
    in_doubt: InDoubtBranches,
    in_doubt_keys: OwnInDoubtKeys,
    decisions: Decisions,
    /// The greatest clock that the shard had drawn when this node led it last. What was on its way then may be decided since,
    /// and is applied like entries of another leader.
    left: Clock,
}

impl ShardStream {
    /// A stream that is followed, and has no entries yet.
    pub(super) fn new(replica: &ShardReplica, part: PartSize) -> ShardStream {
        ShardStream {
            log: LeaderLog::new(replica.shard, part),
            replay: PreparedReplay::new(replica),
            in_doubt: InDoubtBranches::default(),
            in_doubt_keys: OwnInDoubtKeys::default(),
            decisions: Decisions::default(),
            left: Clock::ZERO,
        }
    }

    /// The greatest clock of what is applied now and was perhaps installed by no leader: all of it if this node is about to
    /// lead; else what was on its way when the node laid down the lead.
    pub(super) fn greatest_inherited(&self) -> Clock {
        match self.leadership() {
            Some(state) if state.has_begun() => Clock::ZERO,
            Some(_) => Clock(u64::MAX),
            None => self.left,
        }
    }

    /// The shard that it belongs to.
    pub(super) fn shard(&self) -> ShardId {
        self.log.shard()
    }

    /// The leader's part.
    pub(super) fn log(&self) -> &LeaderLog {
        &self.log
    }

    /// What the stream says.
    pub(super) fn replay(&self) -> &PreparedReplay {
        &self.replay
    }

    /// The branches in doubt.
    pub(super) fn in_doubt(&self) -> &InDoubtBranches {
        &self.in_doubt
    }

    /// The number of branches whose keys are still to be registered, or to be taken out.
    pub(super) fn keys_left(&self) -> usize {
        self.in_doubt_keys.len()
    }

    /// The number of decisions that are not acknowledged.
    pub(super) fn open_decisions(&self) -> usize {
        self.decisions.len()
    }

    /// How far the leadership is, once the stream is prepared.
    pub(super) fn leadership(&self) -> Option<&LeaderState> {
        self.log.state()
    }

    /// Does the node lead the shard, and has it begun to: is all decided that it has inherited?
    pub(super) fn has_begun(&self) -> bool {
        self.leadership().is_some_and(LeaderState::has_begun)
    }

    /// The leadership as the home of transactions.
    pub(super) fn home(&self) -> DecisionHome {
        DecisionHome { shard: self.shard(), leadership: self.log.since() }
    }

    /// Is something under way here that goes on in the next step: replay, recovery, or what is in doubt?
    pub(super) fn is_busy(&self) -> bool {
        self.replay.is_due()
            || self.leadership().is_some_and(LeaderState::is_recovering)
            || !self.in_doubt.are_locked()
            || self.in_doubt.has_decided()
            || self.in_doubt_keys.len() > 0
    }

    /// Does what is in doubt go on in another step, since this one had no more than `left` keys left for it?
    pub(super) fn is_sliced(&self, left: usize) -> bool {
        self.in_doubt.has_decided()
            || self.in_doubt_keys.len() > 0
            || (left == 0 && self.in_doubt.has_to_lock())
    }

    /// Does something wait that another worker of the node holds up, so that it is to be tried again?
    pub(super) fn is_blocked(&self) -> bool {
        self.replay.is_blocked() || self.in_doubt.has_failed()
    }

    /// How much is under way: entries, clocks in flight, what is to be applied, decisions.
    pub(super) fn pending(&self) -> usize {
        self.log.pending() + self.replay.pending() + self.decisions.len()
    }
}

/// What holds after each step.
impl ShardStream {
    /// Asserts the invariants of the parts, and those above. What takes longer than a step may is asserted in debug builds
    /// only.
    pub(super) fn assert_invariants(&self, ignores_undecided: bool) {
        let (shard, has_begun) = (self.shard(), self.has_begun());
        self.log.assert_invariants();
        self.replay.assert_invariants();
        let kept = self.in_doubt.len() + self.decisions.len() + self.in_doubt_keys.len();
        assert!(has_begun || kept == 0, "P8: {shard} is not led, and {kept} branches are kept");
        assert!(
            !self.log.serves() || self.in_doubt.are_locked() || ignores_undecided,
            "P7: {shard} is served, and something is in doubt there without its locks"
        );
        if cfg!(debug_assertions) {
            self.in_doubt.assert_invariants();
            self.decisions.assert_invariants();
            for (transaction, branch) in self.in_doubt.iter() {
                let flies = self.log.flies(branch.clock());
                assert!(flies, "P5: {transaction} is in doubt on {shard}, and not in flight");
            }
            for transaction in self.decisions.transactions() {
                let is_decided = self.replay.is_decided(transaction);
                assert!(is_decided, "P9: {transaction} is not decided on {shard}, and sent");
            }
        }
    }
}

/// The leader's part.
impl ShardStream {
    /// The stream is prepared under `ballot`, with so many entries, in a leadership that began in epoch `since`.
    pub(super) fn lead(&mut self, ballot: Ballot, since: Epoch, inherited: u64) {
        self.log.lead(ballot, since, inherited);
    }

    /// All that was inherited is decided and in the store: goes on with its decisions, and with what is in doubt. Clocks that
    /// are drawn from now on come after all that the stream has. Returns what is to be sent for these, now and repeatedly.
    pub(super) fn begin(&mut self, now: Time, replica: &ShardReplica) -> Vec<Resend> {
        let (length, safe) = (self.replay.length(), self.replay.safe());
        replica.store.raise_clock(self.replay.greatest().max(safe));
        self.log.begin(length, safe);
        let mut resends = Vec::new();
        self.decisions = Decisions::default();
        for (transaction, shards) in self.replay.decided() {
            resends.extend(shards.iter().map(|shard| Resend::Decision(transaction, *shard)));
            let repeated = shards.iter().map(|it| (*it, Delivery::RepeatedFrom(now)));
            self.decisions.add(transaction, repeated.collect());
        }
        for (transaction, branch) in self.replay.prepared() {
            let (epoch, since, resolved) = (FIRST_EPOCH, now, false);
            let flight = InFlight { transaction, epoch, since, resolved };
            self.log.begin_in_flight(branch.clock, flight);
            self.in_doubt.insert(transaction, InDoubt::recovered(branch));
            resends.push(Resend::Inquiry(transaction));
        }
        self.in_doubt_keys.begin(self.in_doubt.writes());
        resends
    }

    /// All that is in doubt is locked or resolved.
    pub(super) fn recover(&mut self) {
        self.log.recover();
    }

    /// All streams of the shard are recovered.
    pub(super) fn serve(&mut self) {
        self.log.serve();
    }

    /// A clock was drawn under locks: it is in flight now.
    pub(super) fn begin_in_flight(&mut self, clock: Clock, flight: InFlight) {
        self.log.begin_in_flight(clock, flight);
    }

    /// A clock is resolved: what it was drawn for is installed, or was given up.
    pub(super) fn end_in_flight(&mut self, clock: Clock) {
        self.log.end_in_flight(clock);
    }

    /// Adds a record: see [`LeaderLog::append`].
    pub(super) fn append(
        &mut self,
        now: Time,
        clock: Option<Clock>,
        waiter: Option<RecordWaiter>,
        add: impl FnOnce(&mut OpenRecords),
    ) {
        self.log.append(now, clock, waiter, add);
    }

    /// Takes the next entry, to be proposed: see [`LeaderLog::close`].
    pub(super) fn close(
        &mut self,
        now: Time,
        replica: &ShardReplica,
        options: &TwoPhaseCommitOptions,
    ) -> ClosedRecords {
        self.log.close(now, replica, options)
    }

    /// So many entries are decided. Returns those that are news, and how long entries were on their way.
    pub(super) fn durable(
        &mut self,
        now: Time,
        length: u64,
    ) -> (Vec<DurableRecords>, TransitTimes) {
        let durable = self.log.durable(now, length);
        (durable, self.log.take_transit())
    }

    /// The writes of a transaction that this leader has committed are all in the store; it had been prepared here, or not.
    pub(super) fn installed(&mut self, transaction: TransactionId, was_prepared: bool) {
        match was_prepared {
            true => self.replay.note_installed(transaction),
            false => self.replay.note_committed(transaction),
        }
    }

    /// The node leads the shard no more: what is not decided is forgotten here. Returns the transactions whose decisions were
    /// not acknowledged.
    ///
    /// # Panics
    /// If something that is committed is not installed (P10), or a branch that is not in doubt has a clock in flight (P5).
    pub(super) fn resign(&mut self, keys: &InDoubtKeys, drawn: Clock) -> Vec<TransactionId> {
        self.left = drawn;
        self.replay.assert_installed();
        for branch in self.in_doubt.take_all() {
            self.log.end_in_flight(branch.clock());
        }
        self.in_doubt_keys = OwnInDoubtKeys::default();
        keys.end(self.log.since());
        self.log.resign();
        std::mem::take(&mut self.decisions).transactions().collect()
    }
}

/// What it says.
impl ShardStream {
    /// Takes its next entry: see [`PreparedReplay::enter`].
    pub(super) fn enter(&mut self, entry: RecordEntry, installed: bool) {
        self.replay.enter(entry, installed);
    }

    /// Applies what it can: see [`PreparedReplay::advance`].
    pub(super) fn advance(
        &mut self,
        apply: impl FnMut(&Rc<SessionPool>, (TransactionId, Clock), &[StreamWrite]) -> usize,
    ) -> Clock {
        self.replay.advance(apply)
    }

    /// Makes checkpoints, and takes them for stable: see [`PreparedReplay::stabilize`].
    pub(super) fn stabilize(&mut self, ignored: bool) {
        self.replay.stabilize(ignored);
    }

    /// Begins behind the entries for which this stands: see [`PreparedReplay::restore`].
    ///
    /// # Panics
    /// If this worker appends to it.
    pub(super) fn restore(&mut self, checkpoint: Checkpoint, writes: WritesToCome) {
        assert!(!self.has_begun(), "P10: {} is led here, and its stream begins anew", self.shard());
        self.replay.restore(checkpoint, writes);
    }

    /// The node has no replica of the shard any more. Returns whether something of the stream had come.
    pub(super) fn forget(&mut self, replica: &ShardReplica) -> bool {
        let had_data = self.replay.length() > 0;
        self.replay = PreparedReplay::new(replica);
        had_data
    }
}

/// What is in doubt in it.
impl ShardStream {
    /// A branch that this leader has prepared is without a coordinator from now on.
    pub(super) fn leave(
        &mut self,
        transaction: TransactionId,
        locked: Locked<PooledSession>,
        clock: Clock,
        home: DecisionHome,
    ) {
        self.in_doubt.insert(transaction, InDoubt::left(locked, clock, home));
    }

    /// Records the decision on a branch in doubt: see [`InDoubtBranches::decide`].
    pub(super) fn decide(&mut self, transaction: TransactionId, committed: bool) {
        self.in_doubt.decide(transaction, committed);
    }

    /// Registers the keys of what was found in doubt, `left` at most. Returns whether these were the last of them.
    pub(super) fn register_keys(&mut self, keys: &InDoubtKeys, left: &mut usize) -> bool {
        self.in_doubt_keys.register(keys, self.log.since(), left)
    }

    /// Whether the keys of all that was found in doubt are registered.
    pub(super) fn has_registered(&self) -> bool {
        self.in_doubt_keys.is_registered()
    }

    /// Whether keys of what is resolved are to be taken out.
    pub(super) fn has_resolved_keys(&self) -> bool {
        self.in_doubt_keys.has_resolved()
    }

    /// Takes out the keys of what is resolved, `left` at most.
    pub(super) fn resolve_keys(&mut self, keys: &InDoubtKeys, left: &mut usize) {
        self.in_doubt_keys.resolve(keys, self.log.since(), left);
    }

    /// The number of branches whose locks are to be taken: also those that have waited, where keys were resolved meanwhile.
    pub(super) fn branches_to_lock(&mut self, keys: &InDoubtKeys) -> usize {
        self.in_doubt.retry_waiting(keys.resolved(self.log.since()))
    }

    /// Goes on with the locks of the next branch: see [`InDoubtBranches::lock_next`].
    pub(super) fn lock_next(
        &mut self,
        keys: &InDoubtKeys,
        skips: impl Fn(&InDoubt) -> bool,
        left: &mut usize,
    ) -> (TransactionId, Result<()>) {
        let (leadership, sessions) = (self.log.since(), self.replay.sessions());
        self.in_doubt.lock_next(&LockTurns { keys, leadership, sessions }, skips, left)
    }

    /// Takes out the next branch that is locked and decided.
    pub(super) fn take_decided(&mut self) -> Option<DecidedBranch> {
        self.in_doubt.take_decided()
    }

    /// A branch in doubt is resolved: it is the turn of the next on its keys, as soon as these are taken out.
    pub(super) fn end_in_doubt(&mut self, clock: Clock, writes: BranchWrites) {
        self.in_doubt_keys.end(clock, writes);
    }
}

/// Decisions in it.
impl ShardStream {
    /// Adds a decision that these participants have to receive.
    pub(super) fn add_decision(
        &mut self,
        transaction: TransactionId,
        participants: BTreeMap<ShardId, Delivery>,
    ) {
        self.decisions.add(transaction, participants);
    }

    /// The home shard sends a participant the decision, repeatedly from this time on: see [`Decisions::repeat`].
    pub(super) fn repeat_decision(
        &mut self,
        transaction: TransactionId,
        shard: ShardId,
        at: Time,
    ) -> bool {
        self.decisions.repeat(transaction, shard, at)
    }

    /// The decisions that a participant has not acknowledged.
    pub(super) fn decisions_of(&self, shard: ShardId) -> Vec<TransactionId> {
        self.decisions.of_participant(shard).collect()
    }

    /// When this is to be sent; `None` if it need not be sent any more.
    pub(super) fn resend_at(&self, resend: Resend) -> Option<Time> {
        match resend {
            Resend::Inquiry(transaction) => self.in_doubt.inquires_at(transaction),
            Resend::Decision(transaction, shard) => self.decisions.due_at(transaction, shard),
        }
    }

    /// This is sent now, and will be again at that time. Returns the home of the transaction.
    pub(super) fn resend_again(&mut self, resend: Resend, at: Time) -> DecisionHome {
        match resend {
            Resend::Inquiry(transaction) => self.in_doubt.inquire_again(transaction, at),
            Resend::Decision(transaction, shard) => {
                assert!(self.decisions.repeat(transaction, shard, at), "P9: it is acknowledged");
                self.home()
            }
        }
    }

    /// Whether a decision of this stream is not acknowledged.
    pub(super) fn has_decision(&self, transaction: TransactionId) -> bool {
        self.decisions.contains(transaction)
    }

    /// A participant has the outcome durable. Where it was the last, the decision may be forgotten: an *end* is appended.
    pub(super) fn acknowledge(&mut self, now: Time, transaction: TransactionId, shard: ShardId) {
        if self.decisions.acknowledge(transaction, shard) {
            self.end_decision(now, transaction);
        }
    }

    /// All participants have the outcome durable, and the decision may be forgotten (rule P9).
    pub(super) fn end_decision(&mut self, now: Time, transaction: TransactionId) {
        self.log.append(now, None, None, |batch| batch.end(transaction));
    }
}
