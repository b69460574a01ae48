//! What checkers, coverage points and the digest are shown of a worker's step.

use super::interleaved::OtherActed;
use super::{Sighting, Simulation};
use crate::checks::Moment;
use crate::digest::Digest;
use crate::violation::Violation;
use shoal_engine::{Engine, Observation};
use shoal_log::StreamStorage;
use shoal_node::{WorkerEffect, WorkerEvent, WorkerMessage};
use std::fmt::Write;

impl<E: Engine + 'static> Simulation<E> {
    pub(super) fn digest_event(
        &mut self,
        simulated_worker: usize,
        event: &WorkerEvent<E::Message>,
    ) {
        let kind = match event {
            WorkerEvent::Start => 0,
            WorkerEvent::Received { from, message: WorkerMessage::Engine { .. } } => {
                1 | u64::from(from.0) << 8
            }
            WorkerEvent::Received { from, message: WorkerMessage::Stream { .. } } => {
                2 | u64::from(from.0) << 8
            }
            WorkerEvent::Client { from, .. } => 3 | from.0 << 8,
            WorkerEvent::Timer => 4,
            WorkerEvent::Nudged => 5,
            WorkerEvent::Told { .. } => 6,
            WorkerEvent::Persisted { changes } => 7 | (*changes as u64 & 0xff) << 8,
        };
        self.digest.word(self.now.0);
        self.digest.word(kind << 16 | simulated_worker as u64);
        if self.is_thorough {
            // A digest takes all that is written into it.
            _ = write!(self.digest, "{event:?}");
        }
    }

    /// Shows the checkers what a step did, and what another worker did in the midst of it.
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
                watcher(self.now, Sighting::Observed(place, &observation));
            }
            self.coverage.see(&observation);
            digest_observation(&mut self.digest, &observation);
            let step = self.recoveries.observe(place, &observation);
            self.may_strike(step);
            if verdict.is_ok() {
                verdict = self.judge(simulated_worker, moment, &observation);
            }
        }
        self.effects.observations = Some(observations);
        verdict?;
        self.judge_replies(stepped)
    }

    /// Has the checkers judge what a worker's step answers to clients.
    pub(super) fn judge_replies(&mut self, simulated_worker: usize) -> Result<(), Violation> {
        let moment =
            Moment { at: self.now, place: self.cluster.simulated_workers[simulated_worker].place };
        let Some(checks) = &mut self.checks else { return Ok(()) };
        let replies = self.effects.effects.iter().filter_map(|effect| match effect {
            WorkerEffect::Reply { to, reply } => Some((*to, reply)),
            WorkerEffect::Send { .. }
            | WorkerEffect::Timer { .. }
            | WorkerEffect::Nudge { .. }
            | WorkerEffect::Tell { .. }
            | WorkerEffect::Superseded => None,
        });
        for (to, reply) in replies {
            checks.replied(moment, to, reply)?;
        }
        Ok(())
    }

    /// What the streams of a worker have accepted, and by which ballot; and which of them it has begun to
    /// lead. A leader that has inherited an entry shows it: what it says is known by what it is.
    pub(super) fn tell_what_is_accepted(
        &mut self,
        simulated_worker: usize,
    ) -> Result<(), Violation> {
        let Some(worker) = self.cluster.simulated_workers[simulated_worker].worker.as_ref() else {
            return Ok(());
        };
        let place = self.cluster.simulated_workers[simulated_worker].place;
        let mut steps = Vec::new();
        for shard in self.topology.shards_of(place.node) {
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
                    checks.leads(moment, shard, (stream.ballot(), length), &entries)?;
                }
                while stream.is_leading()
                    && let Some(index) = checks.awaited(shard, place)
                    && let Some(entry) = stream.entry(index)
                {
                    checks.entered(shard, place, index, entry.clone());
                }
                let persisted = stream.storage().persisted();
                let accepted = (persisted.accepted_ballot, persisted.accepted.0);
                checks.accepted(Moment { at: self.now, place }, shard, accepted)?;
            }
            if self.recoveries.awaits(shard) {
                steps.extend(self.recoveries.prepares(shard, stream.ballot()));
            }
        }
        steps.into_iter().for_each(|step| self.may_strike(Some(step)));
        Ok(())
    }

    /// Has the checkers judge an observation, and shows them the entry that it speaks of.
    fn judge(
        &mut self,
        simulated_worker: usize,
        moment: Moment,
        observation: &Observation,
    ) -> Result<(), Violation> {
        let Some(checks) = &mut self.checks else { return Ok(()) };
        if let Observation::Given { shard, .. } = observation {
            let simulated_workers = self.cluster.workers_of(moment.place.node);
            let simulated_workers = simulated_workers
                .map(|simulated_worker| &self.cluster.simulated_workers[simulated_worker]);
            let held = simulated_workers.filter_map(|simulated_worker| {
                let stream = simulated_worker.worker.as_ref()?.stream(*shard)?;
                Some((simulated_worker.place.worker, stream.decided().0))
            });
            checks.holds(held.collect());
        }
        if let Observation::Appended { shard, index, .. } = observation {
            let worker = self.cluster.simulated_workers[simulated_worker].worker.as_ref();
            let stream = worker.and_then(|worker| worker.stream(*shard));
            if let Some(entry) = stream.and_then(|stream| stream.entry(*index)) {
                checks.entry(*shard, moment.place.worker, *index, entry);
            }
        }
        checks.observe(moment, observation)
    }
}

