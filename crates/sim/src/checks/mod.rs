//! The rules, judged by an observer of the whole cluster. One file for each:
//!
//! | file | rule |
//! |---|---|
//! | `stamps.rs` | M1: a stamp covers what was read and is not durable; what is installed carries all of it |
//! | `installed.rs` | M2: install order and clock order agree; it is also the model of every shard |
//! | `safe_clock.rs` | M3: nothing at or below a safe clock is still to come |
//! | `durable.rs` | M4: what is durable is accepted by a majority of the voters; a replica that counts holds it |
//! | `told.rs` | M5: no client is told of what is not durable |
//! | `replies.rs` | M5 once more, at the client: what clients outside are shown; and exactly once |
//! | `replay.rs` | M6: followers apply what is durable, and the greatest clock wins |
//! | `leases.rs` | M7: a leader is appointed when the former lease has ended; once it serves, no former one acts |
//! | `epochs.rs` | M8: no transaction reads what a later epoch wrote, or an earlier one has not settled, or uses a late clock |
//! | `finals.rs` | M9: an FVW is one, and covers what was told and nothing that is not durable |
//! | `copies.rs` | M10: a copy for a replica has what is committed, all of it up to its cut, and nothing else |
//! | `records.rs` | P4: nothing is seen or told whose record is not durable |
//! | `replicas.rs` | at the end: all copies of a shard are equal, and equal to the model |
//! | `acknowledged.rs` | at the end: what is covered is there wholly, and nothing else was told |
//!
//! The engines' observations are their word for what they did; what is durable is computed here, from
//! what the voters' streams have accepted. A violation is a value, and the first one ends the run.
//!
//! [`Rules`] says which of them hold for an engine; those that name no kind there hold for all.

mod acknowledged;
mod copies;
mod durable;
mod epochs;
mod finals;
mod installed;
mod leases;
mod records;
mod replay;
pub mod replicas;
mod replies;
mod safe_clock;
mod stamps;
mod told;
mod transactions;

use crate::violation::Violation;
use acknowledged::Acknowledged;
use bytes::Bytes;
use copies::SentChunk;
use durable::{Durable, EntryFacts};
use epochs::OpenEpochs;
use finals::Finals;
pub use installed::{Installed, InstalledRow};
use leases::Leases;
use records::Records;
use replay::Replay;
use replies::{Replies, WrongReply};
use safe_clock::SafeClocks;
use shoal_cluster::topology::Topology;
use shoal_engine::client::{ClientId, ClientReply, ClientRequest};
use shoal_engine::{Observation, WorkerPlace};
use shoal_types::{
    Ballot, Clock, Epoch, NodeId, ShardId, Stamp, TableId, Time, VectorWatermark, WorkerId,
};
use std::collections::{BTreeMap, BTreeSet};
use transactions::Transactions;

/// When and where something was observed.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The true time.
    pub at: Time,
    /// The worker whose step it was.
    pub place: WorkerPlace,
}

/// What a rule says of an observation; the text tells how it is broken.
type RuleVerdict = Result<(), String>;

/// How an engine keeps what is not durable from being seen outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rules {
    /// Versions are visible at once, and their readers wait for the watermark: M1, M4, M5, M6, M8.
    #[default]
    Watermark,
    /// Versions are visible when their records are durable: P4.
    Records,
}

/// All rules; see the module.
#[derive(Debug)]
pub struct Checks {
    rules: Rules,
    records: Records,
    durable: Durable,
    transactions: Transactions,
    installed: Installed,
    safe_clocks: SafeClocks,
    /// Who was to lead what.
    appointed: BTreeSet<(ShardId, Ballot)>,
    replay: Replay,
    replies: Replies,
    leases: Leases,
    finals: Finals,
    opened: OpenEpochs,
    /// Up to which clock nodes have whole copies of shards.
    copied: BTreeMap<(NodeId, ShardId), Clock>,
    /// See [`Checks::holds`].
    held: Vec<(WorkerId, u64)>,
    /// Replicas that have lost their memory, and do not hold all there is again.
    empty: BTreeSet<(ShardId, NodeId)>,
    shards: u32,
    /// Clocks keep no bound, and so leases need not hold.
    wild_clocks: bool,
    /// How often they did not.
    two_leaders: u64,
    /// The shard that is lost for good: what depends on it may stay undecided.
    lost: Option<ShardId>,
}

