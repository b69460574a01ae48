//! What has to hold in every state: what a coordinator may have answered a client stays, and is strictly serializable.

use super::Tiga;
use super::rules::Rule;
use super::scenario::{FAST_FOLLOWERS, FAULTS, SHARDS_MAX};
use super::state::{Ballots, Entry, Reads, Replica, Shard, State};
use crate::Violation;
use std::collections::BTreeSet;

/// How one shard may have committed a transaction, as a coordinator sees it.
#[derive(Debug, Clone, Copy)]
struct ShardCommit {
    t: u8,
    is_fast: bool,
    ballots: Ballots,
    result: u64,
}

/// Timestamp and results, by shard.
type Outcome = (u8, Reads);

impl Tiga {
    /// All rules that hold in every state. Also finds out which transactions are committed by now.
    pub(super) fn check(&self, state: &mut State) -> Result<(), Violation> {
        self.check_equal_votes(state)?;
        loop {
            let before = state.committed;
            for id in 0..self.scenario.transactions.len() as u8 {
                self.check_commit(state, id)?;
            }
            if state.committed == before {
                break;
            }
        }
        self.check_serializable(state, state.committed)
    }

    fn check_commit(&self, state: &mut State, id: u8) -> Result<(), Violation> {
        if !self.has_committed_predecessors(state, id) {
            return Ok(());
        }
        let outcomes = self.outcomes(state, id);
        let mut different = outcomes.iter();
        let Some(outcome) = different.next() else { return Ok(()) };
        if different.next().is_some() {
            return Err(violation("T7", format!("T{id} is committed in two ways: {outcomes:?}")));
        }
        state.committed |= 1 << id;
        self.participants(id).try_for_each(|shard| self.check_kept(state, shard, id, outcome))
    }

    /// In a state where nothing can happen any more, everything is committed, even after crashes.
    pub(super) fn check_all_committed(&self, state: &State) -> Result<(), Violation> {
        let all = (1u32 << self.scenario.transactions.len()) - 1;
        let open = all as u8 & !state.committed;
        if open != 0 {
            return Err(violation(
                "progress",
                format!("transactions {open:#b} are never committed"),
            ));
        }
        self.check_serializable(state, u8::MAX)
    }

