//! Certification in slices: of what is too large to be locked and validated in one step.
//!
//! ```text
//!   gather reads ─► lock ─► validate ─► draw the clock, or what else comes next
//!       ▲  │         ▲ │      ▲  │
//!       └──┘         └─┘      └──┘   a slice a step; others have their turn in between
//! ```
//! Locks that are held stay held, and others that meet them give up as ever. A clock is drawn in one step with what
//! follows on the last slice of locks (M2): none is in flight while locks are still taken. Each read is validated once
//! all locks are held, everywhere; so what is still valid then was so when the last lock was taken.
//!
//! A transaction that is given up in between loses its locks in slices, too (`execution/sessions.rs`).

use super::message::{Header, Reply};
use super::participant::Context;
use super::{Effects, Mako, Message};
use crate::engine::Effect;
use crate::execution::hub::Branch;
use crate::execution::sessions::Pooled;
use crate::execution::staged::{Stage, Staged};
use crate::transaction_id::TransactionId;
use store::Locked;
use types::{Clock, Epoch, NodeId, Result, Stamp};

/// What goes on in another step.
#[derive(Debug, Clone, Copy)]
pub(super) enum Paused {
    /// The transaction of this worker with this sequence.
    Own(u64),
    /// A branch of another node's, which waits for the answer to this request.
    Branch(NodeId, Header),
}

/// A branch that is locked or validated in slices.
pub(super) struct Slicing {
    staged: Staged,
    /// What its reads depend on, as far as they are gathered.
    dependencies: Stamp,
    /// How many of its reads the coordinator knows, if it only validates.
    reads: usize,
    /// The clock that was drawn for it, if it held all its locks before.
    clock: Option<Clock>,
    asked: Asked,
}

/// What a branch is to come to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked {
    /// Its locks and a clock; and to be valid, where all other locks of the transaction are held.
    Lock {
        /// They are.
        validate: bool,
    },
    /// To be valid.
    Validate {
        /// Then it is over.
        last: bool,
    },
    /// Its end: it is the whole transaction.
    Commit {
        /// What it wrote is installed.
        install: bool,
    },
}

impl Slicing {
    /// What it holds.
    pub(super) fn into_parts(self) -> (Staged, Option<Clock>) {
        (self.staged, self.clock)
    }

    /// Does it hold no clock, and not all of its locks?
    pub(super) fn is_open(&self) -> bool {
        self.clock.is_none()
    }
}

impl Mako {
    /// Goes on with what was paused first, by one slice.
    pub(super) fn go_on(&mut self, effects: &mut Effects) {
        match self.paused.pop_front() {
            None => {}
            Some(Paused::Own(sequence)) => self.go_on_own(sequence, effects),
            Some(Paused::Branch(from, header)) => self.go_on_branch(from, &header, effects),
        }
    }

    /// What the next reads of a branch depend on, as many as a step may look at; `None` where all are gathered.
    pub(super) fn gather_some(
        &self,
        at: usize,
        id: (TransactionId, Epoch),
        staged: &mut Staged,
        effects: &mut Effects,
    ) -> Result<Option<Stamp>> {
        let (Some(from), Stage::Reading(branch)) = (staged.gathers, &staged.stage) else {
            return Ok(None);
        };
        let most = self.desk.hub.step_reads_max();
        let (stamp, next) = self.gather(at, id, branch, (from, most), effects)?;
        self.desk.hub.looked_at(next - from);
        staged.gathers = (next - from == most).then_some(next);
        Ok(Some(stamp))
    }

    /// Begins to do in slices what is asked of a branch that executes, and is too large for one step. Its coordinator
    /// knows as many of its reads.
    pub(super) fn slice_branch(
        &mut self,
        header: &Header,
        branch: Branch,
        gathered: usize,
        asked: Asked,
    ) -> Context {
        let dependencies = Stamp::local(header.epoch, Clock::ZERO);
        let mut staged = Staged::reading(branch, gathered);
        if matches!(asked, Asked::Validate { .. }) {
            // Its coordinator was told with the reads.
            staged.gathers = None;
        }
        self.paused.push_back(Paused::Branch(header.transaction.node, *header));
        Context::Slicing(Slicing { staged, dependencies, reads: gathered, clock: None, asked })
    }

    /// Begins to validate a branch in slices that holds its locks, and for which this clock was drawn.
    pub(super) fn slice_locked(
        &mut self,
        header: &Header,
        locked: Locked<Pooled>,
        clock: Clock,
    ) -> Context {
        let (staged, dependencies) =
            (Staged::locked(locked), Stamp::local(header.epoch, Clock::ZERO));
        let (clock, asked) = (Some(clock), Asked::Validate { last: false });
        self.paused.push_back(Paused::Branch(header.transaction.node, *header));
        Context::Slicing(Slicing { staged, dependencies, reads: 0, clock, asked })
    }