impl Checks {
    /// The rules for a cluster of this shape.
    pub fn new(topology: &Topology, rules: Rules) -> Checks {
        let shards = topology.shards() as usize;
        Checks {
            rules,
            records: Records::default(),
            durable: Durable::new(topology),
            transactions: Transactions::default(),
            installed: Installed::new(shards),
            safe_clocks: SafeClocks::default(),
            appointed: BTreeSet::new(),
            replay: Replay::new(topology.nodes().len(), shards),
            replies: Replies::new(topology),
            leases: Leases::default(),
            finals: Finals::default(),
            opened: OpenEpochs::default(),
            copied: BTreeMap::new(),
            held: Vec::new(),
            empty: BTreeSet::new(),
            shards: topology.shards(),
            wild_clocks: false,
            two_leaders: 0,
            lost: None,
        }
    }

    /// A shard is lost for good.
    pub fn loses(&mut self, shard: ShardId) {
        self.lost = Some(shard);
    }

    /// All is over, and the epochs have ended on all shards but the lost one: what depends on that and is not known to
    /// count is nowhere, or still undecided. Of the `unheard` epochs the managers were never told how they ended on the
    /// lost one (seeds 29662, 42167).
    pub fn end_without(&mut self, lost: ShardId, unheard: BTreeSet<Epoch>) {
        self.durable.ends_unheard(lost, unheard);
        self.installed.end_without(lost, &self.durable);
    }

    /// Clocks will keep no bound: leases are at risk, and nothing else.
    pub fn expect_wild_clocks(&mut self) {
        self.wild_clocks = true;
    }

    /// How often a former leader acted, where clocks keep no bound.
    pub fn two_leaders(&self) -> u64 {
        self.two_leaders
    }

    /// The stream of this worker at `node`, a replica of the shard, has accepted so many entries under
    /// this ballot.
    ///
    /// # Errors
    /// If that cannot be.
    #[inline]
    pub fn accepted(
        &mut self,
        moment: Moment,
        shard: ShardId,
        accepted: (Ballot, u64),
    ) -> Result<(), Violation> {
        let WorkerPlace { node, worker } = moment.place;
        let verdict = self.durable.accepted(shard, worker, node, accepted);
        let place = Some(moment.place);
        verdict.map_err(|what| Violation { rule: "M4", what, at: moment.at, place })
    }

    /// The streams of a shard have so many entries at the node of which the next observation speaks, decided or copied.
    pub fn holds(&mut self, lengths: Vec<(WorkerId, u64)>) {
        self.held = lengths;
    }

    /// The entry of which the next observation speaks.
    pub fn entry(&mut self, shard: ShardId, worker: WorkerId, index: u64, entry: &Bytes) {
        self.durable.shown(shard, worker, index, entry.clone());
    }

    /// An entry that was appended to a stream before that was prepared, and that was not seen there.
    #[inline]
    pub fn awaited(&self, shard: ShardId, place: WorkerPlace) -> Option<u64> {
        self.durable.awaited(shard, place.worker, place.node)
    }

    /// It is there now.
    pub fn entered(&mut self, shard: ShardId, place: WorkerPlace, index: u64, entry: Bytes) {
        self.durable.entered(shard, (place.worker, place.node), index, entry);
    }

    /// Would it be news that the stream is led by this ballot? If so, how many entries it
    /// begins with that need not be shown.
    #[inline]
    pub fn is_news(&self, shard: ShardId, worker: WorkerId, ballot: Ballot) -> Option<u64> {
        let is_news = ballot > self.durable.ballot(shard, worker);
        is_news.then(|| self.durable.taken(shard, worker))
    }

    /// A worker's stream of a shard is led by this ballot, and has so many entries. Those that are not
    /// durable are shown.
    ///
    /// # Errors
    /// If something is missing that was durable.
    pub fn leads(
        &mut self,
        moment: Moment,
        shard: ShardId,
        (ballot, length): (Ballot, u64),
        entries: &[(u64, Bytes)],
    ) -> Result<(), Violation> {
        let (place, worker) = (moment.place, moment.place.worker);
        let before = self.durable.ballot(shard, worker);
        // Who was appointed in between may not have come so far as to lead this stream.
        let between = self.appointed.range((shard, before)..(shard, ballot));
        let mut others = between.map(|(_, other)| other).chain([&before]);
        if before != Ballot::default() && others.any(|other| other.node != place.node) {
            self.safe_clocks.leads(shard, place);
        }
        // What a node had appended before another was appointed is dropped, also if it is appointed again.
        let appointed = &self.appointed;
        let continues = |since: Ballot| {
            appointed.range((shard, since)..=(shard, ballot)).all(|(_, it)| it.node == place.node)
        };
        self.durable.leads_again(shard, (worker, place.node), continues);
        let verdict = self.durable.leads(shard, worker, (ballot, length), entries);
        let place = Some(place);
        verdict.map_err(|what| Violation { rule: "M4", what, at: moment.at, place })
    }

