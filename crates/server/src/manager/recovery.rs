//! The managers' majority is lost: the one that is hosted here asks all nodes what they remember, and goes on alone. What
//! makes that safe is said in `consensus/src/manager/recovery.rs`.
//!
//! ```text
//!  operator ── CheckRecovery ──►  ask all nodes                    ──► what would be lost
//!  operator ── RecoverManagers ─► ask all nodes, which pledge      ──► another log, with this member only
//! ```
//! The node stays up: what it has in memory may be all that is left of a shard.

use super::desk::Desk;
use super::operator::{Refusal, Remembered, Stage, ToOperator};
use crate::envelope::Envelope;
use consensus::manager::{
    Configuration, Generation, Machine, NotRecovered, Outage, Recollection, ToNode,
};
use raft::{Member, Stopped};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use types::{NodeId, Time};

/// So long nodes have to answer. They are asked again meanwhile.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// What was not asked for in so long is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Nodes are being asked.
pub(super) struct Recovery {
    /// The operator's number for it; `None` if nothing is to change.
    pub(super) number: Option<u64>,
    pub(super) generation: Generation,
    /// Which lists of managers nodes have.
    pub(super) version: u64,
    told: BTreeMap<NodeId, Recollection>,
    nodes: usize,
    begun: Time,
    asked: Time,
}

impl Recovery {
    pub(super) fn new(
        number: Option<u64>,
        generation: Generation,
        nodes: usize,
        now: Time,
    ) -> Recovery {
        let (told, version) = (BTreeMap::new(), 0);
        Recovery { number, generation, version, told, nodes, begun: now, asked: now }
    }

    /// An operator asks for it, still. False if it is another one, or was given up.
    pub(super) fn goes_on(&mut self, number: Option<u64>, now: Time) -> bool {
        let is_same = self.number == number && now - self.asked < PATIENCE;
        self.asked = now;
        is_same
    }

    /// Nodes that have not answered.
    pub(super) fn missing(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.nodes as u32).map(NodeId).filter(|node| !self.told.contains_key(node))
    }

    pub(super) fn answered(&self) -> u64 {
        self.told.len() as u64
    }

    /// A node has answered. One that has pledged to a later generation wants to be asked for one that is later still, as all
    /// others do then.
    pub(super) fn hear(
        &mut self,
        (from, version): (NodeId, u64),
        generation: Generation,
        told: Recollection,
        me: NodeId,
    ) {
        if told.pledged > self.generation {
            self.generation = told.pledged.next(me);
            self.told.clear();
        } else if generation == self.generation
            && (self.number.is_none() || told.pledged == generation)
        {
            // Who answers a question that asked for no pledge has none of it.
            self.version = self.version.max(version);
            self.told.insert(from, told);
        }
    }

    /// All have answered, or have had the time for it.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.missing().next().is_none() || now - self.begun >= ANSWERS_WITHIN
    }

    /// What the next managers go on from.
    pub(super) fn machine(&self, machine: &Machine) -> Result<Machine, NotRecovered> {
        machine.recover(self.generation, &self.told)
    }

    /// For the operator: what of it is left, and what is not.
    pub(super) fn remembered(&self, machine: &Machine) -> Result<Remembered, NotRecovered> {
        let mut pledged = self.told.clone(); // As they will have, when it is wanted.
        pledged.values_mut().for_each(|told| told.pledged = self.generation);
        let recovered = machine.recover(self.generation, &pledged)?;
        let after = recovered.configuration();
        let (nodes, silent): (BTreeSet<NodeId>, BTreeSet<NodeId>) = (0..)
            .map(NodeId)
            .take(after.nodes.len())
            .partition(|node| after.nodes[node.0 as usize].alive);
        let is_lost = |shard: &types::ShardId| {
            !matches!(after.outage(*shard), None | Some(Outage::Appointing))
        };
        let known = self.told.values().filter_map(|told| told.configuration.as_ref());
        let newest = known.max_by_key(|it: &&Arc<Configuration>| it.age());
        let own = machine.configuration();
        let (revision, epoch) =
            newest.map_or((own.revision, own.epoch), |newest| (newest.revision, newest.epoch));
        let heard = self.told.values().map(|told| told.heard.open).max().unwrap_or_default();
        Ok(Remembered {
            nodes: nodes.into_iter().collect(),
            silent: silent.into_iter().collect(),
            lost: after.topology.shard_ids().filter(is_lost).collect(),
            lacking: revision.0.saturating_sub(own.revision.0),
            epoch: epoch.max(own.epoch),
            heard: heard.max(epoch),
        })
    }
}

