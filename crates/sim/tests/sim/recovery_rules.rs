//! The rules of recovery, violated by hand-written observations: each has to be reported.

use bytes::Bytes;
use shoal_cluster::manager::FinalEnds;
use shoal_cluster::topology::Topology;
use shoal_engine::{TransactionId, WorkerPlace};
use shoal_mako::MakoObservation;
use shoal_mako::epoch_ends::{end_at, watermark_of};
use shoal_sim::checks::{Checks, MakoRules, Moment};
use shoal_types::{Ballot, Clock, Epoch, NodeId, ShardId, Stamp, TableId, Time, WorkerId};

const S0: ShardId = ShardId(0);
const S1: ShardId = ShardId(1);
const W0: WorkerId = WorkerId(0);
const EPOCH: Epoch = Epoch(1);

/// A cluster of three nodes that all hold both shards, and its checkers.
struct Cluster {
    checks: Checks<MakoRules>,
}

impl Cluster {
    /// Node 0 leads shard 0, node 1 shard 1.
    fn new() -> Cluster {
        let checks = Checks::new(&Topology::compact(3, 2, 3, 0, 1), 3);
        let mut cluster = Cluster { checks };
        cluster.leads(S0, ballot(1, 0), 0, &[]).unwrap();
        cluster.leads(S1, ballot(1, 1), 0, &[]).unwrap();
        cluster
    }

    fn see(&mut self, node: u32, observation: &MakoObservation) -> Result<(), &'static str> {
        self.checks.observe(moment(node), observation).map_err(|violation| violation.rule)
    }

    /// Node 0 makes these observations, which are legal.
    fn sees(&mut self, observations: &[MakoObservation]) {
        for observation in observations {
            assert_eq!(self.see(0, observation), Ok(()), "{observation:?}");
        }
    }

    fn leads(
        &mut self,
        shard: ShardId,
        ballot: Ballot,
        length: u64,
        entries: &[(u64, Bytes)],
    ) -> Result<(), &'static str> {
        let led = self.checks.leads(moment(ballot.node.0), shard, ballot, length, entries);
        led.map_err(|violation| violation.rule)
    }

    /// These voters have accepted `length` entries under a ballot.
    fn accept(&mut self, shard: ShardId, voters: &[u32], ballot: Ballot, length: u64) {
        for voter in voters {
            self.checks.accepted(moment(*voter), shard, ballot, length).unwrap();
        }
    }

    /// Node 0 appends an entry with these bytes and this safe clock to shard 0's stream.
    fn append(&mut self, bytes: &'static [u8], observation: &MakoObservation) {
        let MakoObservation::Appended { index, .. } = observation else {
            panic!("{observation:?}")
        };
        self.checks.entry(S0, W0, *index, &Bytes::from_static(bytes));
        self.sees(std::slice::from_ref(observation));
    }

    fn settle(&mut self, clocks: [u64; 2]) -> Result<(), &'static str> {
        self.checks.is_final(Time(1), &ends(clocks)).map_err(|violation| violation.rule)
    }

    fn finish(&self) -> Result<(), &'static str> {
        self.checks.finish(Time(2)).map_err(|violation| violation.rule)
    }
}

fn moment(node: u32) -> Moment {
    Moment { at: Time(1), place: WorkerPlace { node: NodeId(node), worker: W0 } }
}

fn ballot(epoch: u32, node: u32) -> Ballot {
    Ballot { epoch: Epoch(epoch), node: NodeId(node) }
}

/// How the first epoch ended.
fn ends(clocks: [u64; 2]) -> FinalEnds {
    FinalEnds::new(EPOCH, clocks.map(|clock| end_at(Clock(clock))).to_vec())
}

fn id(sequence: u64) -> TransactionId {
    TransactionId { node: NodeId(0), worker: W0, sequence }
}

/// A stamp as shard 0 keeps it, which depends on shard 1 up to `remote`.
fn stamp(clock: u64, remote: u64) -> Stamp {
    let mut stamp = Stamp::local(EPOCH, Clock(clock));
    stamp.push(S0, S1, Clock(remote));
    stamp
}

fn appended(index: u64, safe: u64, ends: &[(u32, u64)], clocks: &[u64]) -> MakoObservation {
    let ends = ends.iter().map(|(epoch, clock)| (Epoch(*epoch), Clock(*clock))).collect();
    let clocks = clocks.iter().map(|clock| Clock(*clock)).collect();
    let (shard, ballot) = (S0, ballot(1, 0));
    MakoObservation::Appended { shard, ballot, index, ends, safe: Clock(safe), clocks }
}

