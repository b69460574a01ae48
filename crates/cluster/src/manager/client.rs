//! A node's side of the manager: it joins, sends heartbeats, keeps its lease and the configuration, and
//! repeats reports until the manager has applied them.
//!
//! A node that restarts knows nothing of its former process; the manager sends it the state.

use super::command::{LeadershipClaim, TableChange};
use super::configuration::Configuration;
use super::epoch_end::FinalEnds;
use super::ids::{Ask, Generation, Incarnation, ProcessInstance, Revision};
use super::loss::{Knowledge, LossStage};
use super::message::{ToManager, ToNode};
use super::options::ManagerOptions;
use super::recovery::{KnownEpochs, Recollection};
use super::request::ManagerRequest;
use super::state_machine::CLOSING_MAX;
use shoal_types::{Ballot, ClusterId, Epoch, NodeId, Rejected, ShardId, TableId, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The most heartbeats whose answer is awaited. An older one would grant a lease that has ended.
const HEARTBEATS_MAX: usize = 256;

/// The most changes of tables that are repeated at a time. Another one takes the place of the oldest, which its client asks
/// for again.
const TABLE_REQUESTS_MAX: usize = 64;

/// An event for a node's manager client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagerClientEvent {
    /// A message of a manager has arrived.
    Received(ToNode),
    /// The node's owner makes a request to the manager.
    Request(ManagerRequest),
    /// A client asks for a change of tables. A repeat is legal.
    ChangeTable {
        /// The number of the request, which the client has drawn.
        ask: Ask,
        /// The change that is asked for.
        change: TableChange,
    },
    /// A manager that has lost the majority of the others asks for the node's state.
    Recall {
        /// The generation of managers that it is to begin.
        generation: Generation,
        /// Whether this node rejects all other managers from now on.
        pledges: bool,
        /// The epochs beyond the configuration of which the node's owner has learned.
        epochs: KnownEpochs,
    },
    /// The time of a [`ManagerClientEffect::Timer`] has passed; also the first event. An early call is legal.
    Timer,
}

/// An effect of the manager client, to be applied in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagerClientEffect {
    /// Send to every replica of the manager, or to the leader if it is known. The message may be lost.
    Send {
        /// The message for the managers; it may be repeated.
        message: ToManager,
    },
    /// The configuration has changed. Revisions increase; some may be skipped.
    Configured {
        /// The configuration of a greater revision than any before.
        configuration: Arc<Configuration>,
    },
    /// The final ends of an epoch, each once; those of a later epoch may come earlier. Follows the configuration that has them.
    Final {
        /// How it ended on each shard.
        ends: FinalEnds,
    },
    /// A change of tables is answered. The configuration that came before has it.
    TableChanged {
        /// The number of the request.
        ask: Ask,
        /// The table that was created, or dropped; or why not.
        result: Result<TableId, Rejected>,
    },
    /// This process has to end: another one is admitted, or it [is behind](ManagerClient::is_behind). It has
    /// no lease any more.
    Superseded,
    /// Deliver [`ManagerClientEvent::Timer`] at this time. It replaces an earlier timer.
    Timer {
        /// On this node's clock.
        at: Time,
    },
}

/// A message that is repeated until it is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RepeatedRequest {
    claim: LeadershipClaim,
    message: ToManager,
    again: Time,
}

/// A change of tables that a client has asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TableRequest {
    ask: Ask,
    change: TableChange,
    again: Time,
    /// The client has given up, or asks again.
    until: Time,
}

impl TableRequest {
    fn message(&self, incarnation: Incarnation) -> ToManager {
        ToManager::ChangeTable { incarnation, ask: self.ask, change: self.change.clone() }
    }
}

/// The subject of a pending message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RequestTopic {
    Report(Epoch, ShardId),
    Close(Epoch),
    CaughtUp(ShardId, NodeId),
    Held(ShardId),
    Whole(ShardId),
}

/// The most epochs whose ends a node can have missed: at one a minute, those of two years.
const MISSED_MAX: u32 = 1 << 20;

