//! Each node of a play is killed before each message of it, and so behind the message before. So each role is: owner, reader,
//! requester, arbiter, driver, coordinator, follower, sender of parts, leader of the directory, or copier of it. All that
//! was acknowledged is there afterwards, and granules move and are written again.

use crate::cluster::{Cluster, Delivery, T, granule};
use crate::random::unsettled_at;
use bytes::Bytes;
use shoal_types::{NodeId, ShardId, WorkerId};
use shoal_zeus::message::GranuleWrites;
use shoal_zeus::rows::RowWrite;
use shoal_zeus::{Level, LocalCommit, RequestKind, Ticket, Want, ZeusOptions};
use std::collections::BTreeSet;
use std::time::Duration;

const NODES: u32 = 5;
/// More than any play takes.
const MESSAGES_MAX: usize = 5_000;
/// The ticket and the tag of the transaction that shows that all goes on.
const LAST: u64 = 99;

/// The kinds of all messages, as traces name them.
const KINDS: [&str; 17] = [
    "Request",
    "Nack",
    "Inv",
    "Ack",
    "Val",
    "ReplicationInv",
    "ReplicationAck",
    "ReplicationVal",
    "Replayed",
    "ReplayedHeard",
    "CopyRequest",
    "Copy",
    "Recruit",
    "PartRequest",
    "Part",
    "CopyQuery",
    "CopyDone",
];

/// Which node dies, and when.
#[derive(Debug, Clone, Copy)]
struct Kill {
    victim: NodeId,
    /// Before this message of the play.
    at: usize,
}

/// A play, in which one node may die.
struct Play {
    cluster: Cluster,
    kill: Option<Kill>,
    /// The kinds of the messages that were delivered, in order.
    delivered: Vec<String>,
    /// The keys that each tag has written.
    written: Vec<(u64, Vec<&'static str>)>,
}

impl Play {
    fn new(kill: Option<Kill>) -> Play {
        // Each row of a granule that moves is a part.
        let options = ZeusOptions { part_bytes: 1, ..ZeusOptions::default() };
        let mut cluster = Cluster::new(NODES, 1, options);
        (0..NODES).for_each(|node| cluster.hear(NodeId(node)));
        cluster.settle();
        Play { cluster, kill, delivered: Vec::new(), written: Vec::new() }
    }

    /// Delivers all messages, and those that they make.
    fn settle(&mut self) {
        while !self.cluster.deliveries.is_empty() {
            assert!(self.delivered.len() < MESSAGES_MAX, "messages go on for ever");
            let delivery = self.cluster.deliveries.remove(0);
            self.deliver(delivery);
        }
    }

    /// The same, over so many times 6 ms, in which degrees are corrected.
    fn settle_within(&mut self, times: u32) {
        for _ in 0..times {
            self.settle();
            self.cluster.wait(Duration::from_millis(6));
        }
        self.settle();
    }

    fn deliver(&mut self, delivery: Delivery) {
        let text = delivery.message.to_string();
        let kind = text.split(' ').find(|word| KINDS.contains(word)).expect("a kind").to_owned();
        let kill = self.kill.filter(|kill| kill.at == self.delivered.len());
        self.delivered.push(kind);
        if let Some(Kill { victim, .. }) = kill {
            self.die(victim);
        }
        self.cluster.deliver(delivery);
    }

    /// The node dies, and all others learn of it.
    fn die(&mut self, victim: NodeId) {
        self.cluster.crash(victim);
        self.cluster.begin_epoch(&[victim], &[]);
        (0..NODES).map(NodeId).filter(|node| *node != victim).for_each(|it| self.cluster.hear(it));
    }

    /// A new process of the node is admitted, and all learn of it.
    fn come_back(&mut self, node: NodeId) {
        self.cluster.restart(node);
        self.cluster.begin_epoch(&[], &[node]);
        (0..NODES).for_each(|node| self.cluster.hear(NodeId(node)));
    }

    fn want(&mut self, node: u32, ticket: u64, names: &[&str], level: Level) {
        let node = NodeId(node);
        let born = self.cluster.clock_of(node);
        let granules = names.iter().map(|name| (granule(name), level)).collect();
        self.cluster
            .step(node, |node, now| node.want(now, Ticket(ticket), Want { granules, born }));
    }

    fn release(&mut self, node: u32, ticket: u64) {
        self.cluster.step(NodeId(node), |node, now| node.release(now, Ticket(ticket)));
    }

