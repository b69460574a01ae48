//! M4: a shard watermark counts only entries that a majority of the voters has accepted.
//!
//! What is durable is computed here from three facts: which ballot leads a stream and what it inherited,
//! what each voter has accepted under which ballot, and which safe clock each entry carries. An entry is
//! durable when a majority of the voters, of those that remember, has accepted it under the newest
//! ballot; and stays durable. A stream is durable up to the safe clock of the last such entry, a shard up
//! to the least of its streams. No node may take more for durable.
//!
//! A closed epoch is durable on a shard up to the clock at which the shard's streams have ended it. Once its
//! FVW is final, the FVW decides instead.

use super::verdict::RuleVerdict;
use bytes::Bytes;
use shoal_cluster::topology::Topology;
use shoal_types::{
    Ballot, Clock, Epoch, NodeId, ShardId, Stamp, VectorWatermark, WorkerId, WorkerPlace,
};
use std::collections::{BTreeMap, BTreeSet};

/// Computes which entries, clocks and epochs are durable, from what the voters' streams have accepted.
#[derive(Debug)]
pub struct Durable {
    workers: usize,
    streams: Vec<StreamState>,
    shards: Vec<Clock>,
    finals: BTreeMap<Epoch, VectorWatermark>,
    /// The epochs in which a shard is out: for each shard and the first epoch in which it is out, the first
    /// in which it is in again.
    out: BTreeMap<(ShardId, Epoch), Epoch>,
    /// A shard that is lost for good, and the epochs whose ends on that shard were never reported to the
    /// managers.
    unreported: Option<(ShardId, BTreeSet<Epoch>)>,
}

/// What a stream entry carries.
#[derive(Debug, Clone, Default)]
pub struct EntryFacts {
    /// The safe clock that the leader wrote into the entry.
    pub safe: Clock,
    /// The epochs that end with the entry, and the last clock of each.
    pub ends: Vec<(Epoch, Clock)>,
}

#[derive(Debug, Clone)]
struct Voter {
    node: NodeId,
    ballot: Ballot,
    length: u64,
    /// How many entries the voter had accepted under each ballot.
    accepted: BTreeMap<Ballot, u64>,
    /// Whether the voter still holds all that it has promised and accepted; false after it has lost its
    /// memory.
    remembers: bool,
    /// How many entries the voter accepted last, whether its vote counts or not.
    holds: u64,
    /// How many entries were durable when the voter lost its memory, perhaps with its vote: it has to hold as
    /// many before its vote counts again.
    owes: u64,
}

#[derive(Debug, Clone)]
struct StreamState {
    /// The nodes that vote, or have voted under an earlier ballot.
    voters: Vec<Voter>,
    /// Which of them vote from each ballot on, up to the next of these.
    electorates: BTreeMap<Ballot, Vec<NodeId>>,
    /// The newest ballot that leads the stream; before one does, every accepted entry counts.
    ballot: Ballot,
    /// How many entries that ballot began with, and appended in the same step.
    led_length: u64,
    /// The newest ballot whose leader has reported its stream prepared, and how many entries it began with.
    inherited: (Ballot, u64),
    /// The safe clock of the stream up to each entry, by index.
    safes: BTreeMap<u64, Clock>,
    /// The number of durable entries.
    decided: u64,
    /// The number of entries whose facts are taken into account: all durable ones, except those that were
    /// appended in the step that is under way.
    taken: u64,
    /// Entries beyond `taken`, of the newest ballot's sequence.
    ahead: BTreeMap<u64, EntryFacts>,
    /// Every entry that was ever appended beyond `taken`, by its bytes: a leader that inherits an entry does
    /// not report its facts again.
    known: BTreeMap<u64, Vec<(Bytes, EntryFacts)>>,
    /// Entries that nodes appended while their streams were not prepared, with the ballot of the appointment:
    /// they are visible in no stream yet.
    waiting: BTreeMap<(NodeId, u64), (Ballot, EntryFacts)>,
    /// The entry that the next observation is about.
    shown: Option<(u64, Bytes)>,
    safe: Clock,
    /// The epochs that have ended on this stream, and the last clock of each.
    ends: BTreeMap<Epoch, Clock>,
}

