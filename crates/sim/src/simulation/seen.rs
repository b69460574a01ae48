//! What checkers, coverage points and the digest are shown of a worker's step.

use super::interleaved::OtherActed;
use super::{Simulation, WatchedEvent};
use crate::checks::Moment;
use crate::cluster::SimulatedWorker;
use crate::observed::{Observed, Simulated};
use crate::trace::EventTrace;
use crate::violation::Violation;
use shoal_cluster::topology::TableStanding;
use shoal_engine::WorkerPlace;
use shoal_engine::client::ReplyToClient;
use shoal_log::StreamStorage;
use shoal_node::{Worker, WorkerEffect, WorkerEvent, WorkerMessage};
use std::fmt::Write;

impl<E: Simulated> Simulation<E> {
    /// Traces events from now on, and keeps the last `lines` lines.
    pub fn keep_trace(&mut self, lines: usize) {
        self.trace = Some(EventTrace::new(lines));
    }

    /// Takes the last events of the trace.
    pub fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().map_or_else(Vec::new, EventTrace::into_lines)
    }

    /// Open transactions on all workers.
    pub fn pending(&self) -> usize {
        let workers = self
            .cluster
            .simulated_workers
            .iter()
            .filter_map(|simulated_worker| simulated_worker.worker.as_ref());
        workers.map(|worker| worker.engine().pending()).sum()
    }

    /// Workers with open transactions, and how much each keeps of what, without what it keeps nothing of.
    pub fn pending_places(&self) -> Vec<(WorkerPlace, Vec<(&'static str, usize)>)> {
        let kept = |simulated_worker: &SimulatedWorker<E>| {
            let engine = simulated_worker.worker.as_ref()?.engine();
            let sizes = engine.sizes().into_iter().filter(|(_, size)| *size > 0).collect();
            (engine.pending() > 0).then_some((simulated_worker.place, sizes))
        };
        self.cluster.simulated_workers.iter().filter_map(kept).collect()
    }

    pub(super) fn digest_event(
        &mut self,
        simulated_worker: usize,
        event: &WorkerEvent<E::Message>,
    ) {
        let kind = match event {
            WorkerEvent::Start => 0,
            WorkerEvent::Received { from, message: WorkerMessage::Engine { .. } } => {
                1 | u64::from(from.node.0) << 8
            }
            WorkerEvent::Received { from, message: WorkerMessage::Stream { .. } } => {
                2 | u64::from(from.node.0) << 8
            }
            WorkerEvent::Client(asked) => 3 | asked.from.0 << 8,
            WorkerEvent::Timer => 4,
            WorkerEvent::Nudged => 5,
            WorkerEvent::FromManager { .. } => 6,
            WorkerEvent::Persisted { changes } => 7 | (*changes as u64 & 0xff) << 8,
            WorkerEvent::Recorded { records } => 8 | (*records & 0xff) << 8,
            WorkerEvent::CheckpointRead { .. } => 9,
            WorkerEvent::Checkpoint => 10,
            WorkerEvent::CheckpointWritten { .. } => 11,
            WorkerEvent::Checkpointed { is_durable, .. } => 12 | u64::from(*is_durable) << 8,
        };
        self.digest.word(self.now.0);
        self.digest.word(kind << 16 | simulated_worker as u64);
        if self.is_thorough {
            // A digest takes all that is written into it.
            _ = write!(self.digest, "{event:?}");
        }
    }

    /// Shows the checkers the observations of a step, and those of another worker within it.
    pub(super) fn observe(
        &mut self,
        stepped: usize,
        acted: Option<&OtherActed<E>>,
    ) -> Result<(), Violation> {
        let Some(mut observations) = self.effects.observations.take() else { return Ok(()) };
        if let Some(acted) = acted {
            self.tell_what_is_accepted(acted.simulated_worker)?;
        }
        self.tell_what_is_accepted(stepped)?;
        let mut verdict = Ok(());
        for (at, observation) in observations.drain(..).enumerate() {
            let simulated_worker =
                acted.filter(|it| it.seen.contains(&at)).map_or(stepped, |it| it.simulated_worker);
            let place = self.cluster.simulated_workers[simulated_worker].place;
            let moment = Moment { at: self.now, place };
            self.work.observations += 1;
            if let Some(trace) = &mut self.trace {
                trace.note(self.now, format_args!("  {place} {observation:?}"));
            }
            if let Some(watcher) = &mut self.watcher {
                watcher(self.now, WatchedEvent::Observed(place, &observation));
            }
            observation.cover(&mut self.coverage);
            observation.digest(&mut self.digest);
            let fact = observation.recovery();
            let step = fact.and_then(|fact| self.recoveries.observe(place, fact));
            self.may_crash_in_recovery(step);
            if verdict.is_ok() {
                verdict = self.judge(simulated_worker, moment, &observation);
            }
        }
        self.effects.observations = Some(observations);
        verdict?;
        self.judge_replies(stepped)
    }

    /// Judges the replies of a worker's step to clients.
    pub(super) fn judge_replies(&mut self, simulated_worker: usize) -> Result<(), Violation> {
        let moment =
            Moment { at: self.now, place: self.cluster.simulated_workers[simulated_worker].place };
        let Some(checks) = &mut self.checks else { return Ok(()) };
        let replies = self.effects.effects.iter().filter_map(|effect| match effect {
            WorkerEffect::Reply(ReplyToClient { to, reply }) => Some((*to, reply)),
            WorkerEffect::Send { .. }
            | WorkerEffect::Timer { .. }
            | WorkerEffect::Nudge { .. }
            | WorkerEffect::Tell { .. }
            | WorkerEffect::Write { .. }
            | WorkerEffect::Checkpoint(_)
            | WorkerEffect::Superseded => None,
        });
        for (to, reply) in replies {
            checks.replied(moment, to, reply)?;
        }
        Ok(())
    }

    /// Shows the checkers what a worker's streams have accepted, and under which ballot; and which of them
    /// the worker has begun to lead. A leader shows the entries that it inherited: the checkers know their
    /// facts by their bytes.
    pub(super) fn tell_what_is_accepted(
        &mut self,
        simulated_worker: usize,
    ) -> Result<(), Violation> {
        let Some(worker) = self.cluster.simulated_workers[simulated_worker].worker.as_ref() else {
            return Ok(());
        };
        let place = self.cluster.simulated_workers[simulated_worker].place;
        let mut steps = Vec::new();
        for shard in self.topology.shard_ids() {
            let Some(stream) = worker.stream(shard) else { continue };
            let length = stream.accepted().0;
            if let Some(checks) = &mut self.checks {
                if stream.is_leading()
                    && let Some(taken) = checks.is_news(shard, place.worker, stream.ballot())
                {
                    let first = stream.start().0.max(taken);
                    let entry = |index| Some((index, stream.entry(index)?.clone()));
                    let entries: Vec<_> = (first..length).filter_map(entry).collect();
                    let moment = Moment { at: self.now, place };
                    checks.leads(moment, shard, stream.ballot(), length, &entries)?;
                }
                while stream.is_leading()
                    && let Some(index) = checks.awaited(shard, place)
                    && let Some(entry) = stream.entry(index)
                {
                    checks.entered(shard, place, index, entry.clone());
                }
                let persisted = stream.storage().persisted();
                let (ballot, length) = (persisted.accepted_ballot, persisted.accepted.0);
                checks.accepted(Moment { at: self.now, place }, shard, ballot, length)?;
            }
            if self.recoveries.awaits(shard) {
                steps.extend(self.recoveries.prepares(shard, stream.ballot()));
            }
        }
        steps.into_iter().for_each(|step| self.may_crash_in_recovery(Some(step)));
        Ok(())
    }

    /// Judges an observation, after showing the checkers the entry that it is about.
    fn judge(
        &mut self,
        simulated_worker: usize,
        moment: Moment,
        observation: &E::Observation,
    ) -> Result<(), Violation> {
        let Some(checks) = &mut self.checks else { return Ok(()) };
        if let Some(table) = observation.installed_table() {
            let worker = self.cluster.simulated_workers[simulated_worker].worker.as_ref();
            let known = worker.and_then(Worker::configuration);
            let tables = known.map(|configuration| configuration.topology.tables());
            if tables.is_some_and(|tables| tables.standing(table) == TableStanding::NotGiven) {
                let what = format!("{} serves {table}, which it does not know", moment.place);
                return Err(Violation::new("tables", self.now, what));
            }
        }
        if let Some(shard) = observation.copied() {
            let simulated_workers = self.cluster.workers_of(moment.place.node);
            let simulated_workers = simulated_workers
                .map(|simulated_worker| &self.cluster.simulated_workers[simulated_worker]);
            let held = simulated_workers.filter_map(|simulated_worker| {
                let stream = simulated_worker.worker.as_ref()?.stream(shard)?;
                Some((simulated_worker.place.worker, stream.decided().0))
            });
            checks.holds(held.collect());
        }
        if let Some((shard, index)) = observation.entry() {
            let worker = self.cluster.simulated_workers[simulated_worker].worker.as_ref();
            let stream = worker.and_then(|worker| worker.stream(shard));
            if let Some(entry) = stream.and_then(|stream| stream.entry(index)) {
                checks.entry(shard, moment.place.worker, index, entry);
            }
        }
        checks.observe(moment, observation)
    }
}
