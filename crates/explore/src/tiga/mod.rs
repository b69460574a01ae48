//! A model of Tiga: order by timestamps, agreement among leaders, votes, and recovery.
//!
//! ```text
//!            coordinator                  leader X        leader Y
//!   deliver ───► tentative, vote          queue ─ Propose ─ queue
//!   (followers)       │                     │ ──── Ready ───  │
//!                     │                   append            append ──► sync to followers
//!                     └───────► fast: S equal votes   slow: a majority synced
//!
//!   appoint ─► f + 1 promises ─► start record ─► answers of other shards ─► final record
//! ```
//! Source: Tiga (SOSP'25) with the rules of Shoal's design, each of which can be switched off ([`Rule`]). `docs/tiga.md`
//! says what is modelled and what was found.
//!
//! Two reductions keep the number of states small. A follower's queue is not modelled: a clock may be at any time, so what
//! a follower releases is any sequence of delivered transactions in which conflicting ones have growing stamps. The same
//! holds for a leader's transactions of one shard. And a coordinator has no state: a transaction counts as committed as
//! soon as the votes that were sent allow it, which is when a coordinator could know it at the earliest.
//!
//! | file | holds |
//! |---|---|
//! | `rules.rs` | the rules that can be switched off |
//! | `scenario.rs` | what a search is given |
//! | `state.rs` | shards, ballots, replicas |
//! | `order.rs` | conflict tables, digests, reads |
//! | `release.rs` | acceptance, release, votes, synchronization |
//! | `agreement.rs` | `Propose`, `Ready`, detective votes |
//! | `leader_reads.rs` | reads at one leader |
//! | `records.rs` | ballots: promises, start and final records |
//! | `recovery.rs` | answers of other shards, what is imported and kept |
//! | `check.rs` | what has to hold |
//! | `scenarios.rs` | scenarios and switches by name |

mod agreement;
mod check;
mod leader_reads;
mod order;
mod records;
mod recovery;
mod release;
mod rules;
mod scenario;
mod scenarios;
mod state;

#[cfg(test)]
mod tests;

pub use rules::Rule;
pub use scenario::{Access, REPLICAS, SHARDS_MAX, Scenario, Shape, Transaction};
pub use scenarios::PROTOCOL;
pub use state::State;

use crate::{Model, Violation};
use state::{Ballot, Leader, LeaderPhase, Propose, Record, Replica, Shard};
use std::collections::BTreeSet;
use std::fmt;

/// The model of one scenario.
#[derive(Debug, Clone)]
pub struct Tiga {
    scenario: Scenario,
    /// By the number of the rule.
    is_off: [bool; Rule::ALL.len()],
}

/// One thing that can happen. Replicas are numbered within their shard.
#[expect(missing_docs, reason = "the fields are numbers of what they are named after")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A replica accepts a transaction from its coordinator. A follower, and a leader where only its shard takes part,
    /// releases it at once.
    Deliver { shard: usize, replica: usize, id: u8 },
    /// A leader sends `Propose` at the head of its queue, as only the published protocol does.
    ProposeAtHead { shard: usize, replica: usize, id: u8 },
    /// A leader receives another's `Propose`.
    Receive { shard: usize, replica: usize, id: u8, from: usize, ballot: u8, t: u8 },
    /// A leader sends `Ready` for what stands at the head of its queue.
    Ready { shard: usize, replica: usize, id: u8 },
    /// A detective leader votes for what stands at the head of its queue.
    VoteEarly { shard: usize, replica: usize, id: u8 },
    /// A leader appends what stands at the head of its queue and is agreed.
    Release { shard: usize, replica: usize, id: u8 },
    /// A leader answers a transaction that only reads, and only there.
    Read { shard: usize, replica: usize, id: u8 },
    /// A follower takes the next entry of the leader's log.
    Sync { shard: usize, replica: usize },
    /// The replica is appointed leader. The old one crashes, or goes on until it learns of it.
    Appoint { shard: usize, replica: usize, old_crashes: bool },
    /// A voter that does not lead loses its memory.
    Restart { shard: usize, replica: usize },
    /// A voter promises the latest ballot of its shard.
    Promise { shard: usize, replica: usize },
    /// A voter accepts the start record of this ballot, or the final one.
    Accept { shard: usize, replica: usize, ballot: u8, is_final: bool },
    /// The recovering leader of `shard` is answered by the leader of `other`.
    Answer { shard: usize, other: usize },
    /// A leader learns of a transaction that the shard it did not wait for has released.
    ImportLate { shard: usize, replica: usize },
    /// A recovering leader decides what it imports and keeps.
    Finish { shard: usize, replica: usize },
}

