//! Branches of transactions that other nodes coordinate (rules P2 and P4).
//!
//! ```text
//!   Execute*         Prepare             durable, Validate            Commit           durable
//!   ────────► open ──────────► prepared ──────────────────► prepared ────────► ended ────────► over
//!              │ │ Lock                OnePhase, or Validate, DecideLast  durable
//!              │ └──────────► locked ─────────────────────► committing ───────► over
//!              │ OnePhase ──────────────────────────────────────►│
//!              └ Validate, Abort, or any refusal ──► over
//! ```

use super::leader_log::RecordWaiter;
use super::message::{BranchHeader, DecisionHome, TwoPhaseCommitReply, TwoPhaseCommitRequest};
use super::{FIRST_EPOCH, TwoPhaseCommit, TwoPhaseCommitEffects, TwoPhaseCommitMessage};
use crate::observation::TwoPhaseCommitObservation;
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use shoal_engine::engine::EngineEffect;
use shoal_engine::execution::deferred_requests::DeferredRequest;
use shoal_engine::execution::participant_table::RequestArrival;
use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::execution::worker_context::{StoreBranch, recovering};
use shoal_engine::operation::Operation;
use shoal_engine::replication::in_flight_clocks::InFlight;
use shoal_engine::transaction_id::TransactionId;
use shoal_store::Locked;
use shoal_types::{Clock, NodeId, Result, ShardId, Stamp, Time, WorkerPlace};
use std::rc::Rc;

/// What an open branch holds. Who `asked` is answered when a record is durable.
pub(super) enum TwoPhaseCommitBranch {
    /// It executes.
    Open {
        branch: StoreBranch,
        /// When its coordinator asked last for something.
        since: Time,
    },
    /// It holds its locks, has validated, and waits for the others to.
    Locked {
        locked: Locked<PooledSession>,
        clock: Clock,
        /// When it was locked, or validated after that.
        since: Time,
        /// What it read was checked with the locks of all shards held.
        valid: bool,
    },
    /// It holds its locks and is in the stream.
    Prepared {
        locked: Locked<PooledSession>,
        clock: Clock,
        /// Where the decision will be.
        home: DecisionHome,
        /// When it was prepared.
        since: Time,
        /// Its record is durable.
        durable: bool,
        /// What it read was checked with all locks held.
        valid: bool,
        asked: Option<ReplyTarget>,
    },
    /// Its commit record is in the stream.
    Committing { locked: Locked<PooledSession>, clock: Clock, asked: ReplyTarget },
    /// It is installed; that it is, is in the stream.
    Ended {
        asked: ReplyTarget,
        /// Where the decision is.
        home: ShardId,
    },
}

/// Who waits for an answer, and to what.
pub(super) type ReplyTarget = (NodeId, BranchHeader);

/// What becomes of a branch, and what is said now. `None`: that comes later.
pub(super) type BranchOutcome = (Option<TwoPhaseCommitBranch>, Option<TwoPhaseCommitReply>);

impl TwoPhaseCommit {
    /// Acts on a request, or says again what was said before.
    pub(super) fn serve(
        &mut self,
        from: NodeId,
        header: &BranchHeader,
        request: TwoPhaseCommitRequest,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let is_own = self.is_leader(self.runtime.worker_context.place.node, header.shard);
        let at = self.place_of(header.shard).filter(|_| is_own);
        let peer = self.runtime.peer(from);
        let (Some(at), true) = (at, self.runtime.is_ours(peer, header, at.is_some())) else {
            return;
        };
        // All transactions are of one epoch: leaderships tell them apart. And who is gone asks for nothing.
        if header.epoch != FIRST_EPOCH || self.is_gone(header.transaction) {
            self.runtime.counters.dropped += 1;
            return;
        }
        if !self.leader_logs[at].serves() {
            return self.defer(from, header, request, effects);
        }
        self.act_as_leader(at, effects);
        let makes_sense = match &request {
            TwoPhaseCommitRequest::Prepare { home, .. } => self.has_shard(home.shard),
            TwoPhaseCommitRequest::DecideLast { participants } => {
                self.can_take_part(header.shard, participants)
            }
            _ => true,
        };
        if !makes_sense {
            self.runtime.counters.dropped += 1;
            return;
        }
        let ends = matches!(request, TwoPhaseCommitRequest::Abort);
        let reply = match self.branches.arrive(header, ends) {
            RequestArrival::Act => {
                let context = self.branches.context_mut(header.transaction, header.shard);
                if !fits(context.as_deref(), &request) {
                    // No coordinator of ours asks for that now.
                    self.runtime.counters.dropped += 1;
                    return;
                }
                self.act(at, (from, *header), request, effects)
            }
            RequestArrival::Repeated(reply) => reply,
            RequestArrival::Over => Some(TwoPhaseCommitReply::Resolved),
            RequestArrival::Ended => match request {
                TwoPhaseCommitRequest::Abort => Some(TwoPhaseCommitReply::Resolved),
                TwoPhaseCommitRequest::Commit => self.commit_left(at, header.transaction, effects),
                _ => Some(ended(header.shard)),
            },
            RequestArrival::Stale => {
                self.runtime.counters.dropped += 1;
                return;
            }
        };
        if let Some(reply) = reply {
            say((from, *header), reply, effects);
        }
    }

