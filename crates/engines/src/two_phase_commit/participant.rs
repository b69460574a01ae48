//! Branches of transactions that other nodes coordinate (rules P2 and P4).
//!
//! ```text
//!   Execute*         Prepare             durable, Validate            Commit           durable
//!   ────────► open ──────────► prepared ──────────────────► prepared ────────► ended ────────► over
//!              │ │ Lock                OnePhase             durable
//!              │ └──────────► locked ──────────► committing ───────► over
//!              │ OnePhase ───────────────────────────►│
//!              └ Validate, Abort, or any refusal ──► over
//! ```

use super::led::Waiter;
use super::message::{Header, Reply, Request};
use super::{Effects, Message, TwoPhaseCommit};
use crate::engine::Effect;
use crate::execution::branches::Arrival;
use crate::execution::hub::Branch;
use crate::execution::sessions::Pooled;
use crate::faults::Fault;
use crate::observation::Observation;
use crate::operation::Operation;
use crate::replication::lead::Flight;
use crate::transaction_id::TransactionId;
use store::Locked;
use types::{Clock, NodeId, Result, ShardId, Stamp};

/// What an open branch holds. Who `asked` is answered when a record is durable.
pub(super) enum Context {
    /// It executes.
    Open(Branch),
    /// It holds its locks, has validated, and waits for the others to.
    Locked(Locked<Pooled>, Clock),
    /// It holds its locks and is in the stream.
    Prepared {
        locked: Locked<Pooled>,
        clock: Clock,
        /// Its record is durable.
        durable: bool,
        /// What it read was checked with all locks held.
        valid: bool,
        asked: Option<Asked>,
    },
    /// Its commit record is in the stream.
    Committing { locked: Locked<Pooled>, clock: Clock, asked: Asked },
    /// It is installed; that it is, is in the stream.
    Ended { asked: Asked },
}

/// Who waits for an answer, and to what.
pub(super) type Asked = (NodeId, Header);

/// What becomes of a branch, and what is said now. `None`: that comes later.
type Acted = (Option<Context>, Option<Reply>);

impl TwoPhaseCommit {
    /// Acts on a request, or says again what was said before.
    pub(super) fn serve(
        &mut self,
        from: NodeId,
        header: &Header,
        request: Request,
        effects: &mut Effects,
    ) {
        let led = self.led_at(header.shard).filter(|at| self.led[*at].lead.is_leading());
        let (Some(at), true) = (led, self.desk.is_ours(from, header, led.is_some())) else {
            return;
        };
        // There is one epoch.
        if header.epoch != self.desk.hub.epoch.get() {
            self.desk.counters.dropped += 1;
            return;
        }
        let ends = matches!(request, Request::Abort);
        let reply = match self.branches.arrive(header, ends) {
            Arrival::Act => {
                let context = self.branches.context_mut(header.transaction, header.shard);
                if !fits(context.as_deref(), &request) {
                    // No coordinator of ours asks for that now.
                    self.desk.counters.dropped += 1;
                    return;
                }
                self.act(at, (from, *header), request, effects)
            }
            Arrival::Repeated(reply) => reply,
            Arrival::Over => Some(Reply::Resolved),
            Arrival::Ended => unreachable!("no epoch ever ends here"),
            Arrival::Stale => {
                self.desk.counters.dropped += 1;
                return;
            }
        };
        if let Some(reply) = reply {
            say((from, *header), reply, effects);
        }
    }

