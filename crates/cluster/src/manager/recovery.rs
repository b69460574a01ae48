//! The loss of a majority of the managers, accepted by an operator: a surviving manager begins another
//! *generation* of managers, from its log and the states of the nodes that answer.
//!
//! ```text
//!  a survivor         nodes                                   the survivor, alone
//!  ── Recall ──────►  pledge: no lease, no messages of former  ── StateMachine::recover ──►  a log that begins with
//!  ◄─ Recalled ─────  managers; and report their state                                  this machine
//! ```
//! What the lost managers had decided last may be known to some node only, or to none that is left. Nodes
//! have acted by configurations that they received, and by messages of each other. So the new generation
//! begins with the newest configuration of all that were received, extended by what nodes have learned of
//! epochs beyond it. The rules require of it:
//!
//! 1. *Epochs.* Those that any answering node knows of, and [`EPOCHS_SKIPPED`] after them, are closed, and none of them
//!    is ever opened again. Known ends count, as final as they were; all others are reported like those of any
//!    closed epoch, by leaders that are appointed after the recovery. So the rule of final ends holds as always: it does not depend on
//!    which managers appoint leaders, nor on the former leaders.
//! 2. *Leaders.* None leads, also where one was known. New ones are appointed, each for a new leadership, when the longest lease has
//!    run out that may have been granted before the recovery: the new manager begins all leases anew, as each does with a new
//!    term. Nodes that pledge give up theirs at once.
//! 3. *Incarnations.* A process that pledged continues, unless it knows another end of an epoch than the one that was
//!    forced after the loss of a shard's majority. All others have to end: their nodes return as processes with numbers
//!    that are [`INSTANCES_SKIPPED`] higher, since the lost managers may have assigned those between, and without
//!    memory.
//! 4. *Former managers.* A node that has pledged to a generation accepts no configuration and no lease of an earlier
//!    one; one that was in an earlier one, and has not pledged, ends its process when it receives the configuration.
//!    Both are kept in `client.rs`.
//! 5. *Accepted losses.* One whose ends are not forced yet begins again: nodes are asked what they know of the shard in all
//!    epochs that are closed by now, and its survivors hold an end of each of them.
//!
//! Not remedied is what no node that answers knows: changes of the cluster that the lost managers had acknowledged. If
//! these gave a shard other voters, its last transactions may be lost with them.

use super::configuration::Configuration;
use super::epoch_end::EpochEnd;
use super::ids::{Generation, Incarnation, ProcessInstance, Revision};
use super::loss::LossStage;
use super::state_machine::{APPOINTMENT_EPOCHS, CLOSING_MAX, StateMachine};
use shoal_types::wire::Coded;
use shoal_types::{Epoch, NodeId, ShardId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// The number of epochs after the last known one that the lost managers may have begun. Each costs a report
/// of every shard.
const EPOCHS_SKIPPED: u32 = 64;

/// The number of processes of a node that the lost managers may have admitted after the last known one.
const INSTANCES_SKIPPED: u32 = 1024;

/// The number of configurations that the lost managers may have made after the last known one.
const REVISIONS_SKIPPED: u64 = 1 << 32;

/// What a node knows of epochs beyond its configuration: from other nodes, and from streams.
#[derive(Debug, Clone, PartialEq, Eq, Default, Coded)]
pub struct KnownEpochs {
    /// The last epoch that was opened.
    pub open: Epoch,
    /// The known ends of epochs that are not settled in its configuration, by shard.
    pub ends: BTreeMap<Epoch, Vec<Option<EpochEnd>>>,
}

/// The state of a node for the recovery of the managers.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Recollection {
    /// The process of the node.
    pub instance: ProcessInstance,
    /// The incarnation of that process; 0 if no manager has admitted it.
    pub incarnation: Incarnation,
    /// The generation to which it has pledged.
    pub pledged: Generation,
    /// The last configuration that it received.
    pub configuration: Option<Arc<Configuration>>,
    /// What it knows beyond that configuration.
    pub epochs: KnownEpochs,
}