/// A node's view of itself and the configuration. See the [module](super).
///
/// Invariants: the lease was granted at a revision not above that of the configuration, by managers of its
/// generation; and the node is pledged to no earlier generation than that of its configuration.
#[derive(Debug)]
pub struct ManagerClient {
    me: NodeId,
    instance: ProcessInstance,
    lost: bool,
    options: ManagerOptions,
    /// 0 until the manager has assigned one.
    incarnation: Incarnation,
    is_superseded: bool,
    /// See [`ManagerClient::is_behind`].
    is_behind: bool,
    /// The processes of the node that its disks name; empty where that is not known.
    named_on_disk: Vec<ProcessInstance>,
    /// See [`ManagerClient::has_older_disks`].
    has_older_disks: bool,
    /// The cluster that this node belongs to; `None` until it has joined one.
    cluster: Option<ClusterId>,
    configuration: Option<Arc<Configuration>>,
    /// Messages of managers of an earlier generation are ignored.
    pledged: Generation,
    /// The last epoch that is closed, as far as this node knows.
    closed: Epoch,
    /// Epochs up to `closed` whose final ends were not delivered to the owner.
    undelivered: BTreeSet<Epoch>,
    round: u64,
    /// Heartbeats without an answer: their numbers, and the times of their sending.
    sent: VecDeque<(u64, Time)>,
    /// The latest heartbeat that was granted, and the time of its sending.
    granted: Option<(u64, Time)>,
    next_heartbeat: Time,
    /// No heartbeats are sent at present.
    is_silent: bool,
    pending: BTreeMap<RequestTopic, RepeatedRequest>,
    /// Changes of tables without an answer, from the oldest.
    table_requests: VecDeque<TableRequest>,
    /// The node's knowledge of shards whose majority is lost, and the epoch that began with each loss.
    known: BTreeMap<ShardId, (Epoch, Knowledge)>,
    timer: Option<Time>,
    bad_messages: u64,
    late_messages: u64,
}

impl ManagerClient {
    /// A node that begins a process. `instance` is drawn at random; `lost` reports that promises, streams and
    /// data of the former process are lost; it is ignored for a node's first process.
    ///
    /// # Panics
    /// If the options contradict each other.
    #[must_use]
    pub fn new(
        me: NodeId,
        instance: ProcessInstance,
        lost: bool,
        options: ManagerOptions,
    ) -> ManagerClient {
        options.check();
        ManagerClient {
            me,
            instance,
            lost,
            options,
            incarnation: Incarnation(0),
            is_superseded: false,
            is_behind: false,
            named_on_disk: Vec::new(),
            has_older_disks: false,
            cluster: None,
            configuration: None,
            pledged: Generation(0),
            closed: Epoch(0),
            undelivered: BTreeSet::new(),
            round: 0,
            sent: VecDeque::new(),
            granted: None,
            next_heartbeat: Time::ZERO,
            is_silent: false,
            pending: BTreeMap::new(),
            table_requests: VecDeque::new(),
            known: BTreeMap::new(),
            timer: None,
            bad_messages: 0,
            late_messages: 0,
        }
    }

    /// The same for a node that has joined this cluster in a former process: it joins no other.
    #[must_use]
    pub fn of(self, cluster: Option<ClusterId>) -> ManagerClient {
        ManagerClient { cluster, ..self }
    }

    /// The same for a node whose memory is on disks, all of which name these former processes of the node: disks that lack the one that
    /// was admitted last are older than its promises. Where none is named, that is not known.
    #[must_use]
    pub fn with_disks(self, named_on_disk: Vec<ProcessInstance>) -> ManagerClient {
        ManagerClient { named_on_disk, ..self }
    }

    /// Sends no heartbeats while the node cannot do what it would lead for: its lease ends, and others are appointed.
    pub fn withhold_heartbeats(&mut self, is_silent: bool) {
        self.is_silent = is_silent;
    }

    /// Handles an event and appends the effects to `effects`. Deterministic. `now` must never decrease.
    pub fn step(
        &mut self,
        now: Time,
        event: ManagerClientEvent,
        effects: &mut Vec<ManagerClientEffect>,
    ) {
        if self.is_superseded {
            return;
        }
        match event {
            ManagerClientEvent::Received(message) => self.on_message(now, message, effects),
            ManagerClientEvent::Request(request) => self.on_request(now, request, effects),
            ManagerClientEvent::ChangeTable { ask, change } => {
                self.change_table(now, ask, change, effects);
            }
            ManagerClientEvent::Recall { generation, pledges, epochs } => {
                self.recall(generation, pledges, epochs, effects);
            }
            ManagerClientEvent::Timer => {
                self.timer = None;
                self.on_timer(now, effects);
            }
        }
        self.arm(now, effects);
        self.assert_invariants();
    }