    /// Does what is asked for the first time, and makes sense.
    fn act(
        &mut self,
        at: usize,
        asked: Asked,
        request: Request,
        effects: &mut Effects,
    ) -> Option<Reply> {
        let header = asked.1;
        let transaction = header.transaction;
        let (context, reply) = match self.branches.take(&header) {
            None => match self.desk.hub.begin(self.desk.hub.own(header.shard).expect("led")) {
                Ok(branch) => self.act_open(at, asked, request, branch, effects),
                Err(error) => (None, Some(Reply::Refused { error })),
            },
            Some(Context::Open(branch)) => self.act_open(at, asked, request, branch, effects),
            Some(Context::Locked(locked, clock)) => match request {
                Request::OnePhase { .. } => self.commit_branch(at, asked, locked, clock),
                _ => {
                    self.drop_locked(at, transaction, (locked, clock), false, effects);
                    (None, Some(Reply::Resolved))
                }
            },
            Some(Context::Prepared { locked, clock, durable, .. }) => match request {
                Request::Validate => {
                    self.validate_prepared(at, asked, (locked, clock), durable, effects)
                }
                Request::Commit => {
                    self.install(at, transaction, locked, clock, effects);
                    self.append_outcome(at, transaction, true);
                    (Some(Context::Ended { asked }), None)
                }
                _ => {
                    self.drop_locked(at, transaction, (locked, clock), true, effects);
                    (None, Some(Reply::Resolved))
                }
            },
            Some(Context::Committing { .. } | Context::Ended { .. }) => {
                unreachable!("nothing fits a branch that is committed")
            }
        };
        match context {
            Some(context) => self.branches.keep(&header, context, reply.clone()),
            None => self.branches.close(&header, reply.clone()),
        }
        reply
    }

    /// Acts on a request to a branch that executes.
    fn act_open(
        &mut self,
        at: usize,
        asked: Asked,
        request: Request,
        branch: Branch,
        effects: &mut Effects,
    ) -> Acted {
        let transaction = asked.1.transaction;
        let acted = match request {
            Request::Execute { operations } => self
                .desk
                .perform(&branch, &operations)
                .map(|answers| (Some(Context::Open(branch)), Some(Reply::Executed { answers }))),
            Request::Lock { operations } => self
                .lock_to_commit(at, transaction, branch, &operations, effects)
                .map(|(locked, clock)| {
                    (Some(Context::Locked(locked, clock)), Some(Reply::Locked { clock }))
                }),
            Request::Prepare { operations, home } => {
                self.prepare(at, transaction, branch, &operations, home, effects)
            }
            Request::Validate => {
                self.observe_reads(at, transaction, &branch, effects);
                self.validate(|| branch.validate()).map(|()| (None, Some(Reply::Validated)))
            }
            Request::OnePhase { operations, install: true } => {
                self.commit_whole(at, asked, branch, &operations, effects)
            }
            Request::OnePhase { install: false, .. } => {
                self.observe_reads(at, transaction, &branch, effects);
                branch.validate().map(|()| (None, Some(Reply::Committed { clock: None })))
            }
            Request::Commit => unreachable!("it does not fit a branch that executes"),
            Request::Abort => Ok((None, Some(Reply::Resolved))),
        };
        acted.unwrap_or_else(|error| (None, Some(Reply::Refused { error })))
    }

    /// Locks and validates a branch whose shard is the only one that is written.
    fn lock_to_commit(
        &mut self,
        at: usize,
        transaction: TransactionId,
        branch: Branch,
        operations: &[Operation],
        effects: &mut Effects,
    ) -> Result<(Locked<Pooled>, Clock)> {
        self.desk.perform(&branch, operations)?;
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
        branch: Branch,
        operations: &[Operation],
        home: ShardId,
        effects: &mut Effects,
    ) -> Result<Acted> {
        self.desk.perform(&branch, operations)?;
        self.observe_reads(at, transaction, &branch, effects);
        let locked = branch.lock()?;
        // Checked again when all locks are held (rule P1). What fails now already need not be written and kept from
        // others until then.
        self.validate(|| locked.validate())?;
        let clock = self.draw(at, transaction, &locked, effects);
        let waiter = Some(Waiter::Branch(transaction));
        self.led[at].append(self.desk.hub.now.get(), Some(clock), waiter, |batch| {
            batch.prepare(transaction, clock, home, |write| locked.writes(write));
        });
        let context =
            Context::Prepared { locked, clock, durable: false, valid: false, asked: None };
        Ok((Some(context), Some(Reply::Locked { clock })))
    }