fn certified(sequence: u64, stamp: Stamp) -> MakoObservation {
    let writes = vec![(S0, stamp.clock)];
    MakoObservation::Certified { transaction: id(sequence), own: S0, stamp, writes }
}

fn installed(sequence: u64, shard: ShardId, stamp: Stamp) -> MakoObservation {
    let (transaction, table, key) = (id(sequence), TableId(0), b"key".to_vec());
    MakoObservation::Installed { transaction, shard, stamp, table, key, value: Some(b"v".to_vec()) }
}

fn told(sequence: u64, stamp: Stamp) -> MakoObservation {
    MakoObservation::Acknowledged { transaction: id(sequence), own: S0, stamp }
}

/// Transaction 0 writes with clock 4, in entry 0, which no voter has accepted yet.
fn written() -> Vec<MakoObservation> {
    let (transaction, shard, clock) = (id(0), S0, Clock(4));
    vec![
        MakoObservation::Drawn { transaction, shard, clock },
        certified(0, stamp(4, 0)),
        installed(0, S0, stamp(4, 0)),
        MakoObservation::Resolved { transaction, shard, clock, installed: true },
    ]
}

fn watermark(clock: u64) -> MakoObservation {
    MakoObservation::Watermark { shard: S0, clock: Clock(clock) }
}

#[test]
fn m4_what_was_accepted_under_another_ballot_is_not_durable() {
    let mut cluster = Cluster::new();
    cluster.sees(&written());
    cluster.append(b"entry", &appended(0, 4, &[], &[4]));
    cluster.accept(S0, &[0], ballot(1, 0), 1);
    // The next leader inherits the entry, and is the only one to have accepted it under its ballot.
    cluster.leads(S0, ballot(2, 1), 1, &[(0, Bytes::from_static(b"entry"))]).unwrap();
    cluster.accept(S0, &[1], ballot(2, 1), 1);
    assert_eq!(cluster.see(1, &watermark(4)), Err("M4"));
    cluster.accept(S0, &[2], ballot(2, 1), 1);
    assert_eq!(cluster.see(1, &watermark(4)), Ok(()));
}

#[test]
fn m4_what_a_new_leader_lacks_is_not_durable() {
    let mut cluster = Cluster::new();
    cluster.sees(&written());
    cluster.append(b"entry", &appended(0, 4, &[], &[4]));
    cluster.leads(S0, ballot(2, 1), 0, &[]).unwrap();
    // The old leader does not know its successor yet, and its entry replaces no other.
    cluster.append(b"late", &appended(0, 9, &[], &[]));
    cluster.accept(S0, &[1, 2], ballot(2, 1), 1);
    assert_eq!(cluster.see(1, &watermark(4)), Err("M4"));
}

#[test]
fn m4_a_new_leader_has_all_that_was_durable() {
    let mut cluster = Cluster::new();
    cluster.append(b"entry", &appended(0, 4, &[], &[]));
    cluster.accept(S0, &[0, 2], ballot(1, 0), 1);
    assert_eq!(cluster.leads(S0, ballot(2, 1), 0, &[]), Err("M4"));
}

#[test]
fn m4_a_replica_without_memory_has_no_vote_until_it_has_caught_up() {
    let mut cluster = Cluster::new();
    cluster.append(b"entry", &appended(0, 4, &[], &[]));
    cluster.checks.forgets(NodeId(2));
    cluster.accept(S0, &[0, 2], ballot(1, 0), 1);
    assert_eq!(cluster.see(0, &watermark(4)), Err("M4"));
    cluster.checks.remembers(Time(1), S0, NodeId(2)).unwrap();
    cluster.accept(S0, &[0, 2], ballot(1, 0), 1);
    assert_eq!(cluster.see(0, &watermark(4)), Ok(()));
}

#[test]
fn m7_no_former_leader_acts_once_the_next_one_serves() {
    let serves = MakoObservation::Serves { shard: S0, ballot: ballot(2, 1) };
    let acted = |epoch, node| MakoObservation::Acted { shard: S0, ballot: ballot(epoch, node) };
    let mut cluster = Cluster::new();
    assert_eq!(cluster.see(0, &acted(1, 0)), Ok(()));
    assert_eq!(cluster.see(1, &serves), Ok(()));
    assert_eq!(cluster.see(1, &acted(2, 1)), Ok(()));
    assert_eq!(cluster.see(0, &acted(1, 0)), Err("M7"));
    cluster.checks.expect_wild_clocks();
    assert_eq!(cluster.see(0, &acted(1, 0)), Ok(()), "leases are at risk, and that is known");
    assert_eq!(cluster.checks.two_leaders(), 1);
}

