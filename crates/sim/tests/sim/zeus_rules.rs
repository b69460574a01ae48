//! Rules that only `zeus` has, violated by hand-written observations: each has to be reported.

use bytes::Bytes;
use shoal_cluster::topology::Topology;
use shoal_sim::checks::{Checks, Moment, ZeusRules};
use shoal_types::{Clock, Epoch, NodeId, ShardId, TableId, Time, WorkerId};
use shoal_zeus::rows::Row;
use shoal_zeus::version::{PipelineId, Slot, Version, WorkerPipeline};
use shoal_zeus::{
    GranuleId, Level, Member, OwnershipRecord, OwnershipTs, ShownRow, TransactionFact,
    ZeusObservation,
};

const T: TableId = TableId(0);

fn granule() -> GranuleId {
    GranuleId { family: T, prefix: Bytes::from_static(b"a") }
}

/// A record of the first epoch with these replicas, the owner first.
fn record(version: u64, replicas: &[u32]) -> OwnershipRecord {
    let mut nodes = replicas.iter().map(|node| NodeId(*node));
    OwnershipRecord {
        o_ts: OwnershipTs { version, epoch: Epoch(1), driver: NodeId(0) },
        owner: nodes.next(),
        readers: nodes.collect(),
    }
}

/// The row of the granule, as the slot with this clock has written it.
fn row(clock: u64, is_valid: bool) -> ShownRow {
    let coordinator = Member { node: NodeId(0), since: Epoch(1) };
    let of = WorkerPipeline { worker: WorkerId(0), number: 0 };
    let pipeline = PipelineId { coordinator, of };
    let version = Version { clock: Clock(clock), pipeline, slot: Slot(clock) };
    let value = Some(Bytes::from_static(b"value"));
    ShownRow { key: (T, Bytes::from_static(b"a/x")), row: Some(Row { version, value, is_valid }) }
}

/// What a node has of the granule.
#[derive(Clone)]
struct Has {
    epoch: Epoch,
    level: Level,
    is_arbiter: bool,
    record: OwnershipRecord,
    rows: Vec<ShownRow>,
}

/// In the first epoch, with a record of these replicas and no rows.
fn has(level: Level, record: OwnershipRecord) -> Has {
    Has { epoch: Epoch(1), level, is_arbiter: true, record, rows: Vec::new() }
}

struct Cluster {
    checks: Checks<ZeusRules>,
}

impl Cluster {
    fn new() -> Cluster {
        Cluster { checks: Checks::new(&Topology::symmetric(1, 1, 3, 0, 1), 3) }
    }

    fn see(&mut self, node: u32, observation: &ZeusObservation) -> Result<(), &'static str> {
        let place = shoal_engine::WorkerPlace { node: NodeId(node), worker: WorkerId(0) };
        let moment = Moment { at: Time(1), place };
        self.checks.observe(moment, observation).map_err(|violation| violation.rule)
    }

    /// A node shows all that it has of the granule.
    fn shows(&mut self, node: u32, has: Has) -> Result<(), &'static str> {
        let Has { epoch, level, is_arbiter, record, rows } = has;
        let newest = rows.iter().filter_map(|shown| shown.row.as_ref());
        let clock = newest.map(|row| row.version.clock).max().unwrap_or_default();
        let (granule, shard, is_whole) = (granule(), ShardId(0), true);
        let shown = ZeusObservation::Granule {
            granule,
            shard,
            epoch,
            level,
            is_arbiter,
            record,
            clock,
            is_whole,
            rows,
        };
        self.see(node, &shown)
    }

    fn transaction(&mut self, node: u32, fact: TransactionFact) -> Result<(), &'static str> {
        self.see(node, &ZeusObservation::Transaction { worker: WorkerId(0), fact })
    }

    /// A transaction of a node is committed locally that has touched the granule.
    fn commits(&mut self, node: u32, number: u64, level: Level) -> Result<(), &'static str> {
        let touched = vec![(granule(), level)];
        self.transaction(node, TransactionFact::Committed { number, touched })
    }
}

#[test]
fn z1_a_granule_has_one_owner() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.shows(0, has(Level::Owner, record(1, &[0, 1, 2]))), Ok(()));
    let second = has(Level::Owner, record(2, &[1, 0, 2]));
    let later = Has { epoch: Epoch(2), ..second.clone() };
    assert_eq!(cluster.shows(1, later), Ok(()), "the former owner is of another epoch");
    assert_eq!(cluster.shows(1, second), Err("Z1"));
}

