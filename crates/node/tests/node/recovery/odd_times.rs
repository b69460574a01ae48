//! Workers of one node that learn of things at different times, ways that are cut in one direction, and
//! peers that say what cannot be.

use super::cluster::{Cluster, Coming, Fate, Filter, MS, Place};
use super::lost_shard::Outcomes;
use super::scenarios::nine;
use crate::common::seeds;
use shoal_cluster::topology::{Home, Topology};
use shoal_engine::Engine;
use shoal_mako::message::MakoRequest;
use shoal_node::{WorkerEvent, WorkerMessage};
use shoal_types::{Database, Epoch, NodeId, ShardId, Time, Transaction, WorkerId};
use std::cell::Cell;
use std::rc::Rc;

const X: ShardId = ShardId(0);
const A: WorkerId = WorkerId(0);
const B: WorkerId = WorkerId(1);

fn stream_of(
    message: &WorkerMessage<shoal_mako::MakoMessage>,
) -> Option<&shoal_log::StreamMessage> {
    match message {
        WorkerMessage::Stream { shard, message, .. } if *shard == X => Some(message),
        _ => None,
    }
}

/// Steps until `done`.
fn run_until(cluster: &mut Cluster, done: impl Fn(&Cluster) -> bool) {
    let end = cluster.now + 2000 * MS;
    while !done(cluster) {
        assert!(cluster.now < end, "it never comes");
        cluster.run(cluster.now + MS / 4);
    }
}

fn leads(cluster: &Cluster, node: NodeId, worker: WorkerId) -> bool {
    cluster.workers[&(node, worker)].stream(X).expect("held").is_leading()
}

/// What one worker of a deposed leader follows already is nothing that another may count under the old
/// ballot, whose acknowledgements come late: it would report to clients what is lost.
#[test]
fn one_worker_follows_before_another_has_heard() {
    seeds(44..62).for_each(half_depose);
}

fn half_depose(seed: u64) {
    let mut cluster = nine(seed);
    let (old, manager) = (cluster.leader(X), cluster.manager_id());
    cluster.cut.extend([(old, manager), (manager, old)]);
    cluster.run(cluster.now + 40 * MS);
    let (heir, leads_b, leads_a) = (Rc::new(Cell::new(None)), flag(), flag());
    cluster.filter =
        Some(half_deposed(old, Rc::clone(&heir), Rc::clone(&leads_b), Rc::clone(&leads_a)));
    run_until(&mut cluster, |cluster| cluster.leader(X) != old);
    let new = cluster.leader(X);
    heir.set(Some(new));
    // Nothing is final before this one has reported.
    cluster.mute = Some(cluster.leader(ShardId(2)));
    run_until(&mut cluster, |cluster| leads(cluster, new, B));
    cluster.run(cluster.now + 5 * MS);
    leads_b.set(true);
    run_until(&mut cluster, |cluster| leads(cluster, new, A));
    leads_a.set(true);
    run_until(&mut cluster, |cluster| {
        let stream = |node| cluster.workers[&(node, A)].stream(X).expect("held");
        stream(old).ballot().node == new
            && stream(old).decided() == stream(new).decided()
            && stream(new).unacknowledged() == 0
    });
    cluster.release();
    cluster.run(cluster.now + MS / 10);
    cluster.cut.clear();
    cluster.run(cluster.now + 60 * MS);
    (cluster.mute, cluster.filter) = (None, None);
    cluster.finish();
}

fn flag() -> Rc<Cell<bool>> {
    Rc::new(Cell::new(false))
}

/// Nothing of the old leader's stream `A` leaves it, and what is said of its stream `B` comes late. Then the
/// successor reaches its worker `A` and not `B`.
fn half_deposed(
    old: NodeId,
    heir: Rc<Cell<Option<NodeId>>>,
    leads_b: Rc<Cell<bool>>,
    leads_a: Rc<Cell<bool>>,
) -> Filter {
    Box::new(move |(from, worker), to, message| {
        let Some(message) = stream_of(message) else { return Fate::Pass };
        let append = matches!(message, shoal_log::StreamMessage::Append { .. });
        let accepted = matches!(message, shoal_log::StreamMessage::Accepted { .. });
        let (of_old, to_old) = (from == old, to == old);
        if heir.get().is_none() {
            return match worker {
                A if of_old && append => Fate::Drop,
                B if to_old && accepted => Fate::Hold,
                B if to_old => Fate::Drop,
                _ => Fate::Pass,
            };
        }
        match worker {
            B if to_old || of_old => Fate::Drop,
            A if of_old && (append || !leads_a.get()) => Fate::Drop,
            A if Some(to) == heir.get() && !leads_b.get() => Fate::Drop,
            _ => Fate::Pass,
        }
    })
}

