//! Planted bugs: each script ends otherwise with the bug than without it.

use super::cluster::{CLIENT, Cluster, HEADROOM, MS, submit, voters};
use bytes::Bytes;
use shoal_engine::PlantedBugs;
use shoal_tiga::coordinator::Outcome;
use shoal_tiga::digest::Digest;
use shoal_tiga::message::{LeaderVote, Message, Vote};
use shoal_tiga::part_reads::PartReads;
use shoal_tiga::transaction::{Body, Certificate, Transaction};
use shoal_tiga::{TigaOptions, TigaPlantedBug};
use shoal_types::{Ballot, Epoch, NodeId, ShardId, Time};
use std::fmt::Debug;
use std::time::Duration;

/// What a script ends with, without a bug and with it.
fn assert_shows<T: PartialEq + Debug>(
    bug: TigaPlantedBug,
    script: impl Fn(Cluster) -> T,
    without: T,
    with: T,
) {
    let options = TigaOptions { bugs: PlantedBugs::only(bug), ..TigaOptions::default() };
    let ends = (script(Cluster::new()), script(Cluster::with(options)));
    assert_eq!(ends, (without, with), "without and with {bug:?}");
}

fn is_committed(cluster: &Cluster, id: shoal_engine::TransactionId) -> bool {
    cluster.ended(id).is_some_and(|ended| ended.committed.is_some())
}

fn votes(cluster: &Cluster) -> usize {
    cluster.messages().filter(|message| matches!(message, Message::Vote { .. })).count()
}

/// A leader has released a transaction, and then receives one with a lesser timestamp that writes the same. Returns how many it
/// raises.
fn raised_behind(mut cluster: Cluster, first: &Transaction) -> u64 {
    let late = cluster.incrementing(&[1]);
    let now = cluster.time().0;
    cluster.repeat(CLIENT, NodeId(0), submit(Time(now + 2 * MS), first));
    cluster.deliver(|_, _, _| true);
    cluster.pass(Duration::from_millis(3));
    cluster.repeat(CLIENT, NodeId(0), submit(Time(now + MS), &late));
    cluster.deliver(|_, _, _| true);
    cluster.counters(NodeId(0)).raised
}

#[test]
fn accept_late() {
    let script = |mut cluster: Cluster| {
        let first = cluster.incrementing(&[1]);
        raised_behind(cluster, &first)
    };
    assert_shows(TigaPlantedBug::AcceptLate, script, 1, 0);
}

#[test]
fn ignore_read_timestamps() {
    let script = |mut cluster: Cluster| {
        let mut reading = cluster.incrementing(&[1]);
        reading.parts[0].writes.clear();
        raised_behind(cluster, &reading)
    };
    assert_shows(TigaPlantedBug::IgnoreReadTimestamps, script, 1, 0);
}

/// All have voted for a transaction that stands in no log but the lost leader's, and the others' has one with a greater
/// timestamp, which does not conflict (hole 2).
#[test]
fn keep_by_timestamp() {
    let script = |mut cluster: Cluster| {
        let (voted, other) = (cluster.incrementing(&[1]), cluster.incrementing(&[2]));
        let now = cluster.time().0;
        for (t, transaction) in [(now + 2 * MS, other), (now + MS, voted)] {
            for voter in voters(0) {
                cluster.repeat(CLIENT, voter, submit(Time(t), &transaction));
            }
            cluster.deliver(|_, _, _| true);
            cluster.pass(Duration::from_millis(3));
            cluster.deliver(|_, _, _| true);
            if t > now + MS {
                [NodeId(1), NodeId(2)].into_iter().for_each(|it| cluster.sync(0, it));
                cluster.decide(0);
            }
        }
        cluster.crash(NodeId(0));
        cluster.appoint(0, NodeId(1), 2);
        cluster.settle();
        cluster.value(NodeId(2), 1)
    };
    assert_shows(TigaPlantedBug::KeepByTimestamp, script, Some(1), None);
}

