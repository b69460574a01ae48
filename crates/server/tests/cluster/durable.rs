//! Clusters whose streams are on disk: what was acknowledged outlives the processes of all nodes.

use crate::cluster::{Cluster, counted, until_so};
use shoal_cluster::topology::Topology;
use shoal_disk::DiskFolder;
use shoal_server::{
    DisksError, ExaminedLog, NodeConfig, NodeExamination, Protocol, RebootLoss, Server,
    ServerPlantedBugs,
};
use shoal_types::{Durability, NodeId, ShardId};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const S: ShardId = ShardId(0);

/// A shard of three replicas, whose nodes have folders below `place`.
pub fn start(place: &TempDir, protocol: Protocol, workers: u32, durability: Durability) -> Cluster {
    Cluster::start_with(1, workers, protocol, |config| {
        let folder = place.path().join(config.node.to_string());
        std::fs::create_dir_all(&folder).expect("a folder");
        config.data = Some(folder);
        let topology = Topology::clone(&config.topology);
        config.topology = Arc::new(topology.with_durability(durability));
    })
}

/// What a node has written into its folder.
fn examined(data: &Path) -> NodeExamination {
    NodeExamination::of(data).expect("it can be read").expect("a node's")
}

/// All nodes end at once, and begin again with what their disks have.
async fn nothing_is_lost(protocol: Protocol, workers: u32) {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, protocol, workers, Durability::Fsync);
    let mut number = 0;
    for round in 1..=2 {
        for key in 0..3 {
            number += 1;
            let sum = counted(&cluster, number, NodeId(number as u32 % 3), S, key).await;
            assert_eq!(sum, round, "key {key}");
        }
        (0..3).map(NodeId).for_each(|node| cluster.kill(node));
        (0..3).map(NodeId).for_each(|node| cluster.restart(node));
    }
    let data = place.path().join(NodeId(0).to_string());
    let in_use = NodeExamination::check_free(&data);
    assert!(matches!(in_use, Err(DisksError::Folder(_))), "it runs: {in_use:?}");
    cluster.kill(NodeId(0));
    NodeExamination::check_free(&data).expect("it has ended");
    let found = examined(&data);
    assert_eq!((found.node, found.logs.len()), (NodeId(0), workers as usize));
    assert!(!found.is_void && found.set_aside.is_empty(), "{found:?}");
    for ExaminedLog { log, .. } in &found.logs {
        let log = log.as_ref().expect("it is whole");
        assert_eq!(log.incarnation, 3, "as many processes have used it");
        // Streams of `zeus` stay empty: its records are beside them.
        let has_entries = |length| length > 0 || protocol == Protocol::Zeus;
        let mut streams = log.streams.iter();
        assert!(streams.all(|stream| has_entries(stream.length) && !stream.is_void), "{log:?}");
    }
}

#[tokio::test]
async fn all_nodes_of_mako_end_at_once_and_nothing_is_lost() {
    nothing_is_lost(Protocol::Mako, 2).await;
}

#[tokio::test]
async fn all_nodes_of_two_phase_commit_end_at_once_and_nothing_is_lost() {
    nothing_is_lost(Protocol::TwoPhaseCommit, 1).await;
}

#[tokio::test]
async fn all_nodes_of_tiga_end_at_once_and_nothing_is_lost() {
    nothing_is_lost(Protocol::Tiga, 1).await;
}

#[tokio::test]
async fn all_nodes_of_zeus_end_at_once_and_nothing_is_lost() {
    nothing_is_lost(Protocol::Zeus, 2).await;
}

/// Copies a folder with all that is in it, as far as it is written.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("copied")),
        }
    }
}

/// Puts a copy of logs in the place of those that a node has.
fn put_back(image: &Path, logs: &Path) {
    fs::remove_dir_all(logs).expect("removed");
    copy(image, logs);
}

/// Has the kernel be in another boot than when the logs were used.
fn boot_anew(logs: &Path) {
    let path = logs.join("volume");
    let text = fs::read_to_string(&path).expect("it names its owner");
    let (others, _) = text.split_once("boot ").expect("a boot");
    fs::write(&path, format!("{others}boot of-yesterday\n")).expect("written");
}

