//! The snapshots that a worker sends (`snapshot.rs`): which chunks are under way, and when the next one may follow.
//!
//! Some chunks of a snapshot are under way at a time. A sender that hears nothing sends again from where the receiver is, and
//! gives up after a while. What the sender tells of the stream's entries goes out once all chunks are acknowledged, or
//! once it gives up.
//!
//! Invariants:
//!
//! - Each replica is sent at most one snapshot of a shard.
//! - At most [`WINDOW`] chunks of a snapshot are sent and not acknowledged, and they begin in the order in which they were
//!   sent.
//! - None was repeated more than [`REPEATS_MAX`] times.

use bytes::Bytes;
use shoal_store::WalkPlace;
use shoal_types::{Clock, Epoch, NodeId, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// The most chunks of a snapshot that are sent and not acknowledged.
pub(super) const WINDOW: usize = 16;

/// The most bytes of all snapshots of a worker that are sent and not acknowledged; one chunk always may be.
const WINDOW_BYTES: usize = 8 << 20;

/// Between two chunks, of any snapshot, the worker does other things for so long.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// A sender gives up when it has sent the same again so many times. Counted and not timed: how often its turn
/// comes depends on how many snapshots it sends.
const REPEATS_MAX: u32 = 20;

/// Which snapshot: of the shard at this place, with this peer, under this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SnapshotKey {
    /// The place of the shard.
    pub(super) at: usize,
    /// Its receiver where it is sent, its sender where it is received.
    pub(super) peer: NodeId,
    /// Like no other's, of any sender.
    pub(super) copy: u64,
}

/// What a snapshot stands for.
#[derive(Debug, Clone)]
pub(super) struct SnapshotScope {
    /// Up to this clock it brings all that is committed.
    pub(super) cut: Clock,
    /// The epochs up to this one were settled when it began.
    pub(super) settled: Epoch,
    /// The entries that it stands for.
    pub(super) length: u64,
    /// Its metadata, encoded.
    pub(super) metadata: Bytes,
}

/// The next chunk to be sent.
#[derive(Debug, Clone)]
pub(super) struct NextChunk {
    /// Of which snapshot.
    pub(super) key: SnapshotKey,
    /// Where it begins.
    pub(super) from: WalkPlace,
    /// See [`SnapshotScope::cut`].
    pub(super) cut: Clock,
    /// See [`SnapshotScope::settled`].
    pub(super) settled: Epoch,
}

/// The stream is to be told what a snapshot stands for.
#[derive(Debug)]
pub(super) struct SnapshotHandover {
    /// The place of the shard.
    pub(super) at: usize,
    /// The receiver.
    pub(super) to: NodeId,
    /// The entries that it stands for.
    pub(super) length: u64,
    /// Its metadata, encoded.
    pub(super) metadata: Bytes,
}

/// All snapshots that a worker sends.
#[derive(Debug, Default)]
pub(super) struct SnapshotSenders {
    senders: Vec<SnapshotSender>,
    /// When the next chunk may be sent.
    chunk_at: Time,
    /// A snapshot has begun, has come further, or who leads has changed, since the worker looked last.
    has_news: bool,
}

#[derive(Debug)]
struct SnapshotSender {
    key: SnapshotKey,
    scope: SnapshotScope,
    /// Where the chunks begin that are sent and not acknowledged, and their bytes.
    sent: VecDeque<(WalkPlace, usize)>,
    /// Where the next chunk begins. `None` once the last is sent.
    next: Option<WalkPlace>,
    /// Where the chunk begins that was sent last.
    last: WalkPlace,
    /// The stream waits for it.
    wanted: bool,
    /// When anything came or went last.
    active_at: Time,
    /// How often chunks were sent again since the receiver last had more.
    repeats: u32,
}

impl SnapshotSenders {
    /// How many snapshots are sent, or were and are kept.
    pub(super) fn len(&self) -> usize {
        self.senders.len()
    }

    /// How many have chunks that are not acknowledged.
    pub(super) fn pending(&self) -> usize {
        self.senders.iter().filter(|sender| !sender.is_over()).count()
    }

