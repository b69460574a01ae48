//! A cluster of nodes with two shards of three voters, whose messages and logs a test drives.

use bytes::Bytes;
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::TransactionId;
use shoal_tiga::coordinator::{Ended, Outcome};
use shoal_tiga::execute::Library;
use shoal_tiga::ledger::Ledger;
use shoal_tiga::message::{Message, Read};
use shoal_tiga::observation::Path;
use shoal_tiga::step::VoteRecord;
use shoal_tiga::transaction::{
    Body, KeyAccess, Part, ProcedureCall, RangeAccess, RequestRow, Transaction,
};
use shoal_tiga::view::ShardView;
use shoal_tiga::{Appointment, Now, ReplicaCounters, TigaNode, TigaOptions};
use shoal_types::procedure::{Access, FootprintRange, ProcedureTransaction, Procedures};
use shoal_types::{
    Ballot, Epoch, NodeId, Result, Scan, ShardId, TableId, Time, Transaction as _, WorkerId,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub const TABLE: TableId = TableId(0);
pub const MS: u64 = 1_000_000;
/// The time after which a transaction of a script is due at its leaders.
pub const HEADROOM: Duration = Duration::from_millis(1);
const VOTERS: u32 = 3;
/// The node that coordinates, without replicas.
pub const CLIENT: NodeId = NodeId(6);

/// Adds one to each key that is covered, and returns the sums.
async fn increment(tx: &ProcedureTransaction<'_>, keys: &[u8]) -> Result<Bytes> {
    let mut sums = Vec::new();
    for key in keys {
        if tx.covers(TABLE, &[*key]) {
            sums.push(tx.add(TABLE, &[*key], 1).await? as u8);
        }
    }
    Ok(sums.into())
}

/// Gives each of two keys the value of the other, and returns both as they were.
async fn swap(tx: &ProcedureTransaction<'_>, keys: &[u8]) -> Result<Bytes> {
    let (first, second) = ([keys[0]], [keys[1]]);
    let (of_first, of_second) = (tx.get(TABLE, &first).await?, tx.get(TABLE, &second).await?);
    let found = [of_first, of_second].map(|value| value.map_or(0, |value| value[0]));
    for (key, value) in [(first, of_second), (second, of_first)] {
        match value {
            Some(value) => tx.put(TABLE, &key, value)?,
            None => tx.delete(TABLE, &key)?,
        }
    }
    Ok(Bytes::copy_from_slice(&found))
}

/// Counts the rows that begin with the byte, and writes the number into the row that has it alone.
async fn count(tx: &ProcedureTransaction<'_>, prefix: &[u8]) -> Result<Bytes> {
    let rows = tx.scan(TABLE, Scan::prefix(prefix)).await?.len();
    tx.put(TABLE, prefix, &(rows as u64).to_le_bytes())?;
    Ok(Bytes::copy_from_slice(&[rows as u8]))
}

/// Adds the value of the first key to the rows that begin with the byte of the second, behind all that are there: at the third.
async fn append(tx: &ProcedureTransaction<'_>, keys: &[u8]) -> Result<Bytes> {
    let found = tx.get(TABLE, &keys[..1]).await?.unwrap_or_default();
    tx.insert(TABLE, &keys[1..], found).await?;
    Ok(Bytes::new())
}

/// The log of a shard, as its voters have it.
struct Log {
    ballot: Ballot,
    /// What the leader of the ballot has appended, with what it adopted.
    entries: Vec<Bytes>,
    /// How many of them each voter has accepted, and under which ballot.
    accepted: BTreeMap<NodeId, (Ballot, Vec<Bytes>)>,
    decided: BTreeMap<NodeId, u64>,
}

/// Nodes, their logs, and the messages between them.
pub struct Cluster {
    nodes: BTreeMap<NodeId, TigaNode>,
    logs: Vec<Log>,
    messages: VecDeque<(NodeId, NodeId, Message)>,
    pub ended: Vec<Ended>,
    topology: Topology,
    procedures: Procedures,
    time: u64,
    sequence: u64,
    /// By how much the transaction clocks of nodes are ahead of the others.
    ahead: BTreeMap<NodeId, Duration>,
    /// Nodes whose clocks are not as accurate as the options ask for.
    inaccurate: BTreeSet<NodeId>,
    /// Nodes whose leases are over.
    without_lease: BTreeSet<NodeId>,
    /// Nodes that get nothing and do nothing.
    down: BTreeSet<NodeId>,
    /// A voter that was added to shard 0.
    added: Option<NodeId>,
    options: TigaOptions,
    /// What voters have recorded and is not durable, where votes are on disk.
    unflushed: BTreeMap<NodeId, Vec<VoteRecord>>,
    /// Nodes whose disks flush nothing by themselves.
    slow_disks: BTreeSet<NodeId>,
    /// The records on the disks of voters.
    disks: BTreeMap<NodeId, Vec<Bytes>>,
}

/// The nodes of a shard: 0 to 2, or 3 to 5.
pub fn voters(shard: u32) -> Vec<NodeId> {
    (shard * VOTERS..(shard + 1) * VOTERS).map(NodeId).collect()
}

/// Two shards of three voters, and a node that coordinates. Keys below 100 are on shard 0.
fn topology(tables: &[&str]) -> Topology {
    let mut builder = Topology::builder().workers(1).datacenter("d");
    for node in 0..7 {
        builder = builder.node(format!("n{node}"), "d");
    }
    for shard in 0..2 {
        let names: Vec<String> = voters(shard).iter().map(|node| format!("n{}", node.0)).collect();
        builder = builder.shard(names[0].clone(), names, Vec::<String>::new());
    }
    for table in tables {
        builder = builder.table(*table, Partitioning::ranges([vec![], vec![100]]));
    }
    builder.build().expect("a topology")
}

impl Cluster {
    /// All shards are served.
    pub fn new() -> Cluster {
        Cluster::with(TigaOptions::default())
    }

    /// All are voted for, near as the nodes are.
    pub fn with(options: TigaOptions) -> Cluster {
        Cluster::of(TigaOptions { by_log_within: Duration::ZERO, ..options })
    }

    pub fn of(options: TigaOptions) -> Cluster {
        let topology = topology(&["t"]);
        let log = |shard| Log {
            ballot: Ballot::default(),
            entries: Vec::new(),
            accepted: voters(shard).into_iter().map(|it| (it, Default::default())).collect(),
            decided: BTreeMap::new(),
        };
        let mut cluster = Cluster {
            nodes: (0..7).map(|it| (NodeId(it), TigaNode::new(NodeId(it), options))).collect(),
            logs: (0..2).map(log).collect(),
            messages: VecDeque::new(),
            ended: Vec::new(),
            topology,
            procedures: Procedures::new()
                .with("increment", increment)
                .with("swap", swap)
                .with("count", count)
                .with("append", append),
            time: 1000 * MS,
            sequence: 0,
            ahead: BTreeMap::new(),
            inaccurate: BTreeSet::new(),
            without_lease: BTreeSet::new(),
            down: BTreeSet::new(),
            added: None,
            options,
            unflushed: BTreeMap::new(),
            slow_disks: BTreeSet::new(),
            disks: BTreeMap::new(),
        };
        cluster.appoint(0, NodeId(0), 1);
        cluster.appoint(1, NodeId(3), 1);
        cluster.settle();
        cluster
    }

    fn act(&mut self, node: NodeId, act: impl FnOnce(&mut TigaNode, Now, &Library<'_>)) {
        let time = Time(self.time);
        let clock = time + self.ahead.get(&node).copied().unwrap_or_default();
        let is_accurate = !self.inaccurate.contains(&node);
        let has_lease = !self.without_lease.contains(&node);
        let now = Now { local: time, clock, arrived: clock, has_lease, is_accurate };
        let library = Library { procedures: &self.procedures, tables: self.topology.tables() };
        let of = self.nodes.get_mut(&node).expect("a node");
        act(of, now, &library);
        let output = of.take_output();
        self.ended.extend(of.take_ended());
        for envelope in output.sends {
            self.messages.push_back((node, envelope.to, envelope.message));
        }
        for (shard, entry) in output.proposals {
            let log = &mut self.logs[shard.0 as usize];
            if log.ballot.node == node {
                log.entries.push(entry);
                let entries = log.entries.clone();
                log.accepted.insert(node, (log.ballot, entries));
            }
        }
        self.unflushed.entry(node).or_default().extend(output.records);
        if !self.slow_disks.contains(&node) {
            self.flush(node);
        }
    }

    /// As [`Cluster::with`], with votes on disk.
    pub fn on_disk(options: TigaOptions) -> Cluster {
        let mut cluster = Cluster::with(options);
        for node in voters(0).into_iter().chain(voters(1)) {
            cluster.node_mut(node).keep_on_disk();
            let shard = ShardId(node.0 / VOTERS);
            cluster.act(node, |node, now, library| node.records_read(now, library, shard, &[]));
        }
        cluster
    }

    /// The disk of a node flushes only what it is asked to.
    pub fn slow_disk(&mut self, node: NodeId) {
        self.slow_disks.insert(node);
    }

    /// What a node has recorded becomes durable.
    pub fn flush(&mut self, node: NodeId) {
        for VoteRecord { record, is_first, sends, .. } in
            self.unflushed.remove(&node).unwrap_or_default()
        {
            let disk = self.disks.entry(node).or_default();
            if is_first {
                disk.clear();
            }
            disk.extend(Some(record).filter(|record| !record.is_empty()));
            self.act(node, |node, now, library| node.send_all(now, library, sends));
        }
    }

    /// A voter begins a checkpoint, which is soon durable: what it has recorded before is not read again.
    pub fn checkpoint(&mut self, voter: NodeId) {
        self.flush(voter);
        self.disks.remove(&voter);
        let shard = ShardId(voter.0 / VOTERS);
        self.act(voter, |node, now, library| node.record_list(now, library, shard));
    }

    /// The process of a voter ends; the next one begins with what is on its disk. It follows the present leader with the next
    /// appointment.
    pub fn restart(&mut self, voter: NodeId) {
        let shard = voter.0 / VOTERS;
        let mut node = TigaNode::new(voter, self.options);
        node.keep_on_disk();
        self.nodes.insert(voter, node);
        self.unflushed.remove(&voter);
        let log = &self.logs[shard as usize];
        let decided = log.decided.get(&voter).copied().unwrap_or(0) as usize;
        let (ballot, entries) = log.accepted[&voter].clone();
        let records = self.disks.get(&voter).cloned().unwrap_or_default();
        let shard = ShardId(shard);
        self.act(voter, |node, now, library| {
            node.promised(now, library, shard, ballot);
            for (index, entry) in (0..).zip(&entries[..decided]) {
                node.decided(now, library, shard, index, entry);
            }
            let length = entries.len() as u64;
            node.accepted(now, library, shard, ballot, length, &entries[decided..]);
            node.records_read(now, library, shard, &records);
        });
    }

    /// Another leader is appointed; it adopts the log of the best of `from`.
    pub fn appoint_from(&mut self, shard: u32, leader: NodeId, epoch: u32, from: &[NodeId]) {
        let ballot = Ballot { epoch: Epoch(epoch), node: leader };
        let log = &mut self.logs[shard as usize];
        let best = from.iter().map(|node| &log.accepted[node]);
        let best = best.max_by_key(|(ballot, entries)| (*ballot, entries.len()));
        log.entries = best.expect("a majority").1.clone();
        log.ballot = ballot;
        log.accepted.insert(leader, (ballot, log.entries.clone()));
        let length = log.entries.len() as u64;
        self.configure();
        for voter in from.iter().filter(|voter| **voter != leader) {
            self.act(*voter, |node, now, library| {
                node.promised(now, library, ShardId(shard), ballot);
            });
        }
        self.act(leader, |node, now, library| {
            node.prepared(now, library, ShardId(shard), ballot, length);
        });
    }

    /// All nodes receive the present configuration.
    pub fn configure(&mut self) {
        let views = (0..2).map(|shard| ShardView {
            voters: self.voters_now(shard),
            full: self.voters_now(shard),
            leader: self.logs[shard as usize].ballot.node,
            ballot: self.logs[shard as usize].ballot,
        });
        let views: Vec<ShardView> = views.collect();
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            if self.down.contains(&node) {
                continue;
            }
            let held = (0..2).filter(|shard| self.voters_now(*shard).contains(&node));
            let held = held.map(|shard| {
                let ballot = self.logs[shard as usize].ballot;
                let since = ballot.epoch;
                let leads = ballot.node == node;
                (ShardId(shard), leads.then_some(Appointment { ballot, since }))
            });
            let held: BTreeMap<_, _> = held.collect();
            let views = views.clone();
            self.act(node, |node, now, library| node.configure(now, library, views, &held));
        }
    }

    /// From the next appointment on, a voter of shard 0 that has its log.
    pub fn add_voter(&mut self, node: NodeId) {
        self.added = Some(node);
        let log = &mut self.logs[0];
        log.accepted.insert(node, (log.ballot, log.entries.clone()));
    }

    fn voters_now(&self, shard: u32) -> Vec<NodeId> {
        voters(shard).into_iter().chain(self.added.filter(|_| shard == 0)).collect()
    }

    pub fn appoint(&mut self, shard: u32, leader: NodeId, epoch: u32) {
        let up: Vec<NodeId> =
            voters(shard).into_iter().filter(|node| !self.down.contains(node)).collect();
        self.appoint_from(shard, leader, epoch, &up);
    }

    /// A voter accepts all that its leader has appended.
    pub fn sync(&mut self, shard: u32, voter: NodeId) {
        let log = &mut self.logs[shard as usize];
        let (ballot, before) = log.accepted[&voter].clone();
        let known = if ballot == log.ballot { before.len() } else { 0 };
        let decided = log.decided.get(&voter).copied().unwrap_or(0) as usize;
        let from = known.max(decided);
        let (ballot, entries) = (log.ballot, log.entries.clone());
        if entries.len() == known || self.down.contains(&voter) {
            return;
        }
        log.accepted.insert(voter, (ballot, entries.clone()));
        let length = entries.len() as u64;
        self.act(voter, |node, now, library| {
            node.promised(now, library, ShardId(shard), ballot);
            node.accepted(now, library, ShardId(shard), ballot, length, &entries[from..]);
        });
    }

    /// A second table is created, and all nodes know it.
    pub fn create_table(&mut self) {
        self.topology = topology(&["t", "u"]);
    }

    /// A voter of a shard has forgotten everything, and begins behind a snapshot of all that is decided.
    pub fn restore(&mut self, shard: u32, voter: NodeId, ledger: Ledger) {
        let log = &mut self.logs[shard as usize];
        let (ballot, length) = (log.ballot, ledger.applied);
        let entries = log.entries[..length as usize].to_vec();
        log.accepted.insert(voter, (ballot, entries));
        log.decided.insert(voter, length);
        self.act(voter, |node, now, library| {
            node.promised(now, library, ShardId(shard), ballot);
            node.restored(now, library, ShardId(shard), ledger);
        });
    }

    /// Each voter that is up learns what a majority has accepted.
    pub fn decide(&mut self, shard: u32) {
        let log = &self.logs[shard as usize];
        let current = log.accepted.values().filter(|(ballot, _)| *ballot == log.ballot);
        let mut lengths: Vec<usize> = current.map(|(_, entries)| entries.len()).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        let Some(decided) = lengths.get(1).copied() else { return };
        let (leader, ballot, entries) = (log.ballot.node, log.ballot, log.entries.clone());
        let up = voters(shard).into_iter().filter(|it| !self.down.contains(it));
        for voter in up.collect::<Vec<_>>() {
            let log = &mut self.logs[shard as usize];
            if log.accepted[&voter].0 != ballot {
                continue;
            }
            let has = log.accepted[&voter].1.len().min(decided) as u64;
            let before = log.decided.insert(voter, has).unwrap_or(0);
            for index in before..has {
                let entry = &entries[index as usize];
                self.act(voter, |node, now, library| {
                    let own = node.replica(ShardId(shard)).expect("has it").ledger();
                    // What the leader has proposed itself comes as a length.
                    if voter == leader && own.length() > index {
                        node.durable(now, library, ShardId(shard), index + 1);
                    } else {
                        node.decided(now, library, ShardId(shard), index, entry);
                    }
                });
            }
        }
    }

    /// Delivers the messages that a test lets through, and those that follow, until none is left.
    pub fn deliver(&mut self, lets: impl Fn(NodeId, NodeId, &Message) -> bool) {
        while let Some((from, to, message)) = self.messages.pop_front() {
            if self.down.contains(&to) || !lets(from, to, &message) {
                continue;
            }
            self.act(to, |node, now, library| node.receive(now, library, from, message));
        }
    }

    /// Delivers the message that was sent last, and none that follows.
    pub fn deliver_last(&mut self) {
        let (from, to, message) = self.messages.pop_back().expect("a message");
        self.act(to, |node, now, library| node.receive(now, library, from, message));
    }

    /// Time passes, and timers fire.
    pub fn pass(&mut self, span: Duration) {
        self.time += span.as_nanos() as u64;
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            if !self.down.contains(&node) {
                self.act(node, |node, now, library| node.tick(now, library));
            }
        }
    }

    /// Everything goes on, with all messages, for two seconds.
    pub fn settle(&mut self) {
        for _ in 0..40 {
            self.deliver(|_, _, _| true);
            for shard in 0..2 {
                voters(shard).into_iter().for_each(|voter| self.sync(shard, voter));
                self.decide(shard);
            }
            self.pass(Duration::from_millis(50));
        }
        self.deliver(|_, _, _| true);
    }

    /// The clock of a node is set ahead.
    pub fn set_ahead(&mut self, node: NodeId, ahead: Duration) {
        self.ahead.insert(node, ahead);
    }

    /// The clock of a node becomes inaccurate, or accurate again.
    pub fn set_accurate(&mut self, node: NodeId, is_accurate: bool) {
        match is_accurate {
            true => self.inaccurate.remove(&node),
            false => self.inaccurate.insert(node),
        };
    }

    /// The lease of a node is over.
    pub fn end_lease(&mut self, node: NodeId) {
        self.without_lease.insert(node);
    }

    /// What the replica of a voter counts.
    pub fn counters(&self, voter: NodeId) -> ReplicaCounters {
        let shard = ShardId(voter.0 / VOTERS);
        self.node(voter).replica(shard).expect("has it").counters()
    }

    pub fn crash(&mut self, node: NodeId) {
        self.down.insert(node);
    }

    /// Begins a transaction that adds one to each key; keys below 100 are on shard 0.
    pub fn increment(&mut self, keys: &[u8]) -> TransactionId {
        let transaction = self.incrementing(keys);
        let id = transaction.id;
        self.begin(transaction);
        id
    }

    /// Runs three transactions of which each rests on the one before, and of which only the leader receives the first. Returns
    /// the first and the last.
    pub fn rest_on_what_followers_lack(&mut self) -> [TransactionId; 2] {
        let first = self.increment(&[2]);
        self.deliver(|_, to, _| to == NodeId(0));
        self.pass(HEADROOM);
        self.increment(&[1, 2]);
        self.deliver(|_, _, _| true);
        self.pass(HEADROOM);
        let last = self.increment(&[1]);
        self.deliver(|_, _, _| true);
        self.pass(HEADROOM);
        self.deliver(|_, _, _| true);
        [first, last]
    }

    /// Shard 1 releases what has just begun on both; the leader of shard 0 is lost before it has appended it: it was ready, and
    /// received no `Ready` of shard 1, and no follower of it has the transaction.
    pub fn release_on_one_shard(&mut self) {
        self.deliver(|_, to, _| !(NodeId(1)..=NodeId(2)).contains(&to));
        self.pass(HEADROOM);
        self.deliver(|from, to, _| (from, to) != (NodeId(3), NodeId(0)));
        self.crash(NodeId(0));
        self.appoint(0, NodeId(1), 2);
        self.settle();
    }

    pub fn begin(&mut self, transaction: Transaction) {
        let patience = Duration::from_secs(10);
        self.act(CLIENT, |node, now, library| node.begin(now, library, transaction, patience));
    }

    pub fn incrementing(&mut self, keys: &[u8]) -> Transaction {
        self.calling("increment", keys, |call| Body::Pieces { call })
    }

    /// As [`Cluster::incrementing`], for a call of a session, whose row is on the shard of the first key and decides whether the
    /// call takes effect.
    pub fn incrementing_once(&mut self, keys: &[u8]) -> Transaction {
        let mut transaction = self.incrementing(keys);
        let key = [&[0, 0, 0, 0, 1][..], &[0; 20]].concat().into();
        let row = KeyAccess { table: TABLE, key, granule_bytes: 0 };
        let mark = KeyAccess { key: Bytes::from_static(&[0, 0, 0, 0, 0, 0]), ..row.clone() };
        let part = &mut transaction.parts[0];
        part.writes.push(row.clone());
        part.reads.push(mark.clone());
        let (table, key, mark) = (TABLE, row.key, Some(mark.key));
        let request = RequestRow { home: part.shard, table, key, number: 1, mark };
        let (Body::Pieces { call } | Body::Whole { call }) = &mut transaction.body else {
            panic!("it calls a procedure");
        };
        call.request = Some(request);
        transaction
    }

    /// A transaction that swaps the values of two keys, executed as a whole.
    pub fn swapping(&mut self, keys: [u8; 2]) -> Transaction {
        self.calling("swap", &keys, |call| Body::Whole { call })
    }

    /// A transaction that reads and writes the range of the keys that begin with this byte.
    pub fn counting(&mut self, prefix: u8) -> Transaction {
        let mut transaction = self.calling("count", &[prefix], |call| Body::Pieces { call });
        declare_range(&mut transaction.parts[0], prefix);
        transaction
    }

    /// As [`Cluster::appending`], of one range on both shards: where its rows are, only their keys say.
    pub fn appending_anywhere(&mut self, from: u8, prefix: u8, last: u8) -> Transaction {
        let mut transaction = self.appending(from, prefix, last);
        for part in &mut transaction.parts {
            part.ranges =
                vec![RangeAccess { table: TABLE, granule: None, reads: true, writes: true }];
            let range = FootprintRange::of(TABLE, &Scan::all(), Access::ReadWrite);
            part.declared_ranges = vec![range];
        }
        transaction
    }

    /// A transaction that writes what `from` has, a key of shard 0, behind the keys that begin with `prefix`, on shard 1.
    pub fn appending(&mut self, from: u8, prefix: u8, last: u8) -> Transaction {
        let keys = [from, prefix, last];
        let mut transaction = self.calling("append", &keys, |call| Body::Whole { call });
        transaction.parts = self.parts(&[from, prefix]);
        declare_range(&mut transaction.parts[1], prefix);
        transaction
    }

    fn calling(
        &mut self,
        procedure: &str,
        keys: &[u8],
        body: impl FnOnce(ProcedureCall) -> Body,
    ) -> Transaction {
        let (procedure, arguments) = (procedure.into(), Bytes::copy_from_slice(keys));
        let body = body(ProcedureCall { procedure, arguments, tables: Vec::new(), request: None });
        let parts = self.parts(keys);
        Transaction { id: self.next_id(), oldest: 0, by_log: false, body, parts }
    }

    pub fn next_id(&mut self) -> TransactionId {
        self.sequence += 1;
        TransactionId { node: CLIENT, worker: WorkerId(0), sequence: self.sequence }
    }

    /// Parts that read and write these keys.
    pub fn parts(&self, keys: &[u8]) -> Vec<Part> {
        let mut parts: BTreeMap<u32, Part> = BTreeMap::new();
        for key in keys {
            let shard = u32::from(*key >= 100);
            let ballot = self.logs[shard as usize].ballot;
            let part = parts.entry(shard).or_insert_with(|| Part::new(ShardId(shard), ballot));
            let access =
                KeyAccess { table: TABLE, key: Bytes::copy_from_slice(&[*key]), granule_bytes: 0 };
            part.reads.push(access.clone());
            part.writes.push(access);
        }
        parts.into_values().collect()
    }

    /// Reads key 1 at a leader of shard 0. Returns how many answers are on their way.
    pub fn answers_to_read(&mut self, leader: NodeId) -> usize {
        let read = Read::Key { table: TABLE, key: Bytes::from_static(&[1]) };
        self.repeat(
            CLIENT,
            leader,
            Message::Reads { shard: ShardId(0), number: 1, reads: vec![read] },
        );
        self.deliver_last();
        self.messages().filter(|message| matches!(message, Message::ReadsDone { .. })).count()
    }

    /// The sums that a committed transaction returned, of all shards; `None` while it is not committed.
    pub fn sums(&self, id: TransactionId) -> Option<Vec<u8>> {
        let ended = self.ended.iter().find(|ended| ended.id == id)?;
        let Outcome::Committed(results) = &ended.outcome else { return None };
        Some(results.iter().flat_map(|it| it.as_ref().expect("no error").to_vec()).collect())
    }

    pub fn ended(&self, id: TransactionId) -> Option<&Ended> {
        self.ended.iter().find(|ended| ended.id == id)
    }

    /// By which path a transaction is committed, if it is.
    pub fn path(&self, id: TransactionId) -> Option<Path> {
        self.ended(id)?.committed.map(|(_, path)| path)
    }

    /// Adds one to key 1, for which all but the last follower vote: two votes are no fast quorum.
    pub fn increment_without_a_vote(&mut self) -> TransactionId {
        let id = self.increment(&[1]);
        self.deliver(|_, to, _| to != NodeId(2));
        self.pass(HEADROOM);
        self.deliver(|_, _, _| true);
        assert_eq!(self.sums(id), None, "two votes are no fast quorum");
        id
    }

    /// The value of a key in the decided rows of a node.
    pub fn value(&self, node: NodeId, key: u8) -> Option<i64> {
        self.value_of(node, &[key])
    }

    pub fn value_of(&self, node: NodeId, key: &[u8]) -> Option<i64> {
        let replica = self.nodes[&node].replica(ShardId(u32::from(key[0] >= 100)))?;
        let row = replica.ledger().rows.get(TABLE, key)?;
        let bytes = row.value.as_deref()?;
        Some(i64::from_le_bytes(bytes.try_into().expect("a number")))
    }

    pub fn node(&self, node: NodeId) -> &TigaNode {
        &self.nodes[&node]
    }

    pub fn node_mut(&mut self, node: NodeId) -> &mut TigaNode {
        self.nodes.get_mut(&node).expect("a node")
    }

    /// Messages that are on their way.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter().map(|(_, _, message)| message)
    }

    /// A message is delivered once more.
    pub fn repeat(&mut self, from: NodeId, to: NodeId, message: Message) {
        self.messages.push_back((from, to, message));
    }

    pub fn time(&self) -> Time {
        Time(self.time)
    }
}

/// Instead of keys, the part reads and writes the range of those that begin with this byte.
fn declare_range(part: &mut Part, prefix: u8) {
    (part.reads, part.writes) = (Vec::new(), Vec::new());
    part.ranges.push(RangeAccess { table: TABLE, granule: None, reads: true, writes: true });
    let range = Scan::prefix(std::slice::from_ref(&prefix));
    part.declared_ranges.push(FootprintRange::of(TABLE, &range, Access::ReadWrite));
}

/// The transaction as it is sent first.
pub fn submit(t: Time, transaction: &Transaction) -> Message {
    let sent = Time(t.0 - MS);
    Message::Submit { t, sent, transaction: Arc::new(transaction.clone()) }
}