#[tokio::test]
async fn an_older_image_of_a_disk_is_not_believed() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, Protocol::Mako, 1, Durability::Fsync);
    let (node, image) = (NodeId(2), place.path().join("image"));
    let data = place.path().join(node.to_string());
    let logs = data.join("log");
    assert_eq!(counted(&cluster, 1, node, S, 0).await, 1);
    cluster.kill(node);
    copy(&logs, &image);
    cluster.restart(node);
    assert_eq!(counted(&cluster, 2, node, S, 0).await, 2, "it is admitted");
    cluster.kill(node);
    put_back(&image, &logs);
    cluster.restart(node);
    let examined = || NodeExamination::of(&data).ok().flatten();
    until_so("its logs are void", || examined().is_some_and(|it| it.is_void)).await;
    cluster.kill(node);
    cluster.restart(node);
    assert_eq!(counted(&cluster, 3, node, S, 0).await, 3, "it is admitted, without memory");
    assert_eq!(examined().expect("a node's").set_aside.len(), 1);
}

#[tokio::test]
async fn what_was_written_and_not_flushed_is_kept_where_nodes_had_stopped_in_order() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, Protocol::Mako, 1, Durability::Async);
    let data = |node: u32| place.path().join(NodeId(node).to_string());
    assert_eq!(counted(&cluster, 1, NodeId(0), S, 0).await, 1);
    // As a crash of the machine would leave it, if all of it was written out.
    let image = place.path().join("image");
    copy(&data(2).join("log"), &image);
    for node in 0..3 {
        cluster.kill(NodeId(node));
        boot_anew(&data(node).join("log"));
    }
    (0..3).for_each(|node| cluster.restart(NodeId(node)));
    assert_eq!(counted(&cluster, 2, NodeId(1), S, 0).await, 2);
    let set_aside = |node| examined(&data(node)).set_aside.len();
    assert_eq!([0, 1, 2].map(set_aside), [0, 0, 0]);
    cluster.kill(NodeId(2));
    put_back(&image, &data(2).join("log"));
    boot_anew(&data(2).join("log"));
    cluster.restart(NodeId(2));
    assert_eq!(counted(&cluster, 3, NodeId(2), S, 0).await, 3);
    assert_eq!([0, 1, 2].map(set_aside), [0, 0, 1]);
}

/// The logs that a node sets aside when its machine was started anew, what it had not flushed is gone, and its next process has this
/// durability.
async fn set_aside_after_reboot(planted: ServerPlantedBugs, next: Durability) -> usize {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, Protocol::Mako, 1, Durability::Async);
    let (node, image) = (NodeId(2), place.path().join("image"));
    let data = place.path().join(node.to_string());
    assert_eq!(counted(&cluster, 1, node, S, 0).await, 1);
    copy(&data.join("log"), &image);
    assert_eq!(counted(&cluster, 2, node, S, 0).await, 2, "it acknowledges what the image lacks");
    cluster.kill(node);
    put_back(&image, &data.join("log"));
    boot_anew(&data.join("log"));
    let config = &mut cluster.configs[2];
    config.topology = Arc::new(config.topology.as_ref().clone().with_durability(next));
    config.planted = planted;
    cluster.restart(node);
    assert_eq!(counted(&cluster, 3, node, S, 0).await, 3);
    examined(&data).set_aside.len()
}

#[tokio::test]
async fn what_was_written_and_not_flushed_does_not_outlive_the_machine() {
    for next in [Durability::Async, Durability::Fsync] {
        assert_eq!(set_aside_after_reboot(ServerPlantedBugs::default(), next).await, 1, "{next}");
    }
}

#[tokio::test]
async fn logs_that_are_believed_after_a_reboot_are_seen() {
    let planted = ServerPlantedBugs { trust_other_boots: true };
    let set_aside = set_aside_after_reboot(planted, Durability::Async).await;
    assert_eq!(set_aside, 0, "the bug is not seen");
}