    /// A shard is out from this epoch on, or in again, as the managers say.
    pub fn out(&mut self, shard: ShardId, open: Epoch, is_out: bool) {
        self.durable.out(shard, open, is_out);
    }

    /// The managers have appointed a leader of the shard, under this ballot. `formers` are the other nodes that take
    /// themselves for its leader: each with the ballot under which, and when its lease ends in true time.
    ///
    /// # Errors
    /// If one of those leases has not ended.
    pub fn appointed(
        &mut self,
        now: Time,
        (shard, ballot): (ShardId, Ballot),
        formers: impl IntoIterator<Item = (NodeId, Ballot, Time)>,
    ) -> Result<(), Violation> {
        self.appointed.insert((shard, ballot));
        for former in formers {
            match Leases::appointed(shard, ballot, former, now) {
                Err(_) if self.wild_clocks => self.two_leaders += 1,
                verdict => verdict.map_err(|what| Violation::new("M7", now, what))?,
            }
        }
        Ok(())
    }

    /// A node has crashed.
    pub fn crashed(&mut self, node: NodeId) {
        self.durable.crashed(node);
        self.safe_clocks.crashed(node);
        self.installed.crashed(node);
        self.replay.crashed(node);
        self.opened.crashed(node);
        self.copied.retain(|(other, _), _| *other != node);
    }

    /// A node has lost its memory, that of its streams included.
    pub fn forgets(&mut self, node: NodeId) {
        self.durable.forgets(node);
        let shards = (0..self.shards).map(ShardId);
        self.empty.extend(shards.map(|shard| (shard, node)));
    }

    /// A replica that had lost its memory holds all there is, as the managers say.
    ///
    /// # Errors
    /// If that is not so.
    pub fn remembers(&mut self, at: Time, shard: ShardId, node: NodeId) -> Result<(), Violation> {
        self.empty.remove(&(shard, node));
        self.durable.remembers(shard, node).map_err(|what| Violation::new("M4", at, what))
    }

    /// A replica that has lost its memory, as the managers know, is appointed.
    ///
    /// # Errors
    /// If it has not got all there is since.
    pub fn appointed_anew(
        &self,
        at: Time,
        (shard, ballot): (ShardId, Ballot),
    ) -> Result<(), Violation> {
        if !self.empty.contains(&(shard, ballot.node)) {
            return Ok(());
        }
        let what = format!("{ballot} is appointed to {shard}, of which it has nothing");
        Err(Violation::new("M4", at, what))
    }

