//! What a node learns of others counts only where they follow the same managers, and not while it waits for those.

use shoal_cluster::manager::{
    self, Action, Command, EpochEnd, Generation, Incarnation, KnownEpochs, LeadershipClaim,
    ManagerClient, ProcessInstance, Recollection, StateMachine, Term, ToManager, ToNode,
};
use shoal_cluster::topology::Topology;
use shoal_engine::engine::Setup;
use shoal_engine::{Engine, Procedures};
use shoal_mako::{Mako, MakoOptions};
use shoal_node::{
    Membership, RecoveredWorker, Worker, WorkerEffect, WorkerEffects, WorkerEvent, WorkerMessage,
    WorkerOrigin,
};
use shoal_types::{
    Ballot, Clock, ClusterId, Epoch, NodeId, ShardId, Time, VectorWatermark, WorkerId, WorkerPlace,
};
use std::sync::Arc;

const NOW: Time = Time(1000);
const S: ShardId = ShardId(0);

/// The workers of a process of node 1, which has `lost` its memory or has nothing to remember.
fn begin(topology: Arc<Topology>, lost: bool) -> Vec<Worker<Mako>> {
    let (node, workers) = (NodeId(1), topology.workers());
    let setup = Setup {
        topology,
        procedures: Arc::new(Procedures::new()),
        streams: shoal_log::StreamOptions::default(),
        options: MakoOptions::default(),
    };
    let (shared, membership) = (Mako::share(&setup, node), Membership::new(workers));
    let worker = |number| {
        let manager_client = (number == 0).then(|| {
            let options = manager::ManagerOptions::default();
            ManagerClient::new(node, ProcessInstance(1), lost, options)
        });
        let origin = WorkerOrigin {
            membership: Arc::clone(&membership),
            manager_client,
            recovered: RecoveredWorker::default(),
            new_storage: shoal_log::MemoryStorage::new,
            seed: 1,
        };
        Worker::new(WorkerId(number), node, &setup, Arc::clone(&shared), origin)
    };
    (0..workers).map(worker).collect()
}

/// The node 1 of a shard of three voters, which the manager has admitted with the others, the node 0 in its second process. The
/// epoch 1 is closed.
fn worker() -> Worker<Mako> {
    let topology = Arc::new(Topology::symmetric(1, 1, 3, 0, 1));
    let mut machine = StateMachine::new(Arc::clone(&topology), manager::ManagerOptions::default());
    let mut apply = |action| {
        let command = Command { term: Term(1), at: Time(1), action };
        machine.apply(&command, &mut Vec::new());
    };
    apply(Action::Take { drawn: ClusterId::new(5).expect("not 0") });
    let join = |node: u32, after: u32| {
        let (instance, after) = (ProcessInstance(u64::from(node + 10 * after)), Incarnation(after));
        Action::Join { node: NodeId(node), instance, after, lost: true, last_heartbeat: Time(1) }
    };
    (0..3).for_each(|node| apply(join(node, 0)));
    let ballot = Ballot { epoch: Epoch(1), node: NodeId(0) };
    let claim = LeadershipClaim { node: NodeId(0), incarnation: Incarnation(1), shard: S, ballot };
    apply(Action::Close { claim, epoch: Epoch(1) });
    apply(join(0, 1));
    let mut worker = begin(topology, true).remove(0);
    step(&mut worker, WorkerEvent::Start);
    let configuration = Arc::clone(machine.configuration());
    let message = ToNode::Welcome {
        instance: ProcessInstance(1),
        incarnation: Incarnation(1),
        configuration,
    };
    step(&mut worker, WorkerEvent::FromManager { message });
    worker
}

fn step(
    worker: &mut Worker<Mako>,
    event: WorkerEvent<shoal_mako::MakoMessage>,
) -> Vec<WorkerEffect<shoal_mako::MakoMessage>> {
    let mut effects = WorkerEffects::new();
    worker.step(NOW, event, &mut effects);
    effects.effects
}

/// The first worker of a node.
fn place(node: u32) -> WorkerPlace {
    WorkerPlace { node: NodeId(node), worker: WorkerId(0) }
}