/// Removes all that a worker of a node has written.
fn empty(worker: &Path) {
    for entry in fs::read_dir(worker).expect("a folder") {
        fs::remove_file(entry.expect("an entry").path()).expect("removed");
    }
}

#[tokio::test]
async fn a_node_with_an_empty_log_has_no_memory() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, Protocol::Mako, 2, Durability::Fsync);
    let node = NodeId(2);
    let data = place.path().join(node.to_string());
    let set_aside = || examined(&data).set_aside;
    assert_eq!(counted(&cluster, 1, node, S, 0).await, 1);
    for (round, emptied) in [(2, &[0][..]), (3, &[0, 1])] {
        cluster.kill(node);
        emptied.iter().for_each(|worker| empty(&data.join(format!("log/worker-{worker}"))));
        cluster.restart(node);
        assert_eq!(counted(&cluster, round, node, S, 0).await, round as i64);
    }
    assert_eq!(set_aside().len(), 1, "of all logs one was empty, and then all of them");
}

/// Changes a bit in the middle of what was written to the log of a worker.
fn damage(worker: &Path) {
    let path = worker.join("log-000000");
    let mut bytes = fs::read(&path).expect("a segment");
    let last = bytes.iter().rposition(|byte| *byte != 0).expect("it is not empty");
    let place =
        bytes[last / 2..].iter().position(|byte| *byte != 0).expect("the last one is not 0");
    bytes[last / 2 + place] ^= 1;
    fs::write(&path, bytes).expect("written");
}

#[tokio::test]
async fn a_node_with_a_damaged_log_takes_a_snapshot_and_goes_on() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, Protocol::Mako, 2, Durability::Fsync);
    let node = NodeId(2);
    let data = place.path().join(node.to_string());
    let mut expected = 0;
    for number in 1..=20 {
        expected = counted(&cluster, number, node, S, 0).await;
    }
    cluster.kill(node);
    damage(&data.join("log/worker-1"));
    let found = examined(&data);
    let logs: Vec<bool> = found.logs.iter().map(|it| it.log.is_ok()).collect();
    assert_eq!(logs, [true, false], "doctor says so");
    cluster.restart(node);
    assert_eq!(counted(&cluster, 21, node, S, 0).await, expected + 1);
    let found = examined(&data);
    assert_eq!(found.set_aside, ["log.damaged-1"]);
    assert!(found.logs.iter().all(|it| it.log.is_ok()), "{found:?}");
    // It has all: without one of the others it is needed.
    cluster.kill(NodeId(0));
    assert_eq!(counted(&cluster, 22, node, S, 0).await, expected + 2);
}

#[tokio::test]
async fn the_folder_of_another_node_is_refused() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, Protocol::Mako, 1, Durability::Fsync);
    assert_eq!(counted(&cluster, 1, NodeId(0), S, 0).await, 1);
    cluster.kill(NodeId(1));
    cluster.kill(NodeId(2));
    let refusal = |config: &NodeConfig| {
        let started = Server::start(config, Arc::default(), None);
        started.expect_err("it is refused").to_string()
    };
    let mut config = cluster.configs[2].clone();
    config.managers.clear();
    let what = refusal(&config);
    assert!(what.contains("mako with durability = \"fsync\" needs managers"), "{what}");
    let mut config = cluster.configs[2].clone();
    config.data.clone_from(&cluster.configs[1].data);
    let what = refusal(&config);
    assert!(what.contains("belongs to n1 with 1 workers, expected n2 with 1 workers"), "{what}");
    let volume = place.path().join("n2/log/volume");
    fs::write(&volume, "node two\n").expect("written");
    let what = refusal(&cluster.configs[2]);
    assert!(what.contains("volume: it is damaged: move the folder away"), "{what}");
    fs::remove_file(&volume).expect("removed");
    let what = refusal(&cluster.configs[2]);
    assert!(what.contains("volume is missing, and there are logs beside it"), "{what}");
    assert!(!volume.exists(), "a new one would be of another volume than the logs");
    let examined = NodeExamination::of(&place.path().join("n2"));
    assert!(matches!(examined, Err(DisksError::NoVolume { .. })), "{examined:?}");
}

