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

use crate::branch::{BranchGoal, BranchOutcome, ReplyTarget, TwoPhaseCommitBranch, ended};
use crate::leader_log::RecordWaiter;
use crate::message::{BranchHeader, DecisionHome, TwoPhaseCommitReply, TwoPhaseCommitRequest};
use crate::observation::TwoPhaseCommitObservation;
use crate::record::writes_of;
use crate::{FIRST_EPOCH, TwoPhaseCommit, TwoPhaseCommitEffects, TwoPhaseCommitMessage};
use shoal_engine::engine::EngineEffect;
use shoal_engine::execution::deferred_requests::DeferredRequest;
use shoal_engine::execution::participant_table::RequestArrival;
use shoal_engine::execution::session_pool::{PooledSession, StoreBranch};
use shoal_engine::execution::worker_context::recovering;
use shoal_engine::operation::Operation;
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::in_flight_clocks::InFlight;
use shoal_store::Locked;
use shoal_types::{Clock, NodeId, Result, ShardId, Time, WorkerPlace};

impl TwoPhaseCommit {
    /// Acts on a request, or says again what was said before.
    pub(crate) fn serve(
        &mut self,
        from: NodeId,
        header: &BranchHeader,
        request: TwoPhaseCommitRequest,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let is_own = self.is_leader(self.runtime.worker_context.place.node, header.shard);
        let at = self.streams.place_of(header.shard).filter(|_| is_own);
        let peer = self.runtime.peer(from);
        let (Some(at), true) = (at, self.runtime.is_ours(peer, header, at.is_some())) else {
            return;
        };
        // All transactions are of one epoch: leaderships distinguish them. A request of a coordinator that is gone is a
        // late copy.
        if header.epoch != FIRST_EPOCH || self.is_gone(header.transaction) {
            self.runtime.counters.dropped += 1;
            return;
        }
        if !self.streams[at].log().serves() {
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
                let context = self.branches.get(header.transaction, header.shard);
                if !fits(context, &request) {
                    // No coordinator of ours asks for that now.
                    self.runtime.counters.dropped += 1;
                    return;
                }
                self.act(at, ReplyTarget { to: from, header: *header }, request, effects)
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
            reply_to(ReplyTarget { to: from, header: *header }, reply, effects);
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
                self.branches.put(header, None, Some(reply.clone()));
                reply_to(ReplyTarget { to: from, header: *header }, reply, effects);
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
    pub(crate) fn serve_deferred(&mut self, now: Time, effects: &mut TwoPhaseCommitEffects) {
        let worker_context = &self.runtime.worker_context;
        let (ready, dropped) =
            self.deferred.take_served(now, |shard| worker_context.own(shard).is_some());
        self.runtime.counters.dropped += dropped;
        for DeferredRequest { from, header, request, .. } in ready {
            self.serve(from, &header, request, effects);
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
        let in_doubt = self.streams[at].in_doubt().get(transaction);
        if let Some(home) = in_doubt.map(|branch| branch.home().shard) {
            self.learn(at, transaction, home, true, effects);
        }
        let is_durable = self.streams[at].replay().may_be_committed(transaction);
        is_durable.then_some(TwoPhaseCommitReply::Resolved)
    }

    /// Does what is asked for the first time, and makes sense.
    fn act(
        &mut self,
        at: usize,
        target: ReplyTarget,
        request: TwoPhaseCommitRequest,
        effects: &mut TwoPhaseCommitEffects,
    ) -> Option<TwoPhaseCommitReply> {
        let header = target.header;
        let transaction = header.transaction;
        let (context, reply) = match self.branches.take(&header) {
            None => match self
                .runtime
                .worker_context
                .begin(self.runtime.worker_context.own(header.shard).expect("led"))
            {
                Ok(branch) => {
                    if matches!(request, TwoPhaseCommitRequest::Execute { .. }) {
                        let now = self.runtime.worker_context.now.get();
                        let due_at = self.branches.timeouts().executes(now);
                        self.branches.watch(transaction, header.shard, due_at);
                    }
                    self.act_open(at, target, request, branch, effects)
                }
                Err(error) => (None, Some(TwoPhaseCommitReply::Refused { error })),
            },
            Some(TwoPhaseCommitBranch::Open { branch, .. }) => {
                self.act_open(at, target, request, branch, effects)
            }
            Some(
                held
                @ (TwoPhaseCommitBranch::Locked { .. } | TwoPhaseCommitBranch::Prepared { .. }),
            ) if request == TwoPhaseCommitRequest::Validate => {
                self.validate_held(at, target, held, effects)
            }
            Some(TwoPhaseCommitBranch::Slicing(_)) => (None, Some(TwoPhaseCommitReply::Resolved)),
            Some(TwoPhaseCommitBranch::Locked { locked, clock, valid, .. }) => match request {
                TwoPhaseCommitRequest::OnePhase { .. } => {
                    self.commit_branch(at, target, locked, clock, &[])
                }
                TwoPhaseCommitRequest::DecideLast { participants } => {
                    assert!(
                        valid,
                        "P3: {transaction} is decided, and not valid on {}",
                        header.shard
                    );
                    self.commit_branch(at, target, locked, clock, &participants)
                }
                _ => {
                    self.drop_locked(at, transaction, locked, clock, false, effects);
                    (None, Some(TwoPhaseCommitReply::Resolved))
                }
            },
            Some(TwoPhaseCommitBranch::Prepared {
                locked, clock, home, durable, valid, ..
            }) => match request {
                TwoPhaseCommitRequest::Commit => {
                    assert!(durable && valid, "P4: {transaction} is committed, and not prepared");
                    let outcome = Some(RecordWaiter::Branch(transaction));
                    self.install(at, transaction, locked, clock, outcome, effects);
                    (Some(TwoPhaseCommitBranch::Ended { target, home: home.shard }), None)
                }
                _ => {
                    self.drop_locked(at, transaction, locked, clock, true, effects);
                    (None, Some(TwoPhaseCommitReply::Resolved))
                }
            },
            Some(TwoPhaseCommitBranch::Committing { .. } | TwoPhaseCommitBranch::Ended { .. }) => {
                unreachable!("nothing fits a branch that is committed")
            }
        };
        self.branches.put(&header, context, reply.clone());
        reply
    }

    /// Acts on a request to a branch that executes.
    fn act_open(
        &mut self,
        at: usize,
        target: ReplyTarget,
        request: TwoPhaseCommitRequest,
        branch: StoreBranch,
        effects: &mut TwoPhaseCommitEffects,
    ) -> BranchOutcome {
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
                .runtime
                .perform(&branch, &operations)
                .and_then(|_| self.certify(at, target, branch, BranchGoal::Lock, effects)),
            TwoPhaseCommitRequest::Prepare { operations, home } => {
                self.prepare(at, target, branch, &operations, home, effects)
            }
            TwoPhaseCommitRequest::Validate => {
                self.certify(at, target, branch, BranchGoal::Validate, effects)
            }
            TwoPhaseCommitRequest::OnePhase { operations, install } => {
                let performed = match install {
                    true => self.runtime.perform(&branch, &operations).map(drop),
                    false => Ok(()),
                };
                let goal = BranchGoal::Commit { install };
                performed.and_then(|()| self.certify(at, target, branch, goal, effects))
            }
            TwoPhaseCommitRequest::Commit | TwoPhaseCommitRequest::DecideLast { .. } => {
                unreachable!("it does not fit a branch that executes")
            }
            TwoPhaseCommitRequest::Abort => Ok((None, Some(TwoPhaseCommitReply::Resolved))),
        };
        acted.unwrap_or_else(|error| (None, Some(TwoPhaseCommitReply::Refused { error })))
    }

    /// Checked again when all locks are held (rule P1): what fails now already need not be written and kept from others
    /// until then.
    fn prepare(
        &mut self,
        at: usize,
        target: ReplyTarget,
        branch: StoreBranch,
        operations: &[Operation],
        home: DecisionHome,
        effects: &mut TwoPhaseCommitEffects,
    ) -> Result<BranchOutcome> {
        if self.runtime.worker_context.leaderships.leader(home.shard).since > home.leadership {
            return Err(recovering(home.shard)); // The decision can never be made.
        }
        self.runtime.perform(&branch, operations)?;
        self.certify(at, target, branch, BranchGoal::Prepare(home), effects)
    }

    /// A branch that holds its locks draws its clock, and its prepare record is appended.
    pub(crate) fn prepare_locked(
        &mut self,
        at: usize,
        transaction: TransactionId,
        locked: Locked<PooledSession>,
        home: DecisionHome,
        effects: &mut TwoPhaseCommitEffects,
    ) -> BranchOutcome {
        let clock = self.draw(at, transaction, &locked, effects);
        let waiter = Some(RecordWaiter::Branch(transaction));
        let bases = self.delta_bases(at);
        self.streams[at].append(
            self.runtime.worker_context.now.get(),
            Some(clock),
            waiter,
            |batch| {
                batch.prepare(transaction, clock, home, |write| writes_of(&locked, bases, write));
            },
        );
        let inquire_at = self.branches.timeouts().prepared(self.runtime.worker_context.now.get());
        self.branches.watch(transaction, self.streams[at].shard(), inquire_at);
        let context = TwoPhaseCommitBranch::Prepared {
            locked,
            clock,
            home,
            inquire_at,
            durable: false,
            valid: false,
            validates: 0,
            target: None,
        };
        (Some(context), Some(TwoPhaseCommitReply::Locked { clock }))
    }

    /// Everything is valid, and nothing else is written but by `participants`, which are prepared.
    pub(crate) fn commit_branch(
        &mut self,
        at: usize,
        target: ReplyTarget,
        locked: Locked<PooledSession>,
        clock: Clock,
        participants: &[ShardId],
    ) -> BranchOutcome {
        let transaction = target.header.transaction;
        assert_eq!(
            self.streams[at].log().since(),
            target.header.leadership,
            "P8: {transaction} is decided by another leadership than has locked it"
        );
        let waiter = RecordWaiter::Branch(transaction);
        self.append_commit(at, transaction, participants, Some((&locked, clock)), waiter);
        (Some(TwoPhaseCommitBranch::Committing { locked, clock, target }), None)
    }

    /// A record of the branch is durable.
    pub(crate) fn branch_is_durable(
        &mut self,
        at: usize,
        transaction: TransactionId,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let shard = self.streams[at].shard();
        let target = match self.branches.get_mut(transaction, shard) {
            // It was given up meanwhile.
            None => return,
            Some(TwoPhaseCommitBranch::Prepared { durable, target, .. }) => {
                *durable = true;
                target.take()
            }
            Some(
                TwoPhaseCommitBranch::Committing { target, .. }
                | TwoPhaseCommitBranch::Ended { target, .. },
            ) => Some(*target),
            Some(
                TwoPhaseCommitBranch::Open { .. }
                | TwoPhaseCommitBranch::Locked { .. }
                | TwoPhaseCommitBranch::Slicing(_),
            ) => {
                panic!("{transaction} has no record on {shard}, and it became durable")
            }
        };
        let Some(target) = target else { return };
        let header = target.header;
        let reply = match self.branches.take(&header).expect("seen above") {
            TwoPhaseCommitBranch::Committing { locked, clock, .. } => {
                self.install(at, transaction, locked, clock, None, effects);
                self.keep_decision(at, transaction);
                TwoPhaseCommitReply::Committed { clock: Some(clock) }
            }
            TwoPhaseCommitBranch::Ended { home, .. } => {
                // The coordinator receives the reply. Where another node keeps the decision, that one is sent an
                // acknowledgement.
                if self.runtime.worker_context.leader(home) != transaction.node {
                    self.acknowledge(transaction, home, shard, effects);
                }
                TwoPhaseCommitReply::Resolved
            }
            prepared => {
                self.branches.put(&header, Some(prepared), Some(TwoPhaseCommitReply::Validated));
                return reply_to(target, TwoPhaseCommitReply::Validated, effects);
            }
        };
        self.branches.put(&header, None, Some(reply.clone()));
        reply_to(target, reply, effects);
    }

    /// Shows what a branch has read.
    pub(crate) fn observe_reads(
        &self,
        at: usize,
        transaction: TransactionId,
        branch: &StoreBranch,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let Some(observations) = &mut effects.observations else { return };
        let shard = self.streams[at].shard();
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
    pub(crate) fn draw(
        &mut self,
        at: usize,
        transaction: TransactionId,
        locked: &Locked<PooledSession>,
        effects: &mut TwoPhaseCommitEffects,
    ) -> Clock {
        let (shard, clock) = (self.streams[at].shard(), locked.draw_clock());
        self.act_as_leader(at, effects);
        let (epoch, since) = (FIRST_EPOCH, self.runtime.worker_context.now.get());
        self.streams[at]
            .begin_in_flight(clock, InFlight { transaction, epoch, since, resolved: false });
        effects.observe(|| TwoPhaseCommitObservation::Drawn { transaction, shard, clock });
        clock
    }

    /// Appends a commit record: of a transaction that writes this shard only, or the decision on one
    /// that writes `participants` as well.
    pub(crate) fn append_commit(
        &mut self,
        at: usize,
        transaction: TransactionId,
        participants: &[ShardId],
        own: Option<(&Locked<PooledSession>, Clock)>,
        waiter: RecordWaiter,
    ) {
        let clock = own.map(|(_, clock)| clock);
        let bases = self.delta_bases(at);
        self.streams[at].append(
            self.runtime.worker_context.now.get(),
            clock,
            Some(waiter),
            |batch| {
                batch.commit(transaction, clock.unwrap_or_default(), participants, |write| {
                    own.into_iter().for_each(|(locked, _)| writes_of(locked, bases, write));
                });
            },
        );
    }

    /// Appends what became of a branch that is prepared.
    pub(crate) fn append_outcome(
        &mut self,
        at: usize,
        transaction: TransactionId,
        committed: bool,
        waiter: Option<RecordWaiter>,
    ) {
        self.streams[at].append(self.runtime.worker_context.now.get(), None, waiter, |batch| {
            batch.outcome(transaction, committed);
        });
    }

    /// Undoes what is locked.
    pub(crate) fn drop_locked(
        &mut self,
        at: usize,
        transaction: TransactionId,
        locked: Locked<PooledSession>,
        clock: Clock,
        is_prepared: bool,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        drop(locked);
        if is_prepared {
            let shard = self.streams[at].shard();
            self.append_outcome(at, transaction, false, None);
            effects.observe(|| TwoPhaseCommitObservation::GaveUp { transaction, shard });
        }
        self.give_up_clock(at, transaction, clock, effects);
    }
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
        (Some(TwoPhaseCommitBranch::Slicing(_)), request) => {
            *request == TwoPhaseCommitRequest::Abort
        }
        // What is committed stays so.
        (Some(TwoPhaseCommitBranch::Committing { .. } | TwoPhaseCommitBranch::Ended { .. }), _) => {
            false
        }
    }
}

/// Sends a reply.
pub(crate) fn reply_to(
    target: ReplyTarget,
    reply: TwoPhaseCommitReply,
    effects: &mut TwoPhaseCommitEffects,
) {
    let ReplyTarget { to, header: BranchHeader { transaction, shard, step, .. } } = target;
    effects.push(EngineEffect::Send {
        to: WorkerPlace { node: to, worker: transaction.worker },
        message: TwoPhaseCommitMessage::Reply { transaction, shard, step, reply },
    });
}