    /// All locks are held, everywhere. Answers once the prepare record is durable, too.
    fn validate_prepared(
        &mut self,
        at: usize,
        asked: Asked,
        (locked, clock): (Locked<Pooled>, Clock),
        durable: bool,
        effects: &mut Effects,
    ) -> Acted {
        let too_early = self.options().faults.has(Fault::ValidateBeforeLocks);
        let valid = if too_early { Ok(()) } else { self.validate(|| locked.validate()) };
        if let Err(error) = valid {
            self.drop_locked(at, asked.1.transaction, (locked, clock), true, effects);
            return (None, Some(Reply::Refused { error }));
        }
        let (asked, reply) = match durable {
            true => (None, Some(Reply::Validated)),
            false => (Some(asked), None),
        };
        (Some(Context::Prepared { locked, clock, durable, valid: true, asked }), reply)
    }

    /// The branch is the whole transaction.
    fn commit_whole(
        &mut self,
        at: usize,
        asked: Asked,
        branch: Branch,
        operations: &[Operation],
        effects: &mut Effects,
    ) -> Result<Acted> {
        let transaction = asked.1.transaction;
        self.desk.perform(&branch, operations)?;
        if branch.is_read_only() {
            self.observe_reads(at, transaction, &branch, effects);
            branch.validate()?;
            return Ok((None, Some(Reply::Committed { clock: None })));
        }
        let (locked, clock) = self.lock_to_commit(at, transaction, branch, &[], effects)?;
        Ok(self.commit_branch(at, asked, locked, clock))
    }

    /// Everything is valid, and nothing else is written.
    fn commit_branch(
        &mut self,
        at: usize,
        asked: Asked,
        locked: Locked<Pooled>,
        clock: Clock,
    ) -> Acted {
        let transaction = asked.1.transaction;
        let waiter = Waiter::Branch(transaction);
        self.append_commit(at, transaction, &[], Some((&locked, clock)), waiter);
        (Some(Context::Committing { locked, clock, asked }), None)
    }

