//! What the workers of a node share: the node's part of the protocol, and what each worker is to learn of it.

use super::move_pace::MovePace;
use super::options::ZeusEngineOptions;
use super::transaction::KnownGranules;
use super::transaction_fact::TransactionFact;
use crate::commit::Validated;
use crate::node::ZeusNode;
use crate::options::Effect;
use crate::ownership::Ticket;
use crate::record::Level;
use bytes::Bytes;
use shoal_cluster::manager::{Generation, Revision};
use shoal_engine::client::REQUESTS_TABLE;
use shoal_engine::engine::Setup;
use shoal_store::Store;
use shoal_types::{NodeId, Time, WorkerId};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by the workers of a node. Any of them steps the node; a step leaves news for the workers whose transactions it is
/// about.
#[derive(Debug)]
pub struct ZeusShared {
    pub(super) node: NodeId,
    pub(super) setup: Setup<ZeusEngineOptions>,
    /// Has no rows, and says whether the log on disk has room.
    pub(super) room: Arc<Store>,
    state: Mutex<SharedNode>,
}

/// The node's part of the protocol.
#[derive(Debug)]
pub(super) struct SharedNode {
    pub(super) node: ZeusNode,
    /// What waits for the log on disk, if the node has one.
    log: Option<NodeLog>,
    /// The configuration whose tables are placed: workers learn of them one after the other.
    pub(super) placed: Option<(Generation, Revision)>,
    /// What each worker is to learn.
    news: Vec<WorkerNews>,
    /// The workers whose transactions wait for rows to become valid.
    watching: BTreeSet<WorkerId>,
    /// How often rows had become valid when those were woken last.
    validations: u64,
    /// How often granules have moved to this node lately.
    pace: MovePace,
    /// What has become of transactions since that was shown last, if a checker looks on.
    pub(super) facts: Vec<(WorkerId, TransactionFact)>,
    /// Transactions of all workers that waited for granules to come.
    pub(super) waits_for_moves: u64,
    /// Transactions of clients that were sent to the owner of a granule that moves often.
    pub(super) sent_to_owners: u64,
    /// Times that a transaction was refused, since no copy of a granule is left.
    pub(super) refused_as_lost: u64,
}

/// What a node's log on disk is to have, and what waits until it has it.
#[derive(Debug, Default)]
struct NodeLog {
    /// Redo records that the first worker has not taken.
    records: Vec<Bytes>,
    /// What is to be sent, with the record that it follows from (rule Z22), and the worker that has made it.
    waiting: VecDeque<(u64, WorkerId, Effect)>,
}

/// What has become possible for a worker, most of it for its transactions.
#[derive(Debug, Default)]
pub(super) struct WorkerNews {
    /// They have had all that they want.
    pub(super) ready: Vec<u64>,
    /// They are validated, by their numbers.
    pub(super) validated: Vec<u64>,
    /// A node has copied a directory.
    pub(super) has_copied: bool,
}

/// Which workers are to be woken, and what is to be sent.
#[derive(Debug, Default)]
pub(super) struct NodeOutput {
    /// What is to be sent, each to the worker of this number.
    pub(super) effects: Vec<(WorkerId, Effect)>,
    pub(super) woken: Vec<WorkerId>,
    /// Records for the log on disk; the first worker writes them.
    pub(super) records: Vec<Bytes>,
}

/// The worker whose log has the records of the node.
pub(super) const LOG_WORKER: WorkerId = WorkerId(0);

/// The tickets of a node's workers differ by this many low bits.
const WORKER_BITS: u32 = 8;

/// The name under which a worker's transaction wants granules.
pub(super) fn ticket(worker: WorkerId, sequence: u64) -> Ticket {
    Ticket(sequence << WORKER_BITS | u64::from(worker.0))
}

impl ZeusShared {
    pub(super) fn new(setup: &Setup<ZeusEngineOptions>, node: NodeId) -> ZeusShared {
        let workers = setup.topology.workers();
        assert!(workers <= 1 << WORKER_BITS, "{workers} workers of a node are too many");
        let placement = Arc::clone(&setup.topology).into();
        let options = setup.options.protocol;
        let mut protocol = ZeusNode::new(node, workers, placement, options, u64::from(node.0));
        let is_on_disk = setup.topology.durability().is_on_disk();
        if is_on_disk {
            protocol.record();
        }
        let state = SharedNode {
            node: protocol,
            log: is_on_disk.then(NodeLog::default),
            placed: None,
            news: (0..workers).map(|_| WorkerNews::default()).collect(),
            watching: BTreeSet::new(),
            validations: 0,
            pace: MovePace::new(setup.options.moves_within),
            facts: Vec::new(),
            waits_for_moves: 0,
            sent_to_owners: 0,
            refused_as_lost: 0,
        };
        let room = Arc::new(Store::new(shoal_store::Options::default()));
        ZeusShared { node, setup: setup.clone(), room, state: Mutex::new(state) }
    }

