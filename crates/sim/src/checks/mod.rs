//! The rules, judged by an observer of the whole cluster. One file for each:
//!
//! | file | rule |
//! |---|---|
//! | `stamps.rs` | M1: a stamp covers what was read and is not durable; what is installed carries all of it |
//! | `installed.rs` | M2: install order and clock order agree; it is also the model of every shard |
//! | `safe_clock.rs` | M3: nothing at or below a safe clock is still to come |
//! | `durable.rs` | M4: what is durable is accepted by a majority of the voters; a replica that counts holds it |
//! | `reported.rs` | M5: no client receives what is not durable |
//! | `replies.rs` | M5 once more, at the client: what clients outside are shown; and exactly once |
//! | `replay.rs` | M6: followers apply what is durable, and the greatest clock wins |
//! | `leases.rs` | M7: a leader is appointed when the former lease has ended; once it serves, no former one acts |
//! | `epochs.rs` | M8: no transaction reads what a later epoch wrote, or an earlier one has not settled, or uses a late clock |
//! | `finals.rs` | M9: an FVW is one, and covers what was answered and nothing that is not durable |
//! | `copies.rs` | M10: a copy for a replica has what is committed, all of it up to its cut, and nothing else |
//! | `records.rs` | P4: nothing is seen or answered whose record is not durable |
//! | `sealed.rs` | P7: a shard is served once an entry of its leader is durable in each stream |
//! | `outcomes.rs` | P8: no shard takes a transaction for aborted that another has installed |
//! | `zeus.rs` | Z1, Z3, Z6: owners, records and validated rows, from what nodes have of granules |
//! | `tiga.rs` | T1, T4, T6, T7, T10, T21: votes and logs, by what replicas did and never by a coordinator's word |
//! | `replicas.rs` | at the end: all copies of a shard are equal, and equal to the model |
//! | `acknowledged.rs` | at the end: what is covered is there wholly, and nothing else was answered |
//!
//! Engines report what they did as observations; what is durable is computed here, from
//! what the voters' streams have accepted. A violation is a value, and the first one ends the run.
//!
//! [`Checks`] holds what all engines share: transactions, streams and what is durable of them, versions,
//! replicas, replies, and the core of most rules. `mako.rs`, `two_phase_commit.rs`, `tiga.rs` and `zeus.rs` implement
//! [`EngineRules`]: they pass the engine's observations to that core and judge the rest.

mod acknowledged;
mod copies;
mod durable;
mod epochs;
mod finals;
mod installed;
mod leases;
mod mako;
mod outcomes;
mod records;
mod replay;
pub mod replicas;
mod replies;
mod reported;
mod safe_clock;
mod sealed;
mod stamps;
mod tiga;
mod transactions;
mod two_phase_commit;
mod verdict;
mod zeus;

use crate::violation::Violation;
use acknowledged::Acknowledged;
use bytes::Bytes;
use durable::{Durable, EntryFacts};
pub use installed::{Installed, InstalledRow};
use leases::Leases;
pub use mako::MakoRules;
use replay::Replay;
use replies::{Replies, WrongReply};
use safe_clock::SafeClocks;
use shoal_cluster::manager::{Configuration, FinalEnds, Incarnation};
use shoal_cluster::topology::Topology;
use shoal_engine::client::{ClientId, ClientReply, ClientRequest};
use shoal_engine::{TransactionId, WorkerPlace};
use shoal_types::{Ballot, Clock, Epoch, NodeId, ShardId, Stamp, TableId, Time, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
pub use tiga::TigaRules;
use transactions::Transactions;
pub use two_phase_commit::TwoPhaseCommitRules;
use verdict::RuleVerdict;
pub use zeus::ZeusRules;

/// When and where something was observed.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The true time, which no node's clock shows.
    pub at: Time,
    /// The worker whose step it was.
    pub place: WorkerPlace,
}

impl Moment {
    /// Turns a failed verdict into a violation of `rule` at this moment and place.
    fn blame(self, rule: &'static str, verdict: RuleVerdict) -> Result<(), Violation> {
        verdict.map_err(|what| Violation { rule, what, at: self.at, place: Some(self.place) })
    }
}

/// The rules of one engine, on top of what holds for all of them.
pub trait EngineRules: Default + Debug {
    /// What the engine reports to its judges: facts of its steps, which messages do not show.
    type Observation;

    /// Whether versions are visible before they are durable: then replies wait until they are, and versions
    /// that are not durable at the end of an epoch are rolled back.
    const SPECULATES: bool;

    /// The engine's name for the rule that install order and clock order agree.
    const ORDER: &'static str;

