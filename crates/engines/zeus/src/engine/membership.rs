//! Configurations: the views of the protocol are made of them, and closed epochs are reported.

use super::{FIRST_EPOCH, Zeus, ZeusEffects, ZeusObservation};
use crate::view::{Directory, View};
use shoal_cluster::manager::{Assignment, Configuration, Incarnation};
use shoal_types::{Aborted, Conflict, NodeId, Time};
use std::sync::Arc;

impl Zeus {
    /// The configuration has changed. Transactions of an earlier epoch do not go on in the next: a procedure has made sure
    /// that its node leads the shard of its call, and that may be so no longer.
    pub(super) fn configured(
        &mut self,
        now: Time,
        configuration: Arc<Configuration>,
        incarnation: Incarnation,
        effects: &mut ZeusEffects,
    ) {
        self.runtime.worker_context.configured(&configuration, incarnation);
        let node = self.shared.node;
        let view = view_of(&configuration, node, incarnation);
        let (before, member) = self.with_node(effects, |shared| {
            let before = shared.node.view().member(node);
            if shared.placed.is_none_or(|placed| placed < configuration.age()) {
                shared.placed = Some(configuration.age());
                shared.node.place(now, Arc::clone(&configuration.topology).into());
            }
            shared.node.enter(now, view);
            (before, shared.node.view().member(node))
        });
        self.runtime.worker_context.epoch.set(configuration.epoch);
        // Of the workers, the first that learns of it has the node forget: another may have committed something since.
        if before != member {
            effects.observe(|| ZeusObservation::Forgotten);
        }
        let is_same = self.member == member;
        self.member = member;
        let sequences: Vec<u64> = self.transactions.keys().copied().collect();
        for sequence in sequences {
            let Some(transaction) = self.transactions.get(&sequence) else { continue };
            let epoch = transaction.remote_branches.epoch;
            match transaction.is_committed {
                true if is_same => {}
                true => self.lose(sequence, effects),
                false if epoch < configuration.epoch => {
                    self.fail(
                        sequence,
                        Aborted::from(Conflict::EpochNotOpen { epoch }).into(),
                        effects,
                    );
                }
                false => {}
            }
        }
        self.runtime.worker_context.admission.serve(member.is_some());
        self.configuration = Some(configuration);
        self.report(effects);
    }

    /// Reports to the manager that nothing was left hanging in closed epochs, on the shards whose streams this worker leads: the
    /// protocol ends its epochs itself. Asks the voters that are new there whether they have copied the directory.
    pub(super) fn report(&mut self, effects: &mut ZeusEffects) {
        let Some(configuration) = self.configuration.clone() else { return };
        let led = self.led.iter().map(|(shard, ballot)| (*shard, *ballot));
        self.reported.report(&configuration, led, effects);
        let now = self.now();
        for shard in self.led.keys() {
            let Some(assignment) = configuration.shard(*shard) else { continue };
            let catching_up: Vec<NodeId> = assignment.catching_up().map(|it| it.node).collect();
            if !catching_up.is_empty() {
                self.with_node(effects, |shared| shared.node.ask_copied(now, *shard, catching_up));
            }
        }
    }
}

/// What the configuration is to the protocol. A process that was replaced by another one of its node is out.
fn view_of(configuration: &Configuration, node: NodeId, incarnation: Incarnation) -> View {
    let standings = (0..).map(NodeId).zip(&configuration.nodes);
    let live = standings.filter(|(of, standing)| {
        standing.alive && (*of != node || standing.incarnation == incarnation)
    });
    let directory = |assignment: &Assignment| {
        let Assignment { leader, voters, voting_since, .. } = assignment;
        // A learner may lead the streams; it keeps no records.
        let leader = if voters.contains(leader) { *leader } else { voters[0] };
        let standing = |node: &NodeId| &configuration.nodes[node.0 as usize];
        let was_never_out = |node: &NodeId| {
            let standing = standing(node);
            standing.is_first && (standing.alive || standing.incarnation == Incarnation(0))
        };
        let is_from_the_first = |node: &NodeId| {
            let is_member = standing(node).alive && standing(node).since == FIRST_EPOCH;
            is_member && !voting_since.contains_key(node)
        };
        let none_was_out = assignment.left.is_empty() && voters.iter().all(was_never_out);
        let is_first = none_was_out || voters.iter().any(is_from_the_first);
        Directory { leader, nodes: voters.clone(), added: voting_since.clone(), is_first }
    };
    View {
        epoch: configuration.epoch,
        members: live.map(|(of, standing)| (of, standing.since)).collect(),
        directories: configuration.shards.iter().map(directory).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ZeusEngineOptions;
    use shoal_cluster::manager::{ManagerOptions, Revision, StateMachine};
    use shoal_cluster::topology::{Partitioning, Topology};
    use shoal_engine::engine::{Engine, EngineEffects, EngineEvent, Setup};
    use shoal_types::{TableId, WorkerId};

    /// A worker may be late with a configuration from before a table was created.
    #[test]
    fn an_older_configuration_drops_no_newer_table() {
        let hashed = || Partitioning::Hash { prefix_bytes: 1 };
        let topology = |names: &[&'static str]| {
            let tables = names.iter().map(|name| (*name, hashed()));
            Topology::symmetric(1, 1, 3, 0, 2).with_tables(tables).expect("a valid topology")
        };
        let (earlier, later) = (topology(&["t"]), topology(&["t", "u"]));
        let setup = Setup {
            topology: Arc::new(earlier.clone()),
            procedures: Arc::default(),
            streams: Default::default(),
            options: ZeusEngineOptions::default(),
        };
        let shared = Zeus::share(&setup, NodeId(0));
        let mut workers = [0, 1].map(|worker| Zeus::new(WorkerId(worker), Arc::clone(&shared), 1));
        let machine = StateMachine::new(Arc::clone(&setup.topology), ManagerOptions::default());
        let configuration = |revision, topology: &Topology| {
            let mut configuration = Configuration::clone(machine.configuration());
            configuration.revision = Revision(revision);
            configuration.topology = Arc::new(topology.clone());
            Arc::new(configuration)
        };
        for (worker, revision, topology) in
            [(0, 10, &earlier), (0, 11, &later), (1, 10, &earlier), (1, 11, &later)]
        {
            let configuration = configuration(revision, topology);
            let event = EngineEvent::Configured { configuration, incarnation: Incarnation(1) };
            workers[worker].step(Time(1), event, &mut EngineEffects::new());
        }
        let shared = shared.lock();
        let layout = &shared.node.placement().layout;
        assert!(!layout.is_dropped(TableId(0)) && !layout.is_dropped(TableId(1)));
    }
}