#[test]
fn z3_arbiters_know_one_record_by_a_timestamp() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.shows(0, has(Level::Reader, record(1, &[2, 0, 1]))), Ok(()));
    let other = has(Level::Reader, record(1, &[2, 1]));
    let no_arbiter = Has { is_arbiter: false, ..other.clone() };
    assert_eq!(cluster.shows(1, no_arbiter), Ok(()), "what readers know may be old");
    assert_eq!(cluster.shows(1, has(Level::Reader, record(2, &[2, 1]))), Ok(()));
    assert_eq!(cluster.shows(1, other), Err("Z3"));
}

#[test]
fn z4_nothing_moves_while_a_slot_is_pending_that_has_touched_it() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.shows(0, has(Level::Owner, record(1, &[0, 1, 2]))), Ok(()));
    assert_eq!(cluster.commits(0, 1, Level::Owner), Ok(()));
    assert_eq!(cluster.shows(0, has(Level::Reader, record(2, &[1, 0, 2]))), Ok(()));
    let moved = has(Level::Owner, record(2, &[1, 0, 2]));
    assert_eq!(cluster.shows(1, moved.clone()), Err("Z4"));
    assert_eq!(cluster.transaction(0, TransactionFact::Validated { number: 1 }), Ok(()));
    assert_eq!(cluster.shows(1, moved), Ok(()), "it is validated");
}

#[test]
fn z6_what_is_shown_as_validated_all_replicas_have() {
    let mut cluster = Cluster::new();
    let with = |level, rows| Has { rows, ..has(level, record(1, &[0, 1, 2])) };
    assert_eq!(cluster.shows(1, with(Level::Reader, vec![row(1, true)])), Ok(()));
    assert_eq!(cluster.shows(0, with(Level::Owner, vec![row(2, false)])), Ok(()), "it is pending");
    assert_eq!(cluster.shows(0, with(Level::Owner, vec![row(2, true)])), Err("Z6"));
    assert_eq!(cluster.shows(1, with(Level::None, vec![row(1, true)])), Ok(()));
    assert_eq!(cluster.shows(0, with(Level::Owner, vec![row(2, true)])), Ok(()), "it alone serves");
    assert_eq!(cluster.shows(1, with(Level::Reader, vec![row(2, false)])), Ok(()), "it has it");
}

#[test]
fn z7_what_is_answered_is_not_pending() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.commits(0, 1, Level::Owner), Ok(()));
    let answered = || TransactionFact::ReadsValidated { touched: vec![(granule(), Level::Owner)] };
    assert_eq!(cluster.transaction(0, answered()), Err("Z7"));
    assert_eq!(cluster.see(0, &ZeusObservation::Forgotten), Ok(()));
    assert_eq!(cluster.transaction(0, answered()), Ok(()), "the node was out");
    assert_eq!(cluster.commits(0, 2, Level::Owner), Ok(()));
    assert_eq!(cluster.transaction(0, TransactionFact::Validated { number: 2 }), Ok(()));
    assert_eq!(cluster.transaction(0, answered()), Ok(()), "it is validated");
}

#[test]
fn z9_a_transaction_owns_all_that_it_has_touched() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.commits(0, 1, Level::Owner), Ok(()));
    assert_eq!(cluster.commits(0, 2, Level::Reader), Err("Z9"));
}

#[test]
fn z21_what_clients_have_seen_is_not_created_anew() {
    let mut cluster = Cluster::new();
    let first = has(Level::Owner, record(1, &[0, 1, 2]));
    assert_eq!(cluster.shows(0, first.clone()), Ok(()));
    let again = |epoch: u32| {
        let mut record = record(1, &[1]);
        record.o_ts.epoch = Epoch(epoch);
        Has { epoch: Epoch(epoch), ..has(Level::Owner, record) }
    };
    assert_eq!(cluster.shows(1, again(2)), Ok(()), "no client has seen a row of it");
    let with_rows = Has { rows: vec![row(1, true)], ..again(2) };
    assert_eq!(cluster.shows(1, with_rows), Ok(()));
    assert_eq!(cluster.shows(2, again(3)), Err("Z21"));
}

#[test]
fn z21_what_is_reported_as_lost_is_nowhere() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.shows(1, has(Level::Reader, record(1, &[0, 1, 2]))), Ok(()));
    let lost = |epoch| TransactionFact::Lost { granule: granule(), epoch: Epoch(epoch) };
    assert_eq!(cluster.transaction(2, lost(1)), Err("Z21"));
    assert_eq!(cluster.transaction(2, lost(2)), Ok(()), "its nodes are out since");
}