impl Voter {
    /// One that has accepted nothing, and has nothing to remember.
    fn new(node: NodeId) -> Voter {
        Voter {
            node,
            ballot: Ballot::default(),
            length: 0,
            accepted: BTreeMap::new(),
            remembers: true,
            holds: 0,
            owes: 0,
        }
    }
}

impl Durable {
    /// No stream has an entry, and every voter remembers all that it promised.
    pub fn new(topology: &Topology) -> Durable {
        let workers = topology.workers() as usize;
        let state = |shard: ShardId| StreamState {
            voters: topology.voters(shard).iter().map(|node| Voter::new(*node)).collect(),
            electorates: [(Ballot::default(), topology.voters(shard).to_vec())].into(),
            ballot: Ballot::default(),
            led_length: 0,
            inherited: (Ballot::default(), 0),
            safes: BTreeMap::new(),
            decided: 0,
            taken: 0,
            ahead: BTreeMap::new(),
            known: BTreeMap::new(),
            waiting: BTreeMap::new(),
            shown: None,
            safe: Clock::ZERO,
            ends: BTreeMap::new(),
        };
        let streams = topology.shard_ids().flat_map(|shard| vec![state(shard); workers]);
        let shards = vec![Clock::ZERO; topology.shards() as usize];
        Durable {
            workers,
            streams: streams.collect(),
            shards,
            finals: BTreeMap::new(),
            out: BTreeMap::new(),
            unreported: None,
        }
    }

    /// These nodes vote on a shard from this ballot on. One that did not before has voted for nothing, and counts at once,
    /// unless it is `empty`; the one that it replaces leaves when it has what is durable now.
    pub fn elect(
        &mut self,
        shard: ShardId,
        ballot: Ballot,
        nodes: &[NodeId],
        empty: impl Fn(NodeId) -> bool,
    ) {
        let workers = self.workers();
        for worker in workers {
            let stream = self.stream(shard, worker);
            let (_, last) =
                stream.electorates.last_key_value().expect("there were voters at first");
            if last == nodes {
                continue;
            }
            let new: Vec<NodeId> =
                nodes.iter().copied().filter(|node| !last.contains(node)).collect();
            for node in new {
                stream.voters.retain(|voter| voter.node != node);
                let owes = stream.decided;
                stream.voters.push(Voter { remembers: !empty(node), owes, ..Voter::new(node) });
            }
            stream.electorates.insert(ballot, nodes.to_vec());
        }
    }

    fn stream(&mut self, shard: ShardId, worker: WorkerId) -> &mut StreamState {
        &mut self.streams[shard.0 as usize * self.workers + worker.0 as usize]
    }

    /// Records that a replica has accepted `length` entries under `ballot`; only voters count.
    ///
    /// # Errors
    /// If that is fewer than the ballot's leader began with: then decided entries would count as accepted by
    /// a replica that does not hold them.
    #[inline]
    pub fn accepted(
        &mut self,
        shard: ShardId,
        place: WorkerPlace,
        ballot: Ballot,
        length: u64,
    ) -> RuleVerdict {
        let WorkerPlace { node, worker } = place;
        let stream = self.stream(shard, worker);
        let (led, inherited) = stream.inherited;
        if ballot == led && length < inherited {
            return Err(format!(
                "{node} has accepted {length} entries of stream {worker} of {shard} under {ballot}, which began \
                 with {inherited}"
            ));
        }
        let Some(voter) = stream.voters.iter_mut().find(|voter| voter.node == node) else {
            return Ok(());
        };
        voter.holds = length;
        if !voter.remembers || (voter.ballot, voter.length) == (ballot, length) {
            return Ok(());
        }
        (voter.ballot, voter.length) = (ballot, length);
        // A snapshot of entries that are decided under a later ballot is no vote for the former ballot under
        // which it is kept (seed 40386).
        let is_snapshot = ballot < stream.ballot && length <= stream.decided;
        let counts = if is_snapshot { length.min(stream.led_length) } else { length };
        let most = voter.accepted.entry(ballot).or_default();
        *most = counts.max(*most);
        self.count(shard, worker);
        Ok(())
    }

