//! The state that nodes have of managers whose majority is lost, and what can be recovered from it. `generation.rs`
//! asks the nodes.

use super::operator::{OperatorRefusal, RememberedManagers};
use shoal_cluster::manager::{
    Configuration, Generation, NotRecovered, Outage, Recollection, StateMachine,
};
use shoal_types::{NodeId, ShardId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The time that nodes have to answer, in which they are asked repeatedly.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// A recovery is given up if its request was not repeated for so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// What an operator has accepted, with the number of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AcceptedRecovery {
    pub(super) number: u64,
    /// The nodes that the operator was shown as silent.
    pub(super) silent: Vec<NodeId>,
    /// The shards that the operator was shown as lost.
    pub(super) lost: Vec<ShardId>,
}

/// A recovery in progress: nodes are being asked.
pub(super) struct ManagerRecovery {
    /// The operator's number for it; `None` if nothing is to change.
    pub(super) number: Option<u64>,
    /// Whether nodes pledge.
    pub(super) pledges: bool,
    pub(super) generation: Generation,
    /// The latest version of the list of managers that a node has.
    pub(super) version: u64,
    recollections: BTreeMap<NodeId, Recollection>,
    pub(super) nodes: usize,
    begun: Time,
    asked: Time,
}

/// A node that has answered, and the version of the list of managers that it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListHolder {
    pub(super) node: NodeId,
    pub(super) version: u64,
}

impl ManagerRecovery {
    pub(super) fn new(
        number: Option<u64>,
        pledges: bool,
        generation: Generation,
        nodes: usize,
        now: Time,
    ) -> ManagerRecovery {
        let (recollections, version) = (BTreeMap::new(), 0);
        ManagerRecovery {
            number,
            pledges,
            generation,
            version,
            recollections,
            nodes,
            begun: now,
            asked: now,
        }
    }

    /// Takes note that an operator has repeated the request. Returns false if the recovery has to begin anew:
    /// it was given up, or changes nothing and a change is requested. A request of another operator waits
    /// until then.
    pub(super) fn goes_on(&mut self, number: Option<u64>, now: Time) -> bool {
        let is_given_up = now - self.asked >= PATIENCE;
        let is_same = self.number == number;
        if is_same {
            self.asked = now;
        }
        !is_given_up && (is_same || self.number.is_some())
    }

    /// Asks all nodes anew, for pledges to a generation later than these.
    fn begin_anew(&mut self, now: Time, known: Generation, me: NodeId) {
        self.generation = known.next(me);
        self.recollections.clear();
        self.begun = now;
    }

    /// The same recovery, begun anew with pledges.
    pub(super) fn with_pledges(self, now: Time, me: NodeId) -> ManagerRecovery {
        let known = self.generation;
        let mut recovery = ManagerRecovery { pledges: true, ..self };
        recovery.begin_anew(now, known, me);
        recovery
    }

    /// Whether a node has pledged to a later generation than that of the machine.
    pub(super) fn is_pledged(&self, machine: &StateMachine) -> bool {
        let generation = machine.configuration().generation;
        self.recollections.values().any(|it| it.pledged > generation)
    }

