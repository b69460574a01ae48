//! One replica of the log: its start, and its interface to the manager's owner.

use crate::config::{self, Entry, Number, Raft, RaftOptions};
use crate::handle::RaftHandle;
use crate::leadership_evidence::LeadershipEvidence;
use crate::member::{LogMember, Volume};
use crate::network::{ReplicaNetwork, Transport};
use crate::storage::RaftStorage;
use crate::store::{self, Committed, CommittedMachine, LogStore};
use crate::{COMMAND_BYTES_MAX, PROPOSALS_MAX, TOLD_AT_ONCE_MAX, UNCOMMITTED_MAX};
use openraft::{LeaderId, RaftMetrics, ServerState};
use shoal_cluster::manager::{self, CarriedLog, Command, StateMachine, Term};
use shoal_types::{NodeId, Time, wire};
use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;
use tokio::sync::{mpsc, watch};

/// The replica has stopped: on request, or because its storage failed. It can be started again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the manager's log has stopped on {node}: {reason}")]
pub struct Stopped {
    /// The node of the replica.
    pub node: NodeId,
    /// Why it stopped.
    pub reason: String,
}

impl Stopped {
    pub(crate) fn new(node: NodeId, reason: &dyn Display) -> Stopped {
        Stopped { node, reason: reason.to_string() }
    }
}

/// Counts of what a replica has dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RaftCounters {
    /// Requests and answers that no correct replica sends.
    pub malformed: u64,
    /// Requests for another replica.
    pub misdirected: u64,
    /// Proposals that were too long, or exceeded the limit of waiting ones.
    pub proposals_dropped: u64,
    /// Snapshots that were needed by a replica and too long to be sent.
    pub snapshots_too_long: u64,
}

/// The same counts, shared by the replica's tasks.
#[derive(Debug, Default)]
pub struct CounterCells {
    pub malformed: AtomicU64,
    pub misdirected: AtomicU64,
    pub proposals_dropped: AtomicU64,
    pub snapshots_too_long: AtomicU64,
}

impl CounterCells {
    pub fn counters(&self) -> RaftCounters {
        RaftCounters {
            malformed: self.malformed.load(Ordering::Relaxed),
            misdirected: self.misdirected.load(Ordering::Relaxed),
            proposals_dropped: self.proposals_dropped.load(Ordering::Relaxed),
            snapshots_too_long: self.snapshots_too_long.load(Ordering::Relaxed),
        }
    }
}

/// The replica's interface to the owner of a `Manager<Mailbox>`.
///
/// The owner waits for [`news`](RaftReplica::news) beside its other events. After every step of the manager,
/// and on news, it calls [`exchange`](RaftReplica::exchange); if that returns true, it steps the manager with
/// `Event::Log`.
///
/// Invariant: the commands delivered, after those in the state that was delivered first, are a prefix of the
/// committed ones.
#[derive(Debug)]
pub struct RaftReplica {
    node: NodeId,
    store: LogStore,
    /// The options of the manager's state machine.
    options: manager::ManagerOptions,
    /// The index of the first entry that was not delivered yet.
    next: u64,
    /// The leader that made the last delivered entry.
    told: Option<LeaderId<Number>>,
    /// The term in which this replica leads, as last reported to the manager.
    term: Option<Term>,
    /// The number of acknowledgements that were taken into account.
    acknowledged: u64,
    lead: LeadershipEvidence,
    committed: watch::Receiver<Committed>,
    metrics: watch::Receiver<RaftMetrics<Number, ()>>,
    wants: mpsc::Sender<ReplicaCommand>,
    tally: Arc<CounterCells>,
}

/// A command for the library.
enum ReplicaCommand {
    Propose(Command),
    /// Ask the other replicas whether this one still leads.
    Ask,
}

/// Starts a process of a replica, on the runtime of the caller. `storage` is what its former process left; if
/// it is empty, it becomes the volume `new`, drawn at random, which is a new member. `first` is the manager's
/// state before the first command of the log.
///
/// A new volume does nothing until it is [initialised](RaftHandle::initialise), or others make it [a
/// member](RaftHandle::change_members).
///
/// # Errors
/// [`Stopped`] if the storage cannot be read, or lacks a part of the log.
///
/// # Panics
/// If the options contradict each other.
pub async fn start(
    node: NodeId,
    new: Volume,
    options: &RaftOptions,
    first: StateMachine,
    storage: impl RaftStorage,
    transport: impl Transport,
) -> Result<(RaftReplica, RaftHandle), Stopped> {
    let tally = Arc::new(CounterCells::default());
    let lead = LeadershipEvidence::default();
    let network =
        ReplicaNetwork::new(transport, options.heartbeat, lead.clone(), Arc::clone(&tally));
    let store = LogStore::new(storage, lead.clone());
    begin((node, new), (options, first), store, network, (lead, tally)).await
}

