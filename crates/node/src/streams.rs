//! The streams of a worker: one of its number for every shard of which the node has a replica.
//!
//! The configuration names the leaders. A message with a ballot that this node would know if it existed, and does not
//! know, is counted and dropped before it reaches the stream.

use super::events::{WorkerEffect, WorkerEffects, WorkerMessage};
use super::hosted_stream::{Appointment, EngineRecord, HostedStream};
use super::membership::KnownConfiguration;
use super::records::{DurableRecords, RECORDS_OF_NODE, StreamKey};
use super::worker::{HOST, Worker};
use shoal_cluster::manager::{Assignment, CatchingUp, Incarnation};
use shoal_engine::engine::{EngineRecords, OF_NODE};
use shoal_engine::{Engine, EngineEvent};
use shoal_log::{LogLength, StreamStorage};
use shoal_types::{Ballot, NodeId, ShardId, Time, WorkerPlace};
use std::collections::BTreeMap;

impl<E: Engine> Worker<E> {
    /// Ends the streams of shards of which the configuration gives this node no replica, and what they have stored. To be
    /// called when the engine has received all that they have decided, and before it receives the configuration.
    pub(super) fn end_streams(
        &mut self,
        known: &KnownConfiguration,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        let node = self.node;
        let ended = self.streams.keys().filter(|shard| !known.holds(node, **shard));
        for shard in ended.copied().collect::<Vec<ShardId>>() {
            if let Some(held) = self.streams.remove(&shard) {
                self.refused_appends_before += held.stream.counters().refused_appends;
            }
            self.interrupt_checkpoint(shard, effects);
        }
        let streams = &self.streams;
        self.records.retain(|stream| {
            let (shard, number) = stream;
            *stream == RECORDS_OF_NODE
                || streams.get(shard).is_some_and(|held| held.number == *number)
        });
    }

    /// Begins the streams of shards of which the configuration gives this node a replica.
    fn begin_streams(&mut self, known: &KnownConfiguration) {
        for (shard, assignment) in (0..).map(ShardId).zip(&known.configuration.shards) {
            if assignment.holds(self.node) {
                let (options, new_storage) = (&self.stream_options, self.new_storage);
                let (number, news) = (&mut self.streams_begun, &mut self.news);
                self.streams.entry(shard).or_insert_with(|| {
                    *number += 1;
                    let (members, options) = (assignment.members(), options.clone());
                    let storage = new_storage();
                    if E::RECORDS == EngineRecords::OfStreams && storage.is_recorded() {
                        news.push_back(EngineEvent::RecordsRead { shard, records: Vec::new() });
                    }
                    HostedStream::new(members, options, self.node, storage, *number)
                });
            }
        }
    }

    /// Begins and ends leaderships by the configuration.
    pub(super) fn follow_streams(
        &mut self,
        now: Time,
        known: &KnownConfiguration,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        self.begin_streams(known);
        let shards: Vec<ShardId> = self.streams.keys().copied().collect();
        for shard in shards {
            let Some(assignment) = known.configuration.shard(shard) else { continue };
            let appointment = known.appointment(self.node, assignment);
            let held = self.streams.get_mut(&shard).expect("held");
            let before = held.appointment;
            let continues = appointment.map(|it| it.since) == before.map(|it| it.since);
            held.appointment = appointment;
            if !continues {
                // The engine has received the configuration and has stepped down: entries that are decided now arrive there
                // as another leader's.
                held.own_from = None;
            }
            let members = shoal_log::StreamEvent::Members { members: assignment.members() };
            self.stream_step(now, shard, members, effects);
            let votes = known.is_admitted(self.node)
                && assignment.full_voters().any(|voter| voter == self.node);
            self.stream_step(now, shard, shoal_log::StreamEvent::Votes { votes }, effects);
            for replica in assignment.voters.iter().chain(&assignment.learners) {
                self.meet(now, shard, *replica, known.instance_of(*replica), effects);
            }
            if before.is_some() && appointment.is_none() && assignment.leader == self.node {
                // It hands over: what it has under way is for the next leader to decide.
                self.stream_step(now, shard, shoal_log::StreamEvent::Resign, effects);
            }
            if before != appointment
                && let Some(Appointment { ballot, .. }) = appointment
            {
                let event = shoal_log::StreamEvent::Lead { ballot, continues };
                self.stream_step(now, shard, event, effects);
            }
        }
    }

    /// More changes of each stream are durable.
    pub(super) fn persist(
        &mut self,
        now: Time,
        changes: usize,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        let shards: Vec<ShardId> = self.streams.keys().copied().collect();
        for shard in shards {
            let held = self.streams.get_mut(&shard).expect("held");
            if held.stream.storage().pending() > 0 {
                held.stream.storage_mut().persist(changes);
                self.stream_step(now, shard, shoal_log::StreamEvent::Persisted, effects);
            }
        }
    }

