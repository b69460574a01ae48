//! A worker that waits for something always has a timer on its way.
use shoal_cluster::topology::Topology;
use shoal_engine::engine::Setup;
use shoal_engine::{Engine, Procedures};
use shoal_mako::{Mako, MakoOptions};
use shoal_node::{Worker, WorkerEffect, WorkerEffects, WorkerEvent, WorkerOrigin};
use shoal_types::{NodeId, Time, WorkerId};
use std::sync::Arc;
use std::time::Duration;

fn timers(
    worker: &mut Worker<Mako>,
    now: Time,
    event: WorkerEvent<<Mako as Engine>::Message>,
) -> Vec<Time> {
    let mut effects = WorkerEffects::new();
    worker.step(now, event, &mut effects);
    let timer = |effect: &WorkerEffect<_>| match effect {
        WorkerEffect::Timer { at } => Some(*at),
        WorkerEffect::Send { .. }
        | WorkerEffect::Reply(_)
        | WorkerEffect::Nudge { .. }
        | WorkerEffect::Tell { .. }
        | WorkerEffect::Write { .. }
        | WorkerEffect::Checkpoint(_)
        | WorkerEffect::Superseded => None,
    };
    effects.effects.iter().filter_map(timer).collect()
}

/// One timer is kept for a worker. When one goes off that was asked for long ago, the one that was
/// asked for since is gone.
#[test]
fn a_timer_that_goes_off_too_early_is_asked_for_again() {
    let setup = Setup {
        topology: Arc::new(Topology::symmetric(1, 1, 3, 0, 1)),
        procedures: Arc::new(Procedures::new()),
        streams: shoal_log::StreamOptions::default(),
        options: MakoOptions::default(),
    };
    let shared = Mako::share(&setup, NodeId(0));
    let mut worker = Worker::new(
        WorkerId(0),
        NodeId(0),
        &setup,
        shared,
        WorkerOrigin::fixed(&setup.topology, 1),
    );
    let first = timers(&mut worker, Time(1000), WorkerEvent::Start);
    assert_eq!(first.len(), 1, "the leader waits for promises");
    let early = Time(1000) + Duration::from_millis(1);
    assert!(early < first[0]);
    assert_eq!(timers(&mut worker, early, WorkerEvent::Timer), first);
}