/// Why managers are not recovered. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotRecovered {
    /// No node has a configuration to begin with.
    #[error(
        "no node that answers remembers the cluster, so nothing of its data is left; empty the folders and found it anew"
    )]
    NothingRemembered,
    /// Manager and node belong to different clusters.
    #[error(
        "{0} belongs to another cluster than this manager; recover the managers of each cluster by themselves"
    )]
    OtherCluster(NodeId),
    /// Another recovery is newer.
    #[error("a later recovery was begun, or is done; look at `shoal managers list`, and ask again")]
    Late(Generation),
    /// The manager's tables would become too large.
    #[error(
        "{0} epochs would be open to question, of at most {CLOSING_MAX}: recover from a manager, or with nodes, that know more of them"
    )]
    TooManyEpochs(usize),
    /// Two nodes have different final ends of an epoch.
    #[error(
        "{epoch} ended differently on {shard}, as {node} and others remember it: nothing that is done now can be right; stop the nodes that are wrong"
    )]
    Contradiction {
        /// The node that contradicts others.
        node: NodeId,
        /// The epoch of which two different ends are remembered.
        epoch: Epoch,
        /// The shard on which they differ.
        shard: ShardId,
    },
    /// The state of a node is invalid for another reason.
    #[error("what {0} remembers fits no cluster like this one; stop it, and ask again")]
    Implausible(NodeId),
}

impl StateMachine {
    /// The state of a new generation of managers, after a majority of the former ones was lost: it continues
    /// from this one's state and from those of nodes that have pledged to the generation.
    ///
    /// # Errors
    /// [`NotRecovered`] if that would break a rule.
    ///
    /// # Panics
    /// If the new state would repeat a known epoch or incarnation.
    pub fn recover(
        &self,
        generation: Generation,
        recollections: &BTreeMap<NodeId, Recollection>,
    ) -> Result<StateMachine, NotRecovered> {
        let newest = self.newest(generation, recollections)?;
        let mut machine = self.clone();
        if newest.age() > self.configuration().age() {
            machine.replace_by(&newest);
        }
        let survivors =
            recollections.iter().filter(|(id, it)| machine.goes_on(**id, it, generation));
        let mut survivors: Vec<NodeId> = survivors.map(|(id, _)| *id).collect();
        // Of lost epochs, nodes that were asked for their knowledge accept the end that is forced.
        survivors.sort_by_key(|id| !machine.has_reported_losses(*id));
        let open = recollections.values().map(|it| it.epochs.open).max().unwrap_or_default();
        machine.skip_epochs(open)?;
        let mut kept = Ok(());
        survivors.retain(|id| {
            let added = machine.add_ends(*id, &recollections[id].epochs);
            added.unwrap_or_else(|why| {
                kept = Err(why);
                false
            })
        });
        kept?;
        machine.restart_losses();
        machine.begin_instances(&survivors, recollections);
        machine.note_departures();
        machine.depose_all();
        machine.generation = generation;
        machine.restart_clock();
        machine.jump_revision(REVISIONS_SKIPPED);
        assert!(
            machine.epoch > open && machine.epoch > newest.epoch,
            "final ends: an epoch is repeated"
        );
        let former = newest.nodes.iter().zip(&machine.nodes);
        let mut former = former.zip((0..).map(NodeId));
        let follows = |((before, now), id): (
            (&super::NodeStanding, &super::state_machine::NodeState),
            NodeId,
        )| {
            now.incarnation > before.incarnation
                || (now.incarnation == before.incarnation && survivors.contains(&id))
        };
        assert!(former.all(follows), "an incarnation is repeated");
        Ok(machine)
    }

