//! Nothing grows for ever: hours of virtual time, in which clients come and go, nodes restart empty, leaders fail in the
//! middle of transactions, epochs pass, and a replica is gone for good. No table of any worker, of any member or of the
//! manager holds more in the second half of that time than in the first.
//!
//! `PLATEAU_ROUNDS` chooses for how long, 380 rounds are an hour, and `PLATEAU_SEEDS` how many schedules of nodes that begin
//! are run. `PLATEAU_SHOW` prints the tables.

use super::cluster::{ACCOUNTS, Cluster, Coming, Fate, MS};
use bytes::Bytes;
use shoal_cluster::manager;
use shoal_cluster::topology::Topology;
use shoal_engine::client::{ClientId, ClientReply, ClientRequest, RequestFromClient, SessionEnd};
use shoal_engine::engine::Setup;
use shoal_engine::operation::Operation;
use shoal_engine::{Engine, PlantedBugs, ProcedureTransaction, Procedures};
use shoal_mako::MakoPlantedBug;
use shoal_node::{WorkerEvent, WorkerMessage};
use shoal_types::{
    CallSession, Database, Epoch, NodeId, RequestId, Result, ShardId, TableId, Time, Transaction,
    WorkerId,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const SHARDS: [ShardId; 2] = [ShardId(0), ShardId(1)];

/// A learner that goes, and comes back when all is over.
const GONE: NodeId = NodeId(3);

/// The manager keeps so many FVWs that do not cover all of their epochs.
const FINALS: usize = 6;

/// Transfers leave notes under so many names in turn.
const NOTES: u64 = 1 << 12;

/// How many rounds are run.
const ROUNDS: u64 = 120;

/// Leaves a note; there are few of them.
async fn leave(tx: &ProcedureTransaction<'_>, key: &[u8]) -> Result<Bytes> {
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

    /// The tables that held clearly more in the second half.
    fn grown(&self) -> Vec<String> {
        let [first, second] = &self.halves;
        let grown = second.iter().filter_map(|(table, then)| {
            let before = first.get(table).copied().unwrap_or_default();
            (*then > before + before / 2 + 16).then(|| format!("{table}: {before}, then {then}"))
        });
        grown.collect()
    }
}

/// Three voters and a learner of two shards. All that may be remembered is little, and so is soon full.
fn cluster(seed: u64, change: impl FnOnce(&mut Setup<shoal_mako::MakoOptions>)) -> Cluster {
    let options = manager::ManagerOptions {
        lease: S,
        heartbeat_every: S / 3,
        suspect_after: S / 2,
        tick_every: S / 5,
        retry_after: S / 5,
        finals_max: FINALS,
        ..manager::ManagerOptions::default()
    };
    let topology = Topology::compact(1, 2, 3, 1, 1 + seed as u32 % 2);
    let mut cluster = Cluster::paced(topology, seed, options, |setup| {
        (setup.streams.trim_entries, setup.streams.retain_bytes) = (16, 1 << 12);
        setup.procedures = Arc::new(Procedures::new().with("leave", leave));
        let limits = &mut setup.options.limits;
        (limits.call_sessions_max, limits.answers_remembered) = (8, 8);
        limits.call_rows_kept = 20 * S;
        limits.session_idle_max = S;
        change(setup);
    });
    cluster.stop.set(true); // Its own clients never rest.
    cluster.run(Time::ZERO + 3 * S);
    cluster
}

impl Cluster {
    fn ask(&mut self, node: NodeId, from: ClientId, request: ClientRequest) {
        if self.is_up(node) {
            let event = WorkerEvent::Client(RequestFromClient { from, request });
            let instance = self.incarnations[&node];
            self.send(MS, Coming::Worker((node, WorkerId(0)), instance, event));
        }
    }

    /// A client comes, calls a procedure, and sends no more; another asks twice.
    fn call_once(&mut self, name: u64) {
        let (client, shard) = (ClientId(name), SHARDS[name as usize % 2]);
        let leader = self.leader(shard);
        self.replies.clear();
        self.ask(leader, client, ClientRequest::OpenCalls { token: name, home: shard });
        self.run(self.now + 100 * MS);
        let opened = self.replies.drain(..).find_map(|(_, reply)| match reply {
            ClientReply::CallsOpened { result: Ok(session), .. } => Some(session),
            _ => None,
        });
        let Some(session): Option<CallSession> = opened else { return };
        let arguments = Bytes::copy_from_slice(&(name % ACCOUNTS).to_be_bytes());
        for _ in 0..=name % 2 {
            let id = RequestId { session, number: 1 };
            let (procedure, arguments) = ("leave".into(), arguments.clone());
            self.ask(leader, client, ClientRequest::Call { id, procedure, arguments });
        }
    }

    /// A client comes, and begins a transaction; it ends every other.
    fn begin_one(&mut self, name: u64) {
        let (client, session) = (ClientId(name), 1);
        let node = self.leader(SHARDS[0]);
        let key = Bytes::copy_from_slice(&(name % ACCOUNTS).to_be_bytes());
        let operation = Operation::Put { table: TableId(1), key, value: Some("put".into()) };
        self.replies.clear();
        self.ask(node, client, ClientRequest::Register);
        self.run(self.now + 100 * MS);
        let registered = self.replies.drain(..).find_map(|(_, reply)| match reply {
            ClientReply::Registered { registration } => Some(registration),
            _ => None,
        });
        let Some(registration) = registered else { return };
        let ending = name.is_multiple_of(2).then_some(SessionEnd::Commit);
        let operations = vec![operation];
        let steps = ClientRequest::Steps { registration, session, number: 0, operations, ending };
        self.ask(node, client, steps);
    }

    /// Transactions on both shards, at all nodes that are up.
    fn transfer(&mut self, count: u64) {
        for node in (0..3).map(NodeId).filter(|node| self.is_up(*node)).collect::<Vec<_>>() {
            for _ in 0..count {
                let keys = [self.random.below(ACCOUNTS), self.random.below(ACCOUNTS)];
                let engine = self.workers.get_mut(&(node, WorkerId(0))).expect("up").engine_mut();
                let (db, note) = (engine.local(), self.ledger.next.get() % NOTES);
                self.ledger.next.set(self.ledger.next.get() + 1);
                engine.spawn(Box::pin(async move {
                    let table = db.table("accounts").expect("there");
                    let notes = db.table("notes").expect("there");
                    let add = async |tx: &shoal_engine::CoordinatorTransaction| {
                        tx.add(table, &keys[0].to_be_bytes(), -1).await?;
                        tx.add(table, &keys[1].to_be_bytes(), 1).await?;
                        tx.put(notes, &(ACCOUNTS + note).to_be_bytes(), b"moved")
                    };
                    // What comes of it depends on which node fails.
                    _ = db.transact(add).await;
                }));
            }
            let place = (node, WorkerId(0));
            self.send(MS, Coming::Worker(place, self.incarnations[&node], WorkerEvent::Nudged));
        }
    }

    /// The leader of a shard fails in the middle of transactions, of which it alone has what they wrote there; other shards
    /// have theirs in their streams. It comes back without memory.
    fn fail(&mut self, shard: ShardId) {
        let victim = self.leader(shard);
        self.filter = Some(Box::new(move |(from, _), _, message| match message {
            WorkerMessage::Stream { shard: its, .. } if from == victim && *its == shard => {
                Fate::Drop
            }
            _ => Fate::Pass,
        }));
        self.transfer(8);
        self.run(self.now + 20 * MS);
        self.crash(victim);
        self.filter = None;
        self.run(self.now + 2 * S);
        self.restart(victim, false);
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
fn hours(mut cluster: Cluster, rounds: u64, leaves: impl Fn(&mut Cluster)) -> (Cluster, Most) {
    let mut most = Most::default();
    for round in 0..rounds {
        (0..4).for_each(|client| cluster.call_once(round * 8 + client));
        (4..8).for_each(|client| cluster.begin_one(round * 8 + client));
        cluster.transfer(2);
        cluster.run(cluster.now + S);
        if round == rounds / 8 {
            leaves(&mut cluster);
        }
        if round.is_multiple_of(2) {
            cluster.fail(SHARDS[round as usize / 2 % 2]);
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
    let (mut cluster, most) = hours(cluster(0, |_| {}), rounds, |cluster| cluster.crash(GONE));
    if std::env::var("PLATEAU_SHOW").is_ok() {
        println!("{} rounds, until {}", rounds, cluster.now);
        for (table, before) in &most.halves[0] {
            println!("{before:>8} {:>8}  {table}", most.halves[1][table]);
        }
    }
    assert!(most.grown().is_empty(), "{:#?}", most.grown());
    cluster.restart(GONE, false);
    assert_eq!(rest(&mut cluster), Ok(()));
}

/// What is under way ends, and all replicas are equal.
///
/// # Errors
/// How they differ.
fn rest(cluster: &mut Cluster) -> std::result::Result<(), String> {
    for _ in 0..60 {
        cluster.run(cluster.now + S);
        if cluster.unequal().is_none() {
            break;
        }
    }
    cluster.unequal().map_or(Ok(()), Err)
}

/// Streams are never cut, so nodes that begin read of epochs whose ends only the streams keep.
fn begin_with_old_streams(
    seed: u64,
    faults: PlantedBugs<MakoPlantedBug>,
) -> std::result::Result<(), String> {
    let cluster = cluster(seed, |setup| {
        setup.streams.trim_entries = u64::MAX;
        setup.options.faults = faults;
    });
    let (mut cluster, _) = hours(cluster, 40, |cluster| cluster.crash(GONE));
    let machine = cluster.manager.machine();
    assert!(machine.configuration().forgotten > Epoch(20), "{machine:?}");
    cluster.restart(GONE, false);
    rest(&mut cluster)
}

#[test]
fn a_node_that_begins_learns_old_ends_from_its_streams() {
    let seeds = std::env::var("PLATEAU_SEEDS").map_or(3, |it| it.parse().expect("a number"));
    for seed in 2..2 + seeds {
        assert_eq!(begin_with_old_streams(seed, PlantedBugs::NONE), Ok(()), "seed {seed}");
    }
}

#[test]
fn old_epochs_that_are_taken_for_whole_are_caught() {
    let faults = PlantedBugs::only(MakoPlantedBug::TakeForgottenForWhole);
    assert!(begin_with_old_streams(2, faults).is_err());
}

/// It was cut off, and learns of epochs whose ends are kept no more: what it has of them nothing can judge.
#[test]
fn a_node_that_was_away_for_long_begins_anew() {
    let (mut cluster, _) = hours(cluster(6, |_| {}), 40, |cluster| cluster.cut_off(GONE));
    assert_eq!(cluster.ended, 0);
    let instance = cluster.incarnations[&GONE];
    cluster.cut.clear();
    assert_eq!(rest(&mut cluster), Ok(()));
    assert_eq!((cluster.ended, cluster.incarnations[&GONE]), (1, instance + 1));
}
