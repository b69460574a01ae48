//! The state machine as bytes: what a compacted log begins with, in place of its first commands.
//!
//! Invariant: a machine and its image, read with the same options, are equal, and so behave alike. The fields
//! are written and read by name, so that a new one cannot be left out here.
//!
//! Images come from a disk or from another replica. One that breaks an invariant of the machine is malformed,
//! and never a panic.

use super::{NodeState, ShardState, StateMachine};
use crate::manager::configuration::Assignment;
use crate::manager::options::ManagerOptions;
use bytes::{Bytes, BytesMut};
use shoal_types::coded_struct;
use shoal_types::wire::{Coded, Input, Malformed};
use shoal_types::{NodeId, Time};
use std::collections::BTreeSet;

/// The version of the format. Others are refused.
const VERSION: u8 = 5;

coded_struct!(NodeState {
    instance: crate::manager::ProcessInstance,
    incarnation: crate::manager::Incarnation,
    alive: bool,
    heard: Time,
    round: u64,
    known: crate::manager::Revision,
});

impl Coded for ShardState {
    const BYTES_MIN: usize = Assignment::BYTES_MIN + 4;

    fn put(&self, out: &mut BytesMut) {
        let ShardState { assignment, vacant, replacement, ready } = self;
        assignment.put(out);
        vacant.put(out);
        replacement.put(out);
        ready.iter().copied().collect::<Vec<NodeId>>().put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<ShardState, Malformed> {
        let (assignment, vacant) = (Coded::take(input)?, Coded::take(input)?);
        let replacement = Coded::take(input)?;
        let ready = Vec::<NodeId>::take(input)?;
        if !ready.is_sorted_by(|one, two| one < two) {
            return Err(input.wrong("nodes in disorder"));
        }
        let ready = ready.into_iter().collect();
        Ok(ShardState { assignment, vacant, replacement, ready })
    }
}

impl StateMachine {
    /// The machine as bytes, without its options, which are the same on every manager.
    #[must_use]
    pub fn image(&self) -> Bytes {
        let StateMachine {
            options: _,
            topology,
            cluster,
            generation,
            term,
            now,
            began,
            revision,
            changed,
            epoch,
            nodes,
            shards,
            closing,
            closed_at,
            untold_ends,
            settled,
            forgotten,
            finals,
            moving,
            void,
            configuration,
        } = self;
        assert!(!changed, "a change is not published: {self:?}");
        let mut out = BytesMut::new();
        let out = &mut out;
        VERSION.put(out);
        topology.put(out);
        cluster.put(out);
        generation.put(out);
        term.put(out);
        now.put(out);
        began.put(out);
        revision.put(out);
        epoch.put(out);
        nodes.put(out);
        shards.put(out);
        closing.put(out);
        closed_at.put(out);
        untold_ends.put(out);
        settled.put(out);
        forgotten.put(out);
        let (told, finals): (Vec<_>, Vec<_>) = finals.iter().cloned().unzip();
        told.put(out);
        finals.put(out);
        moving.put(out);
        void.put(out);
        configuration.as_ref().put(out);
        std::mem::take(out).freeze()
    }

    /// Reads the machine of an image.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no image of a machine.
    ///
    /// # Panics
    /// If `options` contradict each other.
    pub fn from_image(image: &Bytes, options: ManagerOptions) -> Result<StateMachine, Malformed> {
        options.check();
        let mut input = Input::new(image);
        let from = &mut input;
        if u8::take(from)? != VERSION {
            return Err(from.wrong("an unknown version of the manager's image"));
        }
        let (topology, cluster) = (Coded::take(from)?, Coded::take(from)?);
        let generation = Coded::take(from)?;
        let (term, now) = (Coded::take(from)?, Coded::take(from)?);
        let began = Coded::take(from)?;
        let (revision, epoch) = (Coded::take(from)?, Coded::take(from)?);
        let (nodes, shards) = (Coded::take(from)?, Coded::take(from)?);
        let (closing, closed_at) = (Coded::take(from)?, Coded::take(from)?);
        let untold_ends = Coded::take(from)?;
        let (settled, forgotten) = (Coded::take(from)?, Coded::take(from)?);
        let (told, finals) = (Vec::take(from)?, Vec::take(from)?);
        if told.len() != finals.len() {
            return Err(from.wrong("final watermarks that are told in no revision"));
        }
        let machine = StateMachine {
            options,
            topology,
            cluster,
            generation,
            term,
            now,
            began,
            revision,
            changed: false,
            epoch,
            nodes,
            shards,
            closing,
            closed_at,
            untold_ends,
            settled,
            forgotten,
            finals: told.into_iter().zip(finals).collect(),
            moving: Coded::take(from)?,
            void: Coded::take(from)?,
            configuration: std::sync::Arc::new(Coded::take(from)?),
        };
        input.end()?;
        if machine.is_whole() && machine.fault().is_none() {
            Ok(machine)
        } else {
            Err(Input::new(image).wrong("an image that no manager has"))
        }
    }

    /// Whether all nodes, shards and tables that it refers to exist.
    pub(super) fn is_whole(&self) -> bool {
        let (nodes, shards) = (self.topology.nodes().len(), self.topology.shards() as usize);
        let is_node = |node: &NodeId| (node.0 as usize) < nodes;
        let holders = |shard: &ShardState| {
            let assignment = &shard.assignment;
            let listed = assignment.voters.iter().chain(&assignment.learners);
            listed.chain([&assignment.leader]).chain(assignment.empty.keys()).copied().collect()
        };
        let named = self.shards.iter().flat_map(|shard| -> BTreeSet<NodeId> { holders(shard) });
        let table = self.moving.as_ref().map_or(0, |moving| moving.table.0 as usize + 1);
        self.nodes.len() == nodes
            && self.shards.len() == shards
            && self.closing.values().all(|ends| ends.len() == shards)
            && self.shards.iter().all(|shard| !shard.assignment.voters.is_empty())
            && named.collect::<Vec<_>>().iter().all(is_node)
            && table <= self.topology.tables().len()
            && self.configuration.revision == self.revision
            && self.configuration.nodes.len() == nodes
            && self.configuration.shards.len() == shards
    }
}
