//! A cluster in which the leader of a shard crashes for good, for [`failure`](super::failure) and
//! [`rollback`](super::rollback).
//!
//! The managers, the engine and their timeouts are those of a real cluster, with default options. Each client
//! of the micro-benchmark uses its own shard, or that and one other: so a client that waits for the failed
//! shard takes no load off the others, and what healthy shards lose is lost by the failure alone. The clients
//! of the failed shard die with its leader; as many start at the next leader as soon as it is appointed.

use super::options::DemonstrationOptions;
use super::record::{BUCKET, FailureRecord};
use super::testbed::{RunResult, Setting, Testbed};
use super::watched::Watched;
use crate::clock::NodeClock;
use crate::cpu::Cpu;
use crate::managers::ManagersPlan;
use shoal_cluster::manager::{self, LogPace};
use shoal_mako::{Mako, StampForm};
use shoal_types::{Random, ShardId, Time};
use shoal_workloads::placed::PlacedMicro;
use shoal_workloads::workload::Workload;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// The number of shards of the cluster.
pub(super) const SHARDS: u32 = 4;

/// The shard whose leader is crashed, or cut off.
pub(super) const FAILED: ShardId = ShardId(0);

/// The round trip between any two datacenters.
pub(super) const FAR: Duration = Duration::from_millis(50);

/// The longest pause of a client after a transaction that failed.
const AGAIN: Duration = Duration::from_millis(10);

/// Every transaction that was begun ends within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// One of the compared forms.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutageCase {
    /// How stamps are kept, in words.
    pub name: &'static str,
    /// The same for the engine: it decides what is lost with a shard.
    pub form: StampForm,
    /// Whether each leader has a learner in its datacenter, which succeeds it. Otherwise a follower in
    /// another datacenter does.
    pub learner: bool,
}

/// The default form of `mako`.
pub(super) const MAKO: OutageCase = OutageCase {
    name: "mako",
    form: StampForm::Sparse { remote_max: shoal_types::REMOTE_CLOCKS_MAX },
    learner: true,
};

/// As [`MAKO`], without learners: the next leader is a voter in another datacenter.
pub(super) const FAR_SUCCESSOR: OutageCase =
    OutageCase { name: "mako, far successor", learner: false, ..MAKO };

/// One timestamp for all shards.
pub(super) const TIMESTAMP: OutageCase =
    OutageCase { name: "one timestamp", form: StampForm::Timestamp, ..MAKO };

/// Groups of transactions that commit as one.
pub(super) const GROUPS: OutageCase = OutageCase {
    name: "groups of 20 ms",
    form: StampForm::Group { every: Duration::from_millis(20) },
    ..MAKO
};

/// The sizes of an outage.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutagePlan {
    pub cpu: Cpu,
    pub clients: usize,
    pub keys: u32,
    /// Percentage of clients whose transactions touch another shard.
    pub cross_percent: u32,
    /// The longest pause of a client between two transactions.
    pub pause: Duration,
    /// How long the cluster runs before transactions count.
    pub warm_up: Duration,
    /// Time from then until the failure.
    pub before: Duration,
    /// Time from the failure until the end of the run.
    pub after: Duration,
}

/// A running cluster in which a shard fails.
struct OutageRun {
    testbed: Testbed<Mako, PlacedMicro>,
    record: Rc<RefCell<FailureRecord>>,
    plan: OutagePlan,
    seed: u64,
    tick: Box<dyn FnMut(f64)>,
}

/// Runs a cluster in which a shard fails, and returns the record of it.
///
/// # Errors
/// If the cluster did not work, or the data is not what was acknowledged.
pub(super) fn run(
    options: &DemonstrationOptions,
    plan: OutagePlan,
    what: &str,
    case: OutageCase,
) -> RunResult<FailureRecord> {
    let mut outage = OutageRun::new(options, plan, what, case)?;
    for shard in (0..SHARDS).map(ShardId) {
        outage.admit(shard, 0);
    }
    outage.pass(plan.warm_up + plan.before, 0.5)?;
    outage.fail();
    outage.pass(plan.after, 1.0)?;
    outage.finish()?;
    let record = Rc::clone(&outage.record);
    drop(outage);
    Rc::into_inner(record)
        .map(RefCell::into_inner)
        .ok_or_else(|| "the record is still shared".into())
}

fn managed() -> ManagersPlan {
    let datacenters = vec![0, 1, 2];
    let clocks = vec![NodeClock::TRUE; datacenters.len()];
    // A round trip: until the leading manager knows that its command is decided.
    let pace = LogPace::steady(FAR / 2);
    ManagersPlan { datacenters, clocks, pace, options: manager::ManagerOptions::default() }
}