    /// Goes on with another node's branch, if it was not ended meanwhile, and answers when it is done.
    fn go_on_branch(&mut self, from: NodeId, header: &Header, effects: &mut Effects) {
        let Some(at) = self.place_of(header.shard) else { return };
        let context = self.branches.context_mut(header.transaction, header.shard);
        let Some(Context::Slicing(slicing)) = context else { return };
        let is_open = header.epoch == self.desk.hub.epoch.get() || slicing.clock.is_some();
        let reply = match is_open {
            false => self.refuse_epoch(at, header, effects),
            true => {
                let Some(Context::Slicing(slicing)) = self.branches.take(header) else { return };
                let (context, reply) = self
                    .slice(at, header, slicing, effects)
                    .unwrap_or_else(|error| (None, Some(Reply::Refused { error })));
                match context {
                    Some(context) => self.branches.keep(header, context, reply.clone()),
                    None => self.branches.close(header, reply.clone()),
                }
                match reply {
                    Some(reply) => reply,
                    None => return self.paused.push_back(Paused::Branch(from, *header)),
                }
            }
        };
        let Header { transaction, shard, step, .. } = *header;
        let message = Message::Reply { transaction, shard, step, reply };
        effects.push(Effect::Send { to: from, message });
    }

    /// One slice of a branch. Without a reply there are more.
    fn slice(
        &mut self,
        at: usize,
        header: &Header,
        mut it: Slicing,
        effects: &mut Effects,
    ) -> Result<(Option<Context>, Option<Reply>)> {
        let id = (header.transaction, header.epoch);
        if let Err(error) = self.check_serves(at, effects) {
            self.drop_context(at, header.transaction, Some(Context::Slicing(it)), effects);
            return Err(error);
        }
        let shard = self.led[at].lead.shard;
        if let Some(stamp) = self.gather_some(at, id, &mut it.staged, effects)? {
            it.dependencies.merge(shard, stamp.seen_by(shard));
        }
        if it.staged.gathers.is_some() {
            return Ok((Some(Context::Slicing(it)), None));
        }
        let (locks, validates) = match it.asked {
            Asked::Lock { validate } => (true, validate),
            Asked::Validate { .. } => (false, true),
            Asked::Commit { install } => (install && !it.staged.is_read_only(), true),
        };
        if locks && !matches!(it.staged.stage, Stage::Locked(_)) {
            it.staged = it.staged.lock_some(&self.desk.hub)?;
            if !matches!(it.staged.stage, Stage::Locked(_)) || validates {
                return Ok((Some(Context::Slicing(it)), None));
            }
        }
        if validates {
            match self.validate_slice(&mut it.staged) {
                Ok(true) => {}
                Ok(false) => return Ok((Some(Context::Slicing(it)), None)),
                Err(error) => {
                    self.drop_context(at, header.transaction, Some(Context::Slicing(it)), effects);
                    return Err(error);
                }
            }
        }
        let (context, reply) = self.sliced(at, header, it, effects)?;
        Ok((context, Some(reply)))
    }

    fn validate_slice(&self, staged: &mut Staged) -> Result<bool> {
        match self.skips_validation() {
            true => Ok(true),
            false => staged.validate_some(&self.desk.hub),
        }
    }

    /// All that was to be done in slices is done.
    fn sliced(
        &mut self,
        at: usize,
        header: &Header,
        it: Slicing,
        effects: &mut Effects,
    ) -> Result<(Option<Context>, Reply)> {
        let Slicing { staged, mut dependencies, reads, clock, asked } = it;
        let locked = match (staged.stage, clock) {
            (Stage::Locked(locked), Some(clock)) => {
                return Ok((Some(Context::Locked { locked, clock }), Reply::Validated));
            }
            (Stage::Locked(locked), None) => locked,
            (Stage::Reading(branch), _) => {
                let Asked::Validate { last: false } = asked else {
                    let reply = match asked {
                        Asked::Commit { .. } => Reply::Certified { stamp: dependencies },
                        _ => Reply::Validated,
                    };
                    return Ok((None, reply));
                };
                return Ok((Some(Context::Open { branch, reads, early: None }), Reply::Validated));
            }
            (Stage::Locking(_), _) => unreachable!("all locks are held"),
        };
        let id = (header.transaction, header.epoch);
        let clock = self.draw(at, id, &locked, effects);
        if self.is_closed(header.epoch) {
            let context = Some(Context::Locked { locked, clock });
            self.drop_context(at, header.transaction, context, effects);
            return Err(Mako::not_open(header.epoch));
        }
        match asked {
            Asked::Lock { .. } => {
                self.observe_locked(at, header, clock, effects);
                Ok((Some(Context::Locked { locked, clock }), Reply::Locked { clock, dependencies }))
            }
            Asked::Commit { .. } => {
                let shard = self.led[at].lead.shard;
                assert!(dependencies.clock < clock, "M2: {shard} drew {clock} too early");
                dependencies.clock = clock;
                self.bound(shard, &mut dependencies, effects);
                self.install_branch(at, header.transaction, locked, &dependencies, effects);
                Ok((None, Reply::Certified { stamp: dependencies }))
            }
            Asked::Validate { .. } => unreachable!("what validates locks nothing"),
        }
    }
}