type StartedReplica<'a> =
    Pin<Box<dyn Future<Output = Result<(RaftReplica, RaftHandle), Stopped>> + Send + 'a>>;

/// The same as a boxed future, so that the library is compiled in this crate.
fn begin<'a>(
    place: (NodeId, Volume),
    plan: (&'a RaftOptions, StateMachine),
    store: LogStore,
    network: ReplicaNetwork,
    shared: (LeadershipEvidence, Arc<CounterCells>),
) -> StartedReplica<'a> {
    Box::pin(begin_here(place, plan, store, network, shared))
}

async fn begin_here(
    (node, new): (NodeId, Volume),
    (options, first): (&RaftOptions, StateMachine),
    store: LogStore,
    network: ReplicaNetwork,
    (lead, tally): (LeadershipEvidence, Arc<CounterCells>),
) -> Result<(RaftReplica, RaftHandle), Stopped> {
    let purged = store.purged().map_err(|error| Stopped::new(node, &error))?;
    let snapshot = store.snapshot().map_err(|error| Stopped::new(node, &error))?;
    if purged > snapshot.and_then(|snapshot| snapshot.meta.last_log_id) {
        let gone = "its log is gone up to a place that no snapshot covers";
        return Err(Stopped::new(node, &gone));
    }
    let volume = store.volume(new).map_err(|error| Stopped::new(node, &error))?;
    let me = LogMember { node, volume };
    store.resign(me.number()).map_err(|error| Stopped::new(node, &error))?;
    let machine_options = first.options().clone();
    let machine = CommittedMachine::new(store.clone(), first);
    let (machine, committed) = machine.map_err(|error| Stopped::new(node, &error))?;
    let raft = Raft::new(me.number(), options.config(), network, store.clone(), machine)
        .await
        .map_err(|error| Stopped::new(node, &error))?;
    let (wants, taken) = mpsc::channel(PROPOSALS_MAX);
    tokio::spawn(drive(raft.clone(), taken, Arc::clone(&tally)));
    let metrics = raft.metrics();
    let watched = committed.clone();
    let handle = RaftHandle::new(me, raft, watched, machine_options.clone(), Arc::clone(&tally));
    let replica = RaftReplica {
        node,
        store,
        options: machine_options,
        next: 0,
        told: None,
        term: None,
        acknowledged: 0,
        lead,
        committed,
        metrics,
        wants,
        tally,
    };
    Ok((replica, handle))
}

/// Proposes commands to the library, until the replica or the library has ended. A replica that does not lead
/// loses them.
async fn drive(raft: Raft, mut wants: mpsc::Receiver<ReplicaCommand>, tally: Arc<CounterCells>) {
    let metrics = raft.metrics();
    while let Some(want) = wants.recv().await {
        let ReplicaCommand::Propose(command) = want else {
            if raft.trigger().heartbeat().await.is_err() {
                return;
            }
            continue;
        };
        // A leader without a majority would accept any number.
        let uncommitted = {
            let metrics = metrics.borrow();
            let committed = metrics.last_applied.map_or(0, |last| last.index + 1);
            metrics.last_log_index.map_or(0, |last| last + 1).saturating_sub(committed)
        };
        if uncommitted >= UNCOMMITTED_MAX {
            tally.proposals_dropped.fetch_add(1, Ordering::Relaxed);
        } else if raft.client_write_ff(command).await.is_err() {
            return;
        }
    }
}

impl RaftReplica {
    /// Takes the manager's proposals, and delivers committed commands, the leader, and since when its lead is
    /// certain. Returns true if there is something new for the manager. Reads the storage, and waits for
    /// nothing else. A long log is delivered in several calls, with `news` in between. `now` is the manager's
    /// clock, read just before.
    ///
    /// # Errors
    /// [`Stopped`] if nothing will be delivered any more. Then the replica does not lead either.
    pub fn exchange(&mut self, now: Time, mailbox: &mut CarriedLog) -> Result<bool, Stopped> {
        self.take_proposals(mailbox);
        let news = self.tell(now, mailbox);
        if news.is_err() {
            (self.term, mailbox.term, mailbox.led) = (None, None, None);
        }
        news
    }

    /// Waits until there is something to exchange, or the replica has stopped. Cancel-safe.
    pub async fn news(&mut self) {
        while !self.has_news() {
            // An error means that the sender is gone, which is news too.
            let _ = tokio::select! {
                changed = self.committed.changed() => changed,
                changed = self.metrics.changed() => changed,
                () = self.lead.news.notified() => Ok(()),
            };
        }
    }