impl Tiga {
    /// The model of `scenario`.
    ///
    /// # Panics
    /// If the scenario has more than eight transactions, or more shards than [`SHARDS_MAX`].
    pub fn new(scenario: Scenario) -> Tiga {
        assert!(scenario.transactions.len() <= 8, "transactions are kept as bits");
        assert!(scenario.shards <= SHARDS_MAX, "shards");
        let is_off = Rule::ALL.map(|rule| scenario.without.contains(&rule));
        Tiga { scenario, is_off }
    }

    fn holds(&self, rule: Rule) -> bool {
        !self.is_off[rule as usize]
    }

    fn transaction_actions(&self, state: &State, at: (usize, usize), actions: &mut Vec<Action>) {
        let (shard, replica) = at;
        for id in 0..self.scenario.transactions.len() as u8 {
            if self.can_deliver(state, at, id) {
                actions.push(Action::Deliver { shard, replica, id });
            }
            if state.shards[shard].replicas[replica].leader.is_none() {
                continue;
            }
            if self.can_read(state, at, id) {
                actions.push(Action::Read { shard, replica, id });
            }
            if self.can_propose_at_head(state, at, id) {
                actions.push(Action::ProposeAtHead { shard, replica, id });
            }
            if self.next_ready(state, at, id).is_some() {
                actions.push(Action::Ready { shard, replica, id });
            }
            if self.can_vote_early(state, at, id) {
                actions.push(Action::VoteEarly { shard, replica, id });
            }
            if self.releasable(state, at, id).is_some() {
                actions.push(Action::Release { shard, replica, id });
            }
        }
        for propose in &state.proposes {
            if self.can_receive(state, at, propose) {
                let Propose { id, shard: from, ballot, t } = propose.clone();
                actions.push(Action::Receive {
                    shard,
                    replica,
                    id,
                    from: from as usize,
                    ballot,
                    t,
                });
            }
        }
    }

    fn recovery_actions(&self, state: &State, at: (usize, usize), actions: &mut Vec<Action>) {
        let (shard, replica) = at;
        let of = &state.shards[shard];
        let may_appoint = of.appointments_left > 0
            && state.actions >= self.scenario.quiet_actions
            && of.replicas[replica].is_alive
            && of.replicas[replica].has_memory
            && of.leader().is_some_and(|leader| leader != replica);
        if may_appoint {
            let can_miss = of.leader().is_some_and(|leader| self.can_miss(state, (shard, leader)));
            let may_crash = of.crashes_left > 0 && can_miss;
            if may_crash {
                actions.push(Action::Appoint { shard, replica, old_crashes: true });
            }
            if !may_crash || !self.scenario.always_crash {
                actions.push(Action::Appoint { shard, replica, old_crashes: false });
            }
        }
        if self.can_restart(state, at) {
            actions.push(Action::Restart { shard, replica });
        }
        if self.can_promise(state, at) {
            actions.push(Action::Promise { shard, replica });
        }
        for ballot in 1..of.ballots.len() as u8 {
            for record in [Record::Start, Record::Final] {
                if self.can_accept(state, at, (ballot, record)) {
                    let is_final = record == Record::Final;
                    actions.push(Action::Accept { shard, replica, ballot, is_final });
                }
            }
        }
        if self.can_import_late(state, at) {
            actions.push(Action::ImportLate { shard, replica });
        }
        if self.can_finish(state, at) {
            actions.push(Action::Finish { shard, replica });
        }
    }