    /// The newest configuration that was received.
    fn newest(
        &self,
        generation: Generation,
        recollections: &BTreeMap<NodeId, Recollection>,
    ) -> Result<Arc<Configuration>, NotRecovered> {
        let mut newest = Arc::clone(self.configuration());
        let mut cluster = self.cluster();
        let mut is_remembered = false;
        for (id, recollection) in recollections {
            if recollection.pledged > generation {
                return Err(NotRecovered::Late(recollection.pledged));
            }
            let Some(configuration) = &recollection.configuration else { continue };
            if configuration.cluster.is_none()
                || cluster.is_some_and(|cluster| Some(cluster) != configuration.cluster)
            {
                return Err(NotRecovered::OtherCluster(*id));
            }
            if configuration.revision.0 > u64::MAX - 2 * REVISIONS_SKIPPED
                || !self.is_alike(configuration)
            {
                return Err(NotRecovered::Implausible(*id));
            }
            (cluster, is_remembered) = (configuration.cluster, true);
            if configuration.age() > newest.age() {
                newest = Arc::clone(configuration);
            }
        }
        if newest.generation >= generation {
            return Err(NotRecovered::Late(newest.generation));
        }
        if is_remembered { Ok(newest) } else { Err(NotRecovered::NothingRemembered) }
    }

    /// Whether this process of a node has pledged, and is the last one that was admitted: then it continues.
    /// The generation that had admitted it does not matter: no two give the same number to different
    /// processes.
    fn goes_on(&self, id: NodeId, recollection: &Recollection, generation: Generation) -> bool {
        let known = self.node(id).map(|(_, incarnation)| incarnation);
        recollection.pledged == generation
            && recollection.incarnation > Incarnation(0)
            && known == Some(recollection.incarnation)
    }

    /// Closes all epochs that the lost managers may have begun. Nothing is known of those beyond the
    /// configuration: a shard that was out may have been in again.
    fn skip_epochs(&mut self, open: Epoch) -> Result<(), NotRecovered> {
        let last = self.epoch.max(open);
        let skipped = (last.0 - self.epoch.0) as usize + EPOCHS_SKIPPED as usize;
        let count = self.closing.len() + skipped;
        let fits = count + APPOINTMENT_EPOCHS <= CLOSING_MAX;
        let next = last.0.checked_add(EPOCHS_SKIPPED).filter(|_| fits).map(Epoch);
        let Some(next) = next else { return Err(NotRecovered::TooManyEpochs(count)) };
        let closed = self.epoch;
        self.close_epoch();
        for epoch in closed.0 + 1..next.0 {
            self.closing.insert(Epoch(epoch), vec![None; self.shards.len()]);
        }
        self.epoch = next;
        self.settle(closed, &mut Vec::new()); // All shards may have been out.
        Ok(())
    }

    /// Adds the ends that a node has learned, which are as final as before. Returns false if the node's
    /// process cannot continue, since it has learned another end for a shard whose majority was lost and
    /// whose end was forced: then none of its ends is added.
    fn add_ends(&mut self, id: NodeId, known: &KnownEpochs) -> Result<bool, NotRecovered> {
        let mut news = Vec::new();
        for (epoch, ends) in &known.ends {
            if ends.len() != self.shards.len() {
                return Err(NotRecovered::Implausible(id));
            }
            for (shard, end) in (0..).map(ShardId).zip(ends) {
                let Some(end) = end else { continue };
                match self.end_of(*epoch, shard) {
                    None if self.closing.contains_key(epoch) => news.push((shard, *epoch, end)),
                    Some(known) if known != *end && self.is_forced(*epoch, shard) => {
                        return Ok(false);
                    }
                    Some(known) if known != *end => {
                        let (node, epoch) = (id, *epoch);
                        return Err(NotRecovered::Contradiction { node, epoch, shard });
                    }
                    None | Some(_) => {}
                }
            }
        }
        for (shard, epoch, end) in news {
            self.accept_end(shard, epoch, end, &mut Vec::new());
        }
        Ok(true)
    }

