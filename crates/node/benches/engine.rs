//! What an engine costs: one shard, three replicas, all of them in one thread, on a network that takes
//! no time. Each node's steps are timed by themselves, so that what is printed is what a core of a
//! leader, and one of a follower, could do.
//!
//! `cargo bench -p shoal-node --bench engine [-- SECONDS] [ENGINE]`

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::engine::Setup;
use shoal_engine::{Engine, Procedures};
use shoal_mako::Mako;
use shoal_node::{Worker, WorkerEffect, WorkerEffects, WorkerEvent, WorkerOrigin};
use shoal_two_phase_commit::TwoPhaseCommit;
use shoal_types::{NodeId, Time, WorkerId, WorkerPlace};
use shoal_workloads::micro::Micro;
use shoal_workloads::workload::Workload;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KEYS: u32 = 100_000;
const CLIENTS: usize = 2000;

struct Bench<E: Engine> {
    workers: Vec<Worker<E>>,
    queue: VecDeque<(usize, WorkerEvent<E::Message>)>,
    timers: Vec<Option<Time>>,
    spent: Vec<Duration>,
    began: Instant,
    effects: WorkerEffects<E::Message, E::Observation>,
}

impl<E: Engine> Bench<E> {
    fn new(options: E::Options) -> Bench<E> {
        let tables = [("micro", Partitioning::Hash { prefix_bytes: 0 })];
        let topology = Topology::symmetric(1, 1, 3, 0, 1).with_tables(tables);
        let setup = Setup {
            topology: Arc::new(topology.expect("a valid topology")),
            procedures: Arc::new(Procedures::new()),
            streams: shoal_log::StreamOptions::default(),
            options,
        };
        let worker = |node| {
            let origin = WorkerOrigin::fixed(&setup.topology, 1);
            Worker::new(WorkerId(0), node, &setup, E::share(&setup, node), origin)
        };
        let nodes = setup.topology.nodes().iter().map(|node| node.id);
        let workers: Vec<Worker<E>> = nodes.map(worker).collect();
        Bench {
            queue: (0..workers.len()).map(|at| (at, WorkerEvent::Start)).collect(),
            timers: vec![None; workers.len()],
            spent: vec![Duration::ZERO; workers.len()],
            workers,
            began: Instant::now(),
            effects: WorkerEffects::new(),
        }
    }

    /// Takes what is next: a message, or a timer that is due.
    fn turn(&mut self) {
        let now = Time(self.began.elapsed().as_nanos() as u64);
        let due = |timer: &Option<Time>| timer.is_some_and(|at| at <= now);
        if let Some(at) = self.timers.iter().position(due) {
            self.timers[at] = None;
            self.step(at, now, WorkerEvent::Timer);
        }
        if let Some((at, event)) = self.queue.pop_front() {
            self.step(at, now, event);
        }
    }

    fn step(&mut self, at: usize, now: Time, event: WorkerEvent<E::Message>) {
        let began = Instant::now();
        self.workers[at].step(now, event, &mut self.effects);
        self.spent[at] += began.elapsed();
        for effect in self.effects.effects.drain(..) {
            match effect {
                WorkerEffect::Send { to, message } => {
                    let from = WorkerPlace { node: NodeId(at as u32), ..to };
                    let to = to.node.0 as usize;
                    self.queue.push_back((to, WorkerEvent::Received { from, message }));
                }
                WorkerEffect::Timer { at: time } => {
                    let earlier = self.timers[at].map_or(time, |before| before.min(time));
                    self.timers[at] = Some(earlier);
                }
                WorkerEffect::Nudge { .. } => self.queue.push_back((at, WorkerEvent::Nudged)),
                WorkerEffect::Reply(_)
                | WorkerEffect::Tell { .. }
                | WorkerEffect::Write { .. }
                | WorkerEffect::Checkpoint(_)
                | WorkerEffect::Superseded => {}
            }
        }
    }

    fn run_while(&mut self, mut go_on: impl FnMut() -> bool) {
        while go_on() {
            for _ in 0..100 {
                self.turn();
            }
        }
    }

    fn measure(mut self, name: &str, seconds: u64) {
        let db = self.workers[0].engine().local();
        let micro = Rc::new(Micro::new(&db, KEYS).expect("the table is there"));
        let loading = Rc::new(Cell::new(micro.load_parts()));
        for part in 0..micro.load_parts() {
            let (micro, left) = (Rc::clone(&micro), Rc::clone(&loading));
            let db = self.workers[0].engine().local();
            self.workers[0].engine_mut().spawn(Box::pin(async move {
                micro.load(&db, part, 1, &mut |_| {}).await.expect("loaded");
                left.set(left.get() - 1);
            }));
        }
        self.queue.push_back((0, WorkerEvent::Nudged));
        self.run_while(|| loading.get() > 0);
        for number in 0..CLIENTS {
            let micro = Rc::clone(&micro);
            let db = self.workers[0].engine().local();
            self.workers[0].engine_mut().spawn(Box::pin(async move {
                let mut client = micro.client(number, 1);
                loop {
                    micro.next(&db, &mut client).await.expect("nothing goes wrong");
                }
            }));
        }
        self.queue.push_back((0, WorkerEvent::Nudged));
        let warm = Instant::now() + Duration::from_millis(500);
        self.run_while(|| Instant::now() < warm);
        let (before, spent) = (self.workers[0].engine().counters().runtime, self.spent.clone());
        let end = Instant::now() + Duration::from_secs(seconds);
        self.run_while(|| Instant::now() < end);
        let after = self.workers[0].engine().counters().runtime;
        let done = (after.committed - before.committed) as f64;
        let rate = |at: usize| done / (self.spent[at] - spent[at]).as_secs_f64();
        println!(
            "{name:>16}  leader {:>8.0}/s a core   follower {:>8.0}/s a core   {:.1} a batch",
            rate(0),
            rate(1),
            done / (after.batches - before.batches) as f64,
        );
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let seconds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(3);
    let engines = ["mako", "two_phase_commit"];
    let named = |name: &str| words.iter().any(|word| word == name);
    let wanted = |name: &str| named(name) || !engines.into_iter().any(named);
    if wanted(engines[0]) {
        Bench::<Mako>::new(shoal_mako::MakoOptions::default()).measure(engines[0], seconds);
    }
    if wanted(engines[1]) {
        let options = shoal_two_phase_commit::TwoPhaseCommitOptions::default();
        Bench::<TwoPhaseCommit>::new(options).measure(engines[1], seconds);
    }
}