impl OutageRun {
    fn new(
        options: &DemonstrationOptions,
        plan: OutagePlan,
        what: &str,
        case: OutageCase,
    ) -> RunResult<OutageRun> {
        let engine_options =
            shoal_mako::MakoOptions { stamps: case.form, ..shoal_mako::MakoOptions::default() };
        let setting = Setting {
            seed: options.seed,
            shards: SHARDS,
            learners: u32::from(case.learner),
            far: FAR,
            workers: 1,
            cpu: plan.cpu,
            open_max: engine_options.limits.open_max,
        };
        let make =
            |catalog: &_| PlacedMicro::faithful(catalog, SHARDS, plan.keys, plan.cross_percent);
        let (classify, silent) = (Rc::new(|_| 0), Box::new(|_| {}));
        let mut testbed =
            Testbed::managed(setting, engine_options, Some(managed()), make, classify, silent)?;
        let record = Rc::new(RefCell::new(FailureRecord::new(SHARDS, FAILED)));
        let writer = Rc::clone(&record);
        testbed.simulation.watch(Box::new(move |now, sight| writer.borrow_mut().see(now, &sight)));
        let tick = options.tick(what.to_owned());
        Ok(OutageRun { testbed, record, plan, seed: options.seed, tick })
    }

    /// Starts the clients of a shard at its leader, `again` as other clients than before.
    fn admit(&mut self, shard: ShardId, again: u64) {
        let first = shard.0 as usize;
        for number in (first..self.plan.clients).step_by(SHARDS as usize) {
            let place = self.testbed.place(shard, number);
            let client = OutageClient {
                db: self.testbed.watched(place),
                number,
                seed: self.seed + (again << 32),
                pause: self.plan.pause,
                stop: Rc::clone(&self.testbed.stop),
                time: self.testbed.simulation.true_time(),
                record: Rc::clone(&self.record),
            };
            let workload = Rc::clone(&self.testbed.workload);
            self.testbed.spawn(place, client.live(workload));
        }
    }

    /// Lets time pass until a bucket is full. Starts clients at the failed shard once it has another leader.
    fn pass(&mut self, span: Duration, done: f64) -> RunResult<()> {
        let began = self.testbed.simulation.now();
        let bucket = BUCKET.as_nanos() as u64;
        let end = Time((began + span).0.next_multiple_of(bucket));
        let mut waits = self.record.borrow().successor().is_none();
        while self.testbed.simulation.now() < end {
            let until = (self.testbed.simulation.now() + BUCKET / 10).min(end);
            self.testbed.simulation.run_until(until).map_err(|violation| violation.to_string())?;
            self.testbed.recorder.first_error().map_or(Ok(()), Err)?;
            if waits && self.record.borrow().successor().is_some() {
                waits = false;
                self.admit(FAILED, 1);
            }
            let part = (until - began).as_secs_f64() / (end - began).as_secs_f64();
            (self.tick)(done - 0.5 * (1.0 - part));
        }
        Ok(())
    }

    /// Crashes the leader of the shard.
    fn fail(&mut self) {
        let leader = self.testbed.simulation.leader(FAILED);
        self.record.borrow_mut().fails(self.testbed.simulation.now(), leader);
        self.testbed.simulation.fail(leader);
    }

    /// Waits until every client has finished, and judges the data: it holds every acknowledged transaction,
    /// and beside these only transactions whose outcome no client received.
    fn finish(&mut self) -> RunResult<()> {
        self.testbed.stop.set(true);
        self.testbed.wait(PATIENCE)?;
        let found = Rc::new(Cell::new((0, 0)));
        for shard in (0..SHARDS).map(ShardId) {
            let place = self.testbed.place(shard, 0);
            let (db, workload) = (self.testbed.watched(place), Rc::clone(&self.testbed.workload));
            let (sums, recorder) = (Rc::clone(&found), self.testbed.recorder.clone());
            self.testbed.spawn(place, async move {
                match workload.sum(&db, shard).await {
                    Ok((rows, sum)) => sums.set((sums.get().0 + rows, sums.get().1 + sum)),
                    Err(error) => recorder.report_error(format!("the check failed: {error}")),
                }
            });
        }
        self.testbed.wait(PATIENCE)?;
        let (rows, sum) = found.get();
        let (least, open) = (self.testbed.workload.told_sum(), self.open_sum());
        if rows != self.testbed.workload.rows() || sum < least || sum > least + open {
            return Err(format!(
                "{rows} rows have the sum {sum}, which should be from {least} to {}",
                least + open
            ));
        }
        Ok(())
    }

    /// The most that transactions of unknown outcome may have added: each client that died had at most one.
    fn open_sum(&self) -> u64 {
        let died = self.plan.clients.div_ceil(SHARDS as usize) as u64;
        4 * (died + self.record.borrow().unknown)
    }
}

/// A client on a worker; after a failed transaction it goes on.
struct OutageClient {
    db: Watched,
    number: usize,
    seed: u64,
    pause: Duration,
    stop: Rc<Cell<bool>>,
    time: Rc<Cell<Time>>,
    record: Rc<RefCell<FailureRecord>>,
}

impl OutageClient {
    async fn live(self, workload: Rc<PlacedMicro>) {
        let OutageClient { db, number, seed, pause, stop, time, record } = self;
        let mut client = workload.client(number, seed);
        let mut random = Random::new(seed).fork(1 << 32 | number as u64);
        let mut longest = pause;
        while !stop.get() {
            let nanos = random.range_inclusive(1, longest.as_nanos() as u64);
            db.local().sleep(Duration::from_nanos(nanos)).await;
            match workload.next(&db, &mut client).await {
                Ok(_) => {
                    record.borrow_mut().told(time.get(), db.began(), db.touched());
                    longest = pause;
                }
                Err(error) => {
                    record.borrow_mut().not_told(&error);
                    longest = AGAIN;
                }
            }
        }
    }
}