/// A worker that follows meets the lock of one that has not learned that the node leads no more. It goes on
/// with something else.
#[test]
fn a_lock_of_another_worker_is_not_waited_for() {
    let mut cluster = nine(21);
    let (old, manager) = (cluster.leader(X), cluster.manager_id());
    cluster.cut.extend([(old, manager), (manager, old)]);
    cluster.run(cluster.now + 30 * MS);
    let heir: Rc<Cell<Option<NodeId>>> = Rc::default();
    let known = Rc::clone(&heir);
    cluster.filter = Some(Box::new(move |(from, worker), to, message| {
        if let WorkerMessage::Engine {
            message: shoal_mako::MakoMessage::Request { request: MakoRequest::Install { .. }, .. },
            ..
        } = message
            && (to, worker) == (old, B)
        {
            return Fate::Drop;
        }
        let Some(message) = stream_of(message) else { return Fate::Pass };
        let accepted = matches!(message, shoal_log::StreamMessage::Accepted { .. });
        match worker {
            A if known.get().is_none() && to == old && accepted => Fate::Drop,
            B if known.get().is_some() && (from == old || to == old) => Fate::Drop,
            _ => Fate::Pass,
        }
    }));
    run_until(&mut cluster, |cluster| cluster.leader(X) != old);
    heir.set(Some(cluster.leader(X)));
    cluster.run(cluster.now + 200 * MS);
    cluster.cut.clear();
    cluster.filter = None;
    cluster.finish();
}

/// A worker that is slow while its node is appointed again says that it has recovered under the old ballot.
/// That takes nothing back.
#[test]
fn a_slow_worker_recovers_under_an_old_ballot() {
    let mut cluster = nine(22);
    let old = cluster.leader(X);
    cluster.crash(old);
    run_until(&mut cluster, |cluster| cluster.leader(X) != old);
    let new = cluster.leader(X);
    cluster.mute = Some(cluster.leader(ShardId(2)));
    cluster.restart(old, false);
    cluster.run(cluster.now + 60 * MS);
    cluster.mute = None;
    let since = cluster.manager.machine().configuration().shards[0].since;
    let settled = |cluster: &Cluster| cluster.manager.machine().configuration().settled;
    run_until(&mut cluster, |cluster| settled(cluster).0 + 1 >= since.0);
    cluster.stalled = Some((new, B));
    let end = cluster.now + 100 * MS;
    let again = |cluster: &Cluster| {
        let stream = cluster.workers[&(new, A)].stream(X).expect("held");
        stream.is_leading() && stream.ballot().epoch > since
    };
    while cluster.now < end && !again(&cluster) {
        cluster.run(cluster.now + MS / 4);
    }
    cluster.run(cluster.now + MS);
    cluster.wake();
    cluster.run(cluster.now + 500 * MS);
    let before = cluster.told.len();
    cluster.run(cluster.now + 1000 * MS);
    let by_new = |(place, own, _): &&(Place, ShardId, _)| place.0 == new && *own == X;
    assert!(cluster.told[before..].iter().any(|told| by_new(&told)), "{new} does not serve");
    cluster.finish();
}

/// What is sent one way between two leaders is lost: the one that is received from, and receives nothing, holds up the
/// other, again and again, and all others go on in between.
#[test]
fn a_way_between_leaders_is_cut_in_one_direction() {
    for back in [false, true] {
        let mut cluster = nine(6);
        let (one, other) = (cluster.leader(X), cluster.leader(ShardId(1)));
        let way = if back { (other, one) } else { (one, other) };
        cluster.cut.insert(way);
        // In the end all clients wait for keys that transactions across the cut hold.
        cluster.gets_on(4000 * MS);
        cluster.cut.clear();
        cluster.gets_on(1000 * MS);
        cluster.finish();
    }
}

/// A coordinator that leads nothing, and is cut off from a leader for long, asks for the end of the epoch: nothing of what it could
/// not end is kept.
#[test]
fn a_coordinator_that_leads_nothing_asks_for_the_end_of_the_epoch() {
    let mut cluster = nine(7);
    cluster.end_clients();
    let (leader, follower) = (cluster.leader(X), cluster.topology.voters(ShardId(1))[1]);
    assert!(cluster.topology.shard_ids().all(|shard| cluster.leader(shard) != follower));
    cluster.cut.extend([(leader, follower), (follower, leader)]);
    let epoch = |cluster: &Cluster| cluster.manager.machine().configuration().epoch;
    let before = epoch(&cluster);
    let (told, key) = (Outcomes::default(), cluster.key_on(X, 1 << 40));
    cluster.touch(follower, &[key], &told);
    cluster.run(cluster.now + 20_000 * MS);
    assert!(told.take()[0].is_err() && epoch(&cluster) > before);
    assert_eq!(cluster.under_way(), 0, "it is kept until the way is open again");
    cluster.finish();
}

