//! A worker's step: events go to the engine or to a stream, and what one of them wants of the other
//! is done on the spot.
//!
//! ```text
//!            ┌────────── propose ─────────┐
//!   event ─► engine                    streams ─► effects
//!     │      └◄── durable, decided ───────┘
//!     └────► member ─► membership ─► engines and streams of all workers
//! ```
//! Worker k of a node leads stream k of every shard that the node leads, and holds stream k of every
//! shard of which the node has a replica: messages of streams go from worker k to worker k. Those of engines go from any
//! worker to any other, also of the same node. One worker hosts the node's member of the cluster, which talks with the
//! configuration manager.
//!
//! Invariant: a step leaves nothing for later. What an engine proposed is in its stream, and what a
//! stream decided has been passed to the engine. And all happens in order: a stream of one voter decides an entry
//! when it is proposed, and the engine receives that event once all its earlier effects are executed.

use super::checkpoint_state::Checkpoints;
use super::events::{WorkerEffect, WorkerEffects, WorkerEvent, WorkerMessage};
use super::hosted_stream::{EngineRecord, HostedStream};
use super::membership::{KnownConfiguration, Membership};
use super::records::{PendingRecords, RECORDS_OF_NODE};
use super::recovery::RecoveredWorker;
use super::tables::{self, TableClients};
use bytes::Bytes;
use shoal_cluster::manager::{
    Ask, Configuration, Generation, ManagerClient, ManagerClientEffect, ManagerClientEvent,
    ManagerRequest, TableChange, ToNode,
};
use shoal_cluster::topology::Topology;
use shoal_engine::Engine;
use shoal_engine::client::{ClientId, ClientRequest, RequestFromClient};
use shoal_engine::engine::{OF_NODE, Setup};
use shoal_engine::events::EngineEvent;
use shoal_log::{LogLength, MemoryStorage, Stream, StreamMembers};
use shoal_types::{
    Epoch, Error, EventTimes, NodeId, Rejected, ShardId, TableId, Time, WorkerId, WorkerPlace,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The worker that hosts a node's member of the cluster.
pub(super) const HOST: WorkerId = WorkerId(0);

/// How a worker begins.
#[derive(Debug)]
pub struct WorkerOrigin {
    /// What the workers of its node know of the cluster.
    pub membership: Arc<Membership>,
    /// The node's member, for the worker that hosts it: the first.
    pub manager_client: Option<ManagerClient>,
    /// What its streams had stored in a former process.
    pub recovered: RecoveredWorker,
    /// Makes the storage of a stream that has stored nothing.
    pub new_storage: fn() -> MemoryStorage,
    /// All its chance is drawn from this.
    pub seed: u64,
}

impl WorkerOrigin {
    /// A worker in its first process, in a cluster whose configuration never changes.
    pub fn fixed(topology: &Arc<Topology>, seed: u64) -> WorkerOrigin {
        let membership = Membership::fixed(topology);
        let new_storage = MemoryStorage::new;
        WorkerOrigin {
            membership,
            manager_client: None,
            recovered: RecoveredWorker::default(),
            new_storage,
            seed,
        }
    }
}

/// One worker of a node.
pub struct Worker<E: Engine> {
    pub(super) node: NodeId,
    pub(super) worker: WorkerId,
    pub(super) engine: E,
    pub(super) membership: Arc<Membership>,
    manager_client: Option<ManagerClient>,
    /// Clients that wait for a change of tables.
    table_clients: TableClients,
    /// The configuration, as far as this worker has followed it.
    pub(super) known: Option<KnownConfiguration>,
    /// The version of that.
    known_version: u64,
    /// See [`Worker::exceeds`].
    exceeds: Option<ShardId>,
    /// The engine has received what is stored of former processes, or is about to.
    has_begun: bool,
    /// The member, if this worker hosts it, takes events: see [`Membership::have_all_begun`].
    has_member_begun: bool,
    /// The engine takes a step, or its effects are carried out.
    is_in_engine_step: bool,
    /// The streams of this worker's number, of every shard of which the node has a replica: by the configuration, and before
    /// there is one by the topology and what is stored.
    pub(super) streams: BTreeMap<ShardId, HostedStream>,
    /// How many streams this worker has begun.
    pub(super) streams_begun: u64,
    /// Of the streams that have ended: see [`refused_appends`](Worker::refused_appends).
    pub(super) refused_appends_before: u64,
    /// What streams have recorded for the log on disk.
    pub(super) records: PendingRecords,
    pub(super) checkpoints: Checkpoints,
    /// The snapshots of the last checkpoint, until the engine has received them.
    pub(super) snapshots: BTreeMap<ShardId, (LogLength, Bytes)>,
    /// The engine's records in the log on disk, until it has received them.
    pub(super) engine_records: BTreeMap<ShardId, Vec<Bytes>>,
    /// The shards of which the engine has received parts of that checkpoint.
    pub(super) read: BTreeSet<ShardId>,
    /// How streams pace themselves.
    pub(super) stream_options: shoal_log::StreamOptions,
    /// See [`WorkerOrigin::new_storage`].
    pub(super) new_storage: fn() -> MemoryStorage,
    /// A stream is cut when so many entries may be.
    pub(super) trim_entries: u64,
    /// It keeps so many bytes for replicas that lack them.
    pub(super) retain_bytes: u64,
    timer: WakeUp,
    /// The events that the engine still has to handle in this step.
    pub(super) news: VecDeque<EngineEvent<E::Message>>,
    /// See [`Worker::strays`].
    pub(super) strays: u64,
    /// Messages about streams that no replica of ours says.
    pub(super) bad_messages: u64,
}

/// When this worker was asked to come back.
#[derive(Debug, Default)]
struct WakeUp {
    engine: Option<Time>,
    manager_client: Option<Time>,
    /// What was asked for last; the same is not asked for twice.
    asked: Option<Time>,
}

impl<E: Engine> Worker<E> {
    /// A worker of `node`, whose workers share `shared`.
    ///
    /// # Panics
    /// If another worker than the first is to host the member.
    pub fn new(
        worker: WorkerId,
        node: NodeId,
        setup: &Setup<E::Options>,
        shared: Arc<E::Shared>,
        origin: WorkerOrigin,
    ) -> Worker<E> {
        let WorkerOrigin { membership, manager_client, recovered, new_storage, seed } = origin;
        let RecoveredWorker { mut storages, snapshots, engine_records } = recovered;
        assert!(manager_client.is_none() || worker == HOST, "{HOST} hosts the member");
        let topology = &setup.topology;
        let held: BTreeSet<ShardId> =
            topology.shards_of(node).chain(storages.keys().copied()).collect();
        let held = held.into_iter().zip(1..).map(|(shard, number)| {
            let storage = storages.remove(&shard).unwrap_or_else(new_storage);
            let members = StreamMembers {
                voters: topology.voters(shard).to_vec(),
                learners: topology.learners(shard).to_vec(),
                all_promise: false,
            };
            let options = setup.streams.clone();
            (shard, HostedStream::new(members, options, node, storage, number))
        });
        let streams: BTreeMap<ShardId, HostedStream> = held.collect();
        Worker {
            node,
            worker,
            engine: E::new(worker, shared, seed),
            membership,
            manager_client,
            table_clients: TableClients::default(),
            known: None,
            known_version: 0,
            exceeds: None,
            has_begun: false,
            has_member_begun: false,
            is_in_engine_step: false,
            streams_begun: streams.len() as u64,
            refused_appends_before: 0,
            records: PendingRecords::new(setup.streams.faults),
            checkpoints: Checkpoints::default(),
            snapshots,
            engine_records,
            read: BTreeSet::new(),
            streams,
            stream_options: setup.streams.clone(),
            new_storage,
            trim_entries: setup.streams.trim_entries,
            retain_bytes: setup.streams.retain_bytes,
            timer: WakeUp::default(),
            news: VecDeque::new(),
            strays: 0,
            bad_messages: 0,
        }
    }

    /// Where it is.
    pub(super) fn place(&self) -> WorkerPlace {
        WorkerPlace { node: self.node, worker: self.worker }
    }

    /// The engine that the worker steps.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The engine, to spawn tasks on it.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// This worker's stream of `shard`, if the node has a replica of it.
    pub fn stream(&self, shard: ShardId) -> Option<&Stream> {
        Some(&self.streams.get(&shard)?.stream)
    }

    /// The configuration that this worker follows, if there is one.
    pub fn configuration(&self) -> Option<&Arc<Configuration>> {
        Some(&self.known.as_ref()?.configuration)
    }

    /// The generation of managers that the node follows; that which founded the cluster before it has joined.
    fn generation(&self) -> Generation {
        self.configuration().map_or(Generation(0), |configuration| configuration.generation)
    }

    /// Is this process of the node the one that the configuration admits?
    pub fn is_admitted(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.is_admitted(self.node))
    }

    /// Does the configuration make this node, in this process, the leader of `shard`? It may be taking over.
    pub fn is_appointed(&self, shard: ShardId) -> bool {
        let Some(known) = &self.known else { return false };
        let assignment = known.configuration.shard(shard);
        assignment.is_some_and(|it| it.is_led_by(self.node, known.incarnation))
    }

    /// A shard of which this node knows more than its cluster does, since the loss of the shard's majority was accepted while
    /// the node was away. It takes no more events: the node is to begin anew, without memory.
    pub fn exceeds(&self) -> Option<ShardId> {
        self.exceeds
    }

    /// Until when the node may act on its configuration.
    pub fn lease_end(&self) -> Time {
        self.membership.lease_end()
    }

    /// The node's member of the cluster, if this worker hosts it.
    pub fn manager_client(&self) -> Option<&ManagerClient> {
        self.manager_client.as_ref()
    }

    /// How many things each table holds, by the name of the table: see [`Engine::sizes`].
    pub fn sizes(&self) -> Vec<(&'static str, usize)> {
        let held = self.streams.values();
        let waiting = held.clone().map(HostedStream::waiting_records).sum();
        let entries = held.map(|held| held.stream.accepted().0 - held.stream.start().0);
        let own = [
            ("entries that streams keep", entries.sum::<u64>() as usize),
            ("events for the manager client", self.membership.pending()),
            ("events for the engine", self.news.len()),
            ("records that are not durable", self.records.len()),
            ("records that wait for entries", waiting),
            ("clients that wait for a change of tables", self.table_clients.len()),
        ];
        let manager_client = self.manager_client.iter().flat_map(ManagerClient::sizes);
        self.engine.sizes().into_iter().chain(own).chain(manager_client).collect()
    }

    /// Ends this process, and leaves what its streams have stored.
    pub fn into_storages(self) -> BTreeMap<ShardId, MemoryStorage> {
        let streams = self.streams.into_iter();
        streams.map(|(shard, held)| (shard, held.stream.into_storage())).collect()
    }

    /// Messages about streams that are not here, or came before what goes with them; those that came before this node had joined, and
    /// those of managers and clients that came before it could ask to; of former processes of nodes, of nodes that follow other
    /// managers, and those that came while this node waited for them. A node that starts brings some about.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Messages about streams that no replica of ours says.
    pub fn bad_messages(&self) -> u64 {
        self.bad_messages
    }

    /// Messages with entries that the streams here have not taken, since the disk was too far behind: see
    /// [`StreamOptions::unpersisted_bytes_max`](shoal_log::StreamOptions::unpersisted_bytes_max).
    pub fn refused_appends(&self) -> u64 {
        let now = self.streams.values().map(|held| held.stream.counters().refused_appends);
        self.refused_appends_before + now.sum::<u64>()
    }

    /// The times of the event that is taken next, for an engine that uses the node's transaction clock. What brings about
    /// an event says so before the step.
    pub fn set_times(&mut self, times: EventTimes) {
        debug_assert!(
            times.arrived.time <= times.now.time,
            "it is taken before it arrived: {times:?}"
        );
        self.engine.set_times(times);
    }

    /// Takes one event. The same state and the same event make the same effects.
    pub fn step(
        &mut self,
        now: Time,
        event: WorkerEvent<E::Message>,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        if self.exceeds.is_some() {
            return;
        }
        // Before the configuration is read: when the flag is taken away, that of the new managers is there.
        let is_recalled = self.membership.is_recalled();
        let is_start = matches!(event, WorkerEvent::Start);
        if is_start {
            self.recall();
            self.has_begun = true;
        }
        self.follow(now, effects);
        if self.exceeds.is_some() {
            return;
        }
        match event {
            WorkerEvent::Start => {}
            WorkerEvent::Received { .. } if is_recalled => self.strays += 1,
            // It is sent again.
            WorkerEvent::FromManager { .. } if !self.has_member_begun => self.strays += 1,
            WorkerEvent::Received {
                from,
                message: WorkerMessage::Engine { generation, message },
            } => {
                self.engine_message(now, from, generation, message, effects);
            }
            WorkerEvent::Received {
                from,
                message: WorkerMessage::Stream { shard, incarnation, message },
            } => {
                self.stream_message(now, from, shard, incarnation, message, effects);
            }
            WorkerEvent::Client(RequestFromClient {
                from,
                request: ClientRequest::ChangeTable { ask, change },
            }) => self.change_table(now, from, ask, change, effects),
            WorkerEvent::Client(request) => {
                self.engine_step(now, EngineEvent::Client(request), effects);
            }
            WorkerEvent::FromManager { message: ToNode::Recall { generation, pledges } } => {
                let settled = self.configuration().map(|configuration| configuration.settled);
                let mut epochs = self.engine.known_epochs(settled.unwrap_or_default());
                // A leader that prepares knows the epoch in which it was appointed.
                let ballots = self.streams.values().map(|held| held.stream.ballot().epoch);
                epochs.open = ballots.fold(epochs.open, Epoch::max);
                let event = ManagerClientEvent::Recall { generation, pledges, epochs };
                self.manager_client_step(now, event, effects);
            }
            WorkerEvent::FromManager { message } => {
                self.manager_client_step(now, ManagerClientEvent::Received(message), effects);
            }
            WorkerEvent::Persisted { changes } => self.persist(now, changes, effects),
            WorkerEvent::Recorded { records } => self.recorded(now, records, effects),
            WorkerEvent::CheckpointRead { shard, part } => {
                self.read.insert(shard);
                self.engine_step(now, EngineEvent::CheckpointRead { shard, part }, effects);
            }
            WorkerEvent::Checkpoint => self.want_checkpoint(),
            WorkerEvent::CheckpointWritten { number } => {
                self.checkpoint_written(now, number, effects);
            }
            WorkerEvent::Checkpointed { number, is_durable } => {
                self.checkpointed(now, number, is_durable, effects);
            }
            WorkerEvent::Timer => self.on_timer(now, effects),
            WorkerEvent::Nudged => {
                self.engine_step(now, EngineEvent::Nudged, effects);
            }
        }
        self.pass_news(now, effects);
        if is_start {
            self.membership.begin();
            effects.effects.extend(self.nudge_host());
        }
        self.begin_member(now, effects);
        self.pass_words(now, effects);
        self.write_records(effects);
        self.advance_checkpoint(now, effects);
        self.set_timer(now, effects);
    }

    /// Has what streams have recorded written.
    pub(super) fn write_records(
        &mut self,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        let records = self.records.take_new();
        if !records.is_empty() {
            effects.effects.push(WorkerEffect::Write { records });
        }
    }

    /// Follows the configuration, and lets the engine know how long the lease lasts. The lease is read
    /// first: see [`Membership`].
    fn follow(&mut self, now: Time, effects: &mut WorkerEffects<E::Message, E::Observation>) {
        // A configuration that never changes is there before what is stored is read.
        if !self.has_begun {
            return;
        }
        let lease_end = self.membership.lease_end();
        if let Some(known) = self.membership.news(&mut self.known_version) {
            self.pass_news(now, effects);
            self.exceeds = self.engine.exceeds(&known.configuration);
            if self.exceeds.is_some() {
                effects.effects.push(WorkerEffect::Superseded);
                return;
            }
            self.known = Some(known.clone());
            self.end_streams(&known, effects);
            let (configuration, incarnation) =
                (Arc::clone(&known.configuration), known.incarnation);
            let event = EngineEvent::Configured { configuration, incarnation };
            self.engine_step(now, event, effects);
            self.follow_streams(now, &known, effects);
        }
        self.engine.renew(lease_end);
    }

    /// Asks for the admission of this process when all workers have begun, if this one hosts the member.
    fn begin_member(&mut self, now: Time, effects: &mut WorkerEffects<E::Message, E::Observation>) {
        if !self.has_member_begun && self.may_join() {
            self.has_member_begun = true;
            self.manager_client_step(now, ManagerClientEvent::Timer, effects);
        }
    }

    fn may_join(&self) -> bool {
        let joins_early = self.manager_client.as_ref().is_some_and(ManagerClient::joins_early);
        self.membership.have_all_begun() || joins_early
    }

    /// Has the member take an event, if this worker hosts it.
    fn manager_client_step(
        &mut self,
        now: Time,
        event: ManagerClientEvent,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        let Some(manager_client) = &mut self.manager_client else { return };
        manager_client.withhold_heartbeats(!self.engine.may_lead());
        let mut wanted = Vec::new();
        manager_client.step(now, event, &mut wanted);
        let (lease_end, incarnation) = (manager_client.lease_end(), manager_client.incarnation());
        let is_recalled = manager_client.is_recalled();
        let mut finals = Vec::new();
        for effect in wanted {
            match effect {
                ManagerClientEffect::Send { message } => {
                    effects.effects.push(WorkerEffect::Tell { message });
                }
                ManagerClientEffect::Configured { configuration } => {
                    let incarnation = incarnation.expect("it has joined");
                    self.membership.publish(&configuration, incarnation);
                    self.nudge_others(effects);
                }
                ManagerClientEffect::Final { ends } => finals.push(ends),
                ManagerClientEffect::TableChanged { ask, result } => {
                    self.table_changed(ask, result, effects);
                }
                ManagerClientEffect::Superseded => effects.effects.push(WorkerEffect::Superseded),
                ManagerClientEffect::Timer { at } => self.timer.manager_client = Some(at),
            }
        }
        let lapsed = self.membership.lease_end() <= now;
        self.membership.recall(is_recalled);
        self.membership.renew(lease_end.unwrap_or(Time::ZERO));
        let wakes = lapsed && self.membership.lease_end() > now;
        self.follow(now, effects);
        if self.exceeds.is_some() {
            return;
        }
        if wakes {
            // All have waited for it.
            self.nudge_others(effects);
            self.engine_step(now, EngineEvent::Nudged, effects);
        }
        self.pass_news(now, effects);
        for ends in finals {
            self.engine_step(now, EngineEvent::Settled { ends }, effects);
        }
    }

    /// A client asks for a change of tables, now or once more.
    fn change_table(
        &mut self,
        now: Time,
        client: ClientId,
        ask: Ask,
        change: TableChange,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        if self.membership.is_fixed() {
            return tables::answer(client, ask, Err(Rejected::TablesFixed.into()), effects);
        }
        if self.manager_client.is_none() {
            let error = Rejected::OtherWorker { worker: HOST };
            return tables::answer(client, ask, Err(error.into()), effects);
        }
        if !self.has_member_begun {
            self.strays += 1; // The client asks again.
            return;
        }
        if self.table_clients.add(ask, client) {
            let event = ManagerClientEvent::ChangeTable { ask, change };
            self.manager_client_step(now, event, effects);
        }
    }

    /// The managers have answered.
    fn table_changed(
        &mut self,
        ask: Ask,
        result: Result<TableId, Rejected>,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        if let Some(client) = self.table_clients.take(ask) {
            tables::answer(client, ask, result.map_err(Error::from), effects);
        }
    }

    /// Passes the events of streams to the engine.
    pub(super) fn pass_news(
        &mut self,
        now: Time,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        while let Some(event) = self.news.pop_front() {
            self.engine_step(now, event, effects);
        }
    }

    /// Passes the workers' requests to the manager client.
    fn pass_words(&mut self, now: Time, effects: &mut WorkerEffects<E::Message, E::Observation>) {
        if self.manager_client.is_none() || !self.has_member_begun {
            return;
        }
        for word in self.membership.words() {
            let event = ManagerClientEvent::Request(word);
            self.manager_client_step(now, event, effects);
        }
    }

    /// Has the worker that hosts the member look for what there is to say; unless it is this one, which
    /// does so anyway.
    pub(super) fn nudge_host(&self) -> Option<WorkerEffect<E::Message>> {
        (self.worker != HOST).then_some(WorkerEffect::Nudge { worker: HOST })
    }

    fn nudge_others(&self, effects: &mut WorkerEffects<E::Message, E::Observation>) {
        let workers = (0..self.membership.workers()).map(WorkerId);
        let others = workers.filter(|worker| *worker != self.worker);
        effects.effects.extend(others.map(|worker| WorkerEffect::Nudge { worker }));
    }

    fn on_timer(&mut self, now: Time, effects: &mut WorkerEffects<E::Message, E::Observation>) {
        // Whichever it was that went off, those asked for later were dropped for it: ask again.
        self.timer.asked = None;
        if self.timer.manager_client.take_if(|at| *at <= now).is_some() {
            self.manager_client_step(now, ManagerClientEvent::Timer, effects);
        }
        let due =
            self.streams.iter_mut().filter(|(_, held)| held.timer.is_some_and(|at| at <= now));
        let due: Vec<ShardId> = due
            .map(|(shard, held)| {
                held.timer = None;
                *shard
            })
            .collect();
        for shard in due {
            self.stream_step(now, shard, shoal_log::StreamEvent::Timer, effects);
        }
        if self.timer.engine.take_if(|at| *at <= now).is_some() {
            self.engine_step(now, EngineEvent::Timer, effects);
        }
    }

    fn set_timer(&mut self, now: Time, effects: &mut WorkerEffects<E::Message, E::Observation>) {
        let streams = self.streams.values().filter_map(|held| held.timer);
        let others = [self.timer.engine, self.timer.manager_client, self.checkpoint_due()];
        let Some(at) = streams.chain(others.into_iter().flatten()).min() else { return };
        if self.timer.asked.is_none_or(|asked| at < asked || asked <= now) {
            self.timer.asked = Some(at);
            effects.effects.push(WorkerEffect::Timer { at });
        }
    }

    /// Adds a request to the manager.
    fn say(
        &mut self,
        word: ManagerRequest,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        self.membership.say(word);
        effects.effects.extend(self.nudge_host());
    }

    /// An engine's message to another. A node that follows managers of another generation sends messages about epochs that they may have
    /// begun, and that begin here, too: of these nothing counts.
    fn engine_message(
        &mut self,
        now: Time,
        from: WorkerPlace,
        generation: Generation,
        message: E::Message,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        if generation == self.generation() {
            self.engine_step(now, EngineEvent::Received { from, message }, effects);
        } else {
            self.strays += 1;
        }
    }

    pub(super) fn engine_step(
        &mut self,
        now: Time,
        event: EngineEvent<E::Message>,
        effects: &mut WorkerEffects<E::Message, E::Observation>,
    ) {
        // What a step proposes comes before what a later one does: the engine counts its entries by that.
        let is_nested = std::mem::replace(&mut self.is_in_engine_step, true);
        assert!(!is_nested, "a step of the engine begins before the effects of another are done");
        let generation = self.generation();
        let mut wanted = shoal_engine::EngineEffects {
            effects: Vec::new(),
            observations: effects.observations.take(),
        };
        // What was asked for before stays due until a timer comes: a message does not put it off.
        if matches!(event, EngineEvent::Timer) {
            self.timer.engine = None;
        }
        self.engine.step(now, event, &mut wanted);
        effects.observations = wanted.observations;
        for effect in wanted.effects {
            match effect {
                shoal_engine::EngineEffect::Send { to, message } => {
                    assert!(to != self.place(), "{to} has nothing to send to itself");
                    let message = WorkerMessage::Engine { generation, message };
                    effects.effects.push(WorkerEffect::Send { to, message });
                }
                shoal_engine::EngineEffect::Propose { shard, entry } => {
                    if let Some(held) = self.streams.get_mut(&shard) {
                        held.proposed += 1;
                    }
                    self.stream_step(
                        now,
                        shard,
                        shoal_log::StreamEvent::Propose { entry },
                        effects,
                    );
                }
                shoal_engine::EngineEffect::Snapshot { shard, to, length, state } => {
                    // It may be the end of a copy of a shard of which this node has no replica any more.
                    let Some(held) = self.streams.get_mut(&shard) else { continue };
                    held.give(now, to, length);
                    let event =
                        shoal_log::StreamEvent::Snapshot { to, length: LogLength(length), state };
                    self.stream_step(now, shard, event, effects);
                }
                shoal_engine::EngineEffect::CheckpointPart { shard, part } => {
                    self.checkpoint_part(shard, part, effects);
                }
                shoal_engine::EngineEffect::CheckpointHead { shard, length, state } => {
                    self.checkpoint_head(shard, LogLength(length), state, effects);
                }
                shoal_engine::EngineEffect::Record { shard: OF_NODE, record, is_first } => {
                    self.records.add_of_engine(RECORDS_OF_NODE, record, is_first);
                }
                shoal_engine::EngineEffect::Record { shard, record, is_first } => {
                    let held = self.streams.get_mut(&shard).expect("a stream with records");
                    held.push_record(EngineRecord { record, is_first });
                    self.take_engine_records(shard);
                }
                shoal_engine::EngineEffect::Reply(reply) => {
                    effects.effects.push(WorkerEffect::Reply(reply));
                }
                shoal_engine::EngineEffect::Timer { at } => {
                    let earlier = self.timer.engine.map_or(at, |before| before.min(at));
                    self.timer.engine = Some(earlier);
                }
                shoal_engine::EngineEffect::Manager(request) => self.say(request, effects),
                shoal_engine::EngineEffect::CaughtUp { shard } => {
                    self.note_caught_up(shard, effects);
                }
                shoal_engine::EngineEffect::Nudge { worker } => {
                    effects.effects.push(WorkerEffect::Nudge { worker });
                }
            }
        }
        self.is_in_engine_step = false;
    }
}