    /// A request comes while its shard is recovered. Where its transaction may hold locks on other shards it is refused, once
    /// and for all; everything else waits.
    fn defer(
        &mut self,
        from: NodeId,
        header: &BranchHeader,
        request: TwoPhaseCommitRequest,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        match request {
            TwoPhaseCommitRequest::Lock { .. }
            | TwoPhaseCommitRequest::Prepare { .. }
            | TwoPhaseCommitRequest::Validate
            | TwoPhaseCommitRequest::DecideLast { .. } => {
                let reply = match self.branches.arrive(header, false) {
                    RequestArrival::Act => Some(ended(header.shard)),
                    RequestArrival::Repeated(reply) => reply,
                    RequestArrival::Over | RequestArrival::Ended | RequestArrival::Stale => None,
                };
                let Some(reply) = reply else {
                    self.runtime.counters.dropped += 1;
                    return;
                };
                // Not even one that executes is open: none was served under this leadership.
                self.branches.close(header, Some(reply.clone()));
                say((from, *header), reply, effects);
            }
            TwoPhaseCommitRequest::Execute { .. }
            | TwoPhaseCommitRequest::OnePhase { .. }
            | TwoPhaseCommitRequest::Commit
            | TwoPhaseCommitRequest::Abort => {
                let worker_context = &self.runtime.worker_context;
                let (now, limits) = (worker_context.now.get(), &worker_context.limits);
                let is_kept = self.deferred.defer(now, limits, from, header, request);
                self.runtime.counters.dropped += u64::from(!is_kept);
            }
        }
    }

    /// Serves the requests whose shards have been recovered, and drops those that have waited too long.
    pub(super) fn serve_deferred(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) {
        let worker_context = Rc::clone(&self.runtime.worker_context);
        let is_served = |shard| worker_context.own(shard).is_some();
        for _ in 0..self.deferred.len() {
            let Some(deferred) = self.deferred.next(now, is_served) else { return };
            let DeferredRequest { from, header, request, .. } = deferred;
            match is_served(header.shard) {
                true => self.serve(from, &header, request, effects),
                false => self.runtime.counters.dropped += 1,
            }
        }
    }

    /// The coordinator says that a transaction is decided whose branch is in doubt here, or was. It says so until the
    /// outcome is durable.
    fn commit_left(
        &mut self,
        at: usize,
        transaction: TransactionId,
        effects: &mut TwoPhaseCommitEffects,
    ) -> Option<TwoPhaseCommitReply> {
        if let Some(home) = self.in_doubt[at].get(&transaction).map(|branch| branch.home.shard) {
            self.learn(at, transaction, home, true, effects);
        }
        let is_durable = self.prepared_replays[at].may_be_committed(transaction);
        is_durable.then_some(TwoPhaseCommitReply::Resolved)
    }