    /// The least number of entries that a snapshot of the shard at this place stands for.
    pub(super) fn least_length(&self, at: usize) -> Option<u64> {
        let senders = self.senders.iter().filter(|sender| sender.key.at == at);
        senders.map(|sender| sender.scope.length).min()
    }

    /// The stream asks for a snapshot that is sent already, or was. Says whether there is one.
    pub(super) fn ask_again(&mut self, (at, to): (usize, NodeId), now: Time) -> bool {
        let mut senders = self.senders.iter_mut();
        let Some(sender) = senders.find(|it| (it.key.at, it.key.peer) == (at, to)) else {
            return false;
        };
        sender.ask_again(now);
        self.has_news = true;
        true
    }

    /// Begins to send a snapshot.
    pub(super) fn begin(&mut self, key: SnapshotKey, scope: SnapshotScope, now: Time) {
        self.senders.push(SnapshotSender {
            key,
            scope,
            sent: VecDeque::new(),
            next: Some(WalkPlace::default()),
            last: WalkPlace::default(),
            wanted: true,
            active_at: now,
            repeats: 0,
        });
        self.has_news = true;
    }

    /// Ends the snapshots of the shard at this place. Returns what the stream waits for.
    pub(super) fn end(&mut self, at: usize) -> impl Iterator<Item = SnapshotHandover> + '_ {
        let ended = self.senders.extract_if(.., move |sender| sender.key.at == at);
        ended.filter(|sender| sender.wanted).map(|sender| sender.handover())
    }

    /// The receiver has everything before `place`. Says whether that snapshot is known.
    pub(super) fn acknowledge(
        &mut self,
        key: SnapshotKey,
        place: Option<WalkPlace>,
        now: Time,
    ) -> bool {
        let Some(sender) = self.senders.iter_mut().find(|sender| sender.key == key) else {
            return false;
        };
        let gets_on = place != Some(WalkPlace::default());
        if sender.advance(place) {
            sender.active_at = now;
            sender.repeats = if gets_on { 0 } else { sender.repeats };
            self.has_news = true;
        }
        true
    }

    /// Who leads has changed: some may be no more this node's to send.
    pub(super) fn look_again(&mut self) {
        self.has_news |= !self.senders.is_empty();
    }

    /// Ends those that `gives` does not pick, or that have waited for too long, and repeats what was not acknowledged in time.
    /// `hand_over` is told of what the stream waits for no longer.
    pub(super) fn review(
        &mut self,
        (now, retry_after): (Time, Duration),
        gives: impl Fn(SnapshotKey) -> bool,
        mut hand_over: impl FnMut(SnapshotHandover),
    ) {
        self.has_news = false;
        for place in (0..self.senders.len()).rev() {
            let sender = &mut self.senders[place];
            let gives = gives(sender.key);
            let (is_over, is_due) = (sender.is_over(), sender.due(retry_after) <= now);
            let is_vain = is_due && (is_over || sender.repeats == REPEATS_MAX);
            if sender.wanted && (!gives || is_over || is_vain) {
                // Of one that is given up the receiver has not all, and drops this; then it asks again.
                sender.wanted = false;
                hand_over(sender.handover());
            }
            if !gives || is_vain {
                self.senders.swap_remove(place);
                continue;
            }
            if is_due {
                sender.rewind();
                sender.active_at = now;
            }
        }
    }

    /// The next chunk, if it may be sent now. Each snapshot has its turn.
    pub(super) fn next_chunk(&mut self, now: Time) -> Option<NextChunk> {
        if self.chunk_at > now || !self.has_room() {
            return None;
        }
        let place = self.senders.iter().position(SnapshotSender::has_room)?;
        self.chunk_at = now + PAUSE;
        self.senders.rotate_left(place + 1);
        let SnapshotSender { key, scope, next, .. } = self.senders.last()?;
        let from = next.clone()?;
        Some(NextChunk { key: *key, from, cut: scope.cut, settled: scope.settled })
    }

    /// A chunk is sent, of so many bytes; the next one begins at `until`, if there is one.
    pub(super) fn sent(
        &mut self,
        chunk: &NextChunk,
        bytes: usize,
        until: Option<WalkPlace>,
        now: Time,
    ) {
        let mut senders = self.senders.iter_mut().rev();
        let sender = senders.find(|sender| sender.key == chunk.key).expect("its chunk was next");
        sender.sent.push_back((chunk.from.clone(), bytes));
        (sender.next, sender.last, sender.active_at) = (until, chunk.from.clone(), now);
    }

    /// Is there something to do?
    pub(super) fn is_due(&self, now: Time, retry_after: Duration) -> bool {
        self.has_news || self.next_due(retry_after).is_some_and(|at| at <= now)
    }

    /// When there is something to do if nothing comes before.
    pub(super) fn next_due(&self, retry_after: Duration) -> Option<Time> {
        if self.senders.is_empty() {
            return None;
        }
        let gives = self.has_room() && self.senders.iter().any(SnapshotSender::has_room);
        let again = self.senders.iter().map(|sender| sender.due(retry_after));
        again.chain(gives.then_some(self.chunk_at)).min()
    }

    /// Have other chunks room on their way?
    fn has_room(&self) -> bool {
        let sent = self.senders.iter().flat_map(|sender| &sender.sent);
        sent.map(|(_, bytes)| bytes).sum::<usize>() < WINDOW_BYTES
    }

    /// Asserts the invariants above.
    pub(super) fn assert_invariants(&self) {
        for (place, SnapshotSender { key, sent, repeats, .. }) in self.senders.iter().enumerate() {
            assert!(sent.len() <= WINDOW, "{key:?} has {} chunks under way", sent.len());
            assert!(*repeats <= REPEATS_MAX, "{key:?} was repeated {repeats} times");
            let mut others = self.senders[..place].iter().map(|other| other.key);
            let is_other = |other: SnapshotKey| (other.at, other.peer) != (key.at, key.peer);
            assert!(others.all(is_other), "{} is sent two snapshots: {key:?}", key.peer);
            debug_assert!(sent.iter().map(|(start, _)| start).is_sorted(), "{key:?}: {sent:?}");
        }
    }
}