    fn take_proposals(&mut self, mailbox: &mut CarriedLog) {
        for command in mailbox.proposed.drain(..) {
            let is_short = wire::encode(&command).len() <= COMMAND_BYTES_MAX;
            if !is_short || self.wants.try_send(ReplicaCommand::Propose(command)).is_err() {
                self.tally.proposals_dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        if std::mem::take(&mut mailbox.asks) {
            // If the queue is full, the proposals in it have the same effect.
            let _ = self.wants.try_send(ReplicaCommand::Ask);
        }
    }

    fn tell(&mut self, now: Time, mailbox: &mut CarriedLog) -> Result<bool, Stopped> {
        let running = self.metrics.borrow_and_update().running_state.clone();
        running.map_err(|error| self.stopped(&error))?;
        if self.is_gone() {
            return Err(self.stopped(&"its tasks have ended"));
        }
        let before = (self.next, self.term, self.acknowledged);
        let (mut end, mut entries) = self.read_on()?;
        if entries.first().is_none_or(|entry| entry.log_id.index != self.next) && self.next < end {
            // Compacted since, or never received: the snapshot has the missing entries.
            self.restore(mailbox)?;
            (end, entries) = self.read_on()?;
        }
        for entry in entries {
            if entry.log_id.index != self.next {
                break;
            }
            self.next += 1;
            self.told = Some(entry.log_id.leader_id);
            mailbox.decided.extend(store::command(entry));
        }
        if self.next != end {
            return Err(self.stopped(&format_args!("entry {} is committed and missing", self.next)));
        }
        self.term = self.leads();
        mailbox.term = self.term;
        self.acknowledged = self.lead.count();
        mailbox.led = self.led(now);
        Ok(before != (self.next, self.term, self.acknowledged))
    }

    /// The next committed entries, as many as the log has, and the index before which they should end.
    fn read_on(&self) -> Result<(u64, Vec<Entry>), Stopped> {
        let end = self.end().min(self.next.saturating_add(TOLD_AT_ONCE_MAX));
        let entries = self.store.entries(self.next..end).map_err(|error| self.stopped(&error))?;
        Ok((end.max(self.next), entries))
    }

    /// Delivers the state of the snapshot, which replaces all commands committed before it.
    fn restore(&mut self, mailbox: &mut CarriedLog) -> Result<(), Stopped> {
        let snapshot = self.store.snapshot().map_err(|error| self.stopped(&error))?;
        let last = snapshot.as_ref().and_then(|snapshot| snapshot.meta.last_log_id);
        let Some((snapshot, last)) = snapshot.zip(last.filter(|last| last.index >= self.next))
        else {
            return Err(self.stopped(&format_args!("entry {} is committed and missing", self.next)));
        };
        let machine = StateMachine::from_image(&snapshot.machine, self.options.clone());
        mailbox.restored = Some(Box::new(machine.map_err(|error| self.stopped(&error))?));
        mailbox.decided.clear();
        self.next = last.index + 1;
        self.told = Some(last.leader_id);
        Ok(())
    }

    /// The last time at which this replica led for certain; rather too early than too late.
    fn led(&self, now: Time) -> Option<Time> {
        self.term?;
        let metrics = self.metrics.borrow();
        let members = metrics.membership_config.membership();
        self.lead.since(metrics.id, metrics.vote.leader_id, members, now)
    }

    fn stopped(&self, reason: &dyn Display) -> Stopped {
        Stopped::new(self.node, reason)
    }

    /// The index after the last committed entry.
    fn end(&self) -> u64 {
        self.committed.borrow().last.map_or(0, |last| last.index + 1)
    }

    /// The term in which this replica leads, once an entry of that term was delivered: then all entries that
    /// former leaders committed were delivered before.
    fn leads(&self) -> Option<Term> {
        let metrics = self.metrics.borrow();
        let leader = metrics.vote.leader_id;
        let leads = metrics.state == ServerState::Leader
            && metrics.vote.committed
            && leader.node_id == metrics.id
            && self.told == Some(leader);
        leads.then(|| config::term(leader))
    }

    fn has_news(&self) -> bool {
        self.next < self.end()
            || self.lead.count() != self.acknowledged
            || self.leads() != self.term
            || self.metrics.borrow().running_state.is_err()
            || self.is_gone()
    }

    /// Whether the library has ended, possibly without a notification: nothing else changes the watched
    /// values.
    fn is_gone(&self) -> bool {
        self.committed.has_changed().is_err() || self.metrics.has_changed().is_err()
    }
}