fn digest_observation(digest: &mut Digest, observation: &Observation) {
    let mut words = |kind: u64, one: u64, other: u64| {
        digest.word(kind);
        digest.word(one);
        digest.word(other);
    };
    match observation {
        Observation::Read { transaction, stamp, .. } => {
            words(1, transaction.sequence, stamp.clock.0);
        }
        Observation::Drawn { transaction, clock, .. } => words(2, transaction.sequence, clock.0),
        Observation::Resolved { transaction, clock, .. } => words(3, transaction.sequence, clock.0),
        Observation::Recovered { transaction, clock, .. } => {
            words(24, transaction.sequence, clock.0)
        }
        Observation::Certified { transaction, stamp, .. } => {
            words(4, transaction.sequence, stamp.clock.0);
        }
        Observation::Installed { transaction, stamp, key, value, .. } => {
            words(5, transaction.sequence, stamp.clock.0);
            digest.bytes(key);
            digest.bytes(value.as_deref().unwrap_or_default());
        }
        Observation::Appended { index, safe, .. } => words(6, *index, safe.0),
        Observation::Settled { watermark } => words(10, watermark.epoch().0.into(), 0),
        Observation::Watermark { shard, clock } => words(7, shard.0.into(), clock.0),
        Observation::Told { transaction, stamp, .. } => {
            words(8, transaction.sequence, stamp.clock.0);
        }
        Observation::Applied { stamp, key, won, .. } => {
            words(9, stamp.clock.0, (*won).into());
            digest.bytes(key);
        }
        Observation::Led { shard, ballot, length } => {
            words(11, u64::from(shard.0) << 32 | u64::from(ballot.epoch.0), *length);
        }
        Observation::Serves { shard, ballot } => {
            words(12, shard.0.into(), ballot.epoch.0.into());
        }
        Observation::Acted { shard, ballot } => words(13, shard.0.into(), ballot.epoch.0.into()),
        Observation::Reported { shard, epoch, watermark } => {
            words(14, u64::from(shard.0) << 32 | u64::from(epoch.0), watermark.0);
        }
        Observation::RolledBack { transaction, settled } => {
            words(15, transaction.sequence, u64::from(*settled));
        }
        Observation::Given { cut, rows, undecided, .. } => {
            words(18, cut.0, (rows.len() << 16 | undecided.len()) as u64);
        }
        Observation::Opened { epoch } => words(20, epoch.0.into(), 0),
        Observation::Locked { shard, clock, .. } => words(23, shard.0.into(), clock.0),
        Observation::Swept { shard, stamp } => words(21, shard.0.into(), stamp.clock.0),
        Observation::Copied { shard, cut } => words(22, shard.0.into(), cut.0),
        Observation::Restored { shard } => words(17, u64::from(shard.0), 0),
        Observation::Inherited { shard, stamp, key, .. } => {
            words(19, u64::from(shard.0), stamp.clock.0);
            digest.bytes(key);
        }
        Observation::HeldUp { shard, epoch } => words(16, u64::from(shard.0), u64::from(epoch.0)),
    }
}
