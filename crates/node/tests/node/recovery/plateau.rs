//! Nothing grows for ever: hours of virtual time, in which clients come and go, nodes restart empty, leaders fail in the
//! middle of transactions, epochs pass, and a replica is gone for good. No table of any worker, of any member or of the
//! manager holds more in the second half of that time than in the first.
//!
//! `PLATEAU_ROUNDS` chooses for how long: 360 rounds are an hour or more. `PLATEAU_SHOW` prints the tables.

use super::cluster::{ACCOUNTS, Cluster, Coming, MS};
use bytes::Bytes;
use consensus::manager;
use consensus::topology::Topology;
use engines::client::{ClientId, Ending, Reply, Request};
use engines::operation::Operation;
use engines::{Engine, Procedures};
use shoal_node::Event;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::{
    CallSession, Database, NodeId, RequestId, Result, ShardId, TableId, Time, Transaction, WorkerId,
};

const S: Duration = Duration::from_secs(1);
const SHARDS: [ShardId; 2] = [ShardId(0), ShardId(1)];

/// A learner that goes, and comes back when all is over.
const GONE: NodeId = NodeId(3);

/// How many rounds are run.
const ROUNDS: u64 = 120;

/// Leaves a note; there are few of them.
async fn leave(tx: &engines::Transaction, key: &[u8]) -> Result<Bytes> {
    tx.put(TableId(1), key, b"left")?;
    Ok(Bytes::copy_from_slice(key))
}

/// What the tables held: the most at the end of a round, in each half of the time.
#[derive(Default)]
struct Most {
    halves: [BTreeMap<String, usize>; 2],
}

impl Most {
    fn note(&mut self, half: usize, table: String, size: usize) {
        let most = self.halves[half].entry(table).or_default();
        *most = size.max(*most);
    }

    /// The tables that held clearly more in the second half; but for FVWs that do not cover all of their epochs, of
    /// which there is one for each failure that left something hanging.
    fn grown(&self) -> Vec<String> {
        let [first, second] = &self.halves;
        let with_failures = ["final watermarks", "bytes of the machine"];
        let bounded = second
            .iter()
            .filter(|(table, _)| !with_failures.iter().any(|kept| table.ends_with(kept)));
        let grown = bounded.filter_map(|(table, then)| {
            let before = first.get(table).copied().unwrap_or_default();
            (*then > before + before / 2 + 16).then(|| format!("{table}: {before}, then {then}"))
        });
        grown.collect()
    }
}

/// Three voters and a learner of two shards. All that may be remembered is little, and so is soon full.
fn cluster(seed: u64) -> Cluster {
    let options = manager::Options {
        lease: S,
        heartbeat_every: S / 3,
        suspect_after: S / 2,
        tick_every: S / 5,
        retry_after: S / 5,
        ..manager::Options::default()
    };
    let mut cluster = Cluster::paced(Topology::compact(1, 2, 3, 1, 1), seed, options, |setup| {
        (setup.streams.trim_entries, setup.streams.retain_bytes) = (16, 1 << 12);
        setup.procedures = Arc::new(Procedures::new().with("leave", leave));
        let limits = &mut setup.options.limits;
        (limits.call_sessions_max, limits.answers_remembered) = (8, 8);
        limits.call_rows_kept = 20 * S;
        limits.session_idle_max = S;
    });
    cluster.stop.set(true); // Its own clients never rest.
    cluster.run(Time::ZERO + 3 * S);
    cluster
}

impl Cluster {
    fn ask(&mut self, node: NodeId, from: ClientId, request: Request) {
        if self.is_up(node) {
            let event = Event::Client { from, request };
            let life = self.lives[&node];
            self.send(MS, Coming::Worker((node, WorkerId(0)), life, event));
        }
    }

    /// A client comes, calls a procedure, and is heard no more; another asks twice.
    fn call_once(&mut self, name: u64) {
        let (client, shard) = (ClientId(name), SHARDS[name as usize % 2]);
        let leader = self.leader(shard);
        self.replies.clear();
        self.ask(leader, client, Request::OpenCalls { token: name, home: shard });
        self.run(self.now + 100 * MS);
        let opened = self.replies.drain(..).find_map(|(_, reply)| match reply {
            Reply::CallsOpened { result: Ok(session), .. } => Some(session),
            _ => None,
        });
        let Some(session): Option<CallSession> = opened else { return };
        let arguments = Bytes::copy_from_slice(&(name % ACCOUNTS).to_be_bytes());
        for _ in 0..=name % 2 {
            let id = RequestId { session, number: 1 };
            let (procedure, arguments) = ("leave".into(), arguments.clone());
            self.ask(leader, client, Request::Call { id, procedure, arguments });
        }
    }

