//! A few nodes, the messages between them, and the checks.
//!
//! The owners of the streams are simulated too: their state is the list of decided entries, and a snapshot is
//! that list. Each check returns an error, so that a planted bug can be caught by it. A node that restarts has what its log
//! on disk has: the records of its storage, as far as they were durable.

use bytes::Bytes;
use shoal_log::{
    LogLength, MemoryStorage, RecordedChanges, Stream, StreamEffect, StreamEvent, StreamMembers,
    StreamMessage, StreamOptions, StreamRecord, StreamStorage,
};
use shoal_types::wire::{decode, encode};
use shoal_types::{Ballot, Epoch, NodeId, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A message in flight.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub from: NodeId,
    pub to: NodeId,
    pub message: StreamMessage,
}

/// A node: its stream, or only its disk while it is down.
#[derive(Debug)]
pub struct Node {
    pub stream: Option<Stream<MemoryStorage>>,
    disk: Option<MemoryStorage>,
    log: DiskLog,
    pub timer: Option<Time>,
    pub wanted: Vec<NodeId>,
}

/// The records of a storage that lags, encoded.
#[derive(Debug, Default)]
struct DiskLog {
    durable: Vec<Vec<u8>>,
    /// Those that are not durable, with the changes that each stands for.
    written: VecDeque<(Vec<u8>, usize)>,
    /// Changes that are durable, and whose record is not.
    changes: usize,
}

impl DiskLog {
    fn write(&mut self, records: Vec<RecordedChanges>) {
        let encoded = |it: RecordedChanges| (it.record.encode(), it.changes);
        self.written.extend(records.into_iter().map(encoded));
    }

    /// So many more changes are durable.
    fn persist(&mut self, changes: usize) {
        self.changes += changes;
        while self.written.front().is_some_and(|(_, needed)| *needed <= self.changes) {
            let (record, needed) = self.written.pop_front().expect("there is one");
            self.changes -= needed;
            self.durable.push(record);
        }
        if self.written.is_empty() {
            self.changes = 0; // The rest were changes without a record.
        }
    }

    /// What is read from the log after a crash, which has to be what `disk` has, and entries that were trimmed.
    fn recover(&mut self, disk: &MemoryStorage) -> MemoryStorage {
        self.written.clear();
        self.changes = 0;
        let mut recovered = MemoryStorage::recorded();
        for record in &self.durable {
            let record = StreamRecord::decode(record).expect("its own bytes");
            recovered.replay(record).expect("in the order in which they were made");
        }
        assert_eq!(recovered.promised(), disk.promised());
        assert_eq!(recovered.accepted_ballot(), disk.accepted_ballot());
        assert_eq!(recovered.log().length(), disk.log().length());
        assert!(recovered.log().start() <= disk.log().start(), "{recovered:?} is not {disk:?}");
        assert!(recovered.decided() <= disk.decided(), "{recovered:?} is not {disk:?}");
        let held = disk.log().start()..disk.log().length();
        let differ = |index| recovered.log().entry(index) != disk.log().entry(index);
        assert!(!(held.start.0..held.end.0).any(differ), "other entries than {disk:?}");
        recovered
    }
}

#[derive(Debug)]
pub struct Cluster {
    pub now: Time,
    pub nodes: BTreeMap<NodeId, Node>,
    pub members: StreamMembers,
    pub deliveries: Vec<Delivery>,
    /// The effects so far, one line for each.
    pub trace: Vec<String>,
    /// Every entry that some node has reported as decided.
    pub truth: Vec<Bytes>,
    /// The ballot under which each was decided first.
    decided_under: Vec<Ballot>,
    options: StreamOptions,
    led: BTreeMap<Ballot, NodeId>,
}

pub fn ballot(epoch: u32, node: NodeId) -> Ballot {
    Ballot { epoch: Epoch(epoch), node }
}

/// Encodes entries as one state, or decodes them. Entries of tests have no commas.
pub fn state_of(entries: &[Bytes]) -> Bytes {
    Bytes::from(entries.iter().map(|entry| words(entry) + ",").collect::<String>())
}