    /// Whether this node has reported what it knows of all shards whose loss is accepted.
    fn has_reported_losses(&self, id: NodeId) -> bool {
        let incarnation = self.nodes[id.0 as usize].incarnation;
        let mut losses = self.shards.iter().filter_map(|shard| shard.assignment.loss.as_ref());
        losses.all(|loss| loss.has_reported(id, incarnation))
    }

    /// The end of an epoch on a shard, as far as it is known.
    fn end_of(&self, epoch: Epoch, shard: ShardId) -> Option<EpochEnd> {
        match self.closing.get(&epoch) {
            Some(ends) => ends[shard.0 as usize].clone(),
            None => self.final_end(epoch, shard),
        }
    }

    /// Whether the end was forced after the loss of the shard's majority.
    fn is_forced(&self, epoch: Epoch, shard: ShardId) -> bool {
        let loss = &self.shards[shard.0 as usize].assignment.loss;
        loss.as_ref().is_some_and(|loss| loss.forces(epoch))
    }

    /// The end of a settled epoch on a shard, as far as it is kept.
    fn final_end(&self, epoch: Epoch, shard: ShardId) -> Option<EpochEnd> {
        let last = self.finals.iter().find(|(_, last)| last.epoch() == epoch);
        match last {
            Some((_, last)) => Some(last.of(shard).clone()),
            None if epoch > self.forgotten && epoch < self.epoch => Some(EpochEnd::Whole),
            None => None,
        }
    }

    /// Restarts losses whose ends are not forced yet: the reports about them cover fewer epochs than lack
    /// their end now.
    fn restart_losses(&mut self) {
        for at in 0..self.shards.len() {
            if !self.is_losing(at) {
                continue;
            }
            let lacking = self.closing.iter().filter(|(_, ends)| ends[at].is_none());
            let lacking: Vec<Epoch> = lacking.map(|(epoch, _)| *epoch).collect();
            let loss = self.shards[at].assignment.loss.as_mut().expect("it is accepted");
            (loss.stage, loss.begun) = (LossStage::Asking, self.epoch);
            loss.reported.clear();
            for epoch in lacking {
                loss.ends.entry(epoch).or_default();
            }
        }
    }

    /// Has these processes continue; all others have to end, and lose their memory.
    fn begin_instances(
        &mut self,
        survivors: &[NodeId],
        recollections: &BTreeMap<NodeId, Recollection>,
    ) {
        for (id, node) in (0..).map(NodeId).zip(&mut self.nodes) {
            (node.last_heartbeat, node.known) = (Time::ZERO, Revision(0));
            node.restart_rounds();
            let was_alive = std::mem::replace(&mut node.alive, survivors.contains(&id));
            if node.alive {
                if !was_alive {
                    node.since = self.epoch;
                }
                node.instance = recollections[&id].instance;
                continue;
            }
            node.instance = ProcessInstance::default();
            node.incarnation = Incarnation(node.incarnation.0.saturating_add(INSTANCES_SKIPPED));
            for shard in &mut self.shards {
                if shard.assignment.holds(id) {
                    shard.assignment.empty.insert(id, self.epoch);
                }
            }
        }
    }

    /// Which nodes had left lately was known to the former managers: any that is out now may have.
    fn note_departures(&mut self) {
        let nodes = (0..self.nodes.len() as u32).map(NodeId);
        let out = nodes.filter(|id| !self.nodes[id.0 as usize].alive && !self.is_removed(*id));
        let out: Vec<NodeId> = out.collect();
        out.into_iter().for_each(|id| self.note_departure(id, self.epoch));
    }

    /// Deposes all leaders. Each shard waits for another until the next manager's first leases have run out.
    fn depose_all(&mut self) {
        for shard in &mut self.shards {
            shard.assignment.incarnation = Incarnation(0);
            shard.vacant = Some(Time(1));
            shard.ready.clear();
        }
    }
}