    /// A client comes, and begins a transaction; it ends every other.
    fn begin_one(&mut self, name: u64) {
        let (client, session) = (ClientId(name), 1);
        let node = self.leader(SHARDS[0]);
        let key = Bytes::copy_from_slice(&(name % ACCOUNTS).to_be_bytes());
        let operation = Operation::Put { table: TableId(1), key, value: Some("put".into()) };
        self.ask(node, client, Request::Begin { session });
        self.ask(node, client, Request::Operation { session, number: 0, operation });
        if name.is_multiple_of(2) {
            let ending = Ending::Commit;
            self.ask(node, client, Request::End { session, number: 1, ending });
        }
    }

    /// Transactions on both shards, at all nodes that are up.
    fn transfer(&mut self, count: u64) {
        for node in (0..3).map(NodeId).filter(|node| self.is_up(*node)).collect::<Vec<_>>() {
            for _ in 0..count {
                let keys = [self.random.below(ACCOUNTS), self.random.below(ACCOUNTS)];
                let engine = self.workers.get_mut(&(node, WorkerId(0))).expect("up").engine_mut();
                let db = engine.local();
                engine.spawn(Box::pin(async move {
                    let table = db.table("accounts").expect("there");
                    let add = async |tx: &engines::Transaction| {
                        tx.add(table, &keys[0].to_be_bytes(), -1).await?;
                        tx.add(table, &keys[1].to_be_bytes(), 1).await
                    };
                    // What comes of it depends on who fails.
                    _ = db.transact(add).await;
                }));
            }
            let place = (node, WorkerId(0));
            self.send(MS, Coming::Worker(place, self.lives[&node], Event::Nudged));
        }
    }

    /// Do all replicas but the one that is gone have what is needed to lead?
    fn is_well(&self) -> bool {
        let truth = self.manager.machine().configuration();
        let well = truth.shards.iter().all(|it| it.empty.keys().all(|node| *node == GONE));
        well && truth.nodes[..3].iter().all(|node| node.alive) && truth.ends.is_empty()
    }

    /// Notes how much all tables hold.
    fn sizes(&self, half: usize, most: &mut Most) {
        for worker in self.workers.values() {
            for (table, size) in worker.sizes() {
                most.note(half, table.to_owned(), size);
            }
        }
        for (table, size) in self.manager.machine().sizes() {
            most.note(half, format!("manager: {table}"), size);
        }
        for (node, shard) in self.shared.keys().flat_map(|node| SHARDS.map(|it| (*node, it))) {
            most.note(half, "rows for requests".to_owned(), self.request_rows(node, shard));
        }
    }
}

/// Lets the time of so many rounds pass, and says what the tables held.
fn hours(seed: u64, rounds: u64) -> (Cluster, Most) {
    let (mut cluster, mut most) = (cluster(seed), Most::default());
    for round in 0..rounds {
        (0..4).for_each(|client| cluster.call_once(round * 8 + client));
        (4..8).for_each(|client| cluster.begin_one(round * 8 + client));
        cluster.transfer(2);
        cluster.run(cluster.now + S);
        if round == rounds / 8 {
            cluster.crash(GONE);
        }
        if round.is_multiple_of(2) {
            let victim = cluster.leader(SHARDS[round as usize / 2 % 2]);
            cluster.transfer(8);
            cluster.run(cluster.now + MS);
            cluster.crash(victim);
            cluster.run(cluster.now + 2 * S);
            cluster.restart(victim, false);
        }
        for _ in 0..40 {
            cluster.run(cluster.now + S);
            if cluster.is_well() {
                break;
            }
        }
        assert!(cluster.is_well(), "round {round}: {:?}", cluster.manager.machine());
        cluster.run(cluster.now + 6 * S);
        // The first rounds fill what may be full.
        if round >= rounds / 8 + 8 {
            cluster.sizes(usize::from(round >= rounds / 2), &mut most);
        }
    }
    (cluster, most)
}

#[test]
fn no_table_grows_for_ever() {
    let rounds = std::env::var("PLATEAU_ROUNDS").map_or(ROUNDS, |it| it.parse().expect("a number"));
    let (mut cluster, most) = hours(1, rounds);
    if std::env::var("PLATEAU_SHOW").is_ok() {
        println!("{} rounds, until {}", rounds, cluster.now);
        for (table, before) in &most.halves[0] {
            println!("{before:>8} {:>8}  {table}", most.halves[1][table]);
        }
    }
    assert!(most.grown().is_empty(), "{:#?}", most.grown());
    // The crash of each leader, and that of the one that is gone.
    let failures = rounds / 2 + 1;
    for (table, then) in most.halves[1].iter().filter(|it| it.0.ends_with("final watermarks")) {
        assert!(*then as u64 <= failures, "{then} {table} after {failures} failures");
    }
    cluster.restart(GONE, false);
    for _ in 0..60 {
        cluster.run(cluster.now + S);
        if cluster.unequal().is_none() {
            return;
        }
    }
    panic!("{:?}", cluster.unequal());
}