/// A leader begins again, and coordinates before its shard has another leader: others know more of that shard than it does.
#[test]
fn a_former_leader_learns_what_is_durable_elsewhere() {
    let mut cluster = nine(8);
    cluster.end_clients();
    let (former, told) = (cluster.leader(X), Outcomes::default());
    let key = cluster.key_on(ShardId(1), 1 << 40);
    cluster.crash(former);
    cluster.restart(former, false);
    cluster.run(cluster.now + 10 * MS);
    cluster.touch(former, &[key], &told);
    run_until(&mut cluster, |_| !told.borrow().is_empty());
    assert_eq!(cluster.leader(X), former, "there is no successor yet");
    assert_eq!(told.take(), [Ok(())]);
    cluster.finish();
}

/// A node that waits for a watermark learns of it again, though the node that knows it has news of others all the
/// time.
#[test]
fn a_lost_watermark_is_told_again_among_news() {
    let mut cluster = Cluster::new(Topology::symmetric(1, 2, 3, 0, 1), 5);
    cluster.run(Time::ZERO + 300 * MS);
    cluster.end_clients();
    let (here, there) = (cluster.leader(ShardId(0)), cluster.leader(ShardId(1)));
    let lost = Rc::new(Cell::new(true));
    let is_lost = Rc::clone(&lost);
    cluster.filter = Some(Box::new(move |(from, _), to, message| {
        let gossip = matches!(
            message,
            WorkerMessage::Engine { message: shoal_mako::MakoMessage::Gossip { .. }, .. }
        );
        if is_lost.get() && gossip && (from, to) == (there, here) { Fate::Drop } else { Fate::Pass }
    }));
    let (busy, done) = (Rc::new(Cell::new(true)), flag());
    write_here_and_there(&mut cluster, here, &busy, &done);
    cluster.run(cluster.now + 30 * MS);
    lost.set(false);
    cluster.run(cluster.now + 200 * MS);
    assert!(done.get(), "a message that was sent once and got lost is still awaited");
    busy.set(false);
    cluster.run(cluster.now + 100 * MS);
    cluster.finish();
}

/// Tasks of a leader: one writes its own shard all the time while `busy`, one the other shard once.
fn write_here_and_there(
    cluster: &mut Cluster,
    here: NodeId,
    busy: &Rc<Cell<bool>>,
    done: &Rc<Cell<bool>>,
) {
    let table = cluster.topology.table("notes").expect("there");
    let key_of = |shard| {
        let home = |key: &u64| cluster.topology.home(table, &key.to_be_bytes());
        (1 << 40..).find(|key| home(key) == Some(Home::One(shard))).expect("a key of each shard")
    };
    let keys = [key_of(ShardId(0)), key_of(ShardId(1))].map(u64::to_be_bytes);
    let engine = cluster.workers.get_mut(&(here, A)).expect("up").engine_mut();
    let (db, busy) = (engine.local(), Rc::clone(busy));
    engine.spawn(Box::pin(async move {
        let notes = db.table("notes").expect("there");
        while busy.get() {
            db.transact(async |tx| tx.put(notes, &keys[0], b"busy")).await.expect("no conflict");
        }
    }));
    let (db, done) = (engine.local(), Rc::clone(done));
    engine.spawn(Box::pin(async move {
        let notes = db.table("notes").expect("there");
        db.transact(async |tx| tx.put(notes, &keys[1], b"there")).await.expect("no conflict");
        done.set(true);
    }));
    let instance = cluster.incarnations[&here];
    cluster.send(MS, Coming::Worker((here, A), instance, WorkerEvent::Nudged));
}

/// An installation whose header has another epoch than its branch belongs to none.
#[test]
fn a_branch_has_one_epoch() {
    let mut cluster = nine(6);
    let lies = Rc::new(Cell::new(0));
    let told = Rc::clone(&lies);
    cluster.filter = Some(Box::new(move |_, _, message| {
        let WorkerMessage::Engine {
            generation,
            message: shoal_mako::MakoMessage::Request { header, request },
        } = message
        else {
            return Fate::Pass;
        };
        let MakoRequest::Install { stamp } = request else { return Fate::Pass };
        let (mut header, mut stamp) = (*header, stamp.clone());
        (header.epoch, stamp.epoch) = (Epoch(0), Epoch(0));
        told.set(told.get() + 1);
        let request = MakoRequest::Install { stamp };
        Fate::Replace(Box::new(WorkerMessage::Engine {
            generation: *generation,
            message: shoal_mako::MakoMessage::Request { header, request },
        }))
    }));
    cluster.run(cluster.now + 20 * MS);
    assert!(lies.get() > 0, "no transaction was installed");
    cluster.filter = None;
    cluster.finish();
}