/// A new leader receives the `Ready` that was sent to the former one.
#[test]
fn ready_of_old_ballot() {
    let script = |mut cluster: Cluster| {
        let ballot = |epoch, node| Ballot { epoch: Epoch(epoch), node: NodeId(node) };
        cluster.appoint(0, NodeId(1), 2);
        cluster.settle();
        let before = cluster.counters(NodeId(1)).released;
        let transaction = cluster.incrementing(&[1, 101]);
        let (id, t) = (transaction.id, Time(cluster.time().0 + MS));
        cluster.repeat(CLIENT, NodeId(1), submit(t, &transaction));
        let (to, shard, other) = (ShardId(0), ShardId(1), ballot(1, 3));
        let (again, sent, named) = (false, Time::ZERO, ballot(2, 1));
        let propose = Message::Propose { id, to, shard, ballot: other, t, named, again, sent };
        let ballots = vec![ballot(1, 0), other];
        let (contribution, in_front) = (Ok(PartReads::default()), Vec::new());
        let ready = Message::Ready { id, to, shard, t, ballots, contribution, in_front };
        for message in [propose, ready] {
            cluster.repeat(NodeId(3), NodeId(1), message);
        }
        cluster.deliver(|_, to, _| to == NodeId(1));
        cluster.pass(Duration::from_millis(2));
        cluster.deliver(|_, to, _| to == NodeId(1));
        cluster.counters(NodeId(1)).released - before
    };
    assert_shows(TigaPlantedBug::ReadyOfOldBallot, script, 0, 1);
}

#[test]
fn touch_undeclared() {
    let script = |mut cluster: Cluster| {
        let mut transaction = cluster.incrementing(&[1]);
        transaction.parts[0].writes.clear();
        cluster.begin(transaction);
        cluster.settle();
        cluster.value(NodeId(2), 1)
    };
    assert_shows(TigaPlantedBug::TouchUndeclared, script, None, Some(1));
}

/// The leader alone has a transaction on which another rests, with one in between that would overwrite what the first has written,
/// and is not certified. What the client received of the last, and what is there when the leader is lost.
#[test]
fn blind_write_without_history() {
    let script = |mut cluster: Cluster| {
        cluster.increment(&[1]);
        cluster.deliver(|_, to, _| to == NodeId(0));
        cluster.pass(HEADROOM);
        let mut failing = cluster.incrementing(&[1]);
        failing.body = Body::Certify;
        let part = &mut failing.parts[0];
        part.reads[0].key = Bytes::from_static(&[2]);
        let (versions, ranges, values) = (vec![7], Vec::new(), vec![None]);
        part.certificate = Certificate { versions, ranges, values };
        cluster.begin(failing);
        cluster.deliver(|_, _, _| true);
        cluster.pass(HEADROOM);
        let last = cluster.increment(&[1]);
        cluster.deliver(|_, _, _| true);
        cluster.pass(HEADROOM);
        cluster.deliver(|_, _, _| true);
        let received = cluster.sums(last);
        cluster.crash(NodeId(0));
        cluster.appoint(0, NodeId(1), 2);
        cluster.settle();
        (received, cluster.value(NodeId(2), 1))
    };
    let (without, with) = ((None, Some(1)), (Some(vec![2]), Some(1)));
    assert_shows(TigaPlantedBug::BlindWriteWithoutHistory, script, without, with);
}

/// The followers of a shard have a transaction of two shards, and its leader does not: it reads what another one writes that the leader
/// votes for with them. What the client received of that one; after it a reader at the other shard could miss the first one, which a
/// recovery would put in front.
#[test]
fn digest_without_readers() {
    let script = |mut cluster: Cluster| {
        let mut reading = cluster.incrementing(&[1, 101]);
        reading.body = Body::Certify;
        reading.parts[0].writes.clear();
        reading.parts[0].certificate.versions = vec![0];
        reading.parts[1].reads.clear();
        reading.parts[1].certificate.values = vec![Some(Bytes::from_static(&[7]))];
        cluster.begin(reading);
        cluster.deliver(|_, to, _| to != NodeId(0));
        cluster.pass(HEADROOM);
        cluster.deliver(|_, to, _| to != NodeId(0));
        let writing = cluster.increment(&[1]);
        let lets =
            |_: NodeId, _: NodeId, message: &Message| !matches!(message, Message::Propose { .. });
        cluster.deliver(lets);
        cluster.pass(HEADROOM);
        cluster.deliver(lets);
        cluster.sums(writing)
    };
    assert_shows(TigaPlantedBug::DigestWithoutReaders, script, None, Some(vec![1]));
}

