//! The snapshots that a worker receives (`snapshot.rs`): how far each has come, and the chunks that came before their turn.
//!
//! Invariants:
//!
//! - At most one snapshot of a shard is received at a time.
//! - Chunks that wait for their turn begin behind where the snapshot has come, and there are at most [`WINDOW`] and one.

use super::snapshot_chunk::{SnapshotChunk, place};
use super::snapshot_sender::{PAUSE, SnapshotKey, WINDOW};
use shoal_store::WalkPlace;
use shoal_types::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// A receiver takes the snapshot of another sender when its own sender was silent for this many times the interval of
/// repetition, plus `TURNS`.
const SILENCES: u32 = 4;

/// The number of snapshots that may each have a turn of the sender before that sender counts as silent.
const TURNS: u32 = 64;

/// All snapshots that a worker receives.
#[derive(Debug, Default)]
pub(super) struct SnapshotReceivers {
    receivers: Vec<SnapshotReceiver>,
}

#[derive(Debug)]
struct SnapshotReceiver {
    key: SnapshotKey,
    /// When a chunk came last.
    heard_at: Time,
    /// Where the next chunk begins. `None` when all are here.
    reached: Option<WalkPlace>,
    /// Chunks that came before their turn, by where they begin.
    early: BTreeMap<WalkPlace, SnapshotChunk>,
}

impl SnapshotReceivers {
    /// How many snapshots are received, or were and are kept.
    pub(super) fn len(&self) -> usize {
        self.receivers.len()
    }

    /// The first chunk of a snapshot has come. It begins, unless it has begun before, or another sender's goes on.
    pub(super) fn begin(&mut self, key: SnapshotKey, now: Time, retry_after: Duration) {
        // A leader that prepares may have asked two: one of them is enough, unless it has fallen silent.
        let patience = retry_after * SILENCES + PAUSE * TURNS;
        let is_others = |it: &SnapshotReceiver| it.key.at == key.at && it.key.peer != key.peer;
        let goes_on = |it: &SnapshotReceiver| is_others(it) && now < it.heard_at + patience;
        if self.receivers.iter().any(|it| it.key == key || goes_on(it)) {
            return;
        }
        self.forget(key.at);
        let (reached, early) = (Some(WalkPlace::default()), BTreeMap::new());
        self.receivers.push(SnapshotReceiver { key, heard_at: now, reached, early });
    }

    /// A chunk of a snapshot has come: keeps it for its turn. Says whether the snapshot is known.
    pub(super) fn keep(&mut self, key: SnapshotKey, chunk: SnapshotChunk, now: Time) -> bool {
        let Some(receiver) = self.get_mut(key) else { return false };
        receiver.heard_at = now;
        let begins = place(&chunk.from);
        let Some(reached) = &receiver.reached else { return true };
        if *reached == begins || *reached < begins && receiver.early.len() < WINDOW {
            receiver.early.insert(begins, chunk);
        }
        true
    }

    /// Takes out the chunk whose turn it is, if it is here.
    pub(super) fn next_chunk(&mut self, key: SnapshotKey) -> Option<SnapshotChunk> {
        let receiver = self.get_mut(key)?;
        receiver.early.remove(receiver.reached.as_ref()?)
    }

    /// Everything before this place is taken; everything there is, where it is `None`.
    pub(super) fn advance(&mut self, key: SnapshotKey, reached: Option<WalkPlace>) {
        let receiver = self.get_mut(key).expect("its chunk was taken");
        let waits = |begins: &WalkPlace| reached.as_ref().is_some_and(|reached| begins >= reached);
        receiver.early.retain(|begins, _| waits(begins));
        receiver.reached = reached;
    }

    /// Where the next chunk begins: the first one of a snapshot that is not known. `None` when all are here.
    pub(super) fn reached(&self, key: SnapshotKey) -> Option<WalkPlace> {
        let receiver = self.receivers.iter().find(|receiver| receiver.key == key);
        receiver.map_or(Some(WalkPlace::default()), |receiver| receiver.reached.clone())
    }

    /// Is all of this snapshot here?
    pub(super) fn has_all(&self, key: SnapshotKey) -> bool {
        self.reached(key).is_none()
    }

    /// The shard at this place waits for none any more.
    pub(super) fn forget(&mut self, at: usize) {
        self.receivers.retain(|receiver| receiver.key.at != at);
    }

    fn get_mut(&mut self, key: SnapshotKey) -> Option<&mut SnapshotReceiver> {
        self.receivers.iter_mut().find(|receiver| receiver.key == key)
    }

    /// Asserts the invariants above.
    pub(super) fn assert_invariants(&self) {
        for (place, SnapshotReceiver { key, reached, early, .. }) in
            self.receivers.iter().enumerate()
        {
            let mut others = self.receivers[..place].iter().map(|other| other.key.at);
            assert!(others.all(|at| at != key.at), "two snapshots are received: {key:?}");
            assert!(early.len() <= WINDOW + 1, "{key:?} keeps {} chunks", early.len());
            let first = early.first_key_value().map(|(begins, _)| begins);
            let is_behind = first.is_none_or(|first| Some(first) >= reached.as_ref());
            assert!(is_behind && (reached.is_some() || early.is_empty()), "{key:?}: {reached:?}");
        }
    }
}
