//! A coordinator: it gives transactions their timestamps, sends them to all replicas of all participants, and counts votes.
//!
//! A shard is *fast* once as many replicas as the fast quorum takes, its leader and at least one follower, have voted as its
//! leader has, in timestamp, digest and ballot; it is *slow* once a majority has the transaction in the leader's log, as the
//! leader says, or the followers. A transaction is committed when every participant is fast or slow at one timestamp, and either
//! all are slow or the leaders name the same ballots (rule T16).

use crate::delays::Delays;
use crate::message::{LeaderVote, Message, Vote};
use crate::metrics::CoordinatorCounters;
use crate::observation::{Path, TigaObservation};
use crate::planted_bugs::TigaPlantedBug;
use crate::stamp::ArrivalTimes;
use crate::step::Step;
use crate::transaction::{Part, Transaction};
use crate::view::{Quorums, ShardView};
use bytes::Bytes;
use shoal_engine::TransactionId;
use shoal_types::{Backoff, Ballot, NodeId, Result, ShardId, Time, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What has become of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Committed: the results of its parts, in their order.
    Committed(Vec<Result<Bytes>>),
    /// A participant does not take it: it has no effect, and never will have.
    Gone(ShardId),
    /// Committed or not: the shard can no longer say.
    Unknown(ShardId),
}

/// A transaction that is over.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Its name.
    pub id: TransactionId,
    /// What has become of it.
    pub outcome: Outcome,
    /// The timestamp, if it is committed, and the path.
    pub committed: Option<(Time, Path)>,
}

/// The votes of one shard.
#[derive(Debug, Default)]
struct PartVotes {
    leader: Option<(Vote, LeaderVote)>,
    followers: BTreeMap<NodeId, Vote>,
    /// The timestamp and the ballots at which a majority has it, as the leader says.
    stable: Option<(Time, Vec<Ballot>)>,
    /// Under which ballots followers have synced it last, and where.
    synced: BTreeMap<NodeId, (Ballot, Time)>,
}

impl PartVotes {
    /// Whether a majority has what the leader has voted for in its log: followers have accepted it from there.
    fn is_synced(&self, view: &ShardView, own: &Vote) -> bool {
        let same = |(node, at): &(&NodeId, &(Ballot, Time))| {
            view.voters.contains(node) && **at == (own.ballot, own.t)
        };
        let others = self.synced.iter().filter(same).count();
        view.ballot == own.ballot
            && others > 0
            && others + 1 >= Quorums::of(view.voters.len()).majority
    }
}

#[derive(Debug)]
struct Open {
    transaction: Arc<Transaction>,
    t: Time,
    parts: Vec<PartVotes>,
    repetition: Backoff,
    give_up_at: Time,
    /// It has committed, and its outcome was reported. It is over once all participants have it decided: until then it may
    /// stand in no log, and a recovery keeps only what is not over. It is never given up.
    is_committed: bool,
}

/// The coordinator of a node.
#[derive(Debug, Default)]
pub struct Coordinator {
    open: BTreeMap<TransactionId, Open>,
    /// When each is to be looked at again.
    timers: BTreeSet<(Time, TransactionId)>,
    /// Delays from this node.
    pub delays: Delays,
    ended: Vec<Ended>,
    /// What it counts.
    pub counters: CoordinatorCounters,
    /// How far ahead the last timestamp was.
    pub headroom: Duration,
    /// When a transaction is voted for, so that delays are known, on the local clock.
    delays_due: Time,
}

/// How often a transaction is voted for where that would not be needed.
const DELAYS_EVERY: Duration = Duration::from_millis(50);