    /// Does what is asked for the first time, and makes sense.
    fn act(
        &mut self,
        at: usize,
        asked: ReplyTarget,
        request: TwoPhaseCommitRequest,
        effects: &mut TwoPhaseCommitEffects,
    ) -> Option<TwoPhaseCommitReply> {
        let header = asked.1;
        let transaction = header.transaction;
        let (context, reply) = match self.branches.take(&header) {
            None => match self
                .runtime
                .worker_context
                .begin(self.runtime.worker_context.own(header.shard).expect("led"))
            {
                Ok(branch) => self.act_open(at, asked, request, branch, effects),
                Err(error) => (None, Some(TwoPhaseCommitReply::Refused { error })),
            },
            Some(TwoPhaseCommitBranch::Open { branch, .. }) => {
                self.act_open(at, asked, request, branch, effects)
            }
            Some(TwoPhaseCommitBranch::Locked { locked, clock, valid, .. }) => match request {
                TwoPhaseCommitRequest::OnePhase { .. } => {
                    self.commit_branch(at, asked, (locked, clock), &[])
                }
                TwoPhaseCommitRequest::Validate => {
                    self.validate_locked(at, transaction, (locked, clock), effects)
                }
                TwoPhaseCommitRequest::DecideLast { participants } => {
                    assert!(
                        valid,
                        "P3: {transaction} is decided, and not valid on {}",
                        header.shard
                    );
                    self.commit_branch(at, asked, (locked, clock), &participants)
                }
                _ => {
                    self.drop_locked(at, transaction, (locked, clock), false, effects);
                    (None, Some(TwoPhaseCommitReply::Resolved))
                }
            },
            Some(TwoPhaseCommitBranch::Prepared {
                locked,
                clock,
                home,
                since,
                durable,
                valid,
                ..
            }) => match request {
                TwoPhaseCommitRequest::Validate => {
                    let prepared = PreparedLocks { locked, clock, home, since, durable };
                    self.validate_prepared(at, asked, prepared, effects)
                }
                TwoPhaseCommitRequest::Commit => {
                    assert!(durable && valid, "P4: {transaction} is committed, and not prepared");
                    self.install(at, transaction, locked, clock, effects);
                    self.prepared_replays[at].note_installed(transaction);
                    let waiter = Some(RecordWaiter::Branch(transaction));
                    self.append_outcome(at, transaction, true, waiter);
                    (Some(TwoPhaseCommitBranch::Ended { asked, home: home.shard }), None)
                }
                _ => {
                    self.drop_locked(at, transaction, (locked, clock), true, effects);
                    (None, Some(TwoPhaseCommitReply::Resolved))
                }
            },
            Some(TwoPhaseCommitBranch::Committing { .. } | TwoPhaseCommitBranch::Ended { .. }) => {
                unreachable!("nothing fits a branch that is committed")
            }
        };
        match context {
            Some(context) => {
                self.expect_request(&context);
                self.branches.keep(&header, context, reply.clone());
            }
            None => self.branches.close(&header, reply.clone()),
        }
        reply
    }

    /// Acts on a request to a branch that executes.
    fn act_open(
        &mut self,
        at: usize,
        asked: ReplyTarget,
        request: TwoPhaseCommitRequest,
        branch: StoreBranch,
        effects: &mut TwoPhaseCommitEffects,
    ) -> BranchOutcome {
        let transaction = asked.1.transaction;
        let since = self.runtime.worker_context.now.get();
        let acted = match request {
            TwoPhaseCommitRequest::Execute { operations } => {
                self.runtime.perform(&branch, &operations).map(|answers| {
                    (
                        Some(TwoPhaseCommitBranch::Open { branch, since }),
                        Some(TwoPhaseCommitReply::Executed { answers }),
                    )
                })
            }
            TwoPhaseCommitRequest::Lock { operations } => self
                .lock_to_commit(at, transaction, branch, &operations, effects)
                .map(|(locked, clock)| {
                    (
                        Some(TwoPhaseCommitBranch::Locked { locked, clock, since, valid: false }),
                        Some(TwoPhaseCommitReply::Locked { clock }),
                    )
                }),
            TwoPhaseCommitRequest::Prepare { operations, home } => {
                self.prepare(at, transaction, branch, &operations, home, effects)
            }
            TwoPhaseCommitRequest::Validate => {
                self.observe_reads(at, transaction, &branch, effects);
                self.validate(|| branch.validate())
                    .map(|()| (None, Some(TwoPhaseCommitReply::Validated)))
            }
            TwoPhaseCommitRequest::OnePhase { operations, install: true } => {
                self.commit_whole(at, asked, branch, &operations, effects)
            }
            TwoPhaseCommitRequest::OnePhase { install: false, .. } => {
                self.observe_reads(at, transaction, &branch, effects);
                branch
                    .validate()
                    .map(|()| (None, Some(TwoPhaseCommitReply::Committed { clock: None })))
            }
            TwoPhaseCommitRequest::Commit | TwoPhaseCommitRequest::DecideLast { .. } => {
                unreachable!("it does not fit a branch that executes")
            }
            TwoPhaseCommitRequest::Abort => Ok((None, Some(TwoPhaseCommitReply::Resolved))),
        };
        acted.unwrap_or_else(|error| (None, Some(TwoPhaseCommitReply::Refused { error })))
    }