    fn take(&self, state: &mut State, action: Action) -> Result<(), Violation> {
        match action {
            Action::Deliver { shard, replica, id } => {
                return self.deliver(state, (shard, replica), id);
            }
            Action::ProposeAtHead { shard, replica, id } => {
                self.propose_at_head(state, (shard, replica), id);
            }
            Action::Receive { shard, replica, id, from, ballot, t } => {
                let propose = Propose { id, shard: from as u8, ballot, t };
                self.receive(state, (shard, replica), &propose);
            }
            Action::Ready { shard, replica, id } => {
                let ready = self.next_ready(state, (shard, replica), id).expect("is possible");
                self.send_ready(state, (shard, replica), ready);
            }
            Action::VoteEarly { shard, replica, id } => {
                self.vote_early(state, (shard, replica), id);
            }
            Action::Release { shard, replica, id } => {
                let queued = self.releasable(state, (shard, replica), id).expect("is possible");
                return self.append(state, (shard, replica), &queued);
            }
            Action::Read { shard, replica, id } => self.read(state, (shard, replica), id),
            Action::Sync { shard, replica } => self.sync(state, (shard, replica)),
            Action::Appoint { shard, replica, old_crashes } => {
                return self.appoint(state, (shard, replica), old_crashes);
            }
            Action::Restart { shard, replica } => return self.restart(state, (shard, replica)),
            Action::Promise { shard, replica } => {
                return self.promise(state, (shard, replica), None);
            }
            Action::Accept { shard, replica, ballot, is_final } => {
                let record = if is_final { Record::Final } else { Record::Start };
                self.accept(state, (shard, replica), (ballot, record));
            }
            Action::Answer { shard, other } => self.answer(state, shard, other),
            Action::ImportLate { shard, replica } => self.import_late(state, (shard, replica)),
            Action::Finish { shard, replica } => return self.finish(state, (shard, replica)),
        }
        Ok(())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Action::Deliver { shard, replica, id } => {
                write!(f, "S{shard} R{replica} receives T{id}")
            }
            Action::ProposeAtHead { shard, replica, id } => {
                write!(f, "S{shard} R{replica} proposes T{id} at the head of its queue")
            }
            Action::Receive { shard, replica, id, from, ballot, t } => {
                write!(
                    f,
                    "S{shard} R{replica} receives Propose T{id}@{t} of S{from} ballot {ballot}"
                )
            }
            Action::Ready { shard, replica, id } => {
                write!(f, "S{shard} R{replica} is ready for T{id}")
            }
            Action::VoteEarly { shard, replica, id } => {
                write!(f, "S{shard} R{replica} executes T{id} and votes")
            }
            Action::Release { shard, replica, id } => {
                write!(f, "S{shard} R{replica} appends T{id}")
            }
            Action::Read { shard, replica, id } => {
                write!(f, "S{shard} R{replica} answers the reads of T{id}")
            }
            Action::Sync { shard, replica } => write!(f, "S{shard} R{replica} syncs an entry"),
            Action::Appoint { shard, replica, old_crashes } => {
                let old = if old_crashes { "crashes" } else { "is deposed" };
                write!(f, "S{shard} R{replica} is appointed, the old leader {old}")
            }
            Action::Restart { shard, replica } => {
                write!(f, "S{shard} R{replica} restarts without memory")
            }
            Action::Promise { shard, replica } => write!(f, "S{shard} R{replica} promises"),
            Action::Accept { shard, replica, ballot, is_final } => {
                let record = if is_final { "final" } else { "start" };
                write!(f, "S{shard} R{replica} accepts the {record} record of ballot {ballot}")
            }
            Action::Answer { shard, other } => write!(f, "S{other} answers S{shard}"),
            Action::ImportLate { shard, replica } => write!(f, "S{shard} R{replica} imports late"),
            Action::Finish { shard, replica } => write!(f, "S{shard} R{replica} ends its recovery"),
        }
    }
}

impl Model for Tiga {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let shard = |shard: usize| {
            let replica = |replica: usize| {
                let serves = Leader {
                    phase: LeaderPhase::Serving,
                    known: [0; 3],
                    answers: [None, None, None],
                    queue: Vec::new(),
                    unanswered: 0,
                };
                let lost =
                    self.scenario.lost.iter().filter(|(_, at, number)| {
                        (*at as usize, *number as usize) == (shard, replica)
                    });
                Replica {
                    is_alive: true,
                    promised: 0,
                    accepted: (0, Record::Final),
                    length: 0,
                    tentative: Vec::new(),
                    synced: vec![0],
                    votes: BTreeSet::new(),
                    leader: (replica == 0).then_some(serves),
                    has_memory: true,
                    lost: lost.fold(0, |bits, (id, ..)| bits | 1 << id),
                }
            };
            Shard {
                ballots: vec![Ballot { finished: Some(Vec::new()), ..Ballot::default() }],
                replicas: [replica(0), replica(1), replica(2)],
                appointments_left: self.scenario.appointments[shard],
                crashes_left: self.scenario.crashes[shard],
                restarts_left: self.scenario.restarts[shard],
            }
        };
        State {
            shards: (0..self.scenario.shards).map(shard).collect(),
            proposes: BTreeSet::new(),
            readies: BTreeSet::new(),
            committed_before: vec![None; self.scenario.transactions.len()],
            read_behind: vec![0; self.scenario.transactions.len()],
            committed: 0,
            actions: 0,
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for shard in 0..self.scenario.shards {
            for replica in 0..REPLICAS {
                if !state.shards[shard].replicas[replica].is_alive {
                    if self.can_restart(state, (shard, replica)) {
                        actions.push(Action::Restart { shard, replica });
                    }
                    continue;
                }
                self.transaction_actions(state, (shard, replica), actions);
                if self.can_sync(state, (shard, replica)) {
                    actions.push(Action::Sync { shard, replica });
                }
                self.recovery_actions(state, (shard, replica), actions);
            }
            for other in (0..self.scenario.shards).filter(|other| *other != shard) {
                if self.can_answer(state, shard, other) {
                    actions.push(Action::Answer { shard, other });
                }
            }
        }
    }

    fn apply(&self, state: &State, action: &Action) -> Result<State, Violation> {
        let mut after = state.clone();
        after.actions = (after.actions + 1).min(self.scenario.quiet_actions);
        self.take(&mut after, *action)?;
        self.check(&mut after)?;
        Ok(after)
    }

    fn check_end(&self, state: &State) -> Result<(), Violation> {
        self.check_all_committed(state)
    }
}
