//! What a part of the protocol sees of the node around it during a step, and where it leaves what it wants done.

use crate::granule::{GranuleId, GranuleLayout};
use crate::message::{MessageBody, ZeusMessage};
use crate::options::{Effect, ZeusOptions};
use crate::planted_bugs::ZeusPlantedBug;
use crate::redo::Redo;
use crate::rows::Rows;
use crate::view::View;
use shoal_cluster::topology::Topology;
use shoal_types::{NodeId, ShardId, Time};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Where granules have their directories.
#[derive(Debug, Clone)]
pub struct Placement {
    /// The tables and the shards.
    pub topology: Arc<Topology>,
    /// The granules of the tables.
    pub layout: GranuleLayout,
}

impl From<Arc<Topology>> for Placement {
    /// By the tables of this topology.
    fn from(topology: Arc<Topology>) -> Placement {
        Placement { layout: GranuleLayout::of(&topology), topology }
    }
}

impl Placement {
    /// The shard in whose directory the granule is.
    #[must_use]
    pub fn shard_of(&self, granule: &GranuleId) -> ShardId {
        self.layout.shard_of(granule)
    }
}

/// What a step leaves.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub effects: Vec<Effect>,
    /// Messages of the node to itself. They are taken before the step ends.
    pub to_itself: VecDeque<MessageBody>,
}

/// The node, as a part of the protocol sees it during a step.
pub(crate) struct Scope<'a> {
    pub node: NodeId,
    pub now: Time,
    pub options: &'a ZeusOptions,
    pub placement: &'a Placement,
    pub view: &'a View,
    /// All live nodes have replayed what they applied of dead coordinators (rule Z11).
    pub has_passed_barrier: bool,
    /// The shards whose directory the node is still copying (rule Z18).
    pub copying: &'a BTreeSet<ShardId>,
    /// The shards whose directory here was rebuilt, and may lack granules (rule Z21).
    pub rebuilt: &'a BTreeSet<ShardId>,
    pub rows: &'a mut Rows,
    /// What the node records of its changes.
    pub redo: &'a mut Redo,
    pub output: &'a mut Output,
}

impl Scope<'_> {
    /// Whether a bug is planted; never, but in tests.
    pub(crate) fn has(&self, bug: ZeusPlantedBug) -> bool {
        self.options.bugs.has(bug)
    }

    /// Granules without an owner may move: all live nodes have replayed (rule Z11).
    pub(crate) fn may_pass_barrier(&self) -> bool {
        self.has_passed_barrier || self.has(ZeusPlantedBug::MoveBeforeReplayed)
    }

    /// Sends a message to a node, which may be this one.
    pub(crate) fn send(&mut self, to: NodeId, body: MessageBody) {
        if to == self.node {
            return self.output.to_itself.push_back(body);
        }
        let message = ZeusMessage { epoch: self.view.epoch, body };
        self.output.effects.push(Effect::Send { to, message });
    }

    pub(crate) fn send_to_all(&mut self, to: impl IntoIterator<Item = NodeId>, body: &MessageBody) {
        to.into_iter().for_each(|to| self.send(to, body.clone()));
    }

    /// The live directory nodes of the granule, the leader first.
    pub(crate) fn directory(&self, granule: &GranuleId) -> impl Iterator<Item = NodeId> {
        self.view.directory(self.placement.shard_of(granule))
    }

    /// Whether the node keeps the granule's record for the directory.
    pub(crate) fn is_directory_node(&self, granule: &GranuleId) -> bool {
        self.view.is_directory_node(self.placement.shard_of(granule), self.node)
    }

    /// Whether a granule of which the directory here knows nothing may have been created, and lost.
    pub(crate) fn may_have_lost(&self, granule: &GranuleId) -> bool {
        !self.rebuilt.is_empty() && self.rebuilt.contains(&self.placement.shard_of(granule))
    }

    /// Whether the node counts as an arbiter of the granule and has not copied its record yet: it answers nothing.
    pub(crate) fn is_silent(&self, granule: &GranuleId) -> bool {
        !self.copying.is_empty()
            && !self.has(ZeusPlantedBug::AnswerBeforeCopy)
            && self.copying.contains(&self.placement.shard_of(granule))
    }
}