    /// T4: votes that are equal stand behind equal histories.
    fn check_equal_votes(&self, state: &State) -> Result<(), Violation> {
        for shard in &state.shards {
            for (number, ballot) in shard.ballots.iter().enumerate() {
                for entry in ballot.log.iter().filter(|_| ballot.finished.is_some()) {
                    let mut votes = shard.replicas.iter().flat_map(|replica| &replica.votes);
                    let differs = votes.any(|vote| {
                        (vote.ballot as usize, vote.t, vote.id) == (number, entry.t, entry.id)
                            && vote.digest == entry.digest
                            && vote.history != entry.history
                    });
                    if differs {
                        return Err(violation(
                            "T4",
                            format!("equal votes for T{} behind different histories", entry.id),
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// The proposed rule for recoveries that do not wait for another shard.
    fn has_committed_predecessors(&self, state: &State, id: u8) -> bool {
        if self.scenario.unreachable.is_none() || !self.holds(Rule::CommitOverCommitted) {
            return true;
        }
        self.participants(id).all(|shard| {
            let log =
                &state.shards[shard].ballots.iter().rev().find(|ballot| ballot.finished.is_some());
            let log = &log.expect("the first ballot").log;
            let before = log.iter().take_while(|entry| entry.id != id);
            let mut before = before.filter(|entry| self.conflict(shard, entry.id, id));
            before.all(|entry| !self.is_multi(entry.id) || state.committed >> entry.id & 1 != 0)
        })
    }

    /// In which ways a coordinator may have committed a transaction, from all votes that were ever sent.
    fn outcomes(&self, state: &State, id: u8) -> BTreeSet<Outcome> {
        let mut joined: Vec<Vec<ShardCommit>> = vec![Vec::new()];
        for shard in self.participants(id) {
            let commits = self.shard_commits(&state.shards[shard], shard, id);
            let with = |before: &Vec<ShardCommit>, commit: &ShardCommit| {
                before.iter().chain([commit]).copied().collect::<Vec<_>>()
            };
            joined = joined
                .iter()
                .flat_map(|before| commits.iter().map(|commit| with(before, commit)))
                .collect();
        }
        joined.retain(|commits| self.is_commit(commits));
        let outcome = |commits: Vec<ShardCommit>| {
            let mut results = [0; SHARDS_MAX];
            for (shard, commit) in self.participants(id).zip(&commits) {
                results[shard] = commit.result;
            }
            (commits[0].t, results)
        };
        joined.into_iter().map(outcome).collect()
    }

    /// All at one timestamp, and all slow or all of the same ballots.
    fn is_commit(&self, commits: &[ShardCommit]) -> bool {
        let first = &commits[0];
        let all_slow = commits.iter().all(|commit| !commit.is_fast);
        let same_ballots = commits.iter().all(|commit| commit.ballots == first.ballots);
        commits.iter().all(|commit| commit.t == first.t)
            && (all_slow || same_ballots || !self.holds(Rule::E2))
    }

    fn shard_commits(&self, of: &Shard, shard: usize, id: u8) -> Vec<ShardCommit> {
        let mut commits = Vec::new();
        for (number, ballot) in of.ballots.iter().enumerate() {
            let is_fast = |t: u8, digest: u64| {
                let votes = |replica: &&Replica| {
                    replica.votes.iter().any(|vote| {
                        (vote.ballot as usize, vote.t, vote.id) == (number, t, id)
                            && vote.digest == digest
                    })
                };
                let needed = if self.holds(Rule::T4) { FAST_FOLLOWERS } else { FAULTS };
                of.replicas.iter().filter(votes).count() >= needed
            };
            let place = ballot
                .log
                .iter()
                .position(|entry| entry.id == id)
                .filter(|_| ballot.finished.is_some());
            if let Some(place) = place {
                let entry = &ballot.log[place];
                let synced = |replica: &&Replica| {
                    replica.synced.get(number).is_some_and(|length| *length as usize > place)
                };
                let followers = of.replicas.iter().filter(synced).count();
                let is_stable = followers >= FAULTS || !self.holds(Rule::T6);
                let commit = |is_fast| {
                    let result = self.result(shard, id, &entry.reads);
                    ShardCommit { t: entry.t, is_fast, ballots: entry.ballots, result }
                };
                commits.extend(is_stable.then(|| commit(false)));
                commits.extend(is_fast(entry.t, entry.digest).then(|| commit(true)));
            }
            for (vote, ballots, reads) in ballot.early.iter().filter(|(vote, ..)| vote.id == id) {
                if is_fast(vote.t, vote.digest) {
                    let result = self.result(shard, id, reads);
                    commits.push(ShardCommit {
                        t: vote.t,
                        is_fast: true,
                        ballots: *ballots,
                        result,
                    });
                }
            }
        }
        commits
    }

    /// T7: a recovered shard has what is committed, with its timestamp and result.
    fn check_kept(
        &self,
        state: &State,
        shard: usize,
        id: u8,
        (t, results): &Outcome,
    ) -> Result<(), Violation> {
        let of = &state.shards[shard];
        let ballot = &of.ballots[of.latest() as usize];
        let (Some(replica), Some(_), true) = (of.leader(), &ballot.finished, of.latest() > 0)
        else {
            return Ok(());
        };
        let leader = of.replicas[replica].leader.as_ref().expect("leads");
        if let Some(entry) = ballot.log.iter().find(|entry| entry.id == id) {
            if entry.t == *t && self.result(shard, id, &entry.reads) == results[shard] {
                return Ok(());
            }
            let what = format!(
                "T{id}, committed at {t}, has another result on shard {shard}, at {}",
                entry.t
            );
            return Err(violation("T7", what));
        }
        if leader.queue.iter().any(|queued| queued.stamp() == (*t, id)) {
            return Ok(());
        }
        Err(violation("T7", format!("T{id}, committed at {t}, is lost on shard {shard}")))
    }

    /// T6: what is stable under an earlier ballot begins the log of this one.
    pub(super) fn check_stable_prefix(
        &self,
        state: &State,
        shard: usize,
        ballot: u8,
    ) -> Result<(), Violation> {
        let of = &state.shards[shard];
        let (later, earlier) = of.ballots[..=ballot as usize].split_last().expect("has a ballot");
        for (number, ballot) in
            earlier.iter().enumerate().filter(|(_, ballot)| ballot.finished.is_some())
        {
            let synced =
                |replica: &Replica| replica.synced.get(number).copied().unwrap_or(0) as usize;
            let mut lengths: Vec<usize> = of.replicas.iter().map(synced).collect();
            lengths.sort_unstable();
            let stable = &ballot.log[..lengths[lengths.len() - FAULTS]];
            let is_prefix = later.log.len() >= stable.len()
                && stable.iter().zip(&later.log).all(|(one, other)| one.stamp() == other.stamp());
            if !is_prefix {
                return Err(violation(
                    "T6",
                    format!("shard {shard} lost or reordered stable entries"),
                ));
            }
        }
        Ok(())
    }

    /// What a leader has answered stands behind what it has read, and in front of all that conflicts and was not there.
    fn order_reads(&self, state: &State, after: &mut [u8; 8]) {
        let count = self.scenario.transactions.len() as u8;
        for id in (0..count).filter(|id| self.is_read(*id) && state.committed >> id & 1 != 0) {
            let read = state.read_behind[id as usize];
            for shard in self.participants(id) {
                let log = final_log(&state.shards[shard]).iter();
                for entry in log.filter(|entry| self.conflict(shard, entry.id, id)) {
                    match read >> entry.id & 1 != 0 {
                        true => after[entry.id as usize] |= 1 << id,
                        false => after[id as usize] |= 1 << entry.id,
                    }
                }
            }
        }
    }

    /// The transactions of `among`, in the order of all logs and of real time, have no cycle.
    fn check_serializable(&self, state: &State, among: u8) -> Result<(), Violation> {
        let count = self.scenario.transactions.len();
        let mut after = [0u8; 8];
        for (shard, of) in state.shards.iter().enumerate() {
            let log = final_log(of);
            for (place, one) in log.iter().enumerate() {
                for other in
                    log[place + 1..].iter().filter(|other| self.conflict(shard, one.id, other.id))
                {
                    after[one.id as usize] |= 1 << other.id;
                }
            }
        }
        self.order_reads(state, &mut after);
        for (id, before) in state.committed_before.iter().enumerate() {
            for earlier in (0..count).filter(|earlier| before.unwrap_or(0) >> earlier & 1 != 0) {
                after[earlier] |= 1 << id;
            }
        }
        for middle in 0..count {
            for one in 0..count {
                if after[one] >> middle & 1 != 0 && among >> middle & 1 != 0 {
                    after[one] |= after[middle];
                }
            }
        }
        match (0..count).find(|id| after[*id] >> id & 1 != 0 && among >> id & 1 != 0) {
            Some(id) => Err(violation(
                "serializable",
                format!("T{id} is in a cycle: not strictly serializable"),
            )),
            None => Ok(()),
        }
    }
}

/// The log of the latest ballot that has ended its recovery.
fn final_log(of: &Shard) -> &[Entry] {
    let finished = of.ballots.iter().rev().find(|ballot| ballot.finished.is_some());
    finished.map_or(&[], |ballot| &ballot.log)
}

fn violation(rule: &'static str, what: String) -> Violation {
    Violation { rule, what }
}