    /// Whether a voter holds all durable entries of a shard's streams, under the newest ballots.
    pub fn holds_all(&self, shard: ShardId, node: NodeId) -> bool {
        let first = shard.0 as usize * self.workers;
        self.streams[first..first + self.workers].iter().all(|stream| {
            let voter = stream.voters.iter().find(|voter| voter.node == node);
            voter.is_some_and(|voter| {
                let is_newest = voter.remembers && voter.ballot == stream.ballot;
                is_newest && voter.holds >= stream.decided
            })
        })
    }

    /// A node has crashed: what it had appended to unprepared streams is dropped.
    pub fn crashed(&mut self, node: NodeId) {
        for stream in &mut self.streams {
            stream.waiting.retain(|(other, _), _| *other != node);
        }
    }

    /// A node has lost its memory. What it had accepted still counts: any later majority without this node
    /// contains another voter that accepted the same. What it accepts from now on does not count.
    pub fn forgets(&mut self, node: NodeId) {
        for stream in &mut self.streams {
            for voter in stream.voters.iter_mut().filter(|voter| voter.node == node) {
                (voter.remembers, voter.holds, voter.owes) = (false, 0, stream.decided);
            }
        }
    }

    /// The loss of these voters was accepted: what they accept from now on does not count, and what they find on their disks.
    pub fn void(&mut self, shard: ShardId, is_void: impl Fn(NodeId) -> bool) {
        for worker in self.workers() {
            let voters = self.stream(shard, worker).voters.iter_mut();
            let void = voters.filter(|voter| is_void(voter.node));
            void.for_each(|voter| voter.remembers = false);
        }
    }

    /// A replica that had lost its memory has caught up: it holds at least the entries that were durable when
    /// its memory was lost.
    ///
    /// # Errors
    /// If it lacks one of those entries: it may have voted for it.
    pub fn remembers(&mut self, shard: ShardId, node: NodeId) -> RuleVerdict {
        for worker in (0..self.workers as u32).map(WorkerId) {
            let stream = self.stream(shard, worker);
            let (_, electorate) = stream.electorates.last_key_value().expect("there were voters");
            if !electorate.contains(&node) {
                continue; // A learner, which voted once and owes nothing before it does so again (seed 67259871).
            }
            for voter in stream.voters.iter_mut().filter(|it| it.node == node) {
                voter.remembers = true;
                let Voter { holds, owes, .. } = *voter;
                if holds < owes {
                    return Err(format!(
                        "{node} counts for stream {worker} of {shard} again with {holds} entries, and {owes} were \
                         durable when it lost its memory"
                    ));
                }
            }
            self.count(shard, worker);
        }
        Ok(())
    }

    /// The safe clock of the first `length` entries of a stream, if that is known: all of them are durable.
    pub fn safe_with(&self, shard: ShardId, worker: WorkerId, length: u64) -> Option<Clock> {
        let stream = &self.streams[shard.0 as usize * self.workers + worker.0 as usize];
        let last = || stream.safes.range(..length).next_back().map_or(Clock::ZERO, |(_, it)| *it);
        (length <= stream.taken).then(last)
    }

    /// A node leads a stream again. What it had appended before, while the stream was not prepared, is
    /// dropped, unless `continues` returns true for the ballot of that time: then its leadership was not
    /// interrupted.
    pub fn leads_again(
        &mut self,
        shard: ShardId,
        place: WorkerPlace,
        continues: impl Fn(Ballot) -> bool,
    ) {
        let stream = self.stream(shard, place.worker);
        stream.waiting.retain(|(other, _), (ballot, _)| *other != place.node || continues(*ballot));
    }

    /// Sets the entry that is appended next.
    pub fn shown(&mut self, shard: ShardId, worker: WorkerId, index: u64, entry: Bytes) {
        self.stream(shard, worker).shown = Some((index, entry));
    }