    /// The managers have made an FVW final.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn is_final(&mut self, at: Time, last: &VectorWatermark) -> Result<(), Violation> {
        self.settle(last).map_err(|what| Violation::new("M9", at, what))
    }

    fn settle(&mut self, last: &VectorWatermark) -> RuleVerdict {
        if self.rules == Rules::Records {
            return Ok(()); // What counts is what is durable, in whichever epoch.
        }
        let is_news = self.durable.last(last.epoch()).is_none();
        self.finals.settled(last, &mut self.durable)?;
        if is_news {
            self.installed.settle(last.epoch(), &self.durable);
        }
        Ok(())
    }

    /// What the shards should hold.
    pub fn installed(&self) -> &Installed {
        &self.installed
    }

    /// Is what has this stamp, kept by the shard, discarded for good?
    pub fn is_rolled_back(&self, shard: ShardId, stamp: &Stamp) -> bool {
        self.rules == Rules::Watermark && self.durable.is_rolled_back(shard, stamp)
    }

    /// Judges what a step let be seen.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn observe(&mut self, moment: Moment, observation: &Observation) -> Result<(), Violation> {
        let blame = |rule: &'static str, verdict: RuleVerdict| {
            let place = Some(moment.place);
            verdict.map_err(|what| Violation { rule, what, at: moment.at, place })
        };
        if let Observation::Settled { watermark } = observation {
            return blame("M9", self.settle(watermark));
        }
        let Checks {
            leases,
            finals,
            opened,
            copied,
            held,
            empty: _,
            shards: _,
            wild_clocks,
            appointed: _,
            two_leaders,
            lost: _,
            rules,
            records,
            durable,
            transactions,
            installed,
            safe_clocks,
            replay,
            replies,
        } = self;
        let by_watermark = *rules == Rules::Watermark;
        // What holds for all is called by the engine's own name for it.
        let [order, safe_clock, newest, lease] = match rules {
            Rules::Watermark => ["M2", "M3", "M6", "M7"],
            Rules::Records => ["P2", "P5", "P5", "P6"],
        };
        let worker = moment.place.worker;
        match observation {
            Observation::Read { transaction, shard, stamp, tombstone } => {
                transactions.read(*transaction, *shard, stamp, *tombstone);
                if by_watermark && let Some((id, writer)) = transactions.writer(*shard, stamp) {
                    blame("M1", stamps::carries(id, writer, *shard, stamp, durable))?;
                }
            }
            Observation::Drawn { transaction, shard, clock } => {
                transactions.drawn(*transaction, *shard, *clock);
                opened.drawn(moment.place.node, *shard, *clock);
                blame(safe_clock, safe_clocks.drawn(*shard, moment.place, *transaction, *clock))?;
            }
            Observation::Resolved { transaction, shard, clock, installed } => {
                transactions.resolved(*transaction, *shard, *clock, *installed);
                opened.resolved(moment.place.node, *shard, *clock);
                let resolved = safe_clocks.resolved(*shard, moment.place, *clock, *installed);
                blame(safe_clock, resolved.map_err(|what| format!("{transaction}: {what}")))?;
            }
            Observation::Certified { transaction, own, stamp, writes } => {
                let seen = transactions.certified(*transaction, *own, stamp, writes);
                if by_watermark {
                    blame("M1", stamps::check(*transaction, seen, durable))?;
                    blame("M8", epochs::check(*transaction, seen, durable))?;
                }
            }
            Observation::Installed { transaction, shard, stamp, table, key, value } => {
                let seen = transactions.installed(*transaction, *shard, stamp);
                if by_watermark {
                    blame("M1", stamps::carries(*transaction, seen, *shard, stamp, durable))?;
                }
                safe_clocks.installed(*shard, moment.place, stamp.clock);
                let row = InstalledRow { transaction: *transaction, stamp, table: *table, key };
                let (node, value) = (moment.place.node, value.as_deref());
                blame("M8", opened.uses(node, *shard, (stamp.epoch, stamp.clock)))?;
                let back = durable.is_rolled_back(*shard, stamp);
                blame(order, installed.install(node, *shard, row, value, back))?;
                replay.installed(node, *shard, (*table, key));
                let replayed = replies.installed(*shard, stamp, (*table, key), value, durable);
                blame("exactly once", replayed)?;
                if !by_watermark {
                    blame("P4", records.visible(*shard, worker, stamp.clock, durable))?;
                }
            }
            Observation::Appended { shard, ballot, index, ends, safe, clocks } => {
                let facts = EntryFacts { safe: *safe, ends: ends.clone() };
                let appended = (*ballot, *index);
                durable.appended(*shard, (worker, moment.place.node), appended, facts);
                if !by_watermark {
                    records.appended(*shard, worker, *index, clocks);
                }
                blame(safe_clock, safe_clocks.appended(*shard, moment.place, *safe, clocks))?;
            }
            Observation::Led { shard, ballot, length } => {
                durable.inherits(*shard, worker, *ballot, *length);
                if *ballot < durable.ballot(*shard, worker) {
                    // Promises that came late: it lacks what is decided since, and decides nothing (seed 10578).
                    safe_clocks.leads(*shard, moment.place);
                }
            }
            Observation::Recovered { transaction: _, shard, clock } => {
                safe_clocks.recovered(*shard, moment.place, *clock);
            }
            Observation::Settled { .. }
            | Observation::HeldUp { .. }
            | Observation::Restored { .. } => {}
            Observation::Opened { epoch } => opened.opens(moment.place.node, *epoch),
            Observation::Locked { shard, epoch, clock } => {
                blame("M8", opened.uses(moment.place.node, *shard, (*epoch, *clock)))?;
            }
            Observation::Swept { shard, stamp } => {
                let writer = transactions.writer(*shard, stamp).map(|(_, seen)| seen);
                blame("M9", replay::covered(*shard, stamp, writer, durable))?;
            }
            Observation::Copied { shard, cut } => {
                let copied = copied.entry((moment.place.node, *shard)).or_default();
                *copied = (*cut).max(*copied);
            }
            Observation::Serves { shard, ballot } => leases.serves(*shard, *ballot),
            Observation::Acted { shard, ballot } => match leases.acted(*shard, *ballot) {
                Err(_) if *wild_clocks => *two_leaders += 1,
                verdict => blame(lease, verdict)?,
            },
            Observation::Reported { shard, epoch, watermark } => {
                blame("M9", Finals::reported(*shard, *epoch, *watermark, durable))?;
            }
            Observation::RolledBack { transaction, .. } => {
                let seen = transactions.rolled_back(*transaction);
                blame("M5", told::rolled_back(*transaction, seen, durable))?;
            }
            Observation::Watermark { shard, clock } => {
                blame("M4", durable.check(*shard, *clock))?;
            }
            Observation::Told { transaction, own, stamp } => {
                let seen = transactions.told(*transaction);
                match rules {
                    Rules::Watermark => {
                        blame("M5", told::check(*transaction, *own, stamp, seen, durable))?;
                        finals.taken(*own, stamp, durable);
                    }
                    Rules::Records => blame("P4", records.told(*transaction, seen, durable))?,
                }
            }
            Observation::Given {
                shard,
                cut,
                from,
                until,
                settled,
                watermarks,
                rows,
                undecided,
                withheld: _,
            } => {
                let (shard, cut, until) = (*shard, *cut, until.as_ref());
                let copied = copied.get(&(moment.place.node, shard)).copied().unwrap_or_default();
                blame("M10", copies::reaches((shard, cut), copied, held, durable))?;
                if *from == (TableId(0), Vec::new()) {
                    blame("M9", copies::tells_finals(*settled, watermarks, durable))?;
                }
                let given = SentChunk { shard, cut, from, until, rows, undecided };
                blame("M10", copies::check(given, installed, transactions, durable))?;
            }
            Observation::Inherited { shard, stamp: _, table, key } => {
                // Like what it installs as a leader.
                replay.installed(moment.place.node, *shard, (*table, key));
            }
            Observation::Applied { shard, stamp, table, key, won } => {
                let node = moment.place.node;
                match rules {
                    Rules::Watermark => {
                        let writer = transactions.writer(*shard, stamp).map(|(_, seen)| seen);
                        blame("M6", replay::covered(*shard, stamp, writer, durable))?;
                        finals.taken(*shard, stamp, durable);
                    }
                    Rules::Records => {
                        blame("P4", records.visible(*shard, worker, stamp.clock, durable))?;
                    }
                }
                blame(newest, replay.applied(node, *shard, stamp, (*table, key), *won))?;
            }
        }
        Ok(())
    }

    /// A client outside asks for something.
    pub fn asked(&mut self, client: ClientId, request: &ClientRequest) {
        self.replies.asked(client, request);
    }

    /// A connection of a client has ended, or the client has ended it.
    pub fn hung_up(&mut self, client: ClientId) {
        self.replies.hung_up(client);
    }

    /// Judges what a client outside is about to be told.
    ///
    /// # Errors
    /// What it must not be told, or not yet.
    pub fn replied(
        &mut self,
        moment: Moment,
        client: ClientId,
        reply: &ClientReply,
    ) -> Result<(), Violation> {
        let by_watermark = self.rules == Rules::Watermark;
        let verdict = self.replies.replied(client, reply, by_watermark, &self.durable);
        let place = Some(moment.place);
        verdict.map_err(|wrong| {
            let (rule, what) = match wrong {
                WrongReply::NotDurable(what) if by_watermark => ("M5", what),
                WrongReply::NotDurable(what) => ("P4", what),
                WrongReply::Contradicts(what) => ("one transaction", what),
            };
            Violation { rule, what, at: moment.at, place }
        })
    }

    /// Judges what is left when all is quiet: nothing that was told as committed is missing.
    ///
    /// # Errors
    /// The first acknowledgement that was broken.
    pub fn finish(&self, at: Time) -> Result<(), Violation> {
        self.replies
            .finish(&self.durable)
            .map_err(|what| Violation::new("exactly once", at, what))?;
        let verdict = match self.rules {
            Rules::Watermark => Acknowledged::check(&self.transactions, &self.durable, self.lost),
            Rules::Records => Acknowledged::check_installed(&self.transactions),
        };
        verdict.map_err(|what| Violation::new("lost acknowledgement", at, what))
    }
}