/// A transaction of two shards whose leaders receive no `Ready`.
fn without_ready(cluster: &mut Cluster) {
    cluster.increment(&[1, 101]);
    let lets = |_: NodeId, _: NodeId, message: &Message| !matches!(message, Message::Ready { .. });
    cluster.deliver(lets);
    cluster.pass(HEADROOM);
    cluster.deliver(lets);
}

#[test]
fn release_before_ready() {
    let script = |mut cluster: Cluster| {
        without_ready(&mut cluster);
        cluster.counters(NodeId(0)).released
    };
    assert_shows(TigaPlantedBug::ReleaseBeforeReady, script, 0, 1);
}

#[test]
fn ready_without_promise() {
    let script = |mut cluster: Cluster| {
        let before = cluster.time();
        without_ready(&mut cluster);
        let other = cluster.incrementing(&[1]);
        cluster.repeat(CLIENT, NodeId(0), submit(before, &other));
        cluster.deliver(|_, to, _| to == NodeId(0));
        cluster.counters(NodeId(0)).raised
    };
    assert_shows(TigaPlantedBug::ReadyWithoutPromise, script, 1, 0);
}

/// A follower lacks what the last of three transactions rests on indirectly, and so has another digest.
#[test]
fn count_mismatch() {
    let script = |mut cluster: Cluster| {
        let [_, last] = cluster.rest_on_what_followers_lack();
        is_committed(&cluster, last)
    };
    assert_shows(TigaPlantedBug::CountMismatch, script, false, true);
}

/// A transaction that these nodes of shard 0 receive, whose log is not replicated.
fn reaches(mut cluster: Cluster, nodes: &[u32]) -> bool {
    let id = cluster.increment(&[1]);
    cluster.deliver(|_, to, _| nodes.contains(&to.0));
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    is_committed(&cluster, id)
}

#[test]
fn simple_quorum() {
    let script = |cluster| reaches(cluster, &[0, 1]);
    assert_shows(TigaPlantedBug::SimpleQuorum, script, false, true);
}

#[test]
fn maximum_sync_point() {
    let script = |cluster| reaches(cluster, &[0]);
    assert_shows(TigaPlantedBug::MaximumSyncPoint, script, false, true);
}

#[test]
fn vote_over_unagreed() {
    let script = |mut cluster: Cluster| {
        cluster.increment(&[1, 101]);
        cluster.deliver(|_, _, _| true);
        cluster.pass(HEADROOM);
        cluster.deliver(|_, _, _| true);
        cluster.increment(&[1]);
        cluster.deliver(|_, to, _| to == NodeId(1) || to == NodeId(2));
        cluster.pass(HEADROOM);
        votes(&cluster)
    };
    assert_shows(TigaPlantedBug::VoteOverUnagreed, script, 0, 2);
}

/// A voter has promised the ballot of a new leader that has not ended its recovery.
#[test]
fn vote_before_final() {
    let script = |mut cluster: Cluster| {
        cluster.appoint(0, NodeId(1), 2);
        cluster.increment(&[1]);
        cluster.deliver(|_, to, _| to == NodeId(2));
        cluster.pass(HEADROOM);
        votes(&cluster)
    };
    assert_shows(TigaPlantedBug::VoteBeforeFinal, script, 0, 1);
}

#[test]
fn trust_far_clock() {
    let script = |mut cluster: Cluster| {
        let wild = cluster.incrementing(&[1]);
        let far = Time(cluster.time().0 + 5000 * MS);
        cluster.repeat(CLIENT, NodeId(0), submit(far, &wild));
        cluster.settle();
        cluster.value(NodeId(0), 1)
    };
    assert_shows(TigaPlantedBug::TrustFarClock, script, None, Some(1));
}

/// A transaction waits for another shard that does not receive it, while seals go on.
#[test]
fn seal_open() {
    let script = |mut cluster: Cluster| {
        let begun = cluster.time().0;
        cluster.increment(&[1, 101]);
        cluster.increment(&[2]);
        for _ in 0..5 {
            cluster.deliver(|_, to, _| !voters(1).contains(&to));
            cluster.sync(0, NodeId(1));
            cluster.decide(0);
            cluster.pass(Duration::from_millis(150));
        }
        let seal = cluster.node(NodeId(0)).replica(ShardId(0)).expect("has it").ledger().seal;
        seal.0 > begun + MS
    };
    assert_shows(TigaPlantedBug::SealOpen, script, false, true);
}