    /// Writes rows that no other transaction writes. A node that does not own their granules does not commit them.
    fn commit(&mut self, node: u32, tag: u64, keys: &[&'static str]) {
        let node = NodeId(node);
        let writes = keys.iter().map(|key| {
            let (table, key) = (T, Bytes::from_static(key.as_bytes()));
            let row = RowWrite { table, value: Some(key.clone()), key };
            let name = String::from_utf8_lossy(&row.key[..1]).into_owned();
            GranuleWrites { granule: granule(&name), rows: vec![row] }
        });
        let commit = LocalCommit {
            worker: WorkerId(0),
            born: self.cluster.clock_of(node),
            tag,
            reads: Vec::new(),
            scans: Vec::new(),
            writes: writes.collect(),
        };
        self.written.push((tag, keys.to_vec()));
        self.cluster.step(node, |node, now| node.commit(now, commit));
    }

    /// A granule is created, moves in parts while it is pending, is read elsewhere, is wanted by two, and loses a reader.
    fn moves(&mut self) {
        self.want(0, 1, &["a", "b"], Level::Owner);
        self.settle();
        self.commit(0, 1, &["a/1", "b/1"]);
        self.settle();
        self.release(0, 1);
        self.commit(0, 2, &["a/2"]);
        self.want(3, 2, &["a"], Level::Owner);
        self.settle();
        self.commit(3, 3, &["a/3"]);
        self.settle();
        self.release(3, 2);
        self.want(4, 3, &["a", "b"], Level::Owner);
        self.want(0, 4, &["a"], Level::Owner);
        self.want(1, 5, &["a"], Level::Reader);
        self.settle();
        self.commit(4, 4, &["a/4", "b/4"]);
        self.release(4, 3);
        self.settle();
        self.commit(0, 5, &["a/5"]);
        self.release(0, 4);
        self.settle();
        self.cluster
            .step(NodeId(1), |node, now| node.request(now, &granule("b"), RequestKind::Leave));
        self.settle();
    }

    /// A directory node dies that reads all granules, and comes back without memory.
    fn recovers(&mut self) {
        self.want(3, 1, &["a", "b", "c"], Level::Owner);
        self.settle();
        self.commit(3, 1, &["a/1", "b/1", "c/1"]);
        self.settle();
        self.commit(3, 2, &["a/2", "c/2"]);
        self.die(NodeId(1));
        self.settle_within(3);
        self.commit(3, 3, &["b/3"]);
        self.come_back(NodeId(1));
        self.cluster.step(NodeId(0), |node, now| node.ask_copied(now, ShardId(0), [NodeId(1)]));
        self.settle_within(4);
        self.release(3, 1);
    }

    /// All nodes are in again, all that has begun ends, and what was acknowledged is there.
    fn finish(&mut self) -> Result<(), String> {
        let down = (0..NODES).map(NodeId).find(|node| !self.cluster.view.is_live(*node));
        if let Some(victim) = down {
            self.come_back(victim);
        }
        (0..NODES).for_each(|node| (1..6).for_each(|ticket| self.release(node, ticket)));
        self.quiesce()?;
        self.want(1, LAST, &["a", "b"], Level::Owner);
        self.quiesce()?;
        self.commit(1, LAST, &["a/9", "b/9"]);
        self.quiesce()?;
        let validated: BTreeSet<u64> =
            self.cluster.validated.iter().map(|(_, it)| it.tag).collect();
        if !validated.contains(&LAST) {
            return Err("nothing is written any more".to_owned());
        }
        let acknowledged = self.written.iter().filter(|(tag, _)| validated.contains(tag));
        acknowledged.flat_map(|(tag, keys)| keys.iter().map(move |key| (*tag, *key))).try_for_each(
            |(tag, key)| match self.is_everywhere(key) {
                true => Ok(()),
                false => Err(format!("{key}, which T{tag} has written, is not at all replicas")),
            },
        )
    }

    fn is_everywhere(&self, key: &'static str) -> bool {
        let id = granule(&key[..1]);
        let serves = |node: &NodeId| {
            self.cluster
                .up(*node)
                .is_some_and(|up| up.ownership().level(*node, &id) >= Level::Reader)
        };
        let serving: Vec<NodeId> = (0..NODES).map(NodeId).filter(serves).collect();
        let row = (T, Bytes::from_static(key.as_bytes()));
        let has = |node: &NodeId| {
            self.cluster.up(*node).is_some_and(|up| up.rows().get(&id, &row).is_some())
        };
        !serving.is_empty() && serving.iter().all(has)
    }

    /// Time passes until nothing is under way.
    fn quiesce(&mut self) -> Result<(), String> {
        let mut what = String::new();
        for _ in 0..200 {
            self.settle();
            let nodes = (0..NODES).map(NodeId);
            let open = nodes.into_iter().find_map(|node| {
                let up = self.cluster.up(node).expect("all nodes are up");
                Some(format!("{node} {}", unsettled_at(node, up)?))
            });
            match open {
                None => return self.cluster.violation.clone().map_or(Ok(()), Err),
                Some(open) => what = open,
            }
            self.cluster.wait(Duration::from_millis(1));
        }
        Err(format!("liveness: {what}"))
    }
}

/// Runs a play without a death, and then with each. Returns the kinds of messages at which nodes were killed.
fn kill_each(acts: impl Fn(&mut Play)) -> BTreeSet<String> {
    let mut whole = Play::new(None);
    acts(&mut whole);
    let kinds = whole.delivered.clone();
    whole.finish().expect("nothing fails where no node does");
    for (at, kind) in kinds.iter().enumerate() {
        for victim in (0..NODES).map(NodeId) {
            let kill = Kill { victim, at };
            let mut play = Play::new(Some(kill));
            acts(&mut play);
            if let Err(what) = play.finish() {
                let trace = play.cluster.trace.join("\n");
                panic!("{kill:?}, at {kind}: {what}\n{trace}");
            }
        }
    }
    kinds.into_iter().collect()
}

#[test]
fn each_role_dies_at_each_message() {
    let mut kinds = kill_each(Play::moves);
    kinds.extend(kill_each(Play::recovers));
    let all: BTreeSet<String> = KINDS.iter().map(|kind| (*kind).to_owned()).collect();
    assert_eq!(kinds, all, "a node is killed at each kind of message");
}