impl Coordinator {
    /// Sends a transaction, which is given up after `patience`.
    pub fn begin(&mut self, step: &mut Step<'_>, mut transaction: Transaction, patience: Duration) {
        transaction.by_log = self.waits_for_logs(step, &transaction);
        let transaction = Arc::new(transaction);
        let t = self.timestamp(step, &transaction);
        let id = transaction.id;
        let mut repetition = step.options.backoff();
        let parts = transaction.parts.iter().map(|_| PartVotes::default()).collect();
        submit(step, t, &transaction, true);
        let give_up_at = step.now + patience;
        self.timers.insert(((step.now + repetition.advance()).min(give_up_at), id));
        let is_committed = false;
        let open = Open { transaction, t, parts, repetition, give_up_at, is_committed };
        self.open.insert(id, open);
    }

    /// Whether a majority of each participant is so near that votes would save nothing (§6 of the paper). Votes show how far
    /// replicas are, so some transactions are voted for nevertheless; but none that writes a range, since its digest does not cover
    /// those that have read a key of it.
    fn waits_for_logs(&mut self, step: &Step<'_>, transaction: &Transaction) -> bool {
        if transaction.parts.iter().any(Part::writes_ranges) {
            return true;
        }
        let within = step.options.by_log_within;
        if within.is_zero() || self.delays_due <= step.now {
            self.delays_due = step.now + DELAYS_EVERY;
            return false;
        }
        transaction.parts.iter().all(|part| {
            step.view.shard(part.shard).is_some_and(|view| {
                let majority = Quorums::of(view.voters.len()).majority;
                self.delays.is_near(&view.voters, view.leader, majority, within)
            })
        })
    }

    /// A timestamp that is so late that the transaction reaches a fast quorum of each participant before; its leaders, where
    /// nothing is voted for.
    fn timestamp(&mut self, step: &Step<'_>, transaction: &Transaction) -> Time {
        let views = transaction.parts.iter().filter_map(|part| step.view.shard(part.shard));
        let headrooms = views.map(|view| {
            let fast = match transaction.by_log {
                true => 1,
                false => Quorums::of(view.voters.len()).fast,
            };
            self.delays.headroom(&view.voters, view.leader, fast)
        });
        let (mut most, mut to_leaders) = (i64::MIN, i64::MAX);
        for (headroom, to_leader) in headrooms {
            (most, to_leaders) = (most.max(headroom), to_leaders.min(to_leader));
        }
        let cap = to_leaders.saturating_add(step.options.headroom_max.as_nanos() as i64);
        let margin = match transaction.by_log {
            true => 0,
            false => self.delays.margin(step.options.margin).as_nanos() as i64,
        };
        // Below zero where the clock of this node is ahead of all others.
        let headroom = most.min(cap).saturating_add(margin);
        self.headroom = Duration::from_nanos(headroom.max(0) as u64);
        Time(step.clock.0.saturating_add_signed(headroom))
    }

    /// A replica has voted.
    pub fn voted(&mut self, step: &mut Step<'_>, from: NodeId, vote: Vote, times: ArrivalTimes) {
        let ArrivalTimes { sent, arrived } = times;
        if sent != Time::ZERO {
            self.delays.sample(step.now, from, sent, arrived);
            self.delays.vote(arrived > vote.t, step.options.margin);
        }
        let id = vote.id;
        let Some(open) = self.open.get_mut(&id) else { return };
        let Some(place) = open.transaction.place(vote.shard) else { return };
        let part = &mut open.parts[place];
        match &vote.leader {
            Some(leader) => {
                let leader = leader.clone();
                if leader.is_stable {
                    part.stable = Some((vote.t, leader.ballots.clone()));
                }
                // A leader that votes before the participants have agreed votes again where it has to.
                let is_newer = part.leader.as_ref().is_none_or(|(known, before)| {
                    (known.ballot, known.t, &before.ballots)
                        <= (vote.ballot, vote.t, &leader.ballots)
                });
                if is_newer {
                    part.leader = Some((vote, leader));
                }
            }
            None => drop(part.followers.insert(from, vote)),
        }
        self.decide(step, id);
    }

