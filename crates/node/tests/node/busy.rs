//! A worker that has a lot to do: it still lets work in, and its transactions do not get in each other's way.
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::client::{
    ClientId, ClientReply, ClientRequest, ReplyToClient, RequestFromClient,
};
use shoal_engine::engine::Setup;
use shoal_engine::operation::Operation;
use shoal_engine::{Engine, Procedures};
use shoal_mako::{Mako, MakoOptions};
use shoal_node::{Worker, WorkerEffect, WorkerEffects, WorkerEvent, WorkerOrigin};
use shoal_types::{Database, NodeId, TableId, Time, Transaction, WorkerId};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The only worker of a cluster of one node.
fn worker() -> Worker<Mako> {
    let tables = [("t", Partitioning::Hash { prefix_bytes: 0 })];
    let topology = Topology::symmetric(1, 1, 1, 0, 1).with_tables(tables).expect("valid");
    let setup = Setup {
        topology: Arc::new(topology),
        procedures: Arc::new(Procedures::new()),
        streams: shoal_log::StreamOptions::default(),
        options: MakoOptions::default(),
    };
    let shared = Mako::share(&setup, NodeId(0));
    let origin = WorkerOrigin::fixed(&setup.topology, 1);
    Worker::new(WorkerId(0), NodeId(0), &setup, shared, origin)
}

/// When a client learns of the first step of its transaction, while a worker is nudged every `gap_ns`: each
/// time before its timer, if that is due as well.
fn begun_at(gap_ns: u64) -> Option<Time> {
    let mut worker = worker();
    let (mut timer, registration) = (None, Cell::new(0));
    let mut step = |now, event, timer: &mut Option<Time>| {
        let mut effects = WorkerEffects::new();
        worker.step(now, event, &mut effects);
        let mut begun = false;
        for effect in effects.effects {
            match effect {
                WorkerEffect::Timer { at } => {
                    *timer = Some(timer.map_or(at, |before| at.min(before)));
                }
                WorkerEffect::Reply(ReplyToClient { reply, .. }) => match reply {
                    ClientReply::Registered { registration: granted } => registration.set(granted),
                    reply => begun = matches!(reply, ClientReply::Done { result: Ok(_), .. }),
                },
                WorkerEffect::Send { .. }
                | WorkerEffect::Nudge { .. }
                | WorkerEffect::Tell { .. }
                | WorkerEffect::Write { .. }
                | WorkerEffect::Checkpoint(_)
                | WorkerEffect::Superseded => {}
            }
        }
        begun
    };
    let mut now = Time(1000);
    step(now, WorkerEvent::Start, &mut timer);
    let client = |request| WorkerEvent::Client(RequestFromClient { from: ClientId(1), request });
    step(now, client(ClientRequest::Register), &mut timer);
    let operation = Operation::Put { table: TableId(0), key: "k".into(), value: None };
    let (session, number, operations) = (1, 0, vec![operation]);
    let registration = registration.get();
    let steps = ClientRequest::Steps { registration, session, number, operations, ending: None };
    let mut begun = step(now, client(steps), &mut timer);
    let end = now + Duration::from_millis(1);
    while !begun && now < end {
        now.0 += gap_ns;
        begun |= step(now, WorkerEvent::Nudged, &mut timer);
        if timer.is_some_and(|at| at <= now) {
            timer = None;
            begun |= step(now, WorkerEvent::Timer, &mut timer);
        }
    }
    begun.then_some(now)
}

#[test]
fn events_do_not_put_off_the_timer() {
    for gap_ns in [100, 300, 500, 600, 1000, 2000] {
        let at =
            begun_at(gap_ns).unwrap_or_else(|| panic!("never, with an event every {gap_ns} ns"));
        assert!(at <= Time(1000 + 2 * gap_ns.max(1000)), "only at {at} with one every {gap_ns} ns");
    }
}

/// A transaction on shards of its own node commits before the next one runs.
#[test]
fn tasks_of_one_worker_do_not_conflict() {
    const TASKS: u64 = 64;
    let mut worker = worker();
    let done = Rc::new(Cell::new(0));
    for _ in 0..TASKS {
        let (db, done) = (worker.engine().local(), Rc::clone(&done));
        worker.engine_mut().spawn(Box::pin(async move {
            let table = db.table("t").expect("a table");
            db.transact(async |tx| tx.add(table, b"counter", 1).await).await.expect("committed");
            done.set(done.get() + 1);
        }));
    }
    let mut now = Time(1000);
    worker.step(now, WorkerEvent::Start, &mut WorkerEffects::new());
    for _ in 0..1000 {
        now = now + Duration::from_micros(10);
        worker.step(now, WorkerEvent::Timer, &mut WorkerEffects::new());
    }
    let shoal_engine::metrics::EngineCounters { runtime: counters, stages_ns, own } =
        worker.engine().counters();
    assert_eq!((done.get(), counters.committed, counters.conflicts), (TASKS, TASKS, 0));
    assert_eq!((counters.writers, counters.replicated, own.certified), (TASKS, TASKS, TASKS));
    let [locking_ns, _, awaiting_ns, _] = stages_ns;
    assert!(counters.entering_ns > 0 && awaiting_ns > 0, "four at once are let in: {stages_ns:?}");
    assert_eq!(counters.retrying_ns + locking_ns, 0, "{counters:?} {stages_ns:?}");
}