pub fn words(entry: &Bytes) -> String {
    String::from_utf8_lossy(entry).into_owned()
}

impl Cluster {
    pub fn new(
        members: StreamMembers,
        others: &[NodeId],
        options: StreamOptions,
        late: bool,
    ) -> Cluster {
        let mut cluster = Cluster {
            now: Time::ZERO,
            nodes: BTreeMap::new(),
            members,
            deliveries: Vec::new(),
            trace: Vec::new(),
            truth: Vec::new(),
            decided_under: Vec::new(),
            options,
            led: BTreeMap::new(),
        };
        let all: Vec<_> = cluster.members.all().chain(others.iter().copied()).collect();
        for id in all {
            let stream =
                Some(cluster.stream(
                    id,
                    if late { MemoryStorage::recorded() } else { MemoryStorage::new() },
                ));
            let (log, wanted) = (DiskLog::default(), Vec::new());
            let node = Node { stream, disk: None, log, timer: None, wanted };
            cluster.nodes.insert(id, node);
        }
        cluster
    }

    fn stream(&self, id: NodeId, disk: MemoryStorage) -> Stream<MemoryStorage> {
        Stream::new(id, self.members.clone(), self.options.clone(), disk)
    }

    pub fn up(&self, id: NodeId) -> Option<&Stream<MemoryStorage>> {
        self.nodes[&id].stream.as_ref()
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node of this cluster")
    }

    /// Crashes a node; the durable part of its disk stays.
    pub fn crash(&mut self, id: NodeId) {
        let node = self.node(id);
        if let Some(stream) = node.stream.take() {
            let mut disk = stream.into_storage();
            let is_late = !disk.take_records().is_empty() || !node.log.durable.is_empty();
            disk.crash();
            node.disk = Some(if is_late { node.log.recover(&disk) } else { disk });
            node.timer = None;
            node.wanted.clear();
        }
    }

    /// Restarts a node with its disk, or with an empty one.
    pub fn restart(&mut self, id: NodeId, empty: Option<MemoryStorage>) -> Result<(), String> {
        let Some(kept) = self.node(id).disk.take() else { return Ok(()) };
        let stream = self.stream(id, empty.unwrap_or(kept));
        for index in stream.start().0..stream.decided().0 {
            self.check_entry(id, index, stream.entry(index))?;
        }
        self.node(id).stream = Some(stream);
        Ok(())
    }

    /// Lets a node take a step, applies its effects, and checks.
    pub fn step(&mut self, id: NodeId, event: StreamEvent) -> Result<(), String> {
        let now = self.now;
        let Some(stream) = &mut self.node(id).stream else { return Ok(()) };
        let mut effects = Vec::new();
        let mut told = stream.decided();
        stream.step(now, event, &mut effects);
        for effect in effects {
            self.trace_effect(id, &effect, told);
            match effect {
                StreamEffect::Send { to, message } => {
                    if !self.nodes.contains_key(&to) || to == id {
                        return Err(format!("{id} sends to {to}"));
                    }
                    let arriving = decode(&encode(&message)).map_err(|error| error.to_string())?;
                    if arriving != message {
                        return Err(format!("{message:?} arrives as {arriving:?}"));
                    }
                    self.deliveries.push(Delivery { from: id, to, message: arriving });
                }
                StreamEffect::Leading { ballot, length } => {
                    self.check_leader(id, ballot, length)?;
                }
                StreamEffect::Deposed { .. } => {}
                StreamEffect::Decided { length } => {
                    self.check_decided(id, told, length)?;
                    told = length;
                }
                StreamEffect::SnapshotWanted { to } => self.node(id).wanted.push(to),
                StreamEffect::Restored { length, state } => {
                    let known = self.truth.get(..length.0 as usize).unwrap_or_default();
                    if length <= told || state_of(known) != state {
                        return Err(format!("{id} restored {length} entries as {state:?}"));
                    }
                    told = length;
                }
                StreamEffect::Timer { at } => self.node(id).timer = Some(at),
            }
        }
        let stream = self.up(id).expect("it took a step");
        if stream.decided() == told {
            return Ok(());
        }
        Err(format!("{id} told of {told} decided entries, and has {}", stream.decided()))
    }

