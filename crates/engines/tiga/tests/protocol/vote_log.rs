//! Votes on disk: they are durable before they are sent, and a process that begins with the disk of a former one has them (rule
//! T24).

use super::cluster::{Cluster, HEADROOM, voters};
use shoal_engine::{PlantedBugs, TransactionId};
use shoal_tiga::message::Message;
use shoal_tiga::observation::Path;
use shoal_tiga::{TigaOptions, TigaPlantedBug};
use shoal_types::{NodeId, ShardId};

fn with(bug: TigaPlantedBug) -> TigaOptions {
    TigaOptions { bugs: PlantedBugs::only(bug), ..TigaOptions::default() }
}

/// Adds one to key 1. No voter has the leader's log; all messages are delivered.
fn vote(cluster: &mut Cluster) -> TransactionId {
    let id = cluster.increment(&[1]);
    cluster.deliver(|_, _, _| true);
    cluster.pass(HEADROOM);
    cluster.deliver(|_, _, _| true);
    id
}

#[test]
fn a_vote_is_sent_when_it_is_durable() {
    for slow in voters(0) {
        let mut cluster = Cluster::on_disk(TigaOptions::default());
        cluster.slow_disk(slow);
        let id = vote(&mut cluster);
        assert_eq!(cluster.path(id), None, "{slow} has flushed nothing");
        cluster.flush(slow);
        cluster.deliver(|_, _, _| true);
        assert_eq!(cluster.path(id), Some(Path::Fast), "{slow}");
    }
}

#[test]
fn a_vote_that_is_not_durable_is_sent_with_the_bug() {
    let mut cluster = Cluster::on_disk(with(TigaPlantedBug::SendUnrecorded));
    cluster.slow_disk(NodeId(1));
    let id = vote(&mut cluster);
    assert_eq!(cluster.path(id), Some(Path::Fast));
}

/// All voters of a shard end after votes have committed something, and its leader does not come back. Returns what the next leader
/// has of it.
fn all_end(options: TigaOptions, before: impl Fn(&mut Cluster)) -> Option<i64> {
    let mut cluster = Cluster::on_disk(options);
    let id = vote(&mut cluster);
    assert_eq!(cluster.path(id), Some(Path::Fast));
    before(&mut cluster);
    cluster.crash(NodeId(0));
    [1, 2].map(NodeId).into_iter().for_each(|voter| cluster.restart(voter));
    cluster.appoint(0, NodeId(1), 2);
    cluster.settle();
    cluster.value(NodeId(2), 1)
}

#[test]
fn what_votes_have_committed_outlives_all_processes() {
    assert_eq!(all_end(TigaOptions::default(), |_| {}), Some(1));
    assert_eq!(all_end(with(TigaPlantedBug::ForgetRecords), |_| {}), None);
}

/// The records before the mark of a checkpoint are not read again.
#[test]
fn a_checkpoint_is_followed_by_all_that_counts() {
    let checkpoints = |cluster: &mut Cluster| {
        for voter in [1, 2].map(NodeId) {
            cluster.checkpoint(voter);
        }
    };
    assert_eq!(all_end(TigaOptions::default(), checkpoints), Some(1));
    assert_eq!(all_end(with(TigaPlantedBug::CheckpointWithoutVotes), checkpoints), None);
}

/// A voter that begins again has voted under the ballot of the leader that is still there, and goes on under it.
#[test]
fn a_voter_that_begins_again_votes_again() {
    let mut cluster = Cluster::on_disk(TigaOptions::default());
    vote(&mut cluster);
    cluster.settle();
    cluster.restart(NodeId(2));
    cluster.configure();
    let id = vote(&mut cluster);
    assert_eq!(cluster.path(id), Some(Path::Fast));
    cluster.settle();
    assert_eq!(
        voters(0).into_iter().map(|node| cluster.value(node, 1)).collect::<Vec<_>>(),
        [Some(2); 3]
    );
}

/// What was in the log of a voter under a ballot that has ended stays in its list, from its log and then from its records.
#[test]
fn what_was_accepted_under_a_former_ballot_stays_in_the_list() {
    let mut cluster = Cluster::on_disk(TigaOptions::default());
    let id = vote(&mut cluster);
    assert_eq!(cluster.path(id), Some(Path::Fast));
    cluster.sync(0, NodeId(1));
    cluster.crash(NodeId(0));
    cluster.restart(NodeId(1));
    let list = |cluster: &Cluster| {
        let replica = cluster.node(NodeId(1)).replica(ShardId(0)).expect("has it");
        replica.waiting().1
    };
    assert_eq!(list(&cluster), 0, "it is in the log");
    cluster.appoint_from(0, NodeId(2), 2, &[NodeId(2), NodeId(1)]);
    assert_eq!(list(&cluster), 1);
    cluster.settle();
    assert_eq!(cluster.value(NodeId(2), 1), Some(1));
}

/// A list is given when the promise is durable: else the voter could begin again and vote under the former ballot.
#[test]
fn a_list_is_sent_when_the_promise_is_durable() {
    let lists = |cluster: &Cluster| {
        cluster.messages().filter(|message| matches!(message, Message::List { .. })).count()
    };
    let mut cluster = Cluster::on_disk(TigaOptions::default());
    cluster.slow_disk(NodeId(2));
    cluster.appoint_from(0, NodeId(1), 2, &[NodeId(1), NodeId(2)]);
    assert_eq!(lists(&cluster), 0);
    cluster.flush(NodeId(2));
    assert_eq!(lists(&cluster), 1);
}
