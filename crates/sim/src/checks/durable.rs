//! M4: a shard watermark counts only entries that a majority of the voters has accepted.
//!
//! What is durable is computed here from three facts: which ballot leads a stream and what it inherited,
//! what each voter has accepted under which ballot, and which safe clock each entry carries. An entry is
//! durable when a majority of the voters, of those that remember, has accepted it under the newest
//! ballot; and then for good. A stream is durable up to the safe clock of the last such entry, a shard up
//! to the least of its streams. No node may believe more.
//!
//! A closed epoch is durable up to where its streams have ended it; and once its FVW is final, that
//! decides.

use bytes::Bytes;
use shoal_cluster::topology::Topology;
use shoal_types::{Ballot, Clock, Epoch, NodeId, ShardId, Stamp, VectorWatermark, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// What is durable; see the module.
#[derive(Debug)]
pub struct Durable {
    workers: usize,
    streams: Vec<StreamState>,
    shards: Vec<Clock>,
    finals: BTreeMap<Epoch, VectorWatermark>,
    /// Since which epoch shards are out, and from which on they are in again.
    out: BTreeMap<(ShardId, Epoch), Epoch>,
    /// A shard that is lost for good, and the epochs of which the managers never heard how they ended on it.
    unheard: Option<(ShardId, BTreeSet<Epoch>)>,
}

/// What an entry says.
#[derive(Debug, Clone, Default)]
pub struct EntryFacts {
    /// The safe clock that it carries.
    pub safe: Clock,
    /// The epochs that end with it, and up to which clocks.
    pub ends: Vec<(Epoch, Clock)>,
}

#[derive(Debug, Clone)]
struct Voter {
    node: NodeId,
    ballot: Ballot,
    length: u64,
    /// How many entries it had accepted under each ballot.
    accepted: BTreeMap<Ballot, u64>,
    /// It holds what it has promised and accepted.
    remembers: bool,
    /// How many entries it has accepted last, whether that counts or not.
    holds: u64,
    /// Where it has forgotten: so many entries were durable then, perhaps with its vote.
    owes: u64,
}

#[derive(Debug, Clone)]
struct StreamState {
    voters: Vec<Voter>,
    /// The newest that leads; before one does, all that is accepted counts.
    ballot: Ballot,
    /// How many entries it began with, and appended in the same step.
    led_length: u64,
    /// The newest that was told to lead, and how many entries it began with.
    inherited: (Ballot, u64),
    /// Up to which clock it is safe with the entry of this index.
    safes: BTreeMap<u64, Clock>,
    /// So many entries are durable.
    decided: u64,
    /// What so many entries say is taken into account: all durable ones, but for those that were appended
    /// in the step that is under way.
    taken: u64,
    /// Entries beyond that, of the newest ballot's sequence.
    ahead: BTreeMap<u64, EntryFacts>,
    /// All that was ever appended beyond that, by what it is: a leader that inherits an entry says no more of it.
    known: BTreeMap<u64, Vec<(Bytes, EntryFacts)>>,
    /// What nodes have appended, under which appointment, while their streams were not prepared, and so is nowhere to be
    /// seen.
    waiting: BTreeMap<(NodeId, u64), (Ballot, EntryFacts)>,
    /// The entry that is spoken of next.
    shown: Option<(u64, Bytes)>,
    safe: Clock,
    /// Epochs that have ended here, and up to which clocks.
    ends: BTreeMap<Epoch, Clock>,
}

impl Durable {
    /// Nothing is durable yet.
    pub fn new(topology: &Topology) -> Durable {
        let workers = topology.workers() as usize;
        let voter = |node: &NodeId| Voter {
            node: *node,
            ballot: Ballot::default(),
            length: 0,
            accepted: BTreeMap::new(),
            remembers: true,
            holds: 0,
            owes: 0,
        };
        let state = |shard: ShardId| StreamState {
            voters: topology.voters(shard).iter().map(voter).collect(),
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
            unheard: None,
        }
    }

    fn stream(&mut self, shard: ShardId, worker: WorkerId) -> &mut StreamState {
        &mut self.streams[shard.0 as usize * self.workers + worker.0 as usize]
    }

    /// A replica has accepted so many entries under this ballot; only voters count.
    ///
    /// # Errors
    /// If that is less than its leader began with: then what was decided before counts as accepted and is not there.
    #[inline]
    pub fn accepted(
        &mut self,
        shard: ShardId,
        worker: WorkerId,
        node: NodeId,
        (ballot, length): (Ballot, u64),
    ) -> super::RuleVerdict {
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
        // A snapshot of what is decided under a later ballot is no vote for a former one, under which it is kept (seed 40386).
        let is_snapshot = ballot < stream.ballot && length <= stream.decided;
        let counts = if is_snapshot { length.min(stream.led_length) } else { length };
        let most = voter.accepted.entry(ballot).or_default();
        *most = counts.max(*most);
        self.count(shard, worker);
        Ok(())
    }

    /// A node's process is over, and with it what it had appended to streams that were not prepared.
    pub fn crashed(&mut self, node: NodeId) {
        for stream in &mut self.streams {
            stream.waiting.retain(|(other, _), _| *other != node);
        }
    }

    /// A node has forgotten all it ever accepted. What it had accepted counts as before: without it, a
    /// later majority has another member of those who accepted that. What it accepts from now on does not.
    pub fn forgets(&mut self, node: NodeId) {
        for stream in &mut self.streams {
            for voter in stream.voters.iter_mut().filter(|voter| voter.node == node) {
                (voter.remembers, voter.holds, voter.owes) = (false, 0, stream.decided);
            }
        }
    }

    /// A replica of a shard, having forgotten, holds all there is again: at least what was durable when it had forgotten.
    ///
    /// # Errors
    /// If it lacks something of that: it may have voted for it.
    pub fn remembers(&mut self, shard: ShardId, node: NodeId) -> super::RuleVerdict {
        for worker in (0..self.workers as u32).map(WorkerId) {
            for voter in self.stream(shard, worker).voters.iter_mut().filter(|it| it.node == node) {
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

    /// Up to which clock everything is in so many entries of a stream, if that is known: all of them are durable.
    pub fn safe_with(&self, shard: ShardId, worker: WorkerId, length: u64) -> Option<Clock> {
        let stream = &self.streams[shard.0 as usize * self.workers + worker.0 as usize];
        let last = || stream.safes.range(..length).next_back().map_or(Clock::ZERO, |(_, it)| *it);
        (length <= stream.taken).then(last)
    }

    /// A node leads again, and what it had appended before, without its stream being prepared, is dropped, unless
    /// `continues` says of the ballot under which it was that the lead goes on.
    pub fn leads_again(
        &mut self,
        shard: ShardId,
        (worker, node): (WorkerId, NodeId),
        continues: impl Fn(Ballot) -> bool,
    ) {
        let stream = self.stream(shard, worker);
        stream.waiting.retain(|(other, _), (ballot, _)| *other != node || continues(*ballot));
    }

    /// The entry that is appended next.
    pub fn shown(&mut self, shard: ShardId, worker: WorkerId, index: u64, entry: Bytes) {
        self.stream(shard, worker).shown = Some((index, entry));
    }

    /// A stream is led by this ballot from now on, and has so many entries; those that are not durable yet
    /// are shown. Some may just have been appended, and are spoken of afterwards.
    pub fn leads(
        &mut self,
        shard: ShardId,
        worker: WorkerId,
        (ballot, length): (Ballot, u64),
        entries: &[(u64, Bytes)],
    ) -> super::RuleVerdict {
        let stream = self.stream(shard, worker);
        if ballot <= stream.ballot {
            return Ok(()); // An older one that has not heard.
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

    /// A leader says what its stream began with.
    pub fn inherits(&mut self, shard: ShardId, worker: WorkerId, ballot: Ballot, length: u64) {
        let inherited = &mut self.stream(shard, worker).inherited;
        *inherited = (ballot, length).max(*inherited);
    }

    /// The first entry that a node has appended while its stream was not prepared, and that is nowhere to be
    /// seen yet.
    #[inline]
    pub fn awaited(&self, shard: ShardId, worker: WorkerId, node: NodeId) -> Option<u64> {
        let stream = &self.streams[shard.0 as usize * self.workers + worker.0 as usize];
        let (first, last) = ((node, 0), (node, u64::MAX));
        stream.waiting.range(first..=last).next().map(|((_, index), _)| *index)
    }

    /// That entry is in the stream now, which the node leads; or will never be, if something else is there.
    pub fn entered(
        &mut self,
        shard: ShardId,
        (worker, node): (WorkerId, NodeId),
        index: u64,
        entry: Bytes,
    ) {
        if let Some((_, facts)) = self.stream(shard, worker).waiting.remove(&(node, index)) {
            self.enters(shard, (worker, node), (index, entry), facts);
        }
    }

    /// A leader of the stream, on this node and appointed under this ballot, has appended an entry.
    pub fn appended(
        &mut self,
        shard: ShardId,
        (worker, node): (WorkerId, NodeId),
        (ballot, index): (Ballot, u64),
        facts: EntryFacts,
    ) {
        let stream = self.stream(shard, worker);
        match stream.shown.take().filter(|(shown, _)| *shown == index) {
            Some((_, entry)) => self.enters(shard, (worker, node), (index, entry), facts),
            None => drop(stream.waiting.insert((node, index), (ballot, facts))),
        }
    }

    /// A node that leads the stream, or thinks so, has put an entry there.
    fn enters(
        &mut self,
        shard: ShardId,
        (worker, node): (WorkerId, NodeId),
        (index, entry): (u64, Bytes),
        facts: EntryFacts,
    ) {
        let stream = self.stream(shard, worker);
        stream.known.entry(index).or_default().push((entry, facts.clone()));
        // A leader that is deposed and does not know it says what becomes of nothing.
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
            let mut lengths: Vec<u64> = stream.voters.iter().map(counts).collect();
            lengths.sort_unstable();
            // So many or more are held by this one and all after it: a majority.
            lengths[(lengths.len() - 1) / 2]
        };
        // What a majority has accepted under a former ballot is decided, too, also if the last of them had it persisted
        // when the next ballot led (seed 100902). That began with all of it.
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

    /// How many entries of a stream are durable.
    pub fn decided(&self, shard: ShardId, worker: WorkerId) -> u64 {
        self.streams[shard.0 as usize * self.workers + worker.0 as usize].decided
    }

    /// What so many entries of a stream say is known and durable.
    pub fn taken(&self, shard: ShardId, worker: WorkerId) -> u64 {
        self.streams[shard.0 as usize * self.workers + worker.0 as usize].taken
    }

    /// Which ballot leads a stream, as far as is known.
    pub fn ballot(&self, shard: ShardId, worker: WorkerId) -> Ballot {
        self.streams[shard.0 as usize * self.workers + worker.0 as usize].ballot
    }

    /// How far a shard is durable for what is new.
    pub fn of(&self, shard: ShardId) -> Clock {
        self.shards[shard.0 as usize]
    }

    /// How far a shard is durable for what belongs to `epoch`.
    pub fn of_epoch(&self, shard: ShardId, epoch: Epoch) -> Clock {
        match self.finals.get(&epoch) {
            Some(last) => last.of(shard),
            None => self.accepted_of_epoch(shard, epoch),
        }
    }

    /// The same, whether the epoch's FVW is known or not.
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

    /// A shard is out in the epochs from this one on, or in again: nothing of it is in those in which it is out.
    pub fn out(&mut self, shard: ShardId, open: Epoch, is_out: bool) {
        match is_out {
            true => _ = self.out.insert((shard, open), Epoch(u32::MAX)),
            false => {
                let last = self.out.range_mut((shard, Epoch(0))..=(shard, open)).next_back();
                last.into_iter().for_each(|(_, until)| *until = open);
            }
        }
    }

    /// Is the shard out in this epoch?
    fn is_out(&self, shard: ShardId, epoch: Epoch) -> bool {
        let since = self.out.range((shard, Epoch(0))..=(shard, epoch)).next_back();
        since.is_some_and(|(_, until)| epoch < *until)
    }

    /// The FVW of an epoch is known.
    pub fn settle(&mut self, last: &VectorWatermark) {
        self.finals.entry(last.epoch()).or_insert_with(|| last.clone());
    }

    /// The FVW of an epoch, once it is known.
    pub fn last(&self, epoch: Epoch) -> Option<&VectorWatermark> {
        self.finals.get(&epoch)
    }

    /// All shards.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.shards.len() as u32).map(ShardId)
    }

    /// The first shard that is not durable up to the stamp, kept by `own`, and its entry there.
    pub fn missing(&self, own: ShardId, stamp: &Stamp) -> Option<(ShardId, Clock)> {
        let view = stamp.seen_by(own);
        self.shards()
            .map(|shard| (shard, view.entry(shard)))
            .find(|(shard, clock)| *clock > self.of_epoch(*shard, stamp.epoch))
    }

    /// A shard is lost for good before the managers heard how these epochs ended on it: no other shard can know.
    pub fn ends_unheard(&mut self, lost: ShardId, epochs: BTreeSet<Epoch>) {
        self.unheard = Some((lost, epochs));
    }

    /// May it stay open whether what has this stamp, kept by `own`, counts, since `lost` is lost for good?
    pub fn is_open(&self, own: ShardId, stamp: &Stamp, lost: ShardId) -> bool {
        let depends = stamp.seen_by(own).entry(lost) > Clock::ZERO;
        depends && !self.finals.contains_key(&stamp.epoch) && !self.is_rolled_back(own, stamp)
    }

    /// Where a shard has ended an epoch, once all its streams have, durably.
    pub fn ended(&self, shard: ShardId, epoch: Epoch) -> Option<Clock> {
        if self.is_out(shard, epoch) {
            return Some(Clock::MAX);
        }
        let ends = self.streams_of(shard).iter();
        let ends = ends.map(|stream| stream.ends.range(epoch..).next().map(|(_, clock)| *clock));
        ends.min().flatten()
    }

    /// Is what has this stamp, kept by `own`, discarded for good? Either the epoch is settled without it, or
    /// a shard on which it depends has ended the epoch before.
    pub fn is_rolled_back(&self, own: ShardId, stamp: &Stamp) -> bool {
        let (epoch, view) = (stamp.epoch, stamp.seen_by(own));
        let is_heard = |shard: &ShardId| {
            let unheard = self.unheard.as_ref();
            !unheard.is_some_and(|(lost, epochs)| lost == shard && epochs.contains(&epoch))
        };
        let lost = |shard| self.ended(shard, epoch).is_some_and(|last| view.entry(shard) > last);
        self.shards().filter(is_heard).any(lost)
            || (self.finals.contains_key(&epoch) && self.missing(own, stamp).is_some())
    }

    /// A node takes the shard for durable up to `clock`.
    pub fn check(&self, shard: ShardId, clock: Clock) -> super::RuleVerdict {
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
