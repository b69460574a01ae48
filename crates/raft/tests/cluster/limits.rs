//! Oversized and malformed input.

use crate::world::{World, first, members, nodes};
use bytes::Bytes;
use shoal_cluster::manager::{Action, Ask, CarriedLog, ClusterChange, Command, TableChange, Term};
use shoal_cluster::topology::Partitioning;
use shoal_raft::{
    COMMAND_BYTES_MAX, LogMember, REQUEST_BYTES_MAX, RequestRefusal, Transport, Unreachable, Volume,
};
use shoal_types::{NodeId, Time};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn proposal(name: String) -> Command {
    let partitioning = Partitioning::Everywhere;
    let change =
        ClusterChange::Table(TableChange::Create { name, definition: partitioning.into() });
    Command { term: Term(0), at: Time(0), action: Action::Change { ask: Ask(0), change } }
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_a_majority_takes_no_end_of_proposals() {
    let mut world = World::of(1, [1, 2, 3]).await;
    let old = world.leader().expect("undisturbed");
    world.network.isolate(old, nodes([1, 2, 3]));
    for _ in 0..30 {
        let test_replica = world.test_replicas.get_mut(&old).expect("it runs");
        let mailbox = test_replica.manager.log_mut();
        mailbox.proposed.extend((0..1000).map(|_| proposal("x".to_owned())));
        world.turn().await;
    }
    let counters = world.test_replica(old).handle.counters();
    assert!(counters.proposals_dropped > 30_000 - 3 * 8192, "{counters:?}");
    assert!(counters.proposals_dropped < 30_000, "{counters:?}");
    world.network.heal();
    world.create("healed").await;
    world.agree().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_of_any_length_is_dropped_or_committed() {
    let mut world = World::of(2, [1, 2, 3]).await;
    let leader = world.leader().expect("undisturbed");
    let mailbox = world.test_replicas.get_mut(&leader).expect("it runs").manager.log_mut();
    // The last two bytes: the table has neither granules nor a family.
    let head = 8 + 8 + 1 + 8 + 1 + 1 + 4 + 1 + 2;
    let longest = "y".repeat(COMMAND_BYTES_MAX - head);
    mailbox.proposed.extend((0..3).map(|_| proposal(longest.clone())));
    mailbox.proposed.push_back(proposal(longest.clone() + "y"));
    let every = |world: &mut World| {
        world.test_replicas.values().all(|test_replica| {
            let long = |command: &&Command| matches!(command.action, Action::Change { .. });
            test_replica.told.iter().filter(long).count() == 3
        })
    };
    world.until("all have the long ones", every).await;
    assert_eq!(world.test_replica(leader).handle.counters().proposals_dropped, 1);
}

#[tokio::test(start_paused = true)]
async fn requests_that_make_no_sense_are_counted() {
    let world = World::of(3, [1]).await;
    let handle = &world.test_replica(NodeId(1)).handle;
    for nonsense in [&b""[..], b"GET / HTTP/1.1\r\n", &[4, 1, 0, 0, 0, 1, 0, 0, 0, 9]] {
        let refused = handle.serve(nonsense).await;
        assert!(matches!(refused, Err(RequestRefusal::Malformed(_))), "{refused:?}");
    }
    let here = handle.me();
    for to in [LogMember { node: NodeId(2), ..here }, LogMember { volume: Volume(99), ..here }] {
        let mut request = vec![4];
        request.extend_from_slice(&shoal_types::wire::encode(&to));
        // A vote for no candidate, from a replica without a log.
        request.extend_from_slice(&[&[1][..], &[0; 16], &[0], &[0]].concat());
        let refused = handle.serve(&request).await;
        assert_eq!(refused, Err(RequestRefusal::Misdirected { to, here }));
    }
    let counters = handle.counters();
    assert_eq!((counters.malformed, counters.misdirected), (3, 2));
}

/// Gives only malformed answers, and records the longest request.
#[derive(Clone, Default)]
struct Babble {
    requests: Arc<AtomicUsize>,
    longest: Arc<Mutex<usize>>,
}

impl Transport for Babble {
    async fn call(&self, _: NodeId, request: Bytes) -> Result<Bytes, Unreachable> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut longest = self.longest.lock().expect("no panic");
        *longest = request.len().max(*longest);
        // An unknown version, or the answer to another request.
        Ok(Bytes::from_static(if request[9] == 1 { &[2, 0] } else { &[7] }))
    }

    fn now(&self) -> shoal_types::Time {
        shoal_types::Time::ZERO
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_make_no_sense_are_counted() {
    let babble = Babble::default();
    let options = shoal_raft::RaftOptions::default();
    let storage = shoal_raft::InMemoryDisk::new();
    let (mut replica, handle) =
        shoal_raft::start(NodeId(1), Volume(9), &options, first(), storage, babble.clone())
            .await
            .expect("a replica");
    handle.initialise(&members([1, 2, 3])).await.expect("a cluster");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let requests = babble.requests.load(Ordering::Relaxed);
    assert!(requests > 4, "{requests}");
    assert!(handle.counters().malformed as usize > requests / 2, "{:?}", handle.counters());
    assert!(*babble.longest.lock().expect("no panic") < REQUEST_BYTES_MAX);
    let mut mailbox = CarriedLog::default();
    replica.exchange(shoal_types::Time(1), &mut mailbox).expect("it runs");
    assert_eq!(mailbox.term, None);
}