    fn check_entry(&self, id: NodeId, index: u64, entry: Option<&Bytes>) -> Result<(), String> {
        let truth = self.truth.get(index as usize);
        if truth == entry {
            return Ok(());
        }
        Err(format!("decided entry {index} is {truth:?}, and {entry:?} on {id}"))
    }

    /// Checks that at most one leader has a ballot, and that it inherits all that was decided under lower
    /// ones. (More may be decided already under higher ones, if it prepared slowly.)
    fn check_leader(
        &mut self,
        id: NodeId,
        ballot: Ballot,
        length: LogLength,
    ) -> Result<(), String> {
        if self.led.insert(ballot, id).is_some() {
            return Err(format!("{ballot} leads a second time"));
        }
        let decided = self.decided_under.iter().filter(|under| **under < ballot).count() as u64;
        if length.0 < decided {
            return Err(format!("{id} leads with {length} of {decided} decided entries"));
        }
        let stream = self.up(id).expect("it leads");
        let mut held = stream.start().0..decided;
        held.try_for_each(|index| self.check_entry(id, index, stream.entry(index)))
    }

    /// Checks that decided prefixes agree, and that a newly decided entry was decided by a leader, and a
    /// majority of the voters has it under that leader's ballot, or a later one.
    fn check_decided(
        &mut self,
        id: NodeId,
        from: LogLength,
        length: LogLength,
    ) -> Result<(), String> {
        let stream = self.nodes[&id].stream.as_ref().expect("it took a step");
        let known = self.truth.len() as u64;
        for index in from.0..length.0 {
            match stream.entry(index).cloned() {
                Some(new) if index == self.truth.len() as u64 => self.truth.push(new),
                entry => self.check_entry(id, index, entry.as_ref())?,
            }
        }
        if length.0 <= known {
            return Ok(());
        }
        if !stream.is_leading() {
            return Err(format!("{id} does not lead, and decided {length} entries"));
        }
        let ballot = stream.ballot();
        self.decided_under.resize(self.truth.len(), ballot);
        let has = |voter: &&NodeId| {
            let node = &self.nodes[*voter];
            let disk = node.stream.as_ref().map(Stream::storage).or(node.disk.as_ref());
            let persisted = disk.expect("up or down").persisted();
            persisted.accepted_ballot >= ballot && persisted.accepted >= length
        };
        if self.members.is_majority(self.members.voters.iter().filter(has).count()) {
            return Ok(());
        }
        Err(format!("{id} decided {length} entries without a majority of the voters (M4)"))
    }

    /// Delivers a message.
    pub fn deliver(&mut self, delivery: Delivery) -> Result<(), String> {
        let Delivery { from, to, message } = delivery;
        self.step(to, StreamEvent::Received { from, message })
    }

    /// Delivers all messages in order, until none is in flight.
    pub fn settle(&mut self) -> Result<(), String> {
        for _ in 0..20_000 {
            if self.deliveries.is_empty() {
                return Ok(());
            }
            let delivery = self.deliveries.remove(0);
            self.deliver(delivery)?;
        }
        Err("messages never end".to_owned())
    }

    /// Advances the time, and fires the timers that are due.
    pub fn wait(&mut self, span: Duration) -> Result<(), String> {
        self.now = self.now + span;
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        for id in ids {
            let now = self.now;
            if self.node(id).timer.take_if(|at| *at <= now).is_some() {
                self.step(id, StreamEvent::Timer)?;
            }
        }
        Ok(())
    }

    /// The owner of `id` answers requests for snapshots.
    pub fn give_snapshots(&mut self, id: NodeId) -> Result<(), String> {
        for to in std::mem::take(&mut self.node(id).wanted) {
            self.give_snapshot(id, to)?;
        }
        Ok(())
    }

    pub fn give_snapshot(&mut self, id: NodeId, to: NodeId) -> Result<(), String> {
        let Some(stream) = self.up(id) else { return Ok(()) };
        let length = stream.decided();
        let state = state_of(&self.truth[..length.0 as usize]);
        self.node(id).wanted.retain(|wanted| *wanted != to);
        self.step(id, StreamEvent::Snapshot { to, length, state })
    }

