//! The rules of `tiga` that votes and logs show: T1, conflicting transactions stand in the log in the order of their stamps,
//! but for what was imported; T4 and T6, what a coordinator takes for committed has equal votes of a fast quorum, or stands
//! in decided entries, on every participant; T7, what is committed stands in every participant's log at its timestamp, at the
//! end at the latest; T9, the ballots of a node's votes only grow; T10, once; T16, what votes have committed was voted for under
//! the same ballots everywhere; T21, what a coordinator has reported as refused stands in no log.
//!
//! Votes are counted here, and entries are those that replicas have applied: no coordinator's or leader's word is taken.

use super::verdict::RuleVerdict;
use super::{Checks, EngineRules, Moment};
use crate::violation::Violation;
use shoal_engine::TransactionId;
use shoal_tiga::TigaObservation;
use shoal_tiga::digest::Digest;
use shoal_tiga::locks::LockIndex;
use shoal_tiga::record::Record;
use shoal_tiga::stamp::Stamp as Place;
use shoal_tiga::transaction::Work;
use shoal_tiga::view::Quorums;
use shoal_types::{Ballot, Clock, Epoch, NodeId, ShardId, Stamp, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A vote: timestamp, digest and ballot.
type VoteOf = (Time, Digest, Ballot);

/// What is known of a transaction on a shard.
#[derive(Debug, Default)]
struct OnShard {
    /// The votes of leaders, and the nodes that have voted so.
    leaders: BTreeSet<VoteOf>,
    votes: BTreeMap<VoteOf, BTreeSet<NodeId>>,
    /// The followers that have synced it, by its timestamp and their ballot.
    synced: BTreeMap<(Time, Ballot), BTreeSet<NodeId>>,
    /// As leaders have released it, or voted for it.
    released: Vec<Arc<Record>>,
    /// As it stands in decided entries.
    applied: Option<Arc<Record>>,
}

/// The decided log of a shard.
#[derive(Debug, Default)]
struct Log {
    /// The names of the transactions of each entry.
    entries: Vec<Vec<Place>>,
    /// The last transactions that were accepted and released under one ballot, with what they lock, for their order.
    recent: Vec<(Place, Work)>,
}

/// What replicas and coordinators have said.
#[derive(Debug, Default)]
pub struct TigaRules {
    /// What names a transaction where a check asks for a clock.
    clocks: BTreeMap<TransactionId, Clock>,
    transactions: BTreeMap<(ShardId, TransactionId), OnShard>,
    logs: BTreeMap<ShardId, Log>,
    committed: BTreeMap<TransactionId, (Time, Vec<ShardId>)>,
    refused: BTreeSet<TransactionId>,
    /// The ballots under which nodes have voted last, since they began.
    ballots: BTreeMap<(ShardId, NodeId), Ballot>,
}

/// Against so many earlier transactions of the log the order of one is judged.
const RECENT: usize = 128;

impl EngineRules for TigaRules {
    type Observation = TigaObservation;

    const SPECULATES: bool = false;
    const ORDER: &'static str = "T1";
    const SAFE_CLOCK: &'static str = "T15";
    const DURABLE_FIRST: &'static str = "T11";
    const LEASE: &'static str = "T11";

    fn judge(
        checks: &mut Checks<TigaRules>,
        moment: Moment,
        observation: &TigaObservation,
    ) -> Result<(), Violation> {
        let node = moment.place.node;
        match observation {
            TigaObservation::Voted { id, shard, ballot, t, digest } => {
                moment.blame("T9", checks.rules.votes_under(*shard, node, *ballot))?;
                let of = checks.rules.transactions.entry((*shard, *id)).or_default();
                of.votes.entry((*t, *digest, *ballot)).or_default().insert(node);
            }
            TigaObservation::Synced { shard, ballot, records } => {
                for record in records {
                    let of = checks.rules.transactions.entry((*shard, record.id())).or_default();
                    of.synced.entry((record.t, *ballot)).or_default().insert(node);
                }
            }
            TigaObservation::Released { shard, ballot, record }
            | TigaObservation::VotedOptimistically { shard, ballot, record } => {
                let key = (*shard, record.transaction.id);
                let of = checks.rules.transactions.entry(key).or_default();
                let vote = (record.t, record.digest, *ballot);
                of.leaders.insert(vote);
                of.votes.entry(vote).or_default().insert(node);
                of.released.push(Arc::clone(record));
            }
            TigaObservation::Applied { shard, index, records } => {
                let is_first = checks.rules.is_first(*shard, *index);
                moment.blame("T6", checks.rules.apply(*shard, *index, records))?;
                for record in records.iter().filter(|_| is_first) {
                    moment.blame("T7", checks.rules.is_committed_at(*shard, record))?;
                    moment.blame("T21", checks.rules.is_not_refused(*shard, record))?;
                    moment.blame("T10", checks.rules.once(*shard, record))?;
                    moment.blame("T1", checks.rules.in_order(*shard, record))?;
                    moment.blame("exactly once", install(checks, *shard, record))?;
                }
            }
            TigaObservation::Refused { id } => {
                moment.blame("T21", checks.rules.refuse(*id))?;
            }
            TigaObservation::Committed { id, t, shards, .. } => {
                for shard in shards {
                    let voters = checks.voters(*shard);
                    moment.blame("T4", checks.rules.may_be_committed(*id, *t, *shard, voters))?;
                    if let Some(record) = checks.rules.record_at(*shard, *id, *t) {
                        moment.blame("exactly once", install(checks, *shard, &record))?;
                    }
                }
                moment.blame("T16", checks.rules.under_the_same_ballots(*id, *t, shards))?;
                let refused = checks.rules.refused.contains(id);
                let what = || Err(format!("{id} is committed, and was refused"));
                moment.blame("T21", if refused { what() } else { Ok(()) })?;
                let before = checks.rules.committed.insert(*id, (*t, shards.clone()));
                let same = before.as_ref().is_none_or(|(before, _)| before == t);
                let what = || format!("{id} is committed at {t}, and was at {before:?}");
                moment.blame("T7", if same { Ok(()) } else { Err(what()) })?;
            }
            TigaObservation::Serves { .. } | TigaObservation::Restored { .. } => {}
        }
        Ok(())
    }

    /// What is committed stands on all of its shards (rule T7). By votes, it may be committed before.
    fn agree(&self) -> Result<(), (&'static str, String)> {
        for (id, (t, shards)) in &self.committed {
            let lacks = |shard: &&ShardId| {
                let of = self.transactions.get(&(**shard, *id));
                of.is_none_or(|of| of.applied.is_none())
            };
            if let Some(shard) = shards.iter().find(lacks) {
                let what = format!("{id} is committed at {t}, and stands nowhere on {shard}");
                return Err(("T7", what));
            }
        }
        Ok(())
    }

    fn crashed(&mut self, node: NodeId) {
        self.ballots.retain(|(_, of), _| *of != node);
    }
}

/// Shows what a transaction wrote to the check of replies.
fn install(checks: &mut Checks<TigaRules>, shard: ShardId, record: &Record) -> RuleVerdict {
    let transaction = &record.transaction;
    let Some(place) = transaction.place(shard) else { return Ok(()) };
    let stamp = Stamp::local(Epoch(1), checks.rules.clock_of(transaction.id));
    for write in record.writes(&transaction.parts[place]) {
        let (replies, durable) = (&mut checks.replies, &checks.durable);
        let value = write.value.as_deref();
        replies.installed(shard, &stamp, write.table, &write.key, value, durable)?;
    }
    Ok(())
}

impl TigaRules {
    /// A clock that names the transaction to checks for which its timestamp would be too wide.
    fn clock_of(&mut self, id: TransactionId) -> Clock {
        let next = Clock(self.clocks.len() as u64);
        *self.clocks.entry(id).or_insert(next)
    }

    /// Whether no replica has applied the entry yet.
    fn is_first(&self, shard: ShardId, index: u64) -> bool {
        let log = self.logs.get(&shard);
        log.and_then(|log| log.entries.get(index as usize)).is_none_or(Vec::is_empty)
    }

    /// All replicas apply the same entries.
    fn apply(&mut self, shard: ShardId, index: u64, records: &[Arc<Record>]) -> RuleVerdict {
        let log = self.logs.entry(shard).or_default();
        let places: Vec<Place> = records.iter().map(|record| record.stamp()).collect();
        let index = index as usize;
        if log.entries.len() <= index {
            log.entries.resize(index, Vec::new());
            log.entries.push(places);
            return Ok(());
        }
        let before = &mut log.entries[index];
        if before.is_empty() {
            *before = places;
        } else if *before != places {
            return Err(format!(
                "entry {index} of {shard} has {places:?} here, and {before:?} elsewhere"
            ));
        }
        Ok(())
    }

    fn is_committed_at(&self, shard: ShardId, record: &Record) -> RuleVerdict {
        let id = record.transaction.id;
        match self.committed.get(&id) {
            Some((t, _)) if *t != record.t => {
                Err(format!("{id} is committed at {t}, and stands at {} on {shard}", record.t))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A node votes under no ballot below one under which it has voted.
    fn votes_under(&mut self, shard: ShardId, node: NodeId, ballot: Ballot) -> RuleVerdict {
        match self.ballots.insert((shard, node), ballot).filter(|before| *before > ballot) {
            Some(before) => Err(format!("{node} votes on {shard} under {ballot} after {before}")),
            None => Ok(()),
        }
    }

    /// Where it does not stand in the logs of all participants, leaders have voted for it under the same ballots of all.
    fn under_the_same_ballots(
        &self,
        id: TransactionId,
        t: Time,
        shards: &[ShardId],
    ) -> RuleVerdict {
        let of = |shard: &ShardId| self.transactions.get(&(*shard, id));
        let stands = |shard: &ShardId| {
            of(shard).is_some_and(|of| {
                of.applied.is_some() || of.synced.keys().any(|(synced, _)| *synced == t)
            })
        };
        let ballots = |shard: &ShardId| -> BTreeSet<&[Ballot]> {
            let released = of(shard).into_iter().flat_map(|of| &of.released);
            released.filter(|record| record.t == t).map(|record| &record.ballots[..]).collect()
        };
        let mut all = shards.iter().map(ballots);
        let mut common = all.next().unwrap_or_default();
        all.for_each(|other| common.retain(|ballots| other.contains(ballots)));
        match shards.iter().all(stands) || !common.is_empty() {
            true => Ok(()),
            false => Err(format!("{id} is committed at {t}, by votes under different ballots")),
        }
    }

    /// No replica has applied what is refused, and no client has received that it is committed.
    fn refuse(&mut self, id: TransactionId) -> RuleVerdict {
        self.refused.insert(id);
        if self.committed.contains_key(&id) {
            return Err(format!("{id} is committed, and refused"));
        }
        let stands_in = |shard: &&ShardId| {
            let of = self.transactions.get(&(**shard, id));
            of.is_some_and(|of| of.applied.is_some())
        };
        match self.logs.keys().find(stands_in) {
            None => Ok(()),
            Some(shard) => {
                Err(format!("{id} is reported as refused, and stands in the log of {shard}"))
            }
        }
    }

    fn is_not_refused(&self, shard: ShardId, record: &Record) -> RuleVerdict {
        let id = record.transaction.id;
        match self.refused.contains(&id) {
            true => Err(format!("{id} stands in the log of {shard}, and was reported as refused")),
            false => Ok(()),
        }
    }

    fn once(&mut self, shard: ShardId, record: &Arc<Record>) -> RuleVerdict {
        let id = record.transaction.id;
        let of = self.transactions.entry((shard, id)).or_default();
        let before = of.applied.get_or_insert_with(|| Arc::clone(record));
        match before.t == record.t && before.outcome == record.outcome {
            true => Ok(()),
            false => Err(format!(
                "{id} stands at {} and at {} on {shard}, and returned {:?} and {:?}",
                before.t, record.t, before.outcome, record.outcome
            )),
        }
    }

    /// No conflicting transaction with a greater stamp stands before it. What a recovery has imported is not judged: it
    /// stands behind what was there.
    fn in_order(&mut self, shard: ShardId, record: &Arc<Record>) -> RuleVerdict {
        let Some(work) = Work::new(&record.transaction, shard) else { return Ok(()) };
        let (place, ballot) = (record.stamp(), work.part().ballot);
        let vote = (record.t, record.digest, ballot);
        let of = self.transactions.entry((shard, place.id)).or_default();
        let log = self.logs.entry(shard).or_default();
        if !of.leaders.contains(&vote) {
            return Ok(());
        }
        let mut index = LockIndex::default();
        index.add(place, &work.locks);
        let mut greater = log.recent.iter().filter(|(other, _)| *other > place);
        let rival = greater.find(|(_, other)| index.rivals(&other.locks).next().is_some());
        if let Some((other, _)) = rival {
            return Err(format!("{place:?} stands behind {other:?} on {shard}"));
        }
        log.recent.push((place, work));
        if log.recent.len() > RECENT {
            log.recent.remove(0);
        }
        Ok(())
    }

    /// Equal votes of a fast quorum with a leader's among them, or an entry that a majority has synced under its ballot, or a
    /// decided one.
    fn may_be_committed(
        &self,
        id: TransactionId,
        t: Time,
        shard: ShardId,
        voters: usize,
    ) -> RuleVerdict {
        let Some(of) = self.transactions.get(&(shard, id)) else {
            return Err(format!("{id} is committed, and {shard} knows nothing of it"));
        };
        let is_slow = of.applied.as_ref().is_some_and(|record| record.t == t);
        let Quorums { fast, majority, .. } = Quorums::of(voters);
        let mut leaders = of.leaders.iter().filter(|vote| vote.0 == t);
        // The vote of a leader alone may rest on what stands in no log (rule T5).
        let fast = fast.max(2);
        let is_fast = leaders.clone().any(|vote| of.votes[vote].len() >= fast);
        let is_synced = leaders.any(|(t, _, ballot)| {
            of.synced.get(&(*t, *ballot)).is_some_and(|followers| followers.len() + 1 >= majority)
        });
        match is_slow || is_fast || is_synced {
            true => Ok(()),
            false => {
                Err(format!("{id} is committed at {t}; on {shard} the votes are {:?}", of.votes))
            }
        }
    }

    fn record_at(&self, shard: ShardId, id: TransactionId, t: Time) -> Option<Arc<Record>> {
        let of = self.transactions.get(&(shard, id))?;
        let mut all = of.applied.iter().chain(of.released.iter().rev());
        all.find(|record| record.t == t).cloned()
    }
}