/// Another node reports where the shard has ended epoch 1.
fn hear(worker: &mut Worker<Mako>, from: u32, generation: u64, clock: u64) {
    let mut watermark = VectorWatermark::new(Epoch(1), 1);
    watermark.raise(S, Clock(clock));
    let message = shoal_mako::MakoMessage::Gossip { watermark, ended: vec![S], floor: Clock::ZERO };
    let message = WorkerMessage::Engine { generation: Generation(generation), message };
    step(worker, WorkerEvent::Received { from: place(from), message });
}

/// A manager asks what it remembers, and has it pledge or not.
fn recall(worker: &mut Worker<Mako>, pledges: bool) -> KnownEpochs {
    let generation = Generation(0).next(NodeId(2));
    let effects =
        step(worker, WorkerEvent::FromManager { message: ToNode::Recall { generation, pledges } });
    let recollection = effects.into_iter().find_map(|effect| match effect {
        WorkerEffect::Tell { message: ToManager::Recalled { recollection, .. } } => {
            Some(recollection)
        }
        _ => None,
    });
    let Recollection { epochs, .. } = recollection.expect("it answers");
    epochs
}

#[test]
fn what_a_node_tells_that_follows_other_managers_does_not_count() {
    let mut worker = worker();
    hear(&mut worker, 0, 1 << 32, 9);
    assert_eq!(recall(&mut worker, false).ends[&Epoch(1)], [None]);
    assert_eq!(worker.strays(), 1);
    hear(&mut worker, 0, 0, 8);
    assert_eq!(recall(&mut worker, false).ends[&Epoch(1)], [Some(EpochEnd::up_to(8))]);
}

#[test]
fn a_node_that_waits_for_other_managers_hears_nothing_of_epochs() {
    let mut worker = worker();
    recall(&mut worker, true);
    hear(&mut worker, 2, 0, 8);
    assert_eq!(recall(&mut worker, true).ends[&Epoch(1)], [None]);
    prepare(&mut worker);
    assert_eq!(recall(&mut worker, true).open, Epoch(2));
}

#[test]
fn a_ballot_that_is_promised_tells_of_its_epoch() {
    let mut worker = worker();
    prepare(&mut worker);
    assert_eq!(recall(&mut worker, false).open, Epoch(5));
}

/// A leader of a later epoch prepares.
fn prepare(worker: &mut Worker<Mako>) {
    let ballot = Ballot { epoch: Epoch(5), node: NodeId(2) };
    let (accepted_ballot, none) = (Ballot::default(), shoal_log::LogLength(0));
    let message = shoal_log::StreamMessage::Prepare {
        ballot,
        accepted_ballot,
        accepted: none,
        decided: none,
    };
    let message = WorkerMessage::Stream { shard: S, incarnation: Incarnation(1), message };
    step(worker, WorkerEvent::Received { from: place(2), message });
}

/// The other worker may have read what no other knows of a shard, when the managers ask what this node knows of it.
#[test]
fn a_node_asks_to_be_admitted_when_all_of_its_workers_have_begun() {
    let mut workers = begin(Arc::new(Topology::symmetric(1, 1, 3, 0, 2)), false).into_iter();
    let [mut host, mut other] = [(); 2].map(|()| workers.next().expect("two workers"));
    let tells = |effects: Vec<WorkerEffect<shoal_mako::MakoMessage>>| {
        effects.iter().any(|effect| matches!(effect, WorkerEffect::Tell { .. }))
    };
    assert!(!tells(step(&mut host, WorkerEvent::Start)));
    let recall = ToNode::Recall { generation: Generation(0).next(NodeId(2)), pledges: false };
    let answers = step(&mut host, WorkerEvent::FromManager { message: recall });
    assert!(!tells(answers), "it does not know what the other has read");
    let wakes = step(&mut other, WorkerEvent::Start);
    let is_nudge = |it: &WorkerEffect<_>| matches!(it, WorkerEffect::Nudge { worker } if *worker == WorkerId(0));
    assert!(wakes.iter().any(is_nudge), "the host waits for it");
    assert!(tells(step(&mut host, WorkerEvent::Nudged)));
}