#[test]
fn read_unstable() {
    let script = |mut cluster: Cluster| {
        cluster.increment(&[1]);
        cluster.deliver(|_, to, _| to == NodeId(0));
        cluster.pass(HEADROOM);
        cluster.deliver(|_, _, _| true);
        cluster.answers_to_read(NodeId(0))
    };
    assert_shows(TigaPlantedBug::ReadUnstable, script, 0, 1);
}

/// The other shard has released a transaction, and what rests on it there is committed; its `Ready` is on its way.
#[test]
fn read_over_ready() {
    let script = |mut cluster: Cluster| {
        cluster.increment(&[1, 101]);
        let is_held = |from: NodeId, message: &Message| {
            from == NodeId(3) && matches!(message, Message::Ready { .. })
        };
        cluster.deliver(|from, _, message| !is_held(from, message));
        cluster.pass(HEADROOM);
        cluster.deliver(|from, _, message| !is_held(from, message));
        let behind = cluster.increment(&[101]);
        cluster.deliver(|from, _, message| !is_held(from, message));
        cluster.pass(HEADROOM);
        voters(1).into_iter().for_each(|it| cluster.sync(1, it));
        cluster.decide(1);
        cluster.deliver(|from, _, message| !is_held(from, message));
        assert_eq!(cluster.sums(behind), Some(vec![2]));
        cluster.answers_to_read(NodeId(0))
    };
    assert_shows(TigaPlantedBug::ReadOverReady, script, 0, 1);
}

/// A new leader has kept a transaction that votes have committed, and whose timestamp its clock has not reached.
#[test]
fn read_past_what_a_recovery_has_kept() {
    let script = |mut cluster: Cluster| {
        cluster.set_ahead(CLIENT, Duration::from_millis(900));
        let id = cluster.increment(&[1]);
        cluster.deliver(|_, _, _| true);
        cluster.pass(Duration::from_millis(501));
        cluster.deliver(|_, _, _| true);
        assert!(is_committed(&cluster, id), "each replica has held it for as long as one does");
        cluster.crash(NodeId(0));
        cluster.appoint(0, NodeId(1), 2);
        for _ in 0..5 {
            cluster.deliver(|_, _, _| true);
            cluster.sync(0, NodeId(2));
            cluster.decide(0);
        }
        cluster.deliver(|_, _, _| true);
        let replica = cluster.node(NodeId(1)).replica(ShardId(0)).expect("has it");
        assert!(replica.serves().is_some() && replica.waiting().0 == 1, "it is kept and waits");
        cluster.answers_to_read(NodeId(1))
    };
    assert_shows(TigaPlantedBug::ReadUnstable, script, 0, 1);
}

/// Followers have voted for what their leader lacks, and its log has a conflicting transaction with a greater timestamp.
#[test]
fn keep_behind_synced() {
    let script = |mut cluster: Cluster| {
        let (lacking, other) = (cluster.incrementing(&[1]), cluster.incrementing(&[1]));
        let now = cluster.time().0;
        for voter in [NodeId(1), NodeId(2)] {
            cluster.repeat(CLIENT, voter, submit(Time(now + MS), &lacking));
        }
        voters(0)
            .into_iter()
            .for_each(|it| cluster.repeat(CLIENT, it, submit(Time(now + 2 * MS), &other)));
        cluster.deliver(|_, _, _| true);
        cluster.pass(Duration::from_millis(3));
        cluster.deliver(|_, _, _| true);
        [NodeId(1), NodeId(2)].into_iter().for_each(|it| cluster.sync(0, it));
        cluster.decide(0);
        cluster.crash(NodeId(0));
        cluster.appoint(0, NodeId(1), 2);
        cluster.settle();
        cluster.value(NodeId(2), 1)
    };
    assert_shows(TigaPlantedBug::KeepBehindSynced, script, Some(1), Some(2));
}