    /// A follower has synced transactions for which it had not voted as their leader has.
    pub fn synced(
        &mut self,
        step: &mut Step<'_>,
        from: NodeId,
        shard: ShardId,
        ballot: Ballot,
        transactions: &[(TransactionId, Time)],
    ) {
        for (id, t) in transactions {
            let Some(open) = self.open.get_mut(id) else { continue };
            let Some(place) = open.transaction.place(shard) else { continue };
            let synced = open.parts[place].synced.entry(from).or_insert((ballot, *t));
            *synced = (ballot, *t).max(*synced);
            self.decide(step, *id);
        }
    }

    /// Ends the transaction if its votes decide it.
    fn decide(&mut self, step: &mut Step<'_>, id: TransactionId) {
        let open = &self.open[&id];
        if open.is_committed {
            return self.forget_if_over(id);
        }
        let bugs = step.options.bugs;
        let mut decided: Vec<(Time, &[Ballot], bool)> = Vec::with_capacity(open.parts.len());
        for (part, votes) in open.transaction.parts.iter().zip(&open.parts) {
            let Some(view) = step.view.shard(part.shard) else { return };
            let quorums = Quorums::of(view.voters.len());
            let Some((own, leader)) = &votes.leader else { return };
            let quorum = match bugs.has(TigaPlantedBug::SimpleQuorum) {
                true => quorums.majority,
                false => quorums.fast,
            };
            let equal = votes.followers.iter().filter(|(node, vote)| {
                let is_equal =
                    (vote.t, vote.digest, vote.ballot) == (own.t, own.digest, own.ballot);
                view.voters.contains(node) && (is_equal || bugs.has(TigaPlantedBug::CountMismatch))
            });
            // A leader votes before its entries are appended. Only a follower's vote shows that what the transaction rests on is in
            // the log (rule T5): without one, a recovery may drop it.
            let may_be_fast = view.voters.len() > 1 || bugs.has(TigaPlantedBug::CommitByOneVote);
            // Members of a shard change with its ballot: those of the view count if the ballot is that of the votes.
            let is_fast = may_be_fast && view.ballot == own.ballot && equal.count() + 1 >= quorum;
            match &votes.stable {
                Some((t, ballots)) => decided.push((*t, ballots, true)),
                None if is_fast => decided.push((own.t, &leader.ballots, false)),
                None if votes.is_synced(view, own) => decided.push((own.t, &leader.ballots, true)),
                None => return,
            }
        }
        let (t, ballots, _) = decided[0];
        let all_slow = decided.iter().all(|(_, _, is_slow)| *is_slow);
        let one_t = decided.iter().all(|(other, _, _)| *other == t);
        let one_ballots = decided.iter().all(|(_, other, _)| *other == ballots);
        if !one_t || !(all_slow || one_ballots || bugs.has(TigaPlantedBug::MixBallots)) {
            return;
        }
        let is_fast = decided.iter().all(|(_, _, is_slow)| !is_slow);
        let results = open.parts.iter().filter_map(|part| part.leader.as_ref());
        let results = results.map(|(_, leader)| leader.outcome.clone()).collect();
        self.count(step, id, is_fast);
        let path = if is_fast { Path::Fast } else { Path::Slow };
        let committed = Some((t, path));
        let shards = self.open[&id].transaction.parts.iter().map(|part| part.shard).collect();
        step.observe(|| TigaObservation::Committed { id, t, path, shards });
        let open = self.open.get_mut(&id).expect("it was open");
        (open.is_committed, open.give_up_at) = (true, Time::MAX);
        self.forget_if_over(id);
        self.ended.push(Ended { id, outcome: Outcome::Committed(results), committed });
    }

    /// Forgets a committed transaction that all participants have decided.
    fn forget_if_over(&mut self, id: TransactionId) {
        if self.open[&id].parts.iter().all(|part| part.stable.is_some()) {
            self.open.remove(&id);
        }
    }

