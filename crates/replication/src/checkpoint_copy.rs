//! The copy of a shard that goes into a checkpoint of the node itself: what a replica would be sent in a
//! [transfer](crate::snapshot_transfer), part by part as the disk takes them.

use crate::snapshot_chunk::SnapshotChunk;
use crate::snapshot_transfer::{CopyKey, NextPart, PAUSE, SnapshotHead, place_form};
use bytes::Bytes;
use shoal_store::WalkPlace;
use shoal_types::Time;

/// The copy for a checkpoint that a worker makes, if it makes one: there is one shard at a time. `C` is the engine's context
/// of the copy.
#[derive(Debug)]
pub struct CheckpointCopy<C>(Option<CopyUnderWay<C>>);

#[derive(Debug)]
struct CopyUnderWay<C> {
    key: CopyKey,
    head: SnapshotHead,
    context: C,
    /// The place at which the next part begins. `None` once the last part is given.
    next: Option<WalkPlace>,
    /// A part is given and not written.
    is_writing: bool,
    /// When the next part may be given: the worker handles other events meanwhile.
    next_at: Time,
}

impl<C> Default for CheckpointCopy<C> {
    fn default() -> Self {
        CheckpointCopy(None)
    }
}

impl<C: Clone> CheckpointCopy<C> {
    /// Begins a copy, in place of one that is under way.
    pub fn begin(&mut self, now: Time, copy: u64, head: SnapshotHead, context: C) {
        let key = CopyKey { at: head.at, peer: head.to, copy };
        let next = Some(WalkPlace::default());
        self.0 = Some(CopyUnderWay { key, head, context, next, is_writing: false, next_at: now });
    }

    /// Ends the copy of the shard at this place, if there is one.
    pub fn stop(&mut self, at: usize) {
        self.0.take_if(|copy| copy.head.at == at);
    }

    /// The next part, if it is time for one. The caller reports with [`given`](CheckpointCopy::given) that it has given it.
    pub fn next_part(&self, now: Time) -> Option<NextPart<C>> {
        let copy = self.0.as_ref().filter(|copy| !copy.is_writing && copy.next_at <= now)?;
        let (from, context) = (copy.next.clone()?, copy.context.clone());
        Some(NextPart { key: copy.key, from, context })
    }

    /// The part is given; the next one begins at `until`, if there is one.
    pub fn given(&mut self, now: Time, until: Option<WalkPlace>) {
        let copy = self.0.as_mut().expect("its part was next");
        (copy.next, copy.is_writing, copy.next_at) = (until, true, now + PAUSE);
    }

    /// The parts that were given are written. Returns the head of the copy where the last one is.
    pub fn written(&mut self) -> Option<SnapshotHead> {
        let copy = self.0.as_mut()?;
        if !std::mem::take(&mut copy.is_writing) || copy.next.is_some() {
            return None;
        }
        self.0.take().map(|copy| copy.head)
    }

    /// The number of the copy that is under way.
    pub fn copy(&self) -> Option<u64> {
        self.0.as_ref().map(|copy| copy.key.copy)
    }

    /// The place of the shard of which a copy is under way.
    pub fn place(&self) -> Option<usize> {
        self.0.as_ref().map(|copy| copy.head.at)
    }

    /// The copy stands for so many entries now, with this state.
    pub fn conclude(&mut self, length: u64, state: Bytes) {
        let copy = self.0.as_mut().expect("its part was next");
        (copy.head.length, copy.head.state) = (length, state);
    }

    /// When the next part is due.
    pub fn next_due(&self) -> Option<Time> {
        self.0.as_ref().filter(|copy| !copy.is_writing).map(|copy| copy.next_at)
    }

    /// The engine's context of the copy of the shard at this place.
    pub fn context(&self, at: usize) -> Option<&C> {
        self.0.as_ref().filter(|copy| copy.head.at == at).map(|copy| &copy.context)
    }
}

/// Has `take` take all of a part that is read from a checkpoint. It returns before which place it has everything; where other
/// workers have read theirs, of another time, what goes of that may be more than one attempt takes.
pub fn take_all<C>(
    mut part: SnapshotChunk<C>,
    mut take: impl FnMut(&SnapshotChunk<C>) -> Option<WalkPlace>,
) -> SnapshotChunk<C> {
    let (_, until) = part.range();
    while let Some(reached) = take(&part).filter(|reached| until.as_ref() != Some(reached)) {
        part.from = place_form(reached);
    }
    part
}