    /// Its name for the rule that nothing at or below a safe clock is still to come.
    const SAFE_CLOCK: &'static str;

    /// Its name for the rule that clients receive only what is durable.
    const DURABLE_FIRST: &'static str;

    /// Its name for the rule that a node acts as a leader only while it holds its lease.
    const LEASE: &'static str;

    /// Judges an observation.
    ///
    /// # Errors
    /// The first rule that is broken.
    fn judge(
        checks: &mut Checks<Self>,
        moment: Moment,
        observation: &Self::Observation,
    ) -> Result<(), Violation>;

    /// The managers have recorded how an epoch ended on each shard, which is final.
    ///
    /// # Errors
    /// If that differs from what was recorded before, or from what the engine has done.
    fn ended(checks: &mut Checks<Self>, at: Time, ends: &FinalEnds) -> Result<(), Violation> {
        let _ = (checks, at, ends);
        Ok(())
    }

    /// Whether what the nodes of the engine have shown is what it comes to when nothing is under way any more. Until then, it need
    /// not be.
    ///
    /// # Errors
    /// The rule that would be broken, and by what.
    fn agree(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// A node has crashed, and what its workers held in memory is gone.
    fn crashed(&mut self, node: NodeId) {
        let _ = node;
    }

    /// Whether a node alone has something of which copies are being made anew: if it crashed now, that would be lost within
    /// what the engine promises.
    fn has_last_copy(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }

    /// Whether some node knows this one as the only one that has something.
    fn is_only_replica(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }
}

/// All rules: those of the engine, and what all engines have in common.
#[derive(Debug)]
pub struct Checks<R> {
    rules: R,
    durable: Durable,
    transactions: Transactions,
    installed: Installed,
    safe_clocks: SafeClocks,
    leases: Leases,
    /// The appointments made so far: shard and ballot.
    appointed: BTreeSet<(ShardId, Ballot)>,
    replay: Replay,
    replies: Replies,
    /// The lengths of a shard's streams at the node of the next observation: see [`Checks::holds`].
    held: Vec<(WorkerId, u64)>,
    /// Replicas that have lost their memory and have not caught up yet.
    empty: BTreeSet<(ShardId, NodeId)>,
    /// The replicas of each shard in the last configuration.
    holders: BTreeMap<ShardId, BTreeSet<NodeId>>,
    shards: u32,
    /// How many voters each shard has.
    voters: Vec<usize>,
    /// Clocks exceed their bounds, so leases need not hold.
    wild_clocks: bool,
    /// How often a former leader acted although another served already, which only wild clocks may cause.
    two_leaders: u64,
    /// The shard that is lost for good: what depends on it may stay undecided.
    lost: Option<ShardId>,
}

impl<R: EngineRules> Checks<R> {
    /// The rules for a cluster that begins with this shape, and comes to have so many nodes.
    pub fn new(topology: &Topology, nodes: usize) -> Checks<R> {
        let shards = topology.shards() as usize;
        Checks {
            rules: R::default(),
            leases: Leases::default(),
            durable: Durable::new(topology),
            transactions: Transactions::default(),
            installed: Installed::new(shards),
            safe_clocks: SafeClocks::default(),
            appointed: BTreeSet::new(),
            replay: Replay::new(nodes, shards),
            replies: Replies::new(topology),
            held: Vec::new(),
            empty: BTreeSet::new(),
            holders: topology
                .shard_ids()
                .map(|shard| (shard, topology.replicas(shard).collect()))
                .collect(),
            shards: topology.shards(),
            voters: topology.shard_ids().map(|shard| topology.voters(shard).len()).collect(),
            wild_clocks: false,
            two_leaders: 0,
            lost: None,
        }
    }

    /// Whether a voter holds all that is durable on a shard.
    pub fn holds_all(&self, shard: ShardId, node: NodeId) -> bool {
        self.durable.holds_all(shard, node)
    }

    /// The loss of a majority was accepted: its former voters count no more.
    pub fn void(&mut self, shard: ShardId, is_void: impl Fn(NodeId) -> bool) {
        self.durable.void(shard, is_void);
    }

    /// Declares a shard lost for good: versions that depend on it may stay undecided.
    pub fn loses(&mut self, shard: ShardId) {
        self.lost = Some(shard);
    }

    /// The run has ended, and the epochs have ended on all shards but the lost one: a version that depends on
    /// that shard and is not known to be committed is rolled back or still undecided. The ends of the
    /// `unreported` epochs on the lost shard were never reported to the managers (seeds 29662, 42167).
    pub fn end_without(&mut self, lost: ShardId, unreported: BTreeSet<Epoch>) {
        self.durable.ends_unreported(lost, unreported);
        self.installed.end_without(lost, &self.durable);
    }