/// The logs of one worker are opened, and those of the next one cannot be: the former still end in order, as the file `volume` of
/// the former boot asks for.
#[tokio::test]
async fn a_start_that_fails_with_some_logs_open_leaves_those_that_had_ended_in_order() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, Protocol::Mako, 2, Durability::Async);
    let node = NodeId(2);
    let data = place.path().join(node.to_string());
    assert_eq!(counted(&cluster, 1, node, S, 0).await, 1);
    cluster.kill(node);
    boot_anew(&data.join("log"));
    let other = DiskFolder::open(&data.join("log/worker-1")).expect("it is free");
    let started = Server::start(&cluster.configs[2], Arc::default(), None);
    let what = started.expect_err("it is in use").to_string();
    assert!(what.contains("worker-1"), "{what}");
    drop(other);
    cluster.restart(node);
    assert_eq!(counted(&cluster, 2, node, S, 0).await, 2);
    let found = examined(&data);
    assert!(found.set_aside.is_empty(), "{found:?}");
}

#[tokio::test]
async fn what_the_next_process_does_with_logs_is_known_before() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, Protocol::Mako, 2, Durability::Async);
    let data = place.path().join(NodeId(2).to_string());
    let logs = data.join("log");
    assert_eq!(counted(&cluster, 1, NodeId(2), S, 0).await, 1);
    let image = place.path().join("image");
    copy(&logs, &image);
    cluster.kill(NodeId(2));
    let found = || examined(&data);
    boot_anew(&logs);
    assert_eq!(found().reboot_loss, RebootLoss::Nothing, "it had stopped in order");
    put_back(&image, &logs);
    assert_eq!(found().reboot_loss, RebootLoss::Nothing, "it is the same boot");
    boot_anew(&logs);
    assert_eq!(found().reboot_loss, RebootLoss::All);
    let text = fs::read_to_string(logs.join("volume")).expect("a node's");
    let before = text.replace("durability async\n", "");
    fs::write(logs.join("volume"), &before).expect("written");
    assert_eq!(found().reboot_loss, RebootLoss::AllIfAsync, "as an earlier build wrote it");
    fs::write(logs.join("volume"), text.replace("async", "fsync")).expect("written");
    assert_eq!(found().reboot_loss, RebootLoss::Nothing, "all was flushed");

    fs::remove_dir_all(logs.join("worker-1")).expect("removed");
    let incarnations = found().logs.into_iter().map(|it| it.log.expect("whole").incarnation);
    assert_eq!(incarnations.collect::<Vec<_>>(), [1, 0], "the log of a worker is gone");
    copy(&logs.join("worker-0"), &logs.join("worker-1"));
    let mixed = found();
    let foreign = mixed.logs[1].log.as_ref().expect_err("it is another worker's").to_string();
    assert!(foreign.contains("volume"), "{foreign}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_that_fails_ends_the_process_and_the_next_one_goes_on() {
    let place = tempfile::tempdir().expect("a folder");
    let mut cluster = start(&place, Protocol::Mako, 1, Durability::Fsync);
    let node = NodeId(2);
    let mut number = 0;
    let mut count = async |cluster: &Cluster, via: NodeId| {
        number += 1;
        assert_eq!(counted(cluster, number, via, S, 0).await, number as i64);
    };
    count(&cluster, node).await;
    cluster.kill(node);
    cluster.configs[2].flushes_fail_after = Some(300);
    cluster.restart(node);
    let server = cluster.servers[2].take().expect("it runs");
    let ended = std::thread::spawn(move || server.join());
    while !ended.is_finished() {
        count(&cluster, NodeId(0)).await;
    }
    let ended = ended.join().expect("it does not panic").expect_err("a flush has failed");
    assert!(ended.to_string().contains("flushes fail, as was asked for"), "{ended}");
    cluster.configs[2].flushes_fail_after = None;
    cluster.restart(node);
    count(&cluster, node).await;
    let data = place.path().join(node.to_string());
    let found = examined(&data);
    assert!(found.set_aside.is_empty(), "its log has all that it had acknowledged");
    cluster.kill(NodeId(1));
    count(&cluster, node).await;
}