    /// A stream is led by this ballot from now on, and has `length` entries; those that are not durable yet
    /// are shown. Some may have been appended in this step: their observations follow.
    pub fn leads(
        &mut self,
        shard: ShardId,
        worker: WorkerId,
        ballot: Ballot,
        length: u64,
        entries: &[(u64, Bytes)],
    ) -> RuleVerdict {
        let stream = self.stream(shard, worker);
        if ballot <= stream.ballot {
            return Ok(()); // A deposed leader that has not learned of its successor.
        }
        (stream.ballot, stream.led_length) = (ballot, length);
        if length < stream.decided {
            return Err(format!(
                "{ballot} leads stream {worker} of {shard} with {length} entries, but a majority of its \
                 voters had accepted {}",
                stream.decided
            ));
        }
        stream.ahead.clear();
        for (index, entry) in entries.iter().filter(|(index, _)| *index >= stream.taken) {
            let mut known = stream.known.get(index).into_iter().flatten();
            if let Some((_, facts)) = known.find(|(other, _)| other == entry) {
                stream.ahead.insert(*index, facts.clone());
            }
        }
        self.count(shard, worker);
        Ok(())
    }

    /// Records with how many entries a new leader's stream began, as the leader reports it.
    pub fn inherits(&mut self, shard: ShardId, worker: WorkerId, ballot: Ballot, length: u64) {
        let inherited = &mut self.stream(shard, worker).inherited;
        *inherited = (ballot, length).max(*inherited);
    }

    /// The first entry that a node has appended while its stream was not prepared, and that was not seen in
    /// the stream yet.
    #[inline]
    pub fn awaited(&self, shard: ShardId, place: WorkerPlace) -> Option<u64> {
        let WorkerPlace { node, worker } = place;
        let stream = &self.streams[shard.0 as usize * self.workers + worker.0 as usize];
        let (first, last) = ((node, 0), (node, u64::MAX));
        stream.waiting.range(first..=last).next().map(|((_, index), _)| *index)
    }

    /// That entry is in the stream now, which the node leads; or is dropped, if another entry has this index.
    pub fn entered(&mut self, shard: ShardId, place: WorkerPlace, index: u64, entry: Bytes) {
        let waiting = &mut self.stream(shard, place.worker).waiting;
        if let Some((_, facts)) = waiting.remove(&(place.node, index)) {
            self.enters(shard, place, index, entry, facts);
        }
    }

    /// A leader of the stream, on this node and appointed under this ballot, has appended an entry.
    pub fn appended(
        &mut self,
        shard: ShardId,
        place: WorkerPlace,
        ballot: Ballot,
        index: u64,
        facts: EntryFacts,
    ) {
        let stream = self.stream(shard, place.worker);
        match stream.shown.take().filter(|(shown, _)| *shown == index) {
            Some((_, entry)) => self.enters(shard, place, index, entry, facts),
            None => drop(stream.waiting.insert((place.node, index), (ballot, facts))),
        }
    }

    /// A node that leads the stream, or is deposed and has not learned it, has appended an entry.
    fn enters(
        &mut self,
        shard: ShardId,
        place: WorkerPlace,
        index: u64,
        entry: Bytes,
        facts: EntryFacts,
    ) {
        let WorkerPlace { node, worker } = place;
        let stream = self.stream(shard, worker);
        stream.known.entry(index).or_default().push((entry, facts.clone()));
        // A deposed leader that has not learned it decides nothing.
        let leads = stream.ballot == Ballot::default() || stream.ballot.node == node;
        if leads && index >= stream.taken {
            stream.ahead.insert(index, facts);
        }
        self.advance(shard, worker);
    }