    /// So many more records of all streams are durable. Those of streams that have ended since count for nothing.
    pub(super) fn recorded(
        &mut self,
        now: Time,
        records: u64,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        let durable = self.records.persist(records);
        self.are_durable(now, durable, effects);
    }

    /// So much more of these streams is durable.
    pub(super) fn are_durable(
        &mut self,
        now: Time,
        durable: BTreeMap<StreamKey, DurableRecords>,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        for ((shard, number), DurableRecords { changes, of_engine }) in durable {
            if (shard, number) == RECORDS_OF_NODE {
                self.news.push_back(EngineEvent::Recorded { shard, records: of_engine });
                continue;
            }
            let held = self.streams.get_mut(&shard).filter(|held| held.number == number);
            let Some(held) = held else { continue };
            if changes > 0 {
                held.stream.storage_mut().persist(changes);
                self.stream_step(now, shard, shoal_log::StreamEvent::Persisted, effects);
            }
            if of_engine > 0 {
                self.news.push_back(EngineEvent::Recorded { shard, records: of_engine });
            }
        }
    }

    /// Whether the engine's records of the node are in this worker's log.
    pub(super) fn has_records_of_node(&self) -> bool {
        let is_on_disk = || (self.new_storage)().is_recorded();
        E::RECORDS == EngineRecords::OfNode && self.worker == HOST && is_on_disk()
    }

    /// Passes to the engine the snapshots of the last checkpoint, the entries behind them that were decided, or accepted under
    /// another node, in former processes, and its own records. From a log on disk it receives what was accepted under any ballot, and
    /// then the ballot that is promised, which may be this node's.
    pub(super) fn recall(&mut self) {
        for (shard, held) in &mut self.streams {
            let (ballot, accepted) = (held.stream.ballot(), held.stream.accepted_ballot());
            let is_recorded = E::RECEIVES_ACCEPTED && held.stream.storage().is_recorded();
            if is_recorded && accepted != Ballot::default() {
                self.news.push_back(EngineEvent::Promised { shard: *shard, ballot: accepted });
            }
            // One that stands for no entries is none.
            let snapshot = self.snapshots.remove(shard);
            if let Some((length, state)) = snapshot.filter(|(length, _)| *length > LogLength::ZERO)
            {
                // Its entries are nowhere else: without the parts, the replica would lead with what it has lost.
                assert!(
                    self.read.contains(shard),
                    "the parts of {shard} in the checkpoint were not read"
                );
                held.delivered = length.0;
                self.news.push_back(EngineEvent::Restored { shard: *shard, state });
            }
            if E::RECEIVES_ACCEPTED
                && !is_recorded
                && ballot != Ballot::default()
                && ballot.node != self.node
            {
                self.news.push_back(EngineEvent::Promised { shard: *shard, ballot });
            }
            held.decided(*shard, held.stream.decided(), &mut self.news);
            if is_recorded {
                held.stored(*shard, &mut self.news);
                if ballot != accepted {
                    self.news.push_back(EngineEvent::Promised { shard: *shard, ballot });
                }
            } else if E::RECEIVES_ACCEPTED {
                held.accepted(*shard, self.node, &mut self.news);
            }
            if E::RECORDS == EngineRecords::OfStreams && held.stream.storage().is_recorded() {
                let records = self.engine_records.remove(shard).unwrap_or_default();
                self.news.push_back(EngineEvent::RecordsRead { shard: *shard, records });
            }
        }
        if self.has_records_of_node() {
            let (shard, records) = (OF_NODE, self.engine_records.remove(&OF_NODE));
            if let Some((_, state)) = self.snapshots.remove(&shard) {
                self.news.push_back(EngineEvent::Restored { shard, state });
            }
            let records = records.unwrap_or_default();
            self.news.push_back(EngineEvent::RecordsRead { shard, records });
        }
    }

    /// Notes the incarnation of a replica. Messages of its earlier processes are void.
    fn meet(
        &mut self,
        now: Time,
        shard: ShardId,
        replica: NodeId,
        instance: Incarnation,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        let held = self.streams.get_mut(&shard).expect("held");
        let before = held.incarnations.insert(replica, instance);
        if before.is_some_and(|before| before > instance) {
            held.incarnations.insert(replica, before.unwrap_or(instance));
        } else if before.is_some_and(|before| before < instance) {
            self.stream_step(now, shard, shoal_log::StreamEvent::Reborn { replica }, effects);
        }
    }