    /// Whether this process asks to be admitted before all of its workers have begun: a planted bug.
    #[must_use]
    pub fn joins_early(&self) -> bool {
        self.options.faults.join_before_begun
    }

    /// Whether the node may act on its configuration at this time (the lease rule). To be checked before each
    /// action: no effect reports the end of a lease.
    #[must_use]
    pub fn holds_lease(&self, now: Time) -> bool {
        self.lease_end().is_some_and(|end| now < end)
    }

    /// When the lease ends, if it is not renewed.
    #[must_use]
    pub fn lease_end(&self) -> Option<Time> {
        let (_, sent) = self.granted.filter(|_| !self.is_superseded)?;
        Some(sent + self.options.lease_at_node())
    }

    /// Whether the node may act as the leader of a shard at this time.
    #[must_use]
    pub fn leads(&self, shard: ShardId, now: Time) -> bool {
        self.claim(shard).is_some() && self.holds_lease(now)
    }

    /// Whether the node's promises and acceptances for a shard may count: it is admitted, is a voter of the
    /// shard, and has its memory. Until then it must not answer, for it may have lost earlier promises.
    #[must_use]
    pub fn votes(&self, shard: ShardId) -> bool {
        let Some(configuration) = &self.configuration else { return false };
        let admitted = configuration.nodes.get(self.me.0 as usize);
        admitted.is_some_and(|standing| standing.incarnation == self.incarnation)
            && configuration.shard(shard).is_some_and(|it| it.full_voters().any(|id| id == self.me))
    }

    /// The configuration, as far as this node knows.
    #[must_use]
    pub fn configuration(&self) -> Option<&Arc<Configuration>> {
        self.configuration.as_ref()
    }