    /// Locks and validates a branch whose shard is the only one that is written, or decides last.
    fn lock_to_commit(
        &mut self,
        at: usize,
        transaction: TransactionId,
        branch: StoreBranch,
        operations: &[Operation],
        effects: &mut TwoPhaseCommitEffects,
    ) -> Result<(Locked<PooledSession>, Clock)> {
        self.runtime.perform(&branch, operations)?;
        self.observe_reads(at, transaction, &branch, effects);
        let locked = branch.lock()?;
        self.validate(|| locked.validate())?;
        let clock = self.draw(at, transaction, &locked, effects);
        Ok((locked, clock))
    }

    fn prepare(
        &mut self,
        at: usize,
        transaction: TransactionId,
        branch: StoreBranch,
        operations: &[Operation],
        home: DecisionHome,
        effects: &mut TwoPhaseCommitEffects,
    ) -> Result<BranchOutcome> {
        if self.runtime.worker_context.leaderships.leader(home.shard).since > home.leadership {
            return Err(recovering(home.shard)); // The decision can never be made.
        }
        self.runtime.perform(&branch, operations)?;
        self.observe_reads(at, transaction, &branch, effects);
        let locked = branch.lock()?;
        // Checked again when all locks are held (rule P1). What fails now already need not be written and kept from
        // others until then.
        self.validate(|| locked.validate())?;
        let clock = self.draw(at, transaction, &locked, effects);
        let waiter = Some(RecordWaiter::Branch(transaction));
        self.leader_logs[at].append(
            self.runtime.worker_context.now.get(),
            Some(clock),
            waiter,
            |batch| {
                batch.prepare(transaction, clock, home, |write| locked.writes(write));
            },
        );
        let since = self.runtime.worker_context.now.get();
        self.inquire_at = self.inquire_at.min(since + self.options().inquire_after);
        let context = TwoPhaseCommitBranch::Prepared {
            locked,
            clock,
            home,
            since,
            durable: false,
            valid: false,
            asked: None,
        };
        Ok((Some(context), Some(TwoPhaseCommitReply::Locked { clock })))
    }

    /// All locks are held, everywhere. Answers once the prepare record is durable, too.
    fn validate_prepared(
        &mut self,
        at: usize,
        asked: ReplyTarget,
        prepared: PreparedLocks,
        effects: &mut TwoPhaseCommitEffects,
    ) -> BranchOutcome {
        let PreparedLocks { locked, clock, home, since, durable } = prepared;
        let too_early = self.options().faults.has(TwoPhaseCommitPlantedBug::ValidateBeforeLocks);
        let valid = if too_early { Ok(()) } else { self.validate(|| locked.validate()) };
        if let Err(error) = valid {
            self.drop_locked(at, asked.1.transaction, (locked, clock), true, effects);
            return (None, Some(TwoPhaseCommitReply::Refused { error }));
        }
        let (asked, reply) = match durable {
            true => (None, Some(TwoPhaseCommitReply::Validated)),
            false => (Some(asked), None),
        };
        let valid = true;
        let context =
            TwoPhaseCommitBranch::Prepared { locked, clock, home, since, durable, valid, asked };
        (Some(context), reply)
    }

    /// The branch is the whole transaction.
    fn commit_whole(
        &mut self,
        at: usize,
        asked: ReplyTarget,
        branch: StoreBranch,
        operations: &[Operation],
        effects: &mut TwoPhaseCommitEffects,
    ) -> Result<BranchOutcome> {
        let transaction = asked.1.transaction;
        self.runtime.perform(&branch, operations)?;
        if branch.is_read_only() {
            self.observe_reads(at, transaction, &branch, effects);
            branch.validate()?;
            return Ok((None, Some(TwoPhaseCommitReply::Committed { clock: None })));
        }
        let (locked, clock) = self.lock_to_commit(at, transaction, branch, &[], effects)?;
        Ok(self.commit_branch(at, asked, (locked, clock), &[]))
    }