    fn count(&mut self, shard: ShardId, worker: WorkerId) {
        let stream = self.stream(shard, worker);
        let majority_of = |ballot: Ballot| {
            let counts = |voter: &Voter| match stream.ballot == Ballot::default() {
                true => voter.length,
                false => voter.accepted.get(&ballot).copied().unwrap_or(0),
            };
            let (_, electorate) = stream
                .electorates
                .range(..=ballot)
                .next_back()
                .expect("there were voters at first");
            let voters = stream.voters.iter().filter(|voter| electorate.contains(&voter.node));
            let mut lengths: Vec<u64> = voters.map(counts).collect();
            lengths.sort_unstable();
            // This voter and all after it hold at least as many entries: a majority.
            lengths[(lengths.len() - 1) / 2]
        };
        // Entries that a majority has accepted under a former ballot are decided too, even if the last voter
        // persisted them after the next ballot led (seed 100902). The next ballot began with all of them.
        let formers = stream.voters.iter().flat_map(|voter| voter.accepted.keys().copied());
        let former = formers.filter(|it| *it < stream.ballot).map(majority_of).max().unwrap_or(0);
        assert!(
            former <= stream.led_length,
            "M4: {} leads a stream of {shard} with {} entries, of which {former} were decided before",
            stream.ballot,
            stream.led_length
        );
        let majority = majority_of(stream.ballot).max(former);
        if majority > stream.decided {
            stream.decided = majority;
            self.advance(shard, worker);
        }
    }

    fn advance(&mut self, shard: ShardId, worker: WorkerId) {
        let stream = self.stream(shard, worker);
        let before = stream.safe;
        while let Some(first) = stream.ahead.first_entry()
            && *first.key() < stream.decided
        {
            let (index, facts) = first.remove_entry();
            stream.taken = index + 1;
            stream.safe = stream.safe.max(facts.safe);
            stream.safes.insert(index, stream.safe);
            for (epoch, clock) in facts.ends {
                let end = stream.ends.entry(epoch).or_default();
                *end = clock.max(*end);
            }
            stream.known.remove(&index);
        }
        if stream.safe > before {
            let streams = self.streams_of(shard).iter();
            self.shards[shard.0 as usize] =
                streams.map(|stream| stream.safe).min().unwrap_or(Clock::ZERO);
        }
    }

    fn streams_of(&self, shard: ShardId) -> &[StreamState] {
        let first = shard.0 as usize * self.workers;
        &self.streams[first..first + self.workers]
    }