/// A certificate of two shards rests on a row that is not decided.
#[test]
fn export_unstable() {
    let script = |mut cluster: Cluster| {
        cluster.increment(&[1]);
        cluster.deliver(|_, to, _| to == NodeId(0));
        cluster.pass(HEADROOM);
        cluster.deliver(|_, _, _| true);
        let mut parts = cluster.parts(&[1, 101]);
        for part in &mut parts {
            part.certificate.versions = vec![0];
            part.certificate.values = vec![Some(Bytes::from_static(b"v"))];
        }
        let certificate = Transaction {
            id: cluster.next_id(),
            oldest: 0,
            by_log: false,
            body: Body::Certify,
            parts,
        };
        cluster.begin(certificate);
        cluster.deliver(|_, to, _| to == NodeId(0) || to == NodeId(3));
        cluster.pass(HEADROOM);
        let is_own =
            |message: &&Message| matches!(message, Message::Ready { shard: ShardId(0), .. });
        cluster.messages().filter(is_own).count()
    };
    assert_shows(TigaPlantedBug::ExportUnstable, script, 0, 1);
}

/// A new leader has a start record that no other replica has accepted.
#[test]
fn ask_before_record() {
    let script = |mut cluster: Cluster| {
        cluster.crash(NodeId(0));
        cluster.appoint(0, NodeId(1), 2);
        cluster.sync(0, NodeId(2));
        cluster.decide(0);
        cluster.deliver(|_, _, _| true);
        let replica = cluster.node(NodeId(1)).replica(ShardId(0)).expect("has it");
        replica.serves().is_some()
    };
    assert_shows(TigaPlantedBug::AskBeforeRecord, script, false, true);
}

/// Both shards vote for a transaction at one timestamp, one of them under an older ballot of the other.
#[test]
fn mix_ballots() {
    let script = |mut cluster: Cluster| {
        let id = cluster.increment(&[1, 101]);
        cluster.deliver(|_, _, _| false);
        let t = cluster.time();
        let ballot = |epoch, node| Ballot { epoch: Epoch(epoch), node: NodeId(node) };
        let (own, former, other) = (ballot(1, 0), ballot(0, 0), ballot(1, 3));
        for (shard, ballot, ballots) in [(0, own, [own, other]), (1, other, [former, other])] {
            for voter in voters(shard) {
                let outcome = Ok(Bytes::new());
                let leader = LeaderVote { ballots: ballots.to_vec(), outcome, is_stable: false };
                let leader = (voter == ballot.node).then_some(leader);
                let shard = ShardId(shard);
                let vote = Vote { id, shard, t, digest: Digest::NONE, ballot, leader };
                let vote = Message::Vote { vote, sent: Time::ZERO, arrived: Time::ZERO };
                cluster.repeat(voter, CLIENT, vote);
            }
        }
        cluster.deliver(|_, _, _| true);
        is_committed(&cluster, id)
    };
    assert_shows(TigaPlantedBug::MixBallots, script, false, true);
}

/// A call and a copy of it, which another node coordinates: both name the row of one session and one number. How the copy ends,
/// and the values afterwards.
fn called_twice(mut cluster: Cluster, keys: &[u8]) -> (Option<Outcome>, [Option<i64>; 2]) {
    let mut ids = Vec::new();
    for _ in 0..2 {
        let transaction = cluster.incrementing_once(keys);
        ids.push(transaction.id);
        cluster.begin(transaction);
        cluster.settle();
    }
    assert!(is_committed(&cluster, ids[0]));
    let values = [(NodeId(0), 1), (NodeId(3), 101)].map(|(node, key)| cluster.value(node, key));
    (cluster.ended(ids[1]).map(|ended| ended.outcome.clone()), values)
}

#[test]
fn duplicate_executes() {
    let gone = Some(Outcome::Gone(ShardId(0)));
    for (keys, once, twice) in [
        (&[1][..], [Some(1), None], [Some(2), None]),
        (&[1, 101], [Some(1), Some(1)], [Some(2), Some(2)]),
    ] {
        let script = |cluster| {
            let (outcome, values) = called_twice(cluster, keys);
            (outcome == gone, values)
        };
        let bug = TigaPlantedBug::DuplicateExecutes;
        assert_shows(bug, script, (true, once), (false, twice));
    }
}