    /// Everything is valid, and nothing else is written but by `participants`, which are prepared.
    fn commit_branch(
        &mut self,
        at: usize,
        asked: ReplyTarget,
        (locked, clock): (Locked<PooledSession>, Clock),
        participants: &[ShardId],
    ) -> BranchOutcome {
        let transaction = asked.1.transaction;
        assert_eq!(
            self.leader_logs[at].since(),
            asked.1.leadership,
            "P8: {transaction} is decided by another leadership than has locked it"
        );
        let waiter = RecordWaiter::Branch(transaction);
        self.append_commit(at, transaction, participants, Some((&locked, clock)), waiter);
        (Some(TwoPhaseCommitBranch::Committing { locked, clock, asked }), None)
    }

    /// A record of the branch is durable.
    pub(super) fn branch_is_durable(
        &mut self,
        at: usize,
        transaction: TransactionId,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let shard = self.leader_logs[at].lead.shard;
        let asked = match self.branches.context_mut(transaction, shard) {
            // It was given up meanwhile.
            None => return,
            Some(TwoPhaseCommitBranch::Prepared { durable, asked, .. }) => {
                *durable = true;
                asked.take()
            }
            Some(
                TwoPhaseCommitBranch::Committing { asked, .. }
                | TwoPhaseCommitBranch::Ended { asked, .. },
            ) => Some(*asked),
            Some(TwoPhaseCommitBranch::Open { .. } | TwoPhaseCommitBranch::Locked { .. }) => {
                panic!("{transaction} has no record on {shard}, and it became durable")
            }
        };
        let Some((from, header)) = asked else { return };
        let reply = match self.branches.take(&header).expect("seen above") {
            TwoPhaseCommitBranch::Committing { locked, clock, .. } => {
                self.install(at, transaction, locked, clock, effects);
                self.keep_decision(at, transaction);
                TwoPhaseCommitReply::Committed { clock: Some(clock) }
            }
            TwoPhaseCommitBranch::Ended { home, .. } => {
                // The coordinator hears so by the reply. Where it does not keep the decision, so does the node that does.
                if self.runtime.worker_context.leader(home) != transaction.node {
                    self.acknowledge(transaction, home, shard, effects);
                }
                TwoPhaseCommitReply::Resolved
            }
            prepared => {
                self.branches.keep(&header, prepared, Some(TwoPhaseCommitReply::Validated));
                return say((from, header), TwoPhaseCommitReply::Validated, effects);
            }
        };
        self.branches.close(&header, Some(reply.clone()));
        say((from, header), reply, effects);
    }

    /// Shows what a branch has read.
    pub(super) fn observe_reads(
        &self,
        at: usize,
        transaction: TransactionId,
        branch: &StoreBranch,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let Some(observations) = &mut effects.observations else { return };
        let shard = self.leader_logs[at].lead.shard;
        branch.versions_read(0, usize::MAX, |version| {
            let (stamp, tombstone) = (version.stamp.to_stamp(), version.value.is_none());
            observations.push(TwoPhaseCommitObservation::Read {
                transaction,
                shard,
                stamp,
                tombstone,
            });
        });
    }

    /// Draws a clock under the locks (rule P2).
    pub(super) fn draw(
        &mut self,
        at: usize,
        transaction: TransactionId,
        locked: &Locked<PooledSession>,
        effects: &mut TwoPhaseCommitEffects,
    ) -> Clock {
        let (shard, clock) = (self.leader_logs[at].lead.shard, locked.draw_clock());
        self.act_as_leader(at, effects);
        let (epoch, since) = (FIRST_EPOCH, self.runtime.worker_context.now.get());
        self.leader_logs[at]
            .lead
            .begin_in_flight(clock, InFlight { transaction, epoch, since, resolved: false });
        effects.observe(|| TwoPhaseCommitObservation::Drawn { transaction, shard, clock });
        clock
    }

    /// Appends a commit record: of a transaction that writes this shard only, or the decision on one
    /// that writes `participants` as well.
    pub(super) fn append_commit(
        &mut self,
        at: usize,
        transaction: TransactionId,
        participants: &[ShardId],
        own: Option<(&Locked<PooledSession>, Clock)>,
        waiter: RecordWaiter,
    ) {
        let clock = own.map(|(_, clock)| clock);
        self.leader_logs[at].append(
            self.runtime.worker_context.now.get(),
            clock,
            Some(waiter),
            |batch| {
                batch.commit(transaction, clock.unwrap_or_default(), participants, |write| {
                    own.into_iter().for_each(|(locked, _)| locked.writes(&mut *write));
                });
            },
        );
    }

