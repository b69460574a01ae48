//! Managers that are lost, replaced and moved, while their cluster serves.

use crate::cluster::{Cluster, until_so};
use shoal_server::{FromOperator, NodeStatus, OperatorRefusal, Protocol, ToOperator};
use shoal_types::{NodeId, ShardId};
use std::path::Path;
use tempfile::TempDir;

/// Two shards of three replicas, on the nodes 0 to 2 and 3 to 5, with managers on these nodes, which have a folder
/// each.
fn start(place: &TempDir, managers: [u32; 3]) -> Cluster {
    Cluster::start_with(2, 1, Protocol::Mako, |config| {
        config.managers = managers.map(NodeId).to_vec();
        let folder = folder(place, config.node);
        std::fs::create_dir_all(&folder).expect("a folder");
        config.data = Some(folder);
    })
}

fn folder(place: &TempDir, node: NodeId) -> std::path::PathBuf {
    place.path().join(node.to_string())
}

fn has_log(place: &TempDir, node: NodeId) -> bool {
    Path::exists(&folder(place, node).join("manager.redb"))
}

/// The process ends, and its disk is gone.
fn lose(cluster: &mut Cluster, place: &TempDir, node: NodeId) {
    cluster.kill(node);
    std::fs::remove_dir_all(folder(place, node)).expect("removed");
    std::fs::create_dir_all(folder(place, node)).expect("a folder");
}

async fn count(cluster: &Cluster, client: u64, via: NodeId) {
    let counted = cluster.client(client).call(via, ShardId(1), "count_ten", &[]).await;
    counted.expect("counted");
}

fn votes(status: &NodeStatus) -> bool {
    status.manager.as_ref().is_some_and(|manager| manager.votes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_survives_the_loss_of_two_managers_one_after_the_other() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, [0, 1, 5]);
    count(&cluster, 1, NodeId(0)).await;
    lose(&mut cluster, &place, NodeId(5));
    let managers = cluster.replace_manager(NodeId(5), NodeId(2)).await;
    assert_eq!(managers, [0, 1, 2].map(NodeId));
    cluster.until_managed([0, 1, 2]).await;
    cluster.until("its manager votes", NodeId(2), votes).await;

    // Now the new one is needed for a majority: to appoint another leader in place of this one.
    let leader = cluster.status_of(NodeId(1)).await.leaders[0];
    assert_eq!(leader, 0, "nothing has happened to it");
    cluster.kill(NodeId(0));
    count(&cluster, 2, NodeId(4)).await;
    let other = |status: &NodeStatus| status.leaders[0] == 1 || status.leaders[0] == 2;
    cluster.until("another leads", NodeId(3), other).await;

    // A node that begins anew with the old file, and nothing else, finds managers that the file does not name, and hosts none.
    cluster.restart(NodeId(5));
    let found = |status: &NodeStatus| status.admitted && status.managers == [0, 1, 2];
    cluster.until("it finds the managers", NodeId(5), found).await;
    assert!(!votes(&cluster.status_of(NodeId(5)).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_lost_its_disk_is_replaced_by_itself() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, [0, 1, 5]);
    count(&cluster, 1, NodeId(0)).await;
    let volume = |status: NodeStatus| status.manager.expect("it hosts one").volume;
    // The first of them, which would begin a cluster if there were none.
    let wiped = NodeId(0);
    let lost = volume(cluster.status_of(wiped).await);
    lose(&mut cluster, &place, wiped);
    cluster.restart(wiped);
    let waits =
        |status: &NodeStatus| status.admitted && status.managers_version > 0 && !votes(status);
    cluster.until("it has no vote", wiped, waits).await;
    let managers = cluster.replace_manager(wiped, wiped).await;
    assert_eq!(managers, [0, 1, 5].map(NodeId));
    cluster.until("it votes again", wiped, votes).await;
    assert_ne!(volume(cluster.status_of(wiped).await), lost);

    // Its vote counts: without one more, the configuration still changes.
    cluster.until_managed([0, 1, 5]).await;
    cluster.until("its replica is full", wiped, |status| status.empty == 0).await;
    let before = cluster.status_of(NodeId(4)).await.revision;
    cluster.kill(NodeId(1));
    cluster.until("it changes", NodeId(4), |status| status.revision > before).await;
    count(&cluster, 2, NodeId(4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managers_move_and_all_begin_again_with_their_old_files() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, [0, 1, 2]);
    count(&cluster, 1, NodeId(0)).await;
    // One of them is away, and the others move while they work, the leader among them.
    cluster.kill(NodeId(2));
    for (outgoing, incoming) in [(2, 3), (0, 4), (1, 5)] {
        cluster.replace_manager(NodeId(outgoing), NodeId(incoming)).await;
    }
    cluster.until_managed([3, 4, 5]).await;
    for node in [0, 1].map(NodeId) {
        let hosts_none = |status: &NodeStatus| status.manager.is_none();
        cluster.until("it has ended its manager", node, hosts_none).await;
        until_so("its log is removed", || !has_log(&place, node)).await;
    }
    // A manager that was dropped while it was away learns it when it comes back.
    cluster.restart(NodeId(2));
    let told = |status: &NodeStatus| status.admitted && status.manager.is_none();
    cluster.until("it is told", NodeId(2), told).await;
    cluster.until_managed([3, 4, 5]).await;
    count(&cluster, 2, NodeId(2)).await;

    for node in cluster.running() {
        cluster.kill(node);
    }
    for node in (0..6).map(NodeId) {
        cluster.restart(node);
    }
    cluster.until_managed([3, 4, 5]).await;
    for node in (0..6).map(NodeId) {
        cluster.until("it is admitted", node, |status| status.admitted).await;
        let hosts = cluster.status_of(node).await.manager.is_some();
        assert_eq!(hosts, node.0 >= 3, "{node}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_refused() {
    let place = tempfile::tempdir().expect("a folder");
    let cluster = Cluster::start_with(1, 1, Protocol::Mako, |config| {
        config.managers = vec![NodeId(0)];
        let folder = folder(&place, config.node);
        std::fs::create_dir_all(&folder).expect("a folder");
        match config.node {
            // Its managers would be in memory.
            NodeId(2) => {}
            _ => config.data = Some(folder),
        }
    });
    cluster.until("its manager leads", NodeId(0), votes).await;
    let managers = vec![NodeId(0)];
    for (outgoing, incoming, why) in [
        (0, 9, OperatorRefusal::NoNode(NodeId(9))),
        (1, 2, OperatorRefusal::NotManager { managers }),
        (0, 2, OperatorRefusal::InMemory),
    ] {
        let (outgoing, incoming) = (NodeId(outgoing), NodeId(incoming));
        let wanted = FromOperator::ReplaceManager { outgoing, incoming };
        let told = cluster.ask(NodeId(0), &wanted).await;
        assert_eq!(told, ToOperator::Refused(why));
    }
    let wanted = FromOperator::ReplaceManager { outgoing: NodeId(0), incoming: NodeId(1) };
    let told = cluster.answer(NodeId(1), &wanted).await;
    assert_eq!(told, ToOperator::NotLeading { leader: None });

    let fixed =
        Cluster::start_with(1, 1, Protocol::TwoPhaseCommit, |config| config.managers.clear());
    let told = fixed.answer(NodeId(0), &wanted).await;
    assert_eq!(told, ToOperator::Refused(OperatorRefusal::NoManagers));
}
