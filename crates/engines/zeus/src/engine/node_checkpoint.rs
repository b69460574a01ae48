//! How far the node's part of a checkpoint is, which the node's first worker gives part by part.

use crate::granule::GranuleId;
use bytes::Bytes;
use shoal_engine::engine::EngineEffect;
use shoal_types::{ShardId, Time};
use std::time::Duration;

/// Between two parts of a checkpoint the worker does other things for so long.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// How far the node's part of a checkpoint is.
#[derive(Debug, Default)]
pub(super) struct NodeCheckpoint {
    pub(super) next: NextPart,
    /// A part is given and not written.
    pub(super) is_writing: bool,
    /// When the next part may be given.
    pub(super) next_at: Time,
}

/// The part that is given next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum NextPart {
    /// No checkpoint is under way.
    #[default]
    None,
    /// The granules behind this one.
    Behind(Option<GranuleId>),
    /// All are given.
    End,
}

/// Streams are empty, and so is what a checkpoint has of them.
pub(super) fn empty_checkpoint<M>(shard: ShardId) -> EngineEffect<M> {
    EngineEffect::CheckpointHead { shard, length: 0, state: Bytes::new() }
}

impl NodeCheckpoint {
    /// When the next part is due.
    pub(super) fn due(&self) -> Option<Time> {
        let has_next = matches!(self.next, NextPart::Behind(_)) && !self.is_writing;
        has_next.then_some(self.next_at)
    }
}