    /// Appends what became of a branch that is prepared.
    pub(super) fn append_outcome(
        &mut self,
        at: usize,
        transaction: TransactionId,
        committed: bool,
        waiter: Option<RecordWaiter>,
    ) {
        self.leader_logs[at].append(self.runtime.worker_context.now.get(), None, waiter, |batch| {
            batch.outcome(transaction, committed);
        });
    }

    /// Installs what is committed, and releases its locks.
    pub(super) fn install(
        &mut self,
        at: usize,
        transaction: TransactionId,
        locked: Locked<PooledSession>,
        clock: Clock,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let (shard, stamp) = (self.leader_logs[at].lead.shard, Stamp::local(FIRST_EPOCH, clock));
        if let Some(observations) = &mut effects.observations {
            locked.writes(|table, key, value| {
                observations.push(TwoPhaseCommitObservation::Installed {
                    transaction,
                    shard,
                    stamp: stamp.clone(),
                    table,
                    key: key.to_vec(),
                    value: value.map(<[u8]>::to_vec),
                });
            });
        }
        // What is installed is committed, and so is all that was before it.
        locked.install(stamp.as_ref(), |_| true);
        self.leader_logs[at].lead.end_in_flight(clock);
        effects.observe(|| TwoPhaseCommitObservation::Resolved {
            transaction,
            shard,
            clock,
            installed: true,
        });
    }

    /// Undoes what is locked.
    pub(super) fn drop_locked(
        &mut self,
        at: usize,
        transaction: TransactionId,
        (locked, clock): (Locked<PooledSession>, Clock),
        is_prepared: bool,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        drop(locked);
        if is_prepared {
            self.append_outcome(at, transaction, false, None);
        }
        self.leader_logs[at].lead.end_in_flight(clock);
        let shard = self.leader_logs[at].lead.shard;
        effects.observe(|| TwoPhaseCommitObservation::Resolved {
            transaction,
            shard,
            clock,
            installed: false,
        });
    }

    pub(super) fn validate(&self, validate: impl FnOnce() -> Result<()>) -> Result<()> {
        match self.options().faults.has(TwoPhaseCommitPlantedBug::SkipRemoteValidation) {
            true => Ok(()),
            false => validate(),
        }
    }
}

/// A prepared branch that is about to be validated.
struct PreparedLocks {
    locked: Locked<PooledSession>,
    clock: Clock,
    home: DecisionHome,
    since: Time,
    durable: bool,
}

/// The reply to what is still asked of a branch that ended without a request: its shard has another leader, or its
/// coordinator was taken for gone.
pub(super) fn ended(shard: ShardId) -> TwoPhaseCommitReply {
    TwoPhaseCommitReply::Refused { error: recovering(shard) }
}

/// Is the request legal of a branch in this state?
fn fits(context: Option<&TwoPhaseCommitBranch>, request: &TwoPhaseCommitRequest) -> bool {
    match (context, request) {
        (
            None | Some(TwoPhaseCommitBranch::Open { .. }),
            TwoPhaseCommitRequest::Commit | TwoPhaseCommitRequest::DecideLast { .. },
        ) => false,
        (None | Some(TwoPhaseCommitBranch::Open { .. }), _) => true,
        (Some(TwoPhaseCommitBranch::Locked { valid, .. }), request) => match request {
            TwoPhaseCommitRequest::OnePhase { install: true, .. }
            | TwoPhaseCommitRequest::Abort => true,
            TwoPhaseCommitRequest::Validate => !valid,
            // P3: all locks were held when it was validated.
            TwoPhaseCommitRequest::DecideLast { .. } => *valid,
            _ => false,
        },
        (Some(TwoPhaseCommitBranch::Prepared { durable, valid, .. }), request) => match request {
            TwoPhaseCommitRequest::Validate => !valid,
            // P4: the decision on it is durable, so it is prepared and valid.
            TwoPhaseCommitRequest::Commit => *durable && *valid,
            TwoPhaseCommitRequest::Abort => true,
            _ => false,
        },
        // What is committed stays so.
        (Some(TwoPhaseCommitBranch::Committing { .. } | TwoPhaseCommitBranch::Ended { .. }), _) => {
            false
        }
    }
}

fn say((to, header): ReplyTarget, reply: TwoPhaseCommitReply, effects: &mut TwoPhaseCommitEffects) {
    let BranchHeader { transaction, shard, step, .. } = header;
    effects.push(EngineEffect::Send {
        to: WorkerPlace { node: to, worker: transaction.worker },
        message: TwoPhaseCommitMessage::Reply { transaction, shard, step, reply },
    });
}
