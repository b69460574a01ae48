//! Rules that only `two_phase_commit` has, violated by hand-written observations: each has to be reported.

use bytes::Bytes;
use shoal_cluster::topology::Topology;
use shoal_engine::{TransactionId, WorkerPlace};
use shoal_sim::checks::{Checks, Moment, TwoPhaseCommitRules};
use shoal_two_phase_commit::TwoPhaseCommitObservation;
use shoal_types::{Ballot, Clock, Epoch, NodeId, ShardId, Stamp, TableId, Time, WorkerId};

const S0: ShardId = ShardId(0);

fn id(sequence: u64) -> TransactionId {
    TransactionId { node: NodeId(0), worker: WorkerId(0), sequence }
}

fn ballot(epoch: u32, node: u32) -> Ballot {
    Ballot { epoch: Epoch(epoch), node: NodeId(node) }
}

fn moment(node: NodeId) -> Moment {
    Moment { at: Time(1), place: WorkerPlace { node, worker: WorkerId(0) } }
}

/// The checkers of a cluster of one shard with three voters, whose nodes have one worker each.
struct Cluster {
    checks: Checks<TwoPhaseCommitRules>,
}

impl Cluster {
    fn new() -> Cluster {
        Cluster { checks: Checks::new(&Topology::symmetric(1, 1, 3, 0, 1), 3) }
    }

    /// A node makes an observation.
    fn see(
        &mut self,
        node: NodeId,
        observation: &TwoPhaseCommitObservation,
    ) -> Result<(), &'static str> {
        self.checks.observe(moment(node), observation).map_err(|violation| violation.rule)
    }

    /// A stream is prepared under a ballot.
    fn leads(&mut self, ballot: Ballot, length: u64) {
        let led = TwoPhaseCommitObservation::Led { shard: S0, ballot, length };
        assert_eq!(self.see(ballot.node, &led), Ok(()));
    }

    /// The leader under this ballot appends an entry with the records of these clocks.
    fn appends(&mut self, ballot: Ballot, index: u64, clocks: &[u64]) {
        let entry = Bytes::from(format!("entry {index} of {ballot}"));
        self.checks.entry(S0, WorkerId(0), index, &entry);
        let clocks = clocks.iter().map(|clock| Clock(*clock)).collect();
        let safe = Clock(index);
        let appended =
            TwoPhaseCommitObservation::Appended { shard: S0, ballot, index, safe, clocks };
        assert_eq!(self.see(ballot.node, &appended), Ok(()));
    }

    /// These voters have accepted `length` entries under a ballot.
    fn accept(&mut self, voters: [u32; 2], ballot: Ballot, length: u64) {
        for voter in voters {
            let accepted = self.checks.accepted(moment(NodeId(voter)), S0, ballot, length);
            assert_eq!(accepted, Ok(()), "as many as there were");
        }
    }

    /// The leader under this ballot begins to serve.
    fn serves(&mut self, ballot: Ballot) -> Result<(), &'static str> {
        self.see(ballot.node, &TwoPhaseCommitObservation::Serves { shard: S0, ballot })
    }
}

#[test]
fn p7_a_leader_serves_once_an_entry_of_its_own_is_durable() {
    let mut cluster = Cluster::new();
    let (first, second) = (ballot(1, 0), ballot(2, 1));
    assert_eq!(cluster.serves(first), Err("P7"), "it has appended nothing");
    cluster.leads(first, 0);
    cluster.appends(first, 0, &[]);
    assert_eq!(cluster.serves(first), Err("P7"), "no majority has it");
    cluster.accept([0, 1], first, 1);
    assert_eq!(cluster.serves(first), Ok(()));
    cluster.leads(second, 1);
    assert_eq!(cluster.serves(second), Err("P7"), "the durable entry is another's");
    cluster.appends(second, 1, &[]);
    cluster.appends(first, 1, &[]);
    cluster.accept([1, 2], second, 2);
    assert_eq!(cluster.serves(second), Ok(()), "the former leader did not know of this one");
    assert_eq!(cluster.serves(first), Ok(()), "it had an entry of its own");
}

#[test]
fn p8_a_transaction_has_one_outcome() {
    let (node, leader) = (NodeId(0), ballot(1, 0));
    let installed = |sequence: u64, clock: u64| TwoPhaseCommitObservation::Installed {
        transaction: id(sequence),
        shard: S0,
        stamp: Stamp::local(Epoch(1), Clock(clock)),
        table: TableId(0),
        key: b"key".to_vec(),
        value: Some(b"value".to_vec()),
        is_inherited: false,
    };
    let gave_up =
        |sequence: u64| TwoPhaseCommitObservation::GaveUp { transaction: id(sequence), shard: S0 };
    let mut cluster = Cluster::new();
    for sequence in [1, 2] {
        let (transaction, clock) = (id(sequence), Clock(3 + sequence));
        let drawn = TwoPhaseCommitObservation::Drawn { transaction, shard: S0, clock };
        assert_eq!(cluster.see(node, &drawn), Ok(()));
    }
    cluster.appends(leader, 0, &[4, 5]);
    cluster.accept([0, 1], leader, 1);
    assert_eq!(cluster.see(node, &installed(1, 4)), Ok(()));
    assert_eq!(cluster.see(node, &gave_up(2)), Ok(()));
    assert_eq!(cluster.see(node, &gave_up(1)), Err("P8"));
    assert_eq!(cluster.see(node, &installed(2, 5)), Err("P8"));
}