    /// The disk of `id` persists changes, and reports that.
    pub fn persist(&mut self, id: NodeId, changes: usize) -> Result<(), String> {
        let Node { stream, log, .. } = self.node(id);
        if let Some(stream) = stream {
            let storage = stream.storage_mut();
            log.write(storage.take_records());
            log.persist(changes.min(storage.pending()));
            storage.persist(changes);
            self.step(id, StreamEvent::Persisted)?;
        }
        Ok(())
    }

    fn trace_effect(&mut self, id: NodeId, effect: &StreamEffect, told: LogLength) {
        let line = match effect {
            StreamEffect::Send { to, message } => format!("{id} → {to} {}", show(message)),
            StreamEffect::Leading { ballot, length } => {
                format!("{id} leads {ballot}, inherits {length}")
            }
            StreamEffect::Deposed { by } => format!("{id} is deposed by {by}"),
            StreamEffect::Decided { length } => {
                let stream = self.up(id).expect("it took a step");
                let entries = (told.0..length.0).filter_map(|index| stream.entry(index));
                let entries: Vec<_> = entries.map(words).collect();
                format!("{id} decided {length} [{}]", entries.join(" "))
            }
            StreamEffect::SnapshotWanted { to } => format!("{id} wants a snapshot for {to}"),
            StreamEffect::Restored { length, state } => {
                format!("{id} restored {length} [{}]", words(state))
            }
            StreamEffect::Timer { at } => format!("{id} sets a timer to {} ms", at.0 / 1_000_000),
        };
        self.trace.push(line);
    }
}

fn show_round(round: u64) -> String {
    if round == 0 { String::new() } else { format!(" round={round}") }
}

fn show_votes(votes: bool) -> &'static str {
    if votes { "" } else { " voteless" }
}

/// A message in one line.
pub fn show(message: &StreamMessage) -> String {
    let list = |entries: &[Bytes]| {
        format!("[{}]", entries.iter().map(words).collect::<Vec<_>>().join(" "))
    };
    match message {
        StreamMessage::Prepare { ballot, accepted_ballot, accepted, decided } => {
            format!("Prepare {ballot} has={accepted_ballot}:{accepted} decided={decided}")
        }
        StreamMessage::Promise {
            ballot,
            accepted_ballot,
            accepted,
            decided,
            from,
            entries,
            votes,
        } => {
            format!(
                "Promise {ballot} has={accepted_ballot}:{accepted} decided={decided} from={from} {}{}",
                list(entries),
                show_votes(*votes)
            )
        }
        StreamMessage::Fetch { ballot, accepted_ballot, from, messages } => {
            let many = if *messages > 1 { format!(" messages={messages}") } else { String::new() };
            format!("Fetch {ballot} of={accepted_ballot} from={from}{many}")
        }
        StreamMessage::Append {
            ballot,
            adopted,
            base,
            prev,
            entries,
            decided,
            everywhere,
            round,
        } => {
            format!(
                "Append {ballot} adopted={adopted}:{base} prev={prev} {} decided={decided} everywhere={everywhere}{}",
                list(entries),
                show_round(*round)
            )
        }
        StreamMessage::Accepted { ballot, length, next, until, decided, round, votes } => {
            let place = match next == until {
                true => format!("next={next}"),
                false => format!("hole={next}..{until}"),
            };
            let (round, votes) = (show_round(*round), show_votes(*votes));
            format!("Accepted {ballot} length={length} {place} decided={decided}{round}{votes}")
        }
        StreamMessage::Decide { ballot, decided, everywhere } => {
            format!("Decide {ballot} decided={decided} everywhere={everywhere}")
        }
        StreamMessage::Snapshot { ballot, length, state } => {
            format!("Snapshot {ballot} length={length} [{}]", words(state))
        }
        StreamMessage::Rejected { ballot, promised } => {
            format!("Rejected {ballot} promised={promised}")
        }
    }
}