    /// Clocks will exceed their bounds: leases need not hold, and every other rule does.
    pub fn expect_wild_clocks(&mut self) {
        self.wild_clocks = true;
    }

    /// The managers have dropped a table.
    pub fn table_dropped(&mut self, table: TableId) {
        self.installed.drop_table(table);
    }

    /// How often a former leader acted where clocks exceed their bounds.
    pub fn two_leaders(&self) -> u64 {
        self.two_leaders
    }

    /// The stream of this worker at `node`, a replica of the shard, has accepted `length` entries under this
    /// ballot.
    ///
    /// # Errors
    /// If the replica holds fewer entries than that ballot's leader began with.
    #[inline]
    pub fn accepted(
        &mut self,
        moment: Moment,
        shard: ShardId,
        ballot: Ballot,
        length: u64,
    ) -> Result<(), Violation> {
        let verdict = self.durable.accepted(shard, moment.place, ballot, length);
        let place = Some(moment.place);
        verdict.map_err(|what| Violation { rule: "M4", what, at: moment.at, place })
    }

    /// How many voters a shard has.
    fn voters(&self, shard: ShardId) -> usize {
        self.voters[shard.0 as usize]
    }

    /// Sets the lengths of a shard's streams, decided or copied, at the node of the next observation.
    pub fn holds(&mut self, lengths: Vec<(WorkerId, u64)>) {
        self.held = lengths;
    }

    /// Sets the entry that the next observation is about.
    pub fn entry(&mut self, shard: ShardId, worker: WorkerId, index: u64, entry: &Bytes) {
        self.durable.shown(shard, worker, index, entry.clone());
    }

    /// The first entry that the worker appended to a stream before that was prepared, and that was not seen
    /// in it yet.
    #[inline]
    pub fn awaited(&self, shard: ShardId, place: WorkerPlace) -> Option<u64> {
        self.durable.awaited(shard, place)
    }

    /// That entry is in the stream now.
    pub fn entered(&mut self, shard: ShardId, place: WorkerPlace, index: u64, entry: Bytes) {
        self.durable.entered(shard, place, index, entry);
    }

    /// Whether it is new to the checks that this ballot leads the stream. If so, returns how many of the
    /// entries it begins with need not be shown.
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
        ballot: Ballot,
        length: u64,
        entries: &[(u64, Bytes)],
    ) -> Result<(), Violation> {
        let (place, worker) = (moment.place, moment.place.worker);
        let before = self.durable.ballot(shard, worker);
        // A leader that was appointed in between may not have prepared this stream.
        let between = self.appointed.range((shard, before)..(shard, ballot));
        let mut others = between.map(|(_, other)| other).chain([&before]);
        if before != Ballot::default() && others.any(|other| other.node != place.node) {
            self.safe_clocks.leads(shard, place);
        }
        // What a node had appended before another was appointed is dropped, even if the node is appointed
        // again.
        let appointed = &self.appointed;
        let continues = |since: Ballot| {
            appointed.range((shard, since)..=(shard, ballot)).all(|(_, it)| it.node == place.node)
        };
        self.durable.leads_again(shard, place, continues);
        let verdict = self.durable.leads(shard, worker, ballot, length, entries);
        let place = Some(place);
        verdict.map_err(|what| Violation { rule: "M4", what, at: moment.at, place })
    }

    /// The managers have made this configuration. A replica that it gives to a node has nothing yet.
    pub fn configured(&mut self, configuration: &Configuration) {
        for (shard, assignment) in (0..).map(ShardId).zip(&configuration.shards) {
            let holders: BTreeSet<NodeId> = assignment.holders().collect();
            let before = self.holders.insert(shard, holders.clone());
            let before = before.unwrap_or_else(|| holders.clone());
            self.empty.extend(holders.difference(&before).map(|node| (shard, *node)));
            self.empty.retain(|(other, node)| *other != shard || holders.contains(node));
            let empty = |node| self.empty.contains(&(shard, node));
            self.durable.elect(shard, assignment.ballot, &assignment.voters, empty);
            if assignment.incarnation == Incarnation(0) {
                // The leader hands over. If it leads again after that, it is another leadership.
                let none = Ballot { node: NodeId(u32::MAX), ..assignment.ballot };
                self.appointed.insert((shard, none));
            }
        }
    }