    /// Handles a message of a stream, whose replicas belong to workers of the same number.
    pub(super) fn stream_message(
        &mut self,
        now: Time,
        from: WorkerPlace,
        shard: ShardId,
        incarnation: Incarnation,
        message: shoal_log::StreamMessage,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        if from.worker != self.worker {
            self.bad_messages += 1;
            return;
        }
        let from = from.node;
        let Some(held) = self.streams.get(&shard) else {
            self.strays += 1;
            return;
        };
        let Some(known) = &self.known else {
            self.strays += 1; // This node has not joined, and cannot check the message.
            return;
        };
        let newer = !self.membership.is_fixed();
        let is_known =
            |instance: &Incarnation| *instance == incarnation || (*instance < incarnation && newer);
        match held.incarnations.get(&from).map(is_known) {
            Some(true) => {}
            Some(false) => {
                self.strays += 1; // A former process of the node sent it, or one of which this node does not know yet.
                return;
            }
            None => {
                self.bad_messages += 1;
                return;
            }
        }
        let assignment = known.configuration.shard(shard);
        let credible = assignment
            .is_some_and(|assignment| self.is_credible(from, known, assignment, &message));
        if !credible {
            self.bad_messages += 1;
            return;
        }
        if let shoal_log::StreamMessage::Snapshot { length, state, .. } = &message
            && !self.engine.may_restore(shard, from, length.0, state)
        {
            self.strays += 1; // The sender repeats the request.
            return;
        }
        self.meet(now, shard, from, incarnation, effects);
        let event = shoal_log::StreamEvent::Received { from, message };
        self.stream_step(now, shard, event, effects);
    }

    /// Whether this can be a message between replicas of the stream, under its leader or one that is appointed in a later
    /// configuration.
    fn is_credible(
        &self,
        from: NodeId,
        known: &KnownConfiguration,
        assignment: &Assignment,
        message: &shoal_log::StreamMessage,
    ) -> bool {
        let ballot = message.ballot();
        let changes = !self.membership.is_fixed();
        let is_unknown = changes && ballot.epoch > known.configuration.epoch;
        let says = match message {
            // A replica would have promised another ballot, or begun anew.
            shoal_log::StreamMessage::Rejected { .. }
            | shoal_log::StreamMessage::Snapshot { .. } => changes,
            shoal_log::StreamMessage::Prepare { .. }
            | shoal_log::StreamMessage::Promise { .. }
            | shoal_log::StreamMessage::Fetch { .. }
            | shoal_log::StreamMessage::Append { .. }
            | shoal_log::StreamMessage::Accepted { .. }
            | shoal_log::StreamMessage::Decide { .. } => true,
        };
        says && assignment.holds(from)
            && assignment.holds(ballot.node)
            && (ballot == assignment.ballot || is_unknown)
    }

    /// Passes an event to a stream, and executes its effects.
    pub(super) fn stream_step(
        &mut self,
        now: Time,
        shard: ShardId,
        event: shoal_log::StreamEvent,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        let incarnation = self.known.as_ref().map_or(Incarnation(0), |known| known.incarnation);
        let held = self.streams.get_mut(&shard).expect("messages of others are dropped before");
        let mut wanted = Vec::new();
        let promised = held.stream.ballot();
        held.stream.step(now, event, &mut wanted);
        let key = (shard, held.number);
        self.records.add(key, held.stream.storage_mut().take_records());
        self.take_engine_records(shard);
        let held = self.streams.get_mut(&shard).expect("held");
        let news = &mut self.news;
        let ballot = held.stream.ballot();
        if ballot > promised && ballot.node != self.node {
            news.push_back(EngineEvent::Promised { shard, ballot });
        }
        let mut is_restored = false;
        for effect in wanted {
            match effect {
                shoal_log::StreamEffect::Send { to, message } => {
                    let to = WorkerPlace { node: to, worker: self.worker };
                    let message = WorkerMessage::Stream { shard, incarnation, message };
                    effects.effects.push(WorkerEffect::Send { to, message });
                }
                // A ballot of a former appointment leads nothing for the engine, which has stepped down: the promises that
                // it waited for may come to count with later members.
                shoal_log::StreamEffect::Leading { ballot, .. } if !held.is_appointed(ballot) => {}
                shoal_log::StreamEffect::Leading { ballot, length } => {
                    held.own_from.get_or_insert(length.0);
                    news.push_back(EngineEvent::Leading { shard, ballot, length: length.0 });
                }
                shoal_log::StreamEffect::Deposed { by } => {
                    held.own_from = None;
                    news.push_back(EngineEvent::Deposed { shard, by });
                }
                shoal_log::StreamEffect::Decided { length } => {
                    if E::RECEIVES_ACCEPTED {
                        held.accepted(shard, self.node, news);
                    }
                    held.decided(shard, length, news);
                }
                shoal_log::StreamEffect::Timer { at } => held.timer = Some(at),
                shoal_log::StreamEffect::SnapshotWanted { to } => {
                    // Where nodes never begin anew, or begin with the first entry, entries are cut only when every
                    // replica has them: a replica that asks for one again has said what is not so, now or before.
                    match self.membership.is_fixed() || self.engine.may_cut(shard).is_none() {
                        true => self.bad_messages += 1,
                        false => {
                            news.push_back(EngineEvent::SnapshotWanted { shard, to });
                        }
                    }
                }
                shoal_log::StreamEffect::Restored { length, state } => {
                    held.delivered = length.0;
                    news.push_back(EngineEvent::Restored { shard, state });
                    is_restored = true;
                }
            }
        }
        if E::RECEIVES_ACCEPTED {
            held.accepted(shard, self.node, news);
        }
        if is_restored {
            self.interrupt_checkpoint(shard, effects);
        }
        self.trim(now, shard, effects);
        self.note_caught_up(shard, effects);
    }