    fn count(&mut self, step: &Step<'_>, id: TransactionId, is_fast: bool) {
        let open = &self.open[&id];
        if open.transaction.by_log {
            self.counters.by_log += 1;
            return;
        }
        if is_fast {
            self.counters.fast += 1;
            return;
        }
        self.counters.slow += 1;
        let counters = &mut self.counters;
        for (part, votes) in open.transaction.parts.iter().zip(&open.parts) {
            let (Some((own, _)), Some(view)) = (&votes.leader, step.view.shard(part.shard)) else {
                continue;
            };
            let mut followers = votes.followers.values();
            if followers.clone().any(|vote| vote.t != own.t) {
                counters.slow_raised += 1;
                return;
            }
            if followers.any(|vote| vote.digest != own.digest) {
                counters.slow_mismatch += 1;
                return;
            }
            if votes.followers.len() + 1 < Quorums::of(view.voters.len()).fast {
                counters.slow_missing += 1;
                return;
            }
        }
    }

    /// A participant does not have the transaction, and never will.
    pub fn gone(
        &mut self,
        step: &mut Step<'_>,
        from: NodeId,
        id: TransactionId,
        shard: ShardId,
        times: ArrivalTimes,
    ) {
        let ArrivalTimes { sent, arrived } = times;
        if sent != Time::ZERO {
            self.delays.sample(step.now, from, sent, arrived);
        }
        let Some(open) = self.open.get_mut(&id) else { return };
        if open.transaction.place(shard).is_some() {
            step.observe(|| TigaObservation::Refused { id });
            if open.is_committed {
                return; // No replica of ours says so.
            }
            self.counters.gone += 1;
            self.end(Ended { id, outcome: Outcome::Gone(shard), committed: None });
        }
    }

    fn end(&mut self, ended: Ended) {
        self.open.remove(&ended.id);
        self.ended.push(ended);
    }

    /// The transactions that have ended since this was asked last.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// Sends again what is not decided, and gives up what was not for too long.
    pub fn tick(&mut self, step: &mut Step<'_>) {
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= step.now) {
            self.timers.remove(&(at, id));
            let Some(open) = self.open.get_mut(&id) else { continue };
            if open.give_up_at <= step.now {
                let undecided = open.parts.iter().position(|part| part.stable.is_none());
                let shard = open.transaction.parts[undecided.unwrap_or(0)].shard;
                self.counters.unknown += 1;
                self.end(Ended { id, outcome: Outcome::Unknown(shard), committed: None });
                continue;
            }
            self.counters.repeated += 1;
            submit(step, open.t, &open.transaction, false);
            let repeat_at = step.now + open.repetition.advance();
            self.timers.insert((repeat_at.min(open.give_up_at), id));
        }
    }

    /// When there will be something to do, on the local clock.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// How many transactions are not over.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// The number of the oldest transaction of a worker of this node that is not over.
    #[must_use]
    pub fn oldest(&self, node: NodeId, worker: WorkerId) -> Option<u64> {
        let first = TransactionId { node, worker, sequence: 0 };
        let (id, _) = self.open.range(first..).next()?;
        ((id.node, id.worker) == (node, worker)).then_some(id.sequence)
    }
}

/// Sends a transaction to the replicas of its participants; again, to their leaders alone.
fn submit(step: &mut Step<'_>, t: Time, transaction: &Arc<Transaction>, is_first: bool) {
    let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
    for part in &transaction.parts {
        let leader = step.view.leader(part.shard);
        nodes.extend(leader);
        if let Some(view) = step.view.shard(part.shard).filter(|_| is_first && !transaction.by_log)
        {
            nodes.extend(&view.voters);
        }
    }
    let sent = if is_first { step.clock } else { Time::ZERO };
    for node in nodes {
        let transaction = Arc::clone(transaction);
        step.send(node, Message::Submit { t, sent, transaction });
    }
}