    /// Nodes that have not answered.
    pub(super) fn missing(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.nodes as u32).map(NodeId).filter(|node| !self.recollections.contains_key(node))
    }

    pub(super) fn answered(&self) -> u64 {
        self.recollections.len() as u64
    }

    /// A node has answered. If it has pledged to a later generation, or has a list of such managers, all
    /// nodes are asked for a still later one.
    pub(super) fn on_answer(
        &mut self,
        now: Time,
        from: ListHolder,
        generation: Generation,
        recollection: Recollection,
        me: NodeId,
    ) {
        let ListHolder { node, version } = from;
        let known = recollection.pledged.max(Generation(version));
        if known > self.generation {
            self.begin_anew(now, known, me);
        } else if generation == self.generation
            && (!self.pledges || recollection.pledged == generation)
        {
            // An answer to a request without a pledge contains none.
            self.version = self.version.max(version);
            self.recollections.insert(node, recollection);
        }
    }

    /// All have answered, or have had the time for it.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.missing().next().is_none() || now - self.begun >= ANSWERS_WITHIN
    }

    /// The machine with which the next managers go on, if that costs no more than what is accepted.
    pub(super) fn machine(
        &self,
        machine: &StateMachine,
        accepted: &AcceptedRecovery,
    ) -> Result<StateMachine, OperatorRefusal> {
        let failed = |why: NotRecovered| {
            let why = format!("{why}; nodes have pledged, and are not served before it is done");
            OperatorRefusal::Failed(why)
        };
        let RememberedManagers { mut silent, mut lost, .. } =
            self.remembered(machine).map_err(failed)?;
        silent.retain(|node| !accepted.silent.contains(node));
        lost.retain(|shard| !accepted.lost.contains(shard));
        if !silent.is_empty() || !lost.is_empty() {
            return Err(OperatorRefusal::LosesMore { silent, lost });
        }
        machine.recover(self.generation, &self.recollections).map_err(failed)
    }

    /// The state that is left, for the operator.
    pub(super) fn remembered(
        &self,
        machine: &StateMachine,
    ) -> Result<RememberedManagers, NotRecovered> {
        let mut pledged = self.recollections.clone(); // As if they had, which they do when it is requested.
        pledged.values_mut().for_each(|it| it.pledged = self.generation);
        let recovered = machine.recover(self.generation, &pledged)?;
        let after = recovered.configuration();
        let (nodes, silent): (BTreeSet<NodeId>, BTreeSet<NodeId>) = (0..)
            .map(NodeId)
            .take(after.nodes.len())
            .partition(|node| after.nodes[node.0 as usize].alive);
        let is_lost =
            |shard: &ShardId| !matches!(after.outage(*shard), None | Some(Outage::Appointing));
        let known = self.recollections.values().filter_map(|it| it.configuration.as_ref());
        let newest = known.max_by_key(|it: &&Arc<Configuration>| it.age());
        let own = machine.configuration();
        let (revision, epoch) =
            newest.map_or((own.revision, own.epoch), |newest| (newest.revision, newest.epoch));
        let open = self.recollections.values().map(|it| it.epochs.open).max().unwrap_or_default();
        Ok(RememberedManagers {
            nodes: nodes.into_iter().collect(),
            silent: silent.into_iter().collect(),
            lost: after.topology.shard_ids().filter(is_lost).collect(),
            lacking: revision.0.saturating_sub(own.revision.0),
            epoch: epoch.max(own.epoch),
            open: open.max(epoch),
            pledged: self.is_pledged(machine),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::manager::{
        Action, Command, Incarnation, KnownEpochs, ProcessInstance, Term,
    };
    use shoal_cluster::topology::Topology;
    use shoal_types::ClusterId;

    fn recollection(pledged: Generation) -> Recollection {
        Recollection {
            instance: ProcessInstance(1),
            incarnation: Incarnation(1),
            pledged,
            configuration: None,
            epochs: KnownEpochs::default(),
        }
    }

    const ME: NodeId = NodeId(0);

    fn recovery(number: u64) -> (ManagerRecovery, Generation) {
        let first = Generation(0).next(ME);
        (ManagerRecovery::new(Some(number), true, first, 3, Time(1)), first)
    }

    #[test]
    fn a_later_pledge_has_all_be_asked_anew_and_silence_ends() {
        let (mut recovery, first) = recovery(7);
        recovery.on_answer(
            Time(1),
            ListHolder { node: NodeId(1), version: 4 },
            first,
            recollection(Generation(0)),
            ME,
        );
        assert_eq!(recovery.answered(), 0, "it was asked before, and has not pledged");
        recovery.on_answer(
            Time(1),
            ListHolder { node: NodeId(1), version: 4 },
            first,
            recollection(first),
            ME,
        );
        assert_eq!(recovery.missing().collect::<Vec<_>>(), [NodeId(0), NodeId(2)]);
        assert!(!recovery.is_over(Time(2)));
        let other = first.next(NodeId(2));
        let late = Time(1) + ANSWERS_WITHIN;
        recovery.on_answer(
            late,
            ListHolder { node: NodeId(2), version: 5 },
            first,
            recollection(other),
            ME,
        );
        assert_eq!((recovery.answered(), recovery.generation), (0, other.next(ME)));
        assert!(!recovery.is_over(late), "all nodes have the full time again");
        recovery.on_answer(
            late,
            ListHolder { node: NodeId(1), version: 9 },
            first,
            recollection(first),
            ME,
        );
        assert_eq!(recovery.answered(), 0, "an answer to what was asked before");
        let later = other.next(ME);
        recovery.on_answer(
            late,
            ListHolder { node: NodeId(1), version: 9 },
            later,
            recollection(later),
            ME,
        );
        assert_eq!((recovery.answered(), recovery.version), (1, 9));
        // A list of managers that began without this node.
        let list = Generation(5 << 32 | 1);
        recovery.on_answer(
            late,
            ListHolder { node: NodeId(2), version: list.0 },
            later,
            recollection(later),
            ME,
        );
        assert_eq!((recovery.answered(), recovery.generation), (0, list.next(ME)));
        assert!(recovery.generation.0 > list.0);
        assert!(recovery.is_over(late + ANSWERS_WITHIN));
    }

    #[test]
    fn what_another_operator_wants_waits() {
        let (mut recovery, first) = recovery(7);
        assert!(recovery.goes_on(Some(7), Time(2)));
        assert!(recovery.goes_on(Some(8), Time(3)) && recovery.goes_on(None, Time(3)));
        assert!(!recovery.goes_on(Some(8), Time(2) + PATIENCE), "it is given up");
        let mut check = ManagerRecovery::new(None, false, first, 3, Time(1));
        assert!(check.goes_on(None, Time(2)) && !check.goes_on(Some(7), Time(3)));
    }

    #[test]
    fn it_costs_no_more_than_was_accepted() {
        let mut machine = StateMachine::new(
            Arc::new(Topology::symmetric(1, 1, 3, 0, 1)),
            shoal_cluster::manager::ManagerOptions::default(),
        );
        let mut apply = |action| {
            let command = Command { term: Term(1), at: Time(1), action };
            machine.apply(&command, &mut Vec::new());
        };
        apply(Action::Take { drawn: ClusterId::new(5).expect("not 0") });
        for node in (0..3).map(NodeId) {
            let (instance, after, lost, last_heartbeat) =
                (ProcessInstance(1), Incarnation(0), true, Time(1));
            apply(Action::Join { node, instance, after, lost, last_heartbeat });
        }
        let (mut recovery, first) = recovery(7);
        for node in [0, 1].map(NodeId) {
            let configuration = Some(Arc::clone(machine.configuration()));
            let recollection = Recollection { configuration, ..recollection(first) };
            recovery.on_answer(Time(1), ListHolder { node, version: 1 }, first, recollection, ME);
        }
        assert!(recovery.is_pledged(&machine));
        let accepted = |silent| AcceptedRecovery { number: 7, silent, lost: Vec::new() };
        let more = OperatorRefusal::LosesMore { silent: vec![NodeId(2)], lost: Vec::new() };
        assert_eq!(recovery.machine(&machine, &accepted(Vec::new())), Err(more));
        let silent = vec![NodeId(1), NodeId(2)];
        recovery.machine(&machine, &accepted(silent)).expect("as it was shown");
        recovery.recollections.remove(&NodeId(1));
        let more = OperatorRefusal::LosesMore { silent: vec![NodeId(1)], lost: vec![ShardId(0)] };
        assert_eq!(recovery.machine(&machine, &accepted(vec![NodeId(2)])), Err(more));
    }
}