    /// A record of the branch is durable.
    pub(super) fn branch_is_durable(
        &mut self,
        at: usize,
        transaction: TransactionId,
        effects: &mut Effects,
    ) {
        let shard = self.led[at].lead.shard;
        let asked = match self.branches.context_mut(transaction, shard) {
            // It was given up meanwhile.
            None => return,
            Some(Context::Prepared { durable, asked, .. }) => {
                *durable = true;
                asked.take()
            }
            Some(Context::Committing { asked, .. } | Context::Ended { asked }) => Some(*asked),
            Some(Context::Open(_) | Context::Locked(..)) => {
                panic!("{transaction} has no record on {shard}, and it became durable")
            }
        };
        let Some((from, header)) = asked else { return };
        let reply = match self.branches.take(&header).expect("seen above") {
            Context::Committing { locked, clock, .. } => {
                self.install(at, transaction, locked, clock, effects);
                Reply::Committed { clock: Some(clock) }
            }
            Context::Ended { .. } => Reply::Resolved,
            prepared => {
                self.branches.keep(&header, prepared, Some(Reply::Validated));
                return say((from, header), Reply::Validated, effects);
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
        branch: &Branch,
        effects: &mut Effects,
    ) {
        let Some(observations) = &mut effects.observations else { return };
        let shard = self.led[at].lead.shard;
        branch.versions_read(0, usize::MAX, |version| {
            let (stamp, tombstone) = (version.stamp.to_stamp(), version.value.is_none());
            observations.push(Observation::Read { transaction, shard, stamp, tombstone });
        });
    }

    /// Draws a clock under the locks (rule P2).
    pub(super) fn draw(
        &mut self,
        at: usize,
        transaction: TransactionId,
        locked: &Locked<Pooled>,
        effects: &mut Effects,
    ) -> Clock {
        let (shard, clock) = (self.led[at].lead.shard, locked.draw_clock());
        let epoch = self.desk.hub.epoch.get();
        let since = self.desk.hub.now.get();
        self.led[at].lead.fly(clock, Flight { transaction, epoch, since, resolved: false });
        effects.observe(|| Observation::Drawn { transaction, shard, clock });
        clock
    }

    /// Appends a commit record: of a transaction that writes this shard only, or the decision on one
    /// that writes `participants` as well.
    pub(super) fn append_commit(
        &mut self,
        at: usize,
        transaction: TransactionId,
        participants: &[ShardId],
        own: Option<(&Locked<Pooled>, Clock)>,
        waiter: Waiter,
    ) {
        let clock = own.map(|(_, clock)| clock);
        self.led[at].append(self.desk.hub.now.get(), clock, Some(waiter), |batch| {
            batch.commit(transaction, clock.unwrap_or_default(), participants, |write| {
                own.into_iter().for_each(|(locked, _)| locked.writes(&mut *write));
            });
        });
    }

    /// Appends what became of a branch that is prepared.
    pub(super) fn append_outcome(
        &mut self,
        at: usize,
        transaction: TransactionId,
        committed: bool,
    ) {
        let coordinated_here = (transaction.node, transaction.worker)
            == (self.desk.hub.place.node, self.desk.hub.place.worker);
        let waits = committed && !coordinated_here;
        let waiter = waits.then_some(Waiter::Branch(transaction));
        self.led[at].append(self.desk.hub.now.get(), None, waiter, |batch| {
            batch.outcome(transaction, committed);
        });
    }

    /// Installs what is committed, and releases its locks.
    pub(super) fn install(
        &mut self,
        at: usize,
        transaction: TransactionId,
        locked: Locked<Pooled>,
        clock: Clock,
        effects: &mut Effects,
    ) {
        let (shard, stamp) =
            (self.led[at].lead.shard, Stamp::local(self.desk.hub.epoch.get(), clock));
        if let Some(observations) = &mut effects.observations {
            locked.writes(|table, key, value| {
                observations.push(Observation::Installed {
                    transaction,
                    shard,
                    stamp: stamp.clone(),
                    table,
                    key: key.to_vec(),
                    value: value.map(<[u8]>::to_vec),
                });
            });
        }
        self.desk.counters.stamps += 1;
        self.desk.counters.stamp_entries += 1;
        // What is installed is committed, and so is all that was before it.
        locked.install(stamp.as_ref(), |_| true);
        self.led[at].lead.land(clock);
        effects.observe(|| Observation::Resolved { transaction, shard, clock, installed: true });
    }

    /// Undoes what is locked.
    pub(super) fn drop_locked(
        &mut self,
        at: usize,
        transaction: TransactionId,
        (locked, clock): (Locked<Pooled>, Clock),
        is_prepared: bool,
        effects: &mut Effects,
    ) {
        drop(locked);
        if is_prepared {
            self.append_outcome(at, transaction, false);
        }
        self.led[at].lead.land(clock);
        let shard = self.led[at].lead.shard;
        effects.observe(|| Observation::Resolved { transaction, shard, clock, installed: false });
    }

    fn validate(&self, validate: impl FnOnce() -> Result<()>) -> Result<()> {
        match self.options().faults.has(Fault::SkipRemoteValidation) {
            true => Ok(()),
            false => validate(),
        }
    }
}

/// Is the request legal of a branch in this state?
fn fits(context: Option<&Context>, request: &Request) -> bool {
    match (context, request) {
        (None | Some(Context::Open(_)), Request::Commit) => false,
        (None | Some(Context::Open(_)), _) => true,
        (Some(Context::Locked(..)), request) => {
            matches!(request, Request::OnePhase { install: true, .. } | Request::Abort)
        }
        (Some(Context::Prepared { durable, valid, .. }), request) => match request {
            Request::Validate => !valid,
            // P4: the decision on it is durable, so it is prepared and valid.
            Request::Commit => *durable && *valid,
            Request::Abort => true,
            _ => false,
        },
        // What is committed stays so.
        (Some(Context::Committing { .. } | Context::Ended { .. }), _) => false,
    }
}

fn say((to, header): Asked, reply: Reply, effects: &mut Effects) {
    let Header { transaction, shard, step, .. } = header;
    effects.push(Effect::Send { to, message: Message::Reply { transaction, shard, step, reply } });
}