impl Desk {
    /// Recovers the managers from the one that is hosted here, as far as that goes now; with no number, says what would be
    /// left.
    pub(super) async fn recover(&mut self, number: Option<u64>) -> Result<ToOperator, Stopped> {
        if let Some((done, managers)) = &self.recovered
            && number == Some(*done)
        {
            return Ok(ToOperator::Done { managers: managers.clone() });
        }
        let Some(site) = &mut self.site else {
            let managers = self.board.known().nodes().into_iter().collect();
            return Ok(ToOperator::Refused(Refusal::NotManager { managers }));
        };
        if site.has_majority() {
            return Ok(ToOperator::Refused(Refusal::MajorityLives));
        }
        let (now, me, nodes) = (self.clock.now(), self.plan.node, self.plan.topology.nodes().len());
        if !self.recovery.as_mut().is_some_and(|recovery| recovery.goes_on(number, now)) {
            let generation = site.machine().configuration().generation.next(me);
            self.recovery = Some(Recovery::new(number, generation, nodes, now));
        }
        let recovery = self.recovery.take_if(|recovery| recovery.is_over(now));
        if let Some(asking) = &self.recovery {
            let (generation, pledges) = (asking.generation, number.is_some());
            asking
                .missing()
                .for_each(|node| site.tell(node, ToNode::Recall { generation, pledges }));
            return Ok(ToOperator::UnderWay(Stage::Asking {
                told: asking.answered(),
                of: nodes as u64,
            }));
        }
        let recovery = recovery.expect("it is over, or goes on");
        let refused = |why: NotRecovered| ToOperator::Refused(Refusal::Failed(why.to_string()));
        let Some(number) = number else {
            let remembered = recovery.remembered(site.machine());
            return Ok(remembered.map_or_else(refused, ToOperator::MayRecover));
        };
        match recovery.machine(site.machine()) {
            Ok(machine) => self.begin_generation(number, recovery.version, &machine).await,
            Err(why) => Ok(refused(why)),
        }
    }

    /// The manager here goes on alone with this machine.
    async fn begin_generation(
        &mut self,
        number: u64,
        version: u64,
        machine: &Machine,
    ) -> Result<ToOperator, Stopped> {
        let node = self.plan.node;
        let member = Member { node, volume: self.draw_volume() };
        let entries = self.site.as_ref().map_or(0, |site| site.log.status().entries);
        let version = version.max(entries).max(self.board.version());
        let begun = self.folder.begin_log(member, machine, version);
        let (storage, members) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let why = format!("its log cannot be written, and all is as it was: {error}");
                return Ok(ToOperator::Refused(Refusal::Failed(why)));
            }
        };
        let configuration = machine.configuration();
        tracing::warn!(
            %node, generation = configuration.generation.count(), epoch = %configuration.epoch,
            "the managers' majority is lost, and that is accepted: this one goes on alone"
        );
        self.close().await;
        self.open(storage).await?;
        self.follow().await;
        for other in self.plan.topology.nodes().iter().filter(|other| other.id != node) {
            self.courier.send(other.id, &Envelope::Members(members.clone()));
        }
        let managers: Vec<NodeId> = members.nodes().into_iter().collect();
        self.recovered = Some((number, managers.clone()));
        Ok(ToOperator::Done { managers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consensus::manager::{HeardEpochs, Incarnation, Life};

    #[test]
    fn a_later_pledge_has_all_be_asked_anew_and_silence_ends() {
        let (me, first) = (NodeId(0), Generation(0).next(NodeId(0)));
        let told = |pledged| Recollection {
            life: Life(1),
            incarnation: Incarnation(1),
            pledged,
            configuration: None,
            heard: HeardEpochs::default(),
        };
        let mut recovery = Recovery::new(Some(7), first, 3, Time(1));
        recovery.hear((NodeId(1), 4), first, told(Generation(0)), me);
        assert_eq!(recovery.answered(), 0, "it was asked before, and has not pledged");
        recovery.hear((NodeId(1), 4), first, told(first), me);
        assert_eq!(recovery.missing().collect::<Vec<_>>(), [NodeId(0), NodeId(2)]);
        assert!(!recovery.is_over(Time(2)));
        let other = first.next(NodeId(2));
        recovery.hear((NodeId(2), 5), first, told(other), me);
        assert_eq!((recovery.answered(), recovery.generation), (0, other.next(me)));
        recovery.hear((NodeId(1), 9), first, told(first), me);
        assert_eq!(recovery.answered(), 0, "an answer to what was asked before");
        recovery.hear((NodeId(1), 9), other.next(me), told(other.next(me)), me);
        assert_eq!((recovery.answered(), recovery.version), (1, 9));
        assert!(recovery.is_over(Time(1) + ANSWERS_WITHIN));
        assert!(recovery.goes_on(Some(7), Time(2)) && !recovery.goes_on(None, Time(3)));
        assert!(!recovery.goes_on(Some(7), Time(3) + PATIENCE));
    }
}