    /// Whether the node has a log on disk.
    pub(super) fn is_on_disk(&self) -> bool {
        self.setup.topology.durability().is_on_disk()
    }

    /// The node, for a part of a step.
    pub(super) fn lock(&self) -> MutexGuard<'_, SharedNode> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedNode {
    /// Sorts what the node has left since this was asked last, for a worker that has stepped it.
    pub(super) fn take_output(&mut self, worker: WorkerId) -> NodeOutput {
        let is_log_worker = worker == LOG_WORKER;
        let mut woken = Vec::new();
        for Ticket(ticket) in self.node.take_ready() {
            let worker = WorkerId((ticket & ((1 << WORKER_BITS) - 1)) as u32);
            self.news[worker.0 as usize].ready.push(ticket >> WORKER_BITS);
            woken.push(worker);
        }
        for Validated { worker, tag, .. } in self.node.take_validated() {
            self.note(worker, || TransactionFact::Validated { number: tag });
            self.news[worker.0 as usize].validated.push(tag);
            woken.push(worker);
        }
        let validations = self.node.rows().validations();
        if std::mem::replace(&mut self.validations, validations) != validations {
            woken.extend(&self.watching);
        }
        if self.node.take_copied() {
            self.news.iter_mut().for_each(|news| news.has_copied = true);
            woken.extend((0..self.news.len() as u32).map(WorkerId));
        }
        let effects = self.node.take_effects().into_iter();
        let mut effects: Vec<_> = effects.map(|effect| (worker, effect)).collect();
        let mut records = Vec::new();
        if let Some(log) = &mut self.log {
            log.records.extend(self.node.take_redo());
            match is_log_worker {
                true => records = std::mem::take(&mut log.records),
                false if log.records.is_empty() => {}
                false => woken.push(LOG_WORKER),
            }
            let (made, durable) = self.node.records();
            log.waiting.extend(effects.drain(..).map(|(worker, effect)| (made, worker, effect)));
            let are_due = log.waiting.partition_point(|(follows, ..)| *follows <= durable);
            let due = log.waiting.drain(..are_due);
            effects.extend(due.map(|(_, worker, effect)| (worker, effect)));
        }
        woken.sort_unstable();
        woken.dedup();
        NodeOutput { effects, woken, records }
    }

    /// The owner of the least granule that a transaction is about to ask the ownership of, if that granule has moved here too
    /// often lately. The owner of another granule is not one to go to: that node could send the transaction back.
    pub(super) fn owner_to_go_to(&mut self, now: Time, needed: &KnownGranules) -> Option<NodeId> {
        let node = &self.node;
        let calls = node.placement().topology.tables().named(REQUESTS_TABLE);
        let mut data = needed.iter().filter(|(granule, _)| Some(granule.family) != calls);
        let (granule, level) = data.next()?;
        let holding = node.ownership().holding(granule)?;
        let owner = holding.record.owner.filter(|owner| *owner != node.id())?;
        let is_wanted = *level == Level::Owner && node.view().is_live(owner);
        let as_of = holding.hint.max(holding.record.o_ts);
        (is_wanted && self.pace.ask(now, granule, as_of)).then_some(owner)
    }

    /// Notes what has become of a transaction, if a checker looks on.
    pub(super) fn note(&mut self, worker: WorkerId, fact: impl FnOnce() -> TransactionFact) {
        if self.node.rows().is_watched() {
            self.facts.push((worker, fact()));
        }
    }

    /// Whether transactions of the worker wait for rows to become valid, or do not any more. Says whether they did before.
    pub(super) fn set_watching(&mut self, worker: WorkerId, is_watching: bool) -> bool {
        match is_watching {
            true => !self.watching.insert(worker),
            false => self.watching.remove(&worker),
        }
    }

    /// What the worker has not received yet.
    pub(super) fn take_news(&mut self, worker: WorkerId) -> WorkerNews {
        std::mem::take(&mut self.news[worker.0 as usize])
    }
}