    /// The workers of a node, each of which has a stream of every shard.
    pub fn workers(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..self.workers as u32).map(WorkerId)
    }

    /// The number of durable entries of a stream.
    pub fn decided(&self, shard: ShardId, worker: WorkerId) -> u64 {
        self.streams[shard.0 as usize * self.workers + worker.0 as usize].decided
    }

    /// The number of entries of a stream whose facts are known and durable.
    pub fn taken(&self, shard: ShardId, worker: WorkerId) -> u64 {
        self.streams[shard.0 as usize * self.workers + worker.0 as usize].taken
    }

    /// The newest ballot that leads a stream, as far as the checks have seen.
    pub fn ballot(&self, shard: ShardId, worker: WorkerId) -> Ballot {
        self.streams[shard.0 as usize * self.workers + worker.0 as usize].ballot
    }

    /// Up to which clock a shard is durable for the open epoch.
    pub fn of(&self, shard: ShardId) -> Clock {
        self.shards[shard.0 as usize]
    }

    /// Up to which clock a shard is durable for versions of `epoch`.
    pub fn of_epoch(&self, shard: ShardId, epoch: Epoch) -> Clock {
        match self.finals.get(&epoch) {
            Some(last) => last.of(shard),
            None => self.accepted_of_epoch(shard, epoch),
        }
    }

    /// The same by accepted entries alone, whether the epoch's FVW is known or not.
    pub fn accepted_of_epoch(&self, shard: ShardId, epoch: Epoch) -> Clock {
        if self.is_out(shard, epoch) {
            return Clock::MAX;
        }
        let up_to = |stream: &StreamState| {
            let end = stream.ends.range(epoch..).next();
            end.map_or(stream.safe, |(_, clock)| *clock)
        };
        self.streams_of(shard).iter().map(up_to).min().unwrap_or(Clock::ZERO)
    }

    /// A shard is out from epoch `open` on, or in again from it on: epochs in which it is out have no
    /// versions of it.
    pub fn out(&mut self, shard: ShardId, open: Epoch, is_out: bool) {
        match is_out {
            true => _ = self.out.insert((shard, open), Epoch(u32::MAX)),
            false => {
                let last = self.out.range_mut((shard, Epoch(0))..=(shard, open)).next_back();
                last.into_iter().for_each(|(_, until)| *until = open);
            }
        }
    }

    /// Whether the shard is out in this epoch.
    fn is_out(&self, shard: ShardId, epoch: Epoch) -> bool {
        let since = self.out.range((shard, Epoch(0))..=(shard, epoch)).next_back();
        since.is_some_and(|(_, until)| epoch < *until)
    }

    /// Records the FVW of an epoch.
    pub fn settle(&mut self, last: &VectorWatermark) {
        self.finals.entry(last.epoch()).or_insert_with(|| last.clone());
    }

    /// The FVW of an epoch, once it is known.
    pub fn last(&self, epoch: Epoch) -> Option<&VectorWatermark> {
        self.finals.get(&epoch)
    }

    /// All shards of the cluster, in order.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.shards.len() as u32).map(ShardId)
    }

    /// The first shard that is not durable up to the stamp, which shard `own` keeps, with the stamp's clock
    /// for it.
    pub fn missing(&self, own: ShardId, stamp: &Stamp) -> Option<(ShardId, Clock)> {
        let view = stamp.seen_by(own);
        self.shards()
            .map(|shard| (shard, view.entry(shard)))
            .find(|(shard, clock)| *clock > self.of_epoch(*shard, stamp.epoch))
    }

    /// A shard is lost for good, and the ends of these epochs on it were never reported to the managers: no
    /// other shard can learn them.
    pub fn ends_unreported(&mut self, lost: ShardId, epochs: BTreeSet<Epoch>) {
        self.unreported = Some((lost, epochs));
    }

    /// Whether a version with this stamp, kept by `own`, may stay undecided because `lost` is lost for good.
    pub fn is_open(&self, own: ShardId, stamp: &Stamp, lost: ShardId) -> bool {
        let depends = stamp.seen_by(own).entry(lost) > Clock::ZERO;
        depends && !self.finals.contains_key(&stamp.epoch) && !self.is_rolled_back(own, stamp)
    }

    /// The last clock of an epoch on a shard, once all the shard's streams have durably ended the epoch.
    pub fn ended(&self, shard: ShardId, epoch: Epoch) -> Option<Clock> {
        if self.is_out(shard, epoch) {
            return Some(Clock::MAX);
        }
        let ends = self.streams_of(shard).iter();
        let ends = ends.map(|stream| stream.ends.range(epoch..).next().map(|(_, clock)| *clock));
        ends.min().flatten()
    }

    /// Whether a version with this stamp, kept by `own`, is rolled back for good: its epoch is settled
    /// without it, or a shard on which it depends has ended the epoch below it.
    pub fn is_rolled_back(&self, own: ShardId, stamp: &Stamp) -> bool {
        let (epoch, view) = (stamp.epoch, stamp.seen_by(own));
        let is_in = |shard: &ShardId| {
            let unreported = self.unreported.as_ref();
            !unreported.is_some_and(|(lost, epochs)| lost == shard && epochs.contains(&epoch))
        };
        let lost = |shard| self.ended(shard, epoch).is_some_and(|last| view.entry(shard) > last);
        self.shards().filter(is_in).any(lost)
            || (self.finals.contains_key(&epoch) && self.missing(own, stamp).is_some())
    }

    /// Checks that a node that takes the shard for durable up to `clock` is right.
    pub fn check(&self, shard: ShardId, clock: Clock) -> RuleVerdict {
        let durable = self.of(shard);
        if clock <= durable {
            return Ok(());
        }
        Err(format!(
            "the watermark of {shard} is {clock} here, but a majority of its voters has accepted \
             its streams up to {durable} only"
        ))
    }
}