    /// The managers have declared a shard out from this epoch on, or in again.
    pub fn out(&mut self, shard: ShardId, open: Epoch, is_out: bool) {
        self.durable.out(shard, open, is_out);
    }

    /// The managers have appointed a leader of the shard, under this ballot. `formers` are the other nodes
    /// that still take themselves for its leader: each with its ballot and the end of its lease in true time.
    ///
    /// # Errors
    /// If one of those leases has not ended.
    pub fn appointed(
        &mut self,
        now: Time,
        shard: ShardId,
        ballot: Ballot,
        formers: impl IntoIterator<Item = (NodeId, Ballot, Time)>,
    ) -> Result<(), Violation> {
        self.appointed.insert((shard, ballot));
        for (node, former, lease_end) in formers {
            match Leases::appointed(shard, ballot, node, former, lease_end, now) {
                Err(_) if self.wild_clocks => self.two_leaders += 1,
                verdict => verdict.map_err(|what| Violation::new("M7", now, what))?,
            }
        }
        Ok(())
    }

    /// A node has crashed: its process and all that it did not persist are gone.
    pub fn crashed(&mut self, node: NodeId) {
        self.durable.crashed(node);
        self.safe_clocks.crashed(node);
        self.installed.crashed(node);
        self.replay.crashed(node);
        self.rules.crashed(node);
    }

    /// Whether a node alone has something: see [`EngineRules::is_only_replica`].
    pub fn is_only_replica(&self, node: NodeId) -> bool {
        self.rules.is_only_replica(node)
    }

    /// Whether a node alone has something: see [`EngineRules::has_last_copy`].
    pub fn has_last_copy(&self, node: NodeId) -> bool {
        self.rules.has_last_copy(node)
    }

    /// A node has lost its memory, that of its streams included.
    pub fn forgets(&mut self, node: NodeId) {
        self.durable.forgets(node);
        let shards = (0..self.shards).map(ShardId);
        self.empty.extend(shards.map(|shard| (shard, node)));
    }

    /// The managers have recorded that a replica without memory has caught up.
    ///
    /// # Errors
    /// If it lacks an entry that was durable when its memory was lost.
    pub fn remembers(&mut self, at: Time, shard: ShardId, node: NodeId) -> Result<(), Violation> {
        self.empty.remove(&(shard, node));
        self.durable.remembers(shard, node).map_err(|what| Violation::new("M4", at, what))
    }

    /// The managers have appointed a replica of which they know that it lost its memory.
    ///
    /// # Errors
    /// If it has not caught up since.
    pub fn appointed_anew(
        &self,
        at: Time,
        shard: ShardId,
        ballot: Ballot,
    ) -> Result<(), Violation> {
        if !self.empty.contains(&(shard, ballot.node)) {
            return Ok(());
        }
        let what = format!("{ballot} is appointed to {shard}, of which it has nothing");
        Err(Violation::new("M4", at, what))
    }

    /// The managers have recorded how an epoch ended on each shard, which is final.
    ///
    /// # Errors
    /// The first rule of the engine that is broken.
    pub fn is_final(&mut self, at: Time, ends: &FinalEnds) -> Result<(), Violation> {
        R::ended(self, at, ends)
    }

    /// The model of the shards' contents.
    pub fn installed(&self) -> &Installed {
        &self.installed
    }

    /// Whether a version with this stamp, kept by the shard, is rolled back for good.
    pub fn is_rolled_back(&self, shard: ShardId, stamp: &Stamp) -> bool {
        R::SPECULATES && self.durable.is_rolled_back(shard, stamp)
    }