#[test]
fn m9_an_fvw_has_one_value() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.settle([0, 0]), Ok(()));
    assert_eq!(cluster.settle([0, 0]), Ok(()));
    let other = MakoObservation::Settled { watermark: watermark_of(&ends([0, 1])) };
    assert_eq!(cluster.see(2, &other), Err("M9"));
}

#[test]
fn m9_nothing_is_reported_or_final_that_is_not_durable() {
    let report = |clock| {
        let (shard, epoch, watermark) = (S0, EPOCH, Clock(clock));
        MakoObservation::Reported { shard, epoch, watermark }
    };
    let mut cluster = Cluster::new();
    cluster.append(b"entry", &appended(0, 9, &[(1, 4)], &[]));
    assert_eq!(cluster.see(0, &report(4)), Err("M9"));
    assert_eq!(cluster.settle([4, 0]), Err("M9"));
    cluster.accept(S0, &[0, 1], ballot(1, 0), 1);
    assert_eq!(cluster.see(0, &report(5)), Err("M9"), "that is of the next epoch");
    assert_eq!(cluster.see(0, &report(4)), Ok(()));
    assert_eq!(cluster.settle([4, 0]), Ok(()));
}

/// Transaction 0 is durable and acknowledged.
fn committed() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.sees(&written());
    cluster.append(b"entry", &appended(0, 4, &[(1, 4)], &[4]));
    cluster.accept(S0, &[0, 1], ballot(1, 0), 1);
    cluster.sees(&[told(0, stamp(4, 0))]);
    cluster
}

#[test]
fn m9_an_fvw_covers_what_was_told() {
    assert_eq!(committed().settle([3, 0]), Err("M9"));
    let mut cluster = committed();
    assert_eq!(cluster.settle([4, 0]), Ok(()));
    assert_eq!(cluster.finish(), Ok(()));
}

#[test]
fn m5_a_client_is_told_of_a_rollback_only_if_there_was_one() {
    let rolled_back = MakoObservation::RolledBack { transaction: id(0), settled: true };
    let mut cluster = Cluster::new();
    cluster.sees(&written());
    assert_eq!(cluster.see(0, &rolled_back), Err("M5"), "its epoch has not ended");
    cluster.settle([0, 0]).unwrap();
    assert_eq!(cluster.see(0, &rolled_back), Ok(()));
    assert_eq!(cluster.see(0, &told(0, stamp(4, 0))), Err("M5"), "it is gone");
    assert_eq!(committed().see(0, &rolled_back), Err("M5"), "it was told as committed");
}

#[test]
fn a_transaction_is_covered_on_all_its_shards_or_none() {
    let mut cluster = Cluster::new();
    // The case where each piece is rolled back by its own clock only.
    let alone = |clock| Stamp::local(EPOCH, Clock(clock));
    cluster.sees(&[installed(0, S0, alone(4)), installed(0, S1, alone(7))]);
    cluster.append(b"entry", &appended(0, 4, &[], &[4]));
    cluster.accept(S0, &[0, 1], ballot(1, 0), 1);
    assert_eq!(cluster.settle([4, 0]), Ok(()));
    assert_eq!(cluster.finish(), Err("lost acknowledgement"));
}

#[test]
fn what_was_rolled_back_is_not_in_the_model() {
    let mut cluster = Cluster::new();
    cluster.sees(&written());
    let newest = |cluster: &Cluster| {
        let rows = cluster.checks.installed().rows(S0, TableId(0)).unwrap();
        rows[&b"key"[..]].newest().map(|version| version.order)
    };
    assert_eq!(newest(&cluster), Some((EPOCH, Clock(4))));
    cluster.settle([0, 0]).unwrap();
    assert_eq!(newest(&cluster), None);
    // A late install by a leader that has not learned of the end of the epoch does not enter the model.
    cluster.checks.crashed(NodeId(0));
    assert_eq!(cluster.see(0, &installed(0, S0, stamp(4, 0))), Ok(()));
    assert_eq!(newest(&cluster), None);
}
