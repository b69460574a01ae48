//! Configurations: the protocol's view is made of them, and closed epochs are reported.

use super::{Tiga, TigaEffects};
use crate::node::Appointment;
use crate::view::ShardView;
use shoal_cluster::manager::{Assignment, Configuration, Incarnation};
use shoal_types::ShardId;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Tiga {
    /// The configuration has changed.
    pub(super) fn configured(
        &mut self,
        configuration: Arc<Configuration>,
        incarnation: Incarnation,
        effects: &mut TigaEffects,
    ) {
        self.runtime.worker_context.configured(&configuration, incarnation);
        self.runtime.worker_context.epoch.set(configuration.epoch);
        // Answers to a former process of the node may still come: reads have other numbers in each, as transactions have.
        let oldest = self.runtime.worker_context.sequences.borrow().oldest();
        self.next_read = self.next_read.max(oldest);
        let me = self.shared.node;
        let standing = configuration.nodes.get(me.0 as usize);
        let is_member = standing.is_some_and(|it| it.alive && it.incarnation == incarnation);
        self.runtime.worker_context.admission.serve(is_member);
        let shards = configuration.shards.iter().map(view_of).collect();
        let held = (0..).map(ShardId).zip(&configuration.shards);
        let held = held.filter(|(_, assignment)| assignment.holds(me));
        let appointment = |assignment: &Assignment| {
            let Assignment { ballot, since, .. } = *assignment;
            assignment.is_led_by(me, incarnation).then_some(Appointment { ballot, since })
        };
        let held: BTreeMap<ShardId, Option<Appointment>> =
            held.map(|(shard, assignment)| (shard, appointment(assignment))).collect();
        self.led.retain(|shard, _| held.get(shard).is_some_and(Option::is_some));
        self.forget_shards(|shard| held.contains_key(&shard));
        self.with_node(effects, |node, now, library| {
            node.configure(now, library, shards, &held);
        });
        self.configuration = Some(configuration);
        self.look_at_snapshots();
        self.report(effects);
    }

    /// Reports to the manager that nothing was left hanging in closed epochs, on the shards whose streams this worker leads: the
    /// protocol has no epochs.
    pub(super) fn report(&mut self, effects: &mut TigaEffects) {
        let Some(configuration) = &self.configuration else { return };
        let led = self.led.iter().map(|(shard, ballot)| (*shard, *ballot));
        self.reported.report(configuration, led, effects);
    }
}

/// A shard, as the protocol sees it.
fn view_of(assignment: &Assignment) -> ShardView {
    ShardView {
        voters: assignment.voters.clone(),
        full: assignment.full_voters().collect(),
        leader: assignment.leader,
        ballot: assignment.ballot,
    }
}