    /// Judges an observation of a worker's step.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn observe(
        &mut self,
        moment: Moment,
        observation: &R::Observation,
    ) -> Result<(), Violation> {
        R::judge(self, moment, observation)
    }

    /// A clock was drawn on a shard.
    fn drawn(
        &mut self,
        moment: Moment,
        transaction: TransactionId,
        shard: ShardId,
        clock: Clock,
    ) -> Result<(), Violation> {
        self.transactions.drawn(transaction, shard, clock);
        let verdict = self.safe_clocks.drawn(shard, moment.place, transaction, clock);
        moment.blame(R::SAFE_CLOCK, verdict)
    }

    /// A clock of a shard is no longer in flight.
    fn resolved(
        &mut self,
        moment: Moment,
        transaction: TransactionId,
        shard: ShardId,
        clock: Clock,
        installed: bool,
    ) -> Result<(), Violation> {
        self.transactions.resolved(transaction, shard, clock, installed);
        let resolved = self.safe_clocks.resolved(shard, moment.place, clock, installed);
        moment.blame(R::SAFE_CLOCK, resolved.map_err(|what| format!("{transaction}: {what}")))
    }

    /// The leader of a shard has installed a version.
    fn install(
        &mut self,
        moment: Moment,
        shard: ShardId,
        row: InstalledRow<'_>,
        value: Option<&[u8]>,
    ) -> Result<(), Violation> {
        let (node, stamp) = (moment.place.node, row.stamp);
        let InstalledRow { table, key, .. } = row;
        let back = self.durable.is_rolled_back(shard, stamp);
        moment.blame(R::ORDER, self.installed.install(node, shard, row, value, back))?;
        self.replay.installed(node, shard, table, key);
        let replayed = self.replies.installed(shard, stamp, table, key, value, &self.durable);
        moment.blame("exactly once", replayed)
    }

    /// A follower has applied a version of a shard.
    fn follow(&mut self, shard: ShardId, stamp: &Stamp, table: TableId, key: &[u8]) {
        if !self.installed.has_seen(shard, stamp, table, key)
            && self.transactions.follow(shard, stamp)
        {
            self.installed.follow(shard, stamp, table, key);
            self.replies.follow(shard, stamp, table, key);
        }
    }

    /// A worker's stream of a shard is prepared under a ballot, with so many entries.
    fn led(&mut self, moment: Moment, shard: ShardId, ballot: Ballot, length: u64) {
        let worker = moment.place.worker;
        self.durable.inherits(shard, worker, ballot, length);
        if ballot < self.durable.ballot(shard, worker) {
            // The promises came late: the stream lacks entries that were decided since, and decides nothing
            // (seed 10578).
            self.safe_clocks.leads_late(shard, moment.place);
        }
    }

    /// A worker has acted as the leader of a shard.
    fn acted(&mut self, moment: Moment, shard: ShardId, ballot: Ballot) -> Result<(), Violation> {
        match self.leases.acted(shard, ballot) {
            Err(_) if self.wild_clocks => {
                self.two_leaders += 1;
                Ok(())
            }
            verdict => moment.blame(R::LEASE, verdict),
        }
    }

    /// An entry was proposed to a stream.
    fn appended(
        &mut self,
        moment: Moment,
        shard: ShardId,
        ballot: Ballot,
        index: u64,
        facts: EntryFacts,
        clocks: &[Clock],
    ) -> Result<(), Violation> {
        let safe = facts.safe;
        self.durable.appended(shard, moment.place, ballot, index, facts);
        let verdict = self.safe_clocks.appended(shard, moment.place, safe, clocks);
        moment.blame(R::SAFE_CLOCK, verdict)
    }

    /// A client outside has sent a request.
    pub fn asked(&mut self, client: ClientId, request: &ClientRequest) {
        self.replies.asked(client, request);
    }

    /// A connection of a client has ended, or was closed by the client.
    pub fn hung_up(&mut self, client: ClientId) {
        self.replies.hung_up(client);
    }

    /// Judges a reply that is about to be sent to a client outside.
    ///
    /// # Errors
    /// If it reveals a version that is not durable, or contradicts an earlier reply.
    pub fn replied(
        &mut self,
        moment: Moment,
        client: ClientId,
        reply: &ClientReply,
    ) -> Result<(), Violation> {
        let verdict = self.replies.replied(client, reply, R::SPECULATES, &self.durable);
        let place = Some(moment.place);
        verdict.map_err(|wrong| {
            let (rule, what) = match wrong {
                WrongReply::NotDurable(what) => (R::DURABLE_FIRST, what),
                WrongReply::Contradicts(what) => ("one transaction", what),
            };
            Violation { rule, what, at: moment.at, place }
        })
    }

    /// See [`EngineRules::agree`].
    ///
    /// # Errors
    /// The rule that would be broken, and by what.
    pub fn agree(&self) -> Result<(), (&'static str, String)> {
        self.rules.agree()
    }

    /// Judges the final state once the cluster is quiet: nothing that was acknowledged as committed is
    /// missing.
    ///
    /// # Errors
    /// The first acknowledged transaction of which something is missing.
    pub fn finish(&self, at: Time) -> Result<(), Violation> {
        self.replies
            .finish(&self.durable)
            .map_err(|what| Violation::new("exactly once", at, what))?;
        let verdict = match R::SPECULATES {
            true => Acknowledged::check(&self.transactions, &self.durable, self.lost),
            false => Acknowledged::check_installed(&self.transactions),
        };
        verdict.map_err(|what| Violation::new("lost acknowledgement", at, what))
    }
}