impl SnapshotSender {
    fn handover(&self) -> SnapshotHandover {
        let (SnapshotKey { at, peer, .. }, scope) = (self.key, &self.scope);
        let metadata = scope.metadata.clone();
        SnapshotHandover { at, to: peer, length: scope.length, metadata }
    }

    /// Where the first chunk begins that is not acknowledged.
    fn first(&self) -> Option<&WalkPlace> {
        self.sent.front().map(|(start, _)| start).or(self.next.as_ref())
    }

    /// The receiver has everything before `place`. Says whether that is news.
    fn advance(&mut self, place: Option<WalkPlace>) -> bool {
        let Some(place) = place else {
            self.next = None;
            return !std::mem::take(&mut self.sent).is_empty();
        };
        let old =
            |first: &WalkPlace| place == *first || place < *first && place != WalkPlace::default();
        if self.first().is_none_or(old) {
            return false; // It was said before.
        }
        while self.sent.front().is_some_and(|(start, _)| *start < place) {
            self.sent.pop_front();
        }
        if self.first() != Some(&place) {
            // It took a chunk that ended elsewhere, or has forgotten this snapshot.
            self.next = Some(place);
            self.sent.clear();
        }
        true
    }

    /// The stream asks for it again.
    fn ask_again(&mut self, now: Time) {
        if self.is_over() {
            self.next = Some(self.last.clone());
        }
        (self.wanted, self.active_at, self.repeats) = (true, now, 0);
    }

    /// What is not acknowledged is to be sent again.
    fn rewind(&mut self) {
        if let Some((first, _)) = self.sent.pop_front() {
            self.next = Some(first);
            self.sent.clear();
            self.repeats += 1;
        }
    }

    /// The receiver has all chunks.
    fn is_over(&self) -> bool {
        self.next.is_none() && self.sent.is_empty()
    }

    /// When there is something to do if nothing comes before: to send chunks again, or to forget it.
    fn due(&self, retry_after: Duration) -> Time {
        self.active_at + if self.is_over() { retry_after * REPEATS_MAX } else { retry_after }
    }

    /// May the next chunk be sent, for all that this snapshot has under way?
    fn has_room(&self) -> bool {
        self.next.is_some() && self.sent.len() < WINDOW
    }
}