/// With the default options, a node that restarts with its disk finds all of its streams there.
#[test]
fn a_stream_that_may_be_read_again_is_not_cut() {
    let mut cluster = nine(6);
    cluster.run(cluster.now + 3000 * MS);
    let leader = cluster.leader(X);
    cluster.crash(leader);
    cluster.restart(leader, true);
    cluster.finish();
}

/// Two voters of a shard come back without memory, and neither has caught up with the second worker's stream. When one
/// has, the leader is to get a new ballot. Its first worker, which talks with the manager, stands still when that comes,
/// and what the second says of the other voter meanwhile is of the old ballot: that voter does not count by it, since it
/// may lack what was decided with its forgotten help after that ballot began.
#[test]
fn what_was_caught_up_with_under_an_old_ballot_counts_for_nothing_under_a_new_one() {
    (74..78).for_each(catch_up_late);
}

fn catch_up_late(seed: u64) {
    let mut cluster = Cluster::new(Topology::symmetric(2, 2, 5, 0, 2), seed);
    cluster.run(Time::ZERO + 300 * MS);
    let first = cluster.leader(X);
    cluster.crash(first);
    cluster.until("a successor", |cluster| cluster.leader(X) != first);
    cluster.restart(first, true);
    cluster.run(cluster.now + 100 * MS);
    // It has inherited something.
    let (leader, voters) = (cluster.leader(X), cluster.topology.voters(X).to_vec());
    let mut others = voters.into_iter().filter(|voter| ![leader, first].contains(voter));
    let (quick, slow) = (others.next().expect("five"), others.next().expect("five"));
    let (may_quick, may_slow) = (flag(), flag());
    let (quick_speaks, slow_speaks) = (Rc::clone(&may_quick), Rc::clone(&may_slow));
    cluster.crash(quick);
    cluster.crash(slow);
    cluster.filter = Some(Box::new(move |(from, worker), to, message| {
        let Some(message) = stream_of(message).filter(|_| to == leader) else { return Fate::Pass };
        let accepted = matches!(message, shoal_log::StreamMessage::Accepted { .. });
        match worker {
            B if from == quick && !quick_speaks.get() => Fate::Drop,
            B if from == slow && accepted && !slow_speaks.get() => Fate::Hold,
            // Under the new ballot it does not catch up.
            A if from == slow && slow_speaks.get() => Fate::Drop,
            _ => Fate::Pass,
        }
    }));
    cluster.run(cluster.now + 100 * MS);
    cluster.restart(quick, false);
    cluster.restart(slow, false);
    let caught_up = |cluster: &Cluster, worker, replica| {
        cluster.workers[&(leader, worker)].stream(X).expect("held").has_caught_up(replica)
    };
    cluster.until("the first worker's streams", |cluster| {
        [quick, slow].iter().all(|replica| caught_up(cluster, A, *replica))
    });
    let assignment =
        |cluster: &Cluster| cluster.manager.machine().configuration().shards[X.0 as usize].clone();
    let before = assignment(&cluster).ballot;
    may_quick.set(true);
    while assignment(&cluster).ballot == before {
        cluster.run(cluster.now + MS / 20);
    }
    assert_eq!(assignment(&cluster).leader, leader, "seed {seed}");
    cluster.stalled = Some((leader, A));
    assert!(!caught_up(&cluster, B, slow), "seed {seed}: nothing is held");
    cluster.run(cluster.now + 3 * MS);
    let waits =
        |(_, event): &(u64, WorkerEvent<_>)| matches!(event, WorkerEvent::FromManager { .. });
    let told = cluster.stalled_events.iter().position(waits).expect("the configuration came");
    // What comes from others may as well come later.
    cluster.stalled_events.swap(0, told);
    may_slow.set(true);
    cluster.release();
    cluster.until("the second worker's", |cluster| caught_up(cluster, B, slow));
    cluster.wake();
    cluster.run(cluster.now + 30 * MS);
    assert!(assignment(&cluster).empty.contains_key(&slow), "seed {seed}: it counts too early");
    cluster.filter = None;
    cluster.until("their votes", |cluster| assignment(cluster).empty.is_empty());
    cluster.finish();
}