    /// Takes the engine's records of a shard that stand behind what its stream has recorded.
    pub(super) fn take_engine_records(&mut self, shard: ShardId) {
        let held = self.streams.get_mut(&shard).expect("held");
        while let Some(EngineRecord { record, is_first }) = held.next_record() {
            self.records.add_of_engine((shard, held.number), record, is_first);
        }
    }

    /// Truncates the entries that every replica has, and those that are too many to be kept for the others.
    fn trim(
        &mut self,
        now: Time,
        shard: ShardId,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        let held = self.streams.get_mut(&shard).expect("held");
        if held.delivered.saturating_sub(held.stream.start().0) < self.trim_entries {
            return; // Mostly there is too little to look any further.
        }
        let everywhere = held.stream.replicated_everywhere().0.min(held.delivered);
        let before = match self.engine.may_cut(shard) {
            _ if self.membership.is_fixed() => everywhere,
            // A node that begins anew reads the stream from the beginning.
            None => return,
            Some(stable) => {
                let retained = held.stream.storage().log().tail(self.retain_bytes).0;
                let taken = held.receivers_have(now, self.retain_bytes);
                everywhere.max(retained.min(taken)).min(held.delivered).min(stable)
            }
        };
        if before.saturating_sub(held.stream.start().0) >= self.trim_entries {
            let trim = shoal_log::StreamEvent::Trim { before: LogLength(before) };
            self.stream_step(now, shard, trim, effects);
        }
    }

    /// Reports to the manager the replicas that have caught up, of those about which it waits.
    pub(super) fn note_caught_up(
        &mut self,
        shard: ShardId,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        let (Some(known), Some(held)) = (&self.known, self.streams.get(&shard)) else { return };
        let Some(assignment) = known.configuration.shard(shard) else { return };
        let ballot = held.stream.ballot();
        if !held.stream.is_leading() || !held.is_appointed(ballot) {
            return;
        }
        for CatchingUp { node: replica, .. } in assignment.catching_up() {
            let instance = known.instance_of(replica);
            let here = replica == self.node || held.incarnations.get(&replica) == Some(&instance);
            if here
                && held.stream.has_caught_up(replica)
                && self.engine.has_caught_up(shard, replica)
                && self.membership.caught_up(self.worker, shard, replica, ballot, instance)
                && let Some(nudge) = self.nudge_host()
            {
                effects.effects.push(nudge);
            }
        }
    }
}

impl KnownConfiguration {
    /// The process of a node that is admitted.
    fn instance_of(&self, node: NodeId) -> Incarnation {
        let standing = self.configuration.nodes.get(node.0 as usize);
        standing.map_or(Incarnation(0), |standing| standing.incarnation)
    }

    /// Whether the configuration gives the node a replica of the shard.
    fn holds(&self, node: NodeId, shard: ShardId) -> bool {
        self.configuration.shard(shard).is_some_and(|assignment| assignment.holds(node))
    }

    /// Whether `incarnation`, of a message of `node`, is the admitted process of that node.
    pub(super) fn is_admitted(&self, node: NodeId) -> bool {
        self.instance_of(node) == self.incarnation
    }

    /// The appointment of `node`, in this process, to lead a shard, if it has one.
    fn appointment(&self, node: NodeId, assignment: &Assignment) -> Option<Appointment> {
        let Assignment { ballot, since, .. } = *assignment;
        assignment.is_led_by(node, self.incarnation).then_some(Appointment { ballot, since })
    }
}