    /// The incarnation of this process; `None` before the manager has assigned it.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        Some(self.incarnation).filter(|incarnation| *incarnation > Incarnation(0))
    }

    /// The number of entries of each table, by the table's name.
    #[must_use]
    pub fn sizes(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("epochs whose end is not known", self.undelivered.len()),
            ("heartbeats without an answer", self.sent.len()),
            ("requests to the manager", self.pending.len()),
            ("changes of tables without an answer", self.table_requests.len()),
        ]
    }

    /// Whether this process has to end since the manager does not keep any more how an epoch ended of which
    /// the process has something in memory.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Whether this process has to end since its disks are an older image of what they were: they lack the process that was admitted
    /// last.
    #[must_use]
    pub fn has_older_disks(&self) -> bool {
        self.has_older_disks
    }

    /// Whether it has pledged to managers whose configuration it has not received yet.
    #[must_use]
    pub fn is_recalled(&self) -> bool {
        let generation = self.configuration.as_ref().map(|configuration| configuration.generation);
        generation.is_some_and(|generation| generation < self.pledged)
    }

    /// Messages that no correct manager sends.
    #[must_use]
    pub fn bad_messages(&self) -> u64 {
        self.bad_messages
    }

    /// Messages about what is over, and requests of the owner that are not expected.
    #[must_use]
    pub fn late_messages(&self) -> u64 {
        self.late_messages
    }

    fn revision(&self) -> Revision {
        self.configuration.as_ref().map_or(Revision(0), |configuration| configuration.revision)
    }

    /// The leadership of this node, if the configuration says that it leads.
    fn claim(&self, shard: ShardId) -> Option<LeadershipClaim> {
        let assignment = self.configuration.as_ref()?.shard(shard)?;
        let (node, incarnation) = (self.me, self.incarnation);
        let leads = (assignment.leader, assignment.incarnation) == (node, incarnation);
        leads.then_some(LeadershipClaim { node, incarnation, shard, ballot: assignment.ballot })
    }

    /// Under what claim this node may make a request about a shard: as its leader, but that any node may ask for the end of an
    /// epoch.
    fn claim_for(&self, topic: RequestTopic, shard: ShardId) -> Option<LeadershipClaim> {
        let RequestTopic::Close(_) = topic else { return self.claim(shard) };
        let ballot = self.configuration.as_ref()?.shard(shard)?.ballot;
        Some(LeadershipClaim { node: self.me, incarnation: self.incarnation, shard, ballot })
    }

    fn on_message(&mut self, now: Time, message: ToNode, effects: &mut Vec<ManagerClientEffect>) {
        match message {
            ToNode::OtherProcess { instance, incarnation, admitted } => {
                self.on_other_process(instance, incarnation, admitted, effects);
            }
            ToNode::Welcome { instance, incarnation, configuration } => {
                if instance != self.instance || self.incarnation > Incarnation(0) {
                    self.late_messages += 1;
                } else if incarnation == Incarnation(0)
                    || configuration.revision == Revision(0)
                    || !self.is_possible(&configuration)
                {
                    self.bad_messages += 1;
                } else {
                    self.incarnation = incarnation;
                    self.adopt(&configuration, effects);
                    self.next_heartbeat = now;
                    self.on_timer(now, effects);
                }
            }
            ToNode::Granted { generation, incarnation, round, revision, configuration } => {
                let newer = configuration.as_ref();
                if generation < self.pledged && !self.options.faults.serve_former_managers {
                    self.late_messages += 1;
                    return;
                }
                self.on_granted(now, incarnation, round, revision, newer, effects);
            }
            // This node's owner knows nothing beyond the configuration.
            ToNode::Recall { generation, pledges } => {
                self.recall(generation, pledges, KnownEpochs::default(), effects);
            }
            ToNode::Configured { configuration } => {
                // Before the welcome the incarnation is unknown.
                if self.incarnation > Incarnation(0) {
                    self.adopt(&configuration, effects);
                }
            }
            ToNode::Reported { claim, epoch } => {
                let topic = RequestTopic::Report(epoch, claim.shard);
                if self.pending.get(&topic).is_some_and(|pending| pending.claim == claim) {
                    self.pending.remove(&topic);
                } else {
                    self.late_messages += 1;
                }
            }
            ToNode::TableChanged { ask, result } => self.on_table_changed(ask, result, effects),
        }
    }

    /// A client asks for a change of tables, now or once more. It gets lost where the node has not joined.
    fn change_table(
        &mut self,
        now: Time,
        ask: Ask,
        change: TableChange,
        effects: &mut Vec<ManagerClientEffect>,
    ) {
        if self.incarnation == Incarnation(0) {
            self.late_messages += 1;
            return;
        }
        self.table_requests.retain(|request| request.ask != ask);
        if self.table_requests.len() == TABLE_REQUESTS_MAX {
            self.table_requests.pop_front();
        }
        let (again, until) = (now + self.options.retry_after, now + 8 * self.options.lease);
        let request = TableRequest { ask, change, again, until };
        effects.push(ManagerClientEffect::Send { message: request.message(self.incarnation) });
        self.table_requests.push_back(request);
    }

    /// Takes the answer if the node's configuration has the change: where it comes later, the answer is asked for again.
    fn on_table_changed(
        &mut self,
        ask: Ask,
        result: Result<TableId, Rejected>,
        effects: &mut Vec<ManagerClientEffect>,
    ) {
        let place = self.table_requests.iter().position(|request| request.ask == ask);
        let tables = self.configuration.as_ref().map(|it| it.topology.tables());
        let (Some(place), Some(tables)) = (place, tables) else {
            self.late_messages += 1;
            return;
        };
        let change = &self.table_requests[place].change;
        if result.as_ref().is_ok_and(|table| !change.is_contained_in(*table, tables)) {
            self.late_messages += 1;
            return;
        }
        self.table_requests.remove(place);
        effects.push(ManagerClientEffect::TableChanged { ask, result });
    }

    fn on_other_process(
        &mut self,
        instance: ProcessInstance,
        incarnation: Incarnation,
        admitted: ProcessInstance,
        effects: &mut Vec<ManagerClientEffect>,
    ) {
        let is_first = incarnation == Incarnation(0);
        if instance != self.instance {
            self.late_messages += 1; // To a former process.
        } else if self.incarnation == Incarnation(0) && !is_first && self.lacks(admitted) {
            (self.is_superseded, self.has_older_disks) = (true, true);
            effects.push(ManagerClientEffect::Superseded);
        } else if self.incarnation == Incarnation(0) {
            let (after, lost) = (incarnation, self.lost);
            effects.push(ManagerClientEffect::Send {
                message: ToManager::Join { instance, after, lost },
            });
        } else if incarnation > self.incarnation {
            self.is_superseded = true;
            effects.push(ManagerClientEffect::Superseded);
        } else {
            self.late_messages += 1; // From before the welcome.
        }
    }

    /// Whether the node has its memory from disks that do not name this process.
    fn lacks(&self, admitted: ProcessInstance) -> bool {
        let is_known = !self.lost && !self.named_on_disk.is_empty();
        is_known
            && !self.named_on_disk.contains(&admitted)
            && !self.options.faults.believe_older_disks
    }

    fn on_granted(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        round: u64,
        revision: Revision,
        newer: Option<&Arc<Configuration>>,
        effects: &mut Vec<ManagerClientEffect>,
    ) {
        let mine = incarnation == self.incarnation && incarnation > Incarnation(0);
        let asked = self.sent.iter().find(|(sent, _)| *sent == round).copied();
        let Some((_, sent)) = asked.filter(|_| mine) else {
            self.late_messages += 1; // Answered before, or to a former process.
            return;
        };
        let faults = self.options.faults;
        if !faults.grant_without_configuration {
            newer.into_iter().for_each(|newer| self.adopt(newer, effects));
            if self.revision() < revision {
                self.bad_messages += 1; // It should contain the configuration.
                return;
            }
        }
        self.sent.retain(|(other, _)| *other > round);
        let from = if faults.lease_from_reply { now } else { sent };
        self.granted = self.granted.max(Some((round, from)));
    }

    /// Whether a correct manager of this node's cluster can have made it, as far as epochs go.
    fn is_possible(&self, configuration: &Configuration) -> bool {
        if self.cluster.is_some() && configuration.cluster != self.cluster {
            return false;
        }
        if configuration.generation < self.pledged && !self.options.faults.serve_former_managers {
            return false;
        }
        let Configuration { epoch, settled, forgotten, ends, finals, shards, .. } = configuration;
        let first = ends.keys().next().copied().unwrap_or(*epoch);
        let is_closed = |it: &FinalEnds| {
            it.epoch() < *epoch && it.shards() == shards.len() && it.is_within_limits()
        };
        ends.len() <= CLOSING_MAX
            && settled.0.checked_add(1) == Some(first.0)
            && forgotten <= settled
            && ends.keys().all(|closed| closed < epoch)
            && ends.values().all(|ends| ends.len() == shards.len())
            && finals.iter().all(is_closed)
            && epoch.0 <= self.closed.0.saturating_add(MISSED_MAX)
    }

    /// Adopts a newer configuration, with the lease as it is: the node's lease never exceeds what the manager
    /// counts.
    fn adopt(
        &mut self,
        configuration: &Arc<Configuration>,
        effects: &mut Vec<ManagerClientEffect>,
    ) {
        let is_later = self.configuration.is_some() && configuration.generation > self.pledged;
        if configuration.revision <= self.revision() && !is_later {
            return; // Known, or overtaken.
        }
        if !self.is_possible(configuration) {
            self.bad_messages += 1;
            return;
        }
        if is_later {
            // The managers were recovered without this process: its memory no longer counts.
            (self.is_superseded, self.granted) = (true, None);
            effects.push(ManagerClientEffect::Superseded);
            return;
        }
        self.pledged = configuration.generation.max(self.pledged);
        if self.lacks_final(configuration) {
            (self.is_superseded, self.is_behind) = (true, true);
            effects.push(ManagerClientEffect::Superseded);
            return;
        }
        if self.configuration.is_none() {
            // The streams have what a process has to know of earlier epochs.
            self.closed = configuration.forgotten;
        }
        self.cluster = configuration.cluster;
        self.configuration = Some(Arc::clone(configuration));
        effects.push(ManagerClientEffect::Configured { configuration: Arc::clone(configuration) });
        while self.closed.0 + 1 < configuration.epoch.0 {
            self.closed.0 += 1;
            self.undelivered.insert(self.closed);
        }
        let known = self.undelivered.iter().filter_map(|epoch| configuration.last(*epoch));
        effects.extend(known.map(|ends| ManagerClientEffect::Final { ends }));
        self.undelivered.retain(|epoch| configuration.last(*epoch).is_none());
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|topic, it| self.is_wanted(*topic, &it.claim));
        self.pending = pending;
    }

    /// Whether this process lacks final ends that are dropped by now: then versions of that epoch in its memory
    /// can never be judged.
    fn lacks_final(&self, configuration: &Configuration) -> bool {
        let Some(before) = &self.configuration else { return false };
        let lacking = self.undelivered.first().copied().unwrap_or(before.epoch);
        lacking <= configuration.forgotten
    }

    /// Sends the node's state, and pledges: every lease of an earlier generation ends here, and no other is
    /// granted (the lease rule).
    fn recall(
        &mut self,
        generation: Generation,
        pledges: bool,
        epochs: KnownEpochs,
        effects: &mut Vec<ManagerClientEffect>,
    ) {
        if pledges && generation > self.pledged {
            self.pledged = generation;
            self.granted = None;
            self.sent.clear();
        }
        let recollection = Recollection {
            instance: self.instance,
            incarnation: self.incarnation,
            pledged: self.pledged,
            configuration: self.configuration.clone(),
            epochs,
        };
        effects.push(ManagerClientEffect::Send {
            message: ToManager::Recalled { generation, recollection },
        });
    }

    /// Sends the node's knowledge of shards whose majority is lost, while the configuration asks for it.
    fn send_known(&mut self, effects: &mut Vec<ManagerClientEffect>) {
        let (me, incarnation) = (self.me, self.incarnation);
        let Some(configuration) = &self.configuration else { return };
        self.known.retain(|shard, (begun, _)| {
            let loss = configuration.shard(*shard).and_then(|it| it.loss.as_ref());
            loss.is_some_and(|loss| {
                let asks = loss.stage == LossStage::Asking && loss.begun == *begun;
                asks && !loss.has_reported(me, incarnation)
            })
        });
        for (shard, (begun, knowledge)) in &self.known {
            let (shard, begun, knowledge) = (*shard, *begun, knowledge.clone());
            let request = ManagerRequest::Known { shard, begun, knowledge };
            let message = ToManager::Request { incarnation, ballot: Ballot::default(), request };
            effects.push(ManagerClientEffect::Send { message });
        }
    }

    /// Whether the configuration still expects this report, from this leadership.
    fn is_wanted(&self, topic: RequestTopic, claim: &LeadershipClaim) -> bool {
        let Some(configuration) = &self.configuration else { return false };
        let Some(assignment) = configuration.shard(claim.shard) else { return false };
        let asked = match topic {
            // The owner may have learned how an epoch ended before the manager reported it.
            RequestTopic::Report(epoch, shard) => {
                configuration.epoch <= epoch || configuration.lacks_end(epoch, shard)
            }
            RequestTopic::Close(epoch) => configuration.epoch <= epoch,
            RequestTopic::CaughtUp(_, replica) => {
                assignment.catching_up().any(|it| it.node == replica)
            }
            RequestTopic::Held(_) => {
                let loss = assignment.loss.as_ref();
                loss.is_some_and(|loss| loss.stage == LossStage::Preparing)
            }
            RequestTopic::Whole(_) => true,
        };
        asked && self.claim_for(topic, claim.shard) == Some(*claim)
    }

    /// The node's owner makes a request to the manager.
    fn on_request(
        &mut self,
        now: Time,
        request: ManagerRequest,
        effects: &mut Vec<ManagerClientEffect>,
    ) {
        let topic = match &request {
            ManagerRequest::Report { shard, epoch, .. } => RequestTopic::Report(*epoch, *shard),
            ManagerRequest::Close { epoch, .. } => RequestTopic::Close(*epoch),
            ManagerRequest::CaughtUp { shard, replica, ballot, incarnation } => {
                if !self.has_caught_up(*shard, *replica, *ballot, *incarnation) {
                    self.late_messages += 1;
                    return;
                }
                RequestTopic::CaughtUp(*shard, *replica)
            }
            ManagerRequest::Known { shard, begun, knowledge } => {
                self.known.insert(*shard, (*begun, knowledge.clone()));
                return self.send_known(effects);
            }
            ManagerRequest::Held { shard, .. } => RequestTopic::Held(*shard),
            ManagerRequest::Whole { shard, .. } => RequestTopic::Whole(*shard),
        };
        self.say(now, topic, request, effects);
    }

    /// Whether a replica that has caught up under a ballot, in a process, counts for the configuration of
    /// this node.
    fn has_caught_up(
        &self,
        shard: ShardId,
        replica: NodeId,
        ballot: Ballot,
        incarnation: Incarnation,
    ) -> bool {
        let standing = self.configuration.as_ref().and_then(|it| it.nodes.get(replica.0 as usize));
        standing.is_some_and(|standing| standing.incarnation == incarnation)
            && self.claim(shard).is_some_and(|claim| claim.ballot == ballot)
    }

    /// Sends a request, and repeats it until it is acknowledged or not wanted any more.
    fn say(
        &mut self,
        now: Time,
        topic: RequestTopic,
        request: ManagerRequest,
        effects: &mut Vec<ManagerClientEffect>,
    ) {
        let claim = self.claim_for(topic, request.shard());
        let Some(claim) = claim.filter(|claim| self.is_wanted(topic, claim)) else {
            self.late_messages += 1;
            return;
        };
        let LeadershipClaim { incarnation, ballot, .. } = claim;
        let message = ToManager::Request { incarnation, ballot, request };
        let again = now + self.options.retry_after;
        effects.push(ManagerClientEffect::Send { message: message.clone() });
        // What the engine itself repeats is sent once.
        if !matches!(topic, RequestTopic::Whole(_)) {
            self.pending.insert(topic, RepeatedRequest { claim, message, again });
        }
    }

    fn on_timer(&mut self, now: Time, effects: &mut Vec<ManagerClientEffect>) {
        let is_due = self.next_heartbeat <= now;
        if is_due {
            self.next_heartbeat = self.next_heartbeat(now);
        }
        if is_due && !self.is_silent {
            self.round += 1;
            self.sent.push_back((self.round, now));
            if self.sent.len() > HEARTBEATS_MAX {
                self.sent.pop_front();
            }
            let (instance, incarnation) = (self.instance, self.incarnation);
            let (round, known) = (self.round, self.revision());
            let granted = self.granted.map_or(0, |(granted, _)| granted);
            let message = ToManager::Heartbeat { instance, incarnation, round, granted, known };
            effects.push(ManagerClientEffect::Send { message });
            self.send_known(effects);
        }
        self.table_requests.retain(|request| now < request.until);
        for request in self.table_requests.iter_mut().filter(|request| request.again <= now) {
            request.again = now + self.options.retry_after;
            effects.push(ManagerClientEffect::Send { message: request.message(self.incarnation) });
        }
        for pending in self.pending.values_mut().filter(|pending| pending.again <= now) {
            pending.again = now + self.options.retry_after;
            effects.push(ManagerClientEffect::Send { message: pending.message.clone() });
        }
    }

    /// Heartbeats are due at multiples of their interval: nodes whose clocks agree send them at the same
    /// time, and the manager wakes once for them.
    fn next_heartbeat(&self, now: Time) -> Time {
        let every = self.options.heartbeat_every.as_nanos() as u64;
        Time((now.0 / every + 1).saturating_mul(every))
    }

    fn assert_invariants(&self) {
        for (topic, pending) in &self.pending {
            assert!(
                self.is_wanted(*topic, &pending.claim),
                "repeats an obsolete message: {self:?}"
            );
        }
        let joined = self.incarnation > Incarnation(0);
        assert!(self.granted.is_none() || joined, "a lease before it joined: {self:?}");
        assert_eq!(self.configuration.is_some(), joined, "joins with a configuration: {self:?}");
        let generation = self.configuration.as_ref().map(|configuration| configuration.generation);
        let is_former = generation.is_some_and(|generation| generation < self.pledged);
        let is_faulty = self.options.faults.serve_former_managers;
        assert!(
            !is_former || self.granted.is_none() || is_faulty,
            "lease: one of former managers: {self:?}"
        );
        assert!(generation <= Some(self.pledged), "managers it has not pledged to: {self:?}");
    }

    /// Sets one timer, for the next heartbeat; other messages are repeated with that.
    fn arm(&mut self, now: Time, effects: &mut Vec<ManagerClientEffect>) {
        if self.timer.is_none() {
            let at = self.next_heartbeat.max(now);
            self.timer = Some(at);
            effects.push(ManagerClientEffect::Timer { at });
        }
    }
}
