//! The transfer of a copy of a shard in parts: the sender's window, and the receiver's progress, both as places in the store.
//!
//! ```text
//!   sender                                    receiver
//!   ── part from the beginning ────────────►
//!   ── part from where that one ended ─────►  taken in their turn
//!   ◄─────────── all before this place ─────
//!   ── the last part ──────────────────────►  the copy is whole
//! ```
//! Each part begins where the one before has ended. The store changes, and so may these places when parts are sent again:
//! the receiver acknowledges a place, and accepts no part that begins elsewhere. The sender has several parts in flight;
//! without an acknowledgement it sends again from the acknowledged place, and gives up after a number of repetitions. The
//! stream asks again when a message of the receiver arrives.
//!
//! A stream whose leader gets a new ballot forgets its request for a snapshot, and repeats it. The request is the same, so a
//! copy that is under way goes on. A whole copy is kept for a while: its last part is sent again, and the acknowledgement
//! shows whether the receiver still has the rest. A receiver without the rest begins again with the first part.
//!
//! Engines define what a part holds, and what is known when a copy is whole.
//!
//! Invariants:
//!
//! - A worker sends each replica at most one copy of a shard, and receives at most one copy of a shard at a time.
//! - At most `WINDOW` parts of a copy are sent and not acknowledged, and they begin in the order in which they were sent.
//! - No part is sent again more than `REPEATS_MAX` times.
//! - Parts that arrived early begin at the acknowledged place or behind it, and there are at most `WINDOW` and one.

use bytes::Bytes;
use shoal_engine::events::EngineEffect;
use shoal_store::{CopyPart, WalkPlace};
use shoal_types::{NodeId, ShardId, TableId, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The most records of its own that a receiver looks at for one part, in search of those that the sender lacks.
pub const ERASED_MAX: usize = 1 << 14;

/// How much of a store one part takes, unless the options say otherwise. Smaller parts interrupt transactions for a shorter
/// time, and with a pause of a millisecond after each they bound the rate of a worker's copies.
pub const PART: CopyPart = CopyPart { records_max: 256, bytes_max: 32 << 10 };

/// The most parts of a copy that are sent and not acknowledged.
const WINDOW: usize = 64;

/// The most bytes of all copies of a worker that are sent and not acknowledged; one part always may be.
const WINDOW_BYTES: usize = 8 << 20;

/// The pause between two parts, of any copy, in which the worker handles other events.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// The number of repetitions after which a sender gives up. Counted and not timed: the pause between two repetitions depends
/// on the number of copies that the worker sends.
const REPEATS_MAX: u32 = 20;

/// A receiver takes the copy of another sender when its own sender was silent for this many times the interval of
/// repetition, plus [`TURNS`].
const SILENCES: u32 = 4;

/// The number of copies that may each have a turn of the sender before that sender counts as silent.
const TURNS: u32 = 64;

/// The identity of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyKey {
    /// The place of the shard among the node's replicas.
    pub at: usize,
    /// The node at the other end.
    pub peer: NodeId,
    /// The number of the copy, which no other copy of any sender has.
    pub copy: u64,
}

/// The answer to the stream that asked for a snapshot, when its copy is whole or given up: the receiver knows which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotHead {
    /// The place of the shard among the node's replicas.
    pub at: usize,
    /// The receiver.
    pub to: NodeId,
    /// The number of entries that the snapshot stands for.
    pub length: u64,
    /// The snapshot, in the form of the engine.
    pub state: Bytes,
}

impl SnapshotHead {
    /// The answer to the stream of `shard` that asked for the snapshot.
    pub fn answer<M>(&self, shard: ShardId) -> EngineEffect<M> {
        let SnapshotHead { to, length, ref state, .. } = *self;
        EngineEffect::Snapshot { shard, to, length, state: state.clone() }
    }

    /// The end of the copy of `shard` in a checkpoint.
    pub fn of_checkpoint<M>(self, shard: ShardId) -> EngineEffect<M> {
        EngineEffect::CheckpointHead { shard, length: self.length, state: self.state }
    }
}

/// The next part to be sent. `C` is the engine's context of the copy.
#[derive(Debug, Clone)]
pub struct NextPart<C> {
    /// The copy that it is a part of.
    pub key: CopyKey,
    /// The place at which it begins.
    pub from: WalkPlace,
    /// The engine's context, from the beginning of the copy.
    pub context: C,
}

/// A copy that is sent.
#[derive(Debug)]
struct SnapshotSender<C> {
    copy: u64,
    head: SnapshotHead,
    /// The engine's context of the copy.
    context: C,
    /// The parts that are sent and not acknowledged: the places at which they begin, and their bytes.
    sent: VecDeque<(WalkPlace, usize)>,
    /// The place at which the next part begins. `None` once the last part is sent.
    next: Option<WalkPlace>,
    /// The place at which the part begins that was sent last.
    last: WalkPlace,
    /// Whether the stream waits for the answer.
    wanted: bool,
    /// The time of the last part or acknowledgement.
    active_at: Time,
    /// The number of repetitions since the last acknowledgement of a new place.
    repeats: u32,
}

impl<C> SnapshotSender<C> {
    fn key(&self) -> CopyKey {
        CopyKey { at: self.head.at, peer: self.head.to, copy: self.copy }
    }

    /// The place at which the first part begins that is not acknowledged.
    fn first(&self) -> Option<&WalkPlace> {
        self.sent.front().map(|(start, _)| start).or(self.next.as_ref())
    }

    /// The receiver has everything before `place`, or all of it. Returns whether the sender did not know that.
    fn advance(&mut self, place: Option<WalkPlace>) -> bool {
        let Some(place) = place else {
            self.next = None;
            return !std::mem::take(&mut self.sent).is_empty();
        };
        let old =
            |first: &WalkPlace| place == *first || place < *first && place != WalkPlace::default();
        if self.first().is_none_or(old) {
            return false; // An earlier acknowledgement covers it.
        }
        while self.sent.front().is_some_and(|(start, _)| *start < place) {
            self.sent.pop_front();
        }
        if self.first() != Some(&place) {
            // The receiver has a part that ended elsewhere, or has forgotten this copy.
            self.next = Some(place);
            self.sent.clear();
        }
        true
    }

    /// Sends again all parts that are not acknowledged.
    fn rewind(&mut self) {
        if let Some((first, _)) = self.sent.pop_front() {
            self.next = Some(first);
            self.sent.clear();
            self.repeats += 1;
        }
    }

    /// Whether the receiver has all parts.
    fn is_over(&self) -> bool {
        self.next.is_none() && self.sent.is_empty()
    }

    /// When parts are sent again, or the copy is forgotten, unless an acknowledgement arrives before.
    fn due(&self, retry_after: Duration) -> Time {
        self.active_at + if self.is_over() { retry_after * REPEATS_MAX } else { retry_after }
    }

    /// Whether the window of this copy has room for the next part.
    fn has_room(&self) -> bool {
        self.next.is_some() && self.sent.len() < WINDOW
    }
}

/// The copies that a worker sends, in turn. `C` is the engine's context of a copy.
#[derive(Debug)]
pub struct SnapshotSenders<C> {
    senders: Vec<SnapshotSender<C>>,
    /// When the next part may be sent.
    next_at: Time,
    /// Whether a copy has begun or advanced, or leaders have changed, since the last [turn](SnapshotSenders::turn).
    has_news: bool,
}

impl<C> Default for SnapshotSenders<C> {
    fn default() -> Self {
        SnapshotSenders { senders: Vec::new(), next_at: Time::ZERO, has_news: false }
    }
}

impl<C: Clone> SnapshotSenders<C> {
    /// A receiver lacks entries that are cut. Goes on with a copy that is being sent to it, and returns whether there is one:
    /// otherwise a copy has to begin.
    pub fn request_again(&mut self, now: Time, at: usize, to: NodeId) -> bool {
        let known = self.senders.iter_mut().find(|it| (it.head.at, it.head.to) == (at, to));
        let Some(known) = known else { return false };
        if known.is_over() {
            known.next = Some(known.last.clone());
        }
        (known.wanted, known.active_at, known.repeats) = (true, now, 0);
        self.has_news = true;
        true
    }

    /// Begins to send a copy with this number to a receiver that is sent none.
    pub fn begin(&mut self, now: Time, copy: u64, head: SnapshotHead, context: C) {
        self.senders.push(SnapshotSender {
            copy,
            head,
            context,
            sent: VecDeque::new(),
            next: Some(WalkPlace::default()),
            last: WalkPlace::default(),
            wanted: true,
            active_at: now,
            repeats: 0,
        });
        self.has_news = true;
    }

    /// The receiver of a copy has everything before `reached`; all of it, if that is `None`. Returns whether there is such a
    /// copy.
    pub fn acknowledge(&mut self, now: Time, key: CopyKey, reached: Option<WalkPlace>) -> bool {
        let Some(sender) = self.senders.iter_mut().find(|it| it.key() == key) else {
            return false;
        };
        let gets_on = reached != Some(WalkPlace::default());
        if sender.advance(reached) {
            sender.active_at = now;
            sender.repeats = if gets_on { 0 } else { sender.repeats };
            self.has_news = true;
        }
        true
    }

    /// Leaders have changed: this node may no longer be the one to send some of the copies.
    pub fn look_again(&mut self) {
        self.has_news |= !self.senders.is_empty();
    }

    /// Ends copies that are whole, given up, or no longer for this node to send (`gives`), and sends again what was not
    /// acknowledged in time. `answer` receives the answers that streams wait for: the receiver of a copy that was given up
    /// drops what it has, and asks again.
    pub fn turn(
        &mut self,
        now: Time,
        retry_after: Duration,
        gives: impl Fn(&SnapshotHead) -> bool,
        mut answer: impl FnMut(&SnapshotHead),
    ) {
        self.has_news = false;
        for place in (0..self.senders.len()).rev() {
            let sender = &mut self.senders[place];
            // This node may not have the newest configuration.
            let is_given = gives(&sender.head);
            let (is_over, is_due) = (sender.is_over(), sender.due(retry_after) <= now);
            let is_vain = is_due && (is_over || sender.repeats == REPEATS_MAX);
            if sender.wanted && (!is_given || is_over || is_vain) {
                sender.wanted = false;
                answer(&sender.head);
            }
            if !is_given || is_vain {
                self.senders.swap_remove(place);
            } else if is_due {
                sender.rewind();
                sender.active_at = now;
            }
        }
    }

    /// The next part to be sent, if it is time for one. Copies take turns. The caller reports with
    /// [`sent`](SnapshotSenders::sent) that the part is sent; if it cannot be made now, its copy comes again after the others.
    pub fn next_part(&mut self, now: Time) -> Option<NextPart<C>> {
        if self.next_at > now || !self.have_room() {
            return None;
        }
        let place = self.senders.iter().position(SnapshotSender::has_room)?;
        self.next_at = now + PAUSE;
        self.senders.rotate_left(place + 1);
        let sender = self.senders.last()?;
        let (from, context) = (sender.next.clone()?, sender.context.clone());
        Some(NextPart { key: sender.key(), from, context })
    }

    /// This part of `bytes` bytes is sent; the next one begins at `until`, if there is one.
    pub fn sent(&mut self, now: Time, part: &NextPart<C>, bytes: usize, until: Option<WalkPlace>) {
        let mut senders = self.senders.iter_mut().rev();
        let sender = senders.find(|it| it.key() == part.key).expect("its part was next");
        sender.sent.push_back((part.from.clone(), bytes));
        (sender.next, sender.last, sender.active_at) = (until, part.from.clone(), now);
    }

    fn have_room(&self) -> bool {
        let sent = self.senders.iter().flat_map(|sender| &sender.sent);
        sent.map(|(_, bytes)| bytes).sum::<usize>() < WINDOW_BYTES
    }

    /// Whether a [turn](SnapshotSenders::turn) or a part is due.
    pub fn is_due(&self, now: Time, retry_after: Duration) -> bool {
        self.has_news || self.next_due(retry_after).is_some_and(|at| at <= now)
    }

    /// When the next of them is due.
    pub fn next_due(&self, retry_after: Duration) -> Option<Time> {
        let gives = self.have_room() && self.senders.iter().any(SnapshotSender::has_room);
        let again = self.senders.iter().map(|sender| sender.due(retry_after));
        again.chain(gives.then_some(self.next_at)).min()
    }

    /// Ends the copies of the shard at this place: the entries behind those that they stand for are gone here. Returns the
    /// answers that streams wait for.
    pub fn stop(&mut self, at: usize) -> Vec<SnapshotHead> {
        let stopped = self.senders.extract_if(.., |sender| sender.head.at == at);
        stopped.filter(|sender| sender.wanted).map(|sender| sender.head).collect()
    }

    /// What a copy stands for is known only now: so many entries, by this snapshot.
    pub fn conclude(&mut self, key: CopyKey, length: u64, state: Bytes) {
        if let Some(sender) = self.senders.iter_mut().find(|it| it.key() == key) {
            (sender.head.length, sender.head.state) = (length, state);
        }
    }

    /// Whether parts of a copy are sent and not acknowledged.
    pub fn is_waiting(&self, key: CopyKey) -> bool {
        self.senders.iter().any(|it| it.key() == key && !it.sent.is_empty())
    }

    /// Gives a copy up. Returns the answer that a stream waits for.
    pub fn give_up(&mut self, key: CopyKey) -> Option<SnapshotHead> {
        let place = self.senders.iter().position(|it| it.key() == key)?;
        let sender = self.senders.swap_remove(place);
        sender.wanted.then_some(sender.head)
    }

    /// The numbers of the copies that are kept.
    pub fn copies(&self) -> impl Iterator<Item = u64> + '_ {
        self.senders.iter().map(|sender| sender.copy)
    }

    /// The least number of entries that a copy of the shard at this place stands for: later entries have to be kept.
    pub fn least_length(&self, at: usize) -> Option<u64> {
        let senders = self.senders.iter().filter(|sender| sender.head.at == at);
        senders.map(|sender| sender.head.length).min()
    }

    /// The places of the shards of which copies are kept, one for each copy.
    pub fn places(&self) -> Vec<usize> {
        self.senders.iter().map(|sender| sender.head.at).collect()
    }

    /// The engine's contexts of the copies of the shard at this place.
    pub fn contexts(&self, at: usize) -> impl Iterator<Item = &C> {
        self.senders.iter().filter(move |sender| sender.head.at == at).map(|sender| &sender.context)
    }

    /// The number of copies that are kept, and the number of those that are not whole.
    pub fn sizes(&self) -> [usize; 2] {
        let open = self.senders.iter().filter(|sender| !sender.is_over()).count();
        [self.senders.len(), open]
    }

    /// Asserts the invariants above.
    pub fn assert_invariants(&self) {
        for (place, sender) in self.senders.iter().enumerate() {
            let (key, SnapshotSender { sent, repeats, .. }) = (sender.key(), sender);
            assert!(sent.len() <= WINDOW, "{key:?} has {} parts under way", sent.len());
            assert!(*repeats <= REPEATS_MAX, "{key:?} was repeated {repeats} times");
            let mut others = self.senders[..place].iter().map(SnapshotSender::key);
            let is_other = |other: CopyKey| (other.at, other.peer) != (key.at, key.peer);
            assert!(others.all(is_other), "{} is given two copies: {key:?}", key.peer);
            debug_assert!(sent.iter().map(|(start, _)| start).is_sorted(), "{key:?}: {sent:?}");
        }
    }
}

/// The copies that a worker receives, one for each shard at most. `P` is the type of a part.
#[derive(Debug)]
pub struct SnapshotReceivers<P> {
    receivers: Vec<SnapshotReceiver<P>>,
}

/// A copy that is received.
#[derive(Debug)]
struct SnapshotReceiver<P> {
    key: CopyKey,
    /// The time of the last part.
    received_at: Time,
    /// The place at which the next part begins. `None` when all are here.
    reached: Option<WalkPlace>,
    /// Parts that arrived early, by the places at which they begin.
    early: BTreeMap<WalkPlace, P>,
}

impl<P> Default for SnapshotReceivers<P> {
    fn default() -> Self {
        SnapshotReceivers { receivers: Vec::new() }
    }
}

impl<P> SnapshotReceivers<P> {
    /// A part has arrived that begins at `begins`. The first part of a copy begins another copy of the shard, unless one is
    /// under way whose sender is not silent: a leader that prepares may have asked two senders, and one copy is enough.
    pub fn arrive(
        &mut self,
        now: Time,
        retry_after: Duration,
        key: CopyKey,
        begins: WalkPlace,
        part: P,
    ) {
        let patience = retry_after * SILENCES + PAUSE * TURNS;
        let goes_on = |it: &SnapshotReceiver<P>| {
            it.key.at == key.at && it.key.peer != key.peer && now < it.received_at + patience
        };
        if begins == WalkPlace::default()
            && !self.receivers.iter().any(|it| it.key == key || goes_on(it))
        {
            self.forget(key.at);
            let (reached, early) = (Some(WalkPlace::default()), BTreeMap::new());
            self.receivers.push(SnapshotReceiver { key, received_at: now, reached, early });
        }
        let Some(receiver) = self.get_mut(key) else { return };
        receiver.received_at = now;
        let is_next = receiver.reached.as_ref() == Some(&begins);
        let is_to_come = receiver.reached.as_ref().is_some_and(|reached| *reached <= begins);
        if is_to_come && (receiver.early.len() < WINDOW || is_next) {
            receiver.early.insert(begins, part);
        }
    }

    /// Takes out the next part, if it is here.
    pub fn next(&mut self, key: CopyKey) -> Option<P> {
        let receiver = self.get_mut(key)?;
        receiver.early.remove(receiver.reached.as_ref()?)
    }

    /// Everything before `reached` is in the store; all of the copy, if that is `None`.
    pub fn advance(&mut self, key: CopyKey, reached: Option<WalkPlace>) {
        let receiver = self.get_mut(key).expect("its part was taken");
        let is_to_come = |begins: &WalkPlace| reached.as_ref().is_some_and(|place| begins >= place);
        receiver.early.retain(|begins, _| is_to_come(begins));
        receiver.reached = reached;
    }

    /// The place before which everything of this copy is here; `None` if all of it is. The first place, for an unknown copy.
    pub fn reached(&self, key: CopyKey) -> Option<WalkPlace> {
        let receiver = self.receivers.iter().find(|it| it.key == key);
        receiver.map_or(Some(WalkPlace::default()), |receiver| receiver.reached.clone())
    }

    /// Forgets the copy of the shard at this place.
    pub fn forget(&mut self, at: usize) {
        self.receivers.retain(|receiver| receiver.key.at != at);
    }

    /// The number of copies that are kept.
    pub fn size(&self) -> usize {
        self.receivers.len()
    }

    fn get_mut(&mut self, key: CopyKey) -> Option<&mut SnapshotReceiver<P>> {
        self.receivers.iter_mut().find(|it| it.key == key)
    }

    /// Asserts the invariants above.
    pub fn assert_invariants(&self) {
        for (place, receiver) in self.receivers.iter().enumerate() {
            let SnapshotReceiver { key, reached, early, .. } = receiver;
            let mut others = self.receivers[..place].iter().map(|other| other.key.at);
            assert!(others.all(|at| at != key.at), "two copies are taken: {key:?}");
            assert!(early.len() <= WINDOW + 1, "{key:?} keeps {} parts", early.len());
            let first = early.first_key_value().map(|(begins, _)| begins);
            let is_behind = first.is_none_or(|first| Some(first) >= reached.as_ref());
            assert!(is_behind && (reached.is_some() || early.is_empty()), "{key:?}: {reached:?}");
        }
    }
}

/// A place as messages have it.
pub fn place_form(place: WalkPlace) -> (TableId, Bytes) {
    (place.table, Bytes::from(place.key))
}

/// The place that a message names.
pub fn place_of((table, key): &(TableId, Bytes)) -> WalkPlace {
    WalkPlace { table: *table, key: key.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Duration = Duration::from_millis(100);
    const TO: NodeId = NodeId(1);

    fn place(key: &[u8]) -> WalkPlace {
        WalkPlace { table: TableId(0), key: key.to_vec() }
    }

    fn senders() -> SnapshotSenders<()> {
        let mut senders = SnapshotSenders::default();
        let head = SnapshotHead { at: 0, to: TO, length: 7, state: Bytes::new() };
        assert!(!senders.request_again(Time(1), 0, TO));
        senders.begin(Time(1), 5, head, ());
        senders
    }

    /// Sends the next part, which ends at `until`. Returns the place at which it begins.
    fn send(
        senders: &mut SnapshotSenders<()>,
        now: Time,
        until: Option<&[u8]>,
    ) -> Option<WalkPlace> {
        let part = senders.next_part(now)?;
        senders.sent(now, &part, 10, until.map(place));
        senders.assert_invariants();
        Some(part.from)
    }

    const KEY: CopyKey = CopyKey { at: 0, peer: TO, copy: 5 };

    #[test]
    fn parts_that_are_not_acknowledged_are_sent_again() {
        let mut senders = senders();
        let now = Time(1);
        assert_eq!(send(&mut senders, now, Some(b"c")), Some(WalkPlace::default()));
        assert_eq!(send(&mut senders, now, Some(b"f")), None, "others have their turn");
        let now = now + PAUSE;
        assert_eq!(send(&mut senders, now, Some(b"f")), Some(place(b"c")));
        assert!(senders.acknowledge(now, KEY, Some(place(b"c"))));
        assert!(!senders.acknowledge(now, CopyKey { copy: 6, ..KEY }, None), "another copy");
        let now = now + RETRY;
        senders.turn(now, RETRY, |_| true, |head| panic!("{head:?} is not over"));
        assert_eq!(send(&mut senders, now, None), Some(place(b"c")), "again");
        assert!(senders.acknowledge(now, KEY, None));
        let mut told = 0;
        senders.turn(now, RETRY, |_| true, |_| told += 1);
        assert_eq!((told, senders.sizes(), senders.least_length(0)), (1, [1, 0], Some(7)));
        senders.turn(now + RETRY * REPEATS_MAX, RETRY, |_| true, |_| told += 1);
        assert_eq!((told, senders.sizes()), (1, [0, 0]), "it is told once, and forgotten");
    }

    #[test]
    fn a_worker_looks_at_its_copies_when_one_has_news_or_time_has_come() {
        let mut senders = senders();
        let mut now = Time(1);
        let is_news = |senders: &mut SnapshotSenders<()>, now| {
            let is_due = senders.is_due(now, RETRY);
            senders.turn(now, RETRY, |_| true, |_| ());
            is_due
        };
        assert!(is_news(&mut senders, now), "it has begun");
        send(&mut senders, now, None);
        assert!(!is_news(&mut senders, now), "the last part is under way");
        senders.look_again();
        assert!(is_news(&mut senders, now), "who leads has changed");
        assert!(senders.acknowledge(now, KEY, None));
        assert!(is_news(&mut senders, now), "it has come further");
        assert!(senders.acknowledge(now, KEY, None));
        assert!(!is_news(&mut senders, now), "that was said before");
        assert!(senders.request_again(now, 0, TO));
        assert!(is_news(&mut senders, now), "the stream asks again");
        now = now + PAUSE;
        assert_eq!(
            send(&mut senders, now, None),
            Some(WalkPlace::default()),
            "the last part again"
        );
        assert!(!senders.is_due(now, RETRY) && senders.is_due(now + RETRY, RETRY));
        let mut none = SnapshotSenders::<()>::default();
        none.look_again();
        assert!(!none.is_due(now, RETRY) && none.next_due(RETRY).is_none());
    }

    #[test]
    #[should_panic(expected = "is given two copies")]
    fn a_replica_is_given_one_copy_of_a_shard() {
        let mut senders = senders();
        let head = SnapshotHead { at: 0, to: TO, length: 9, state: Bytes::new() };
        senders.begin(Time(1), 6, head, ());
        senders.assert_invariants();
    }

    #[test]
    fn a_copy_for_a_receiver_that_is_silent_is_given_up() {
        let mut senders = senders();
        let (mut now, mut told) = (Time(1), 0);
        while told == 0 {
            assert!(now < Time(1) + RETRY * (2 * REPEATS_MAX), "it goes on for ever");
            send(&mut senders, now, None);
            now = now + RETRY;
            senders.turn(now, RETRY, |_| true, |_| told += 1);
        }
        assert_eq!(senders.sizes(), [0, 0]);
    }

    #[test]
    fn parts_are_taken_in_their_turn() {
        let mut receivers = SnapshotReceivers::default();
        let arrive = |receivers: &mut SnapshotReceivers<u32>, key, begins: &[u8], part| {
            let begins = if begins.is_empty() { WalkPlace::default() } else { place(begins) };
            receivers.arrive(Time(1), RETRY, key, begins, part);
            receivers.assert_invariants();
        };
        arrive(&mut receivers, KEY, b"c", 2);
        assert_eq!((receivers.size(), receivers.next(KEY)), (0, None), "it begins with the first");
        arrive(&mut receivers, KEY, b"", 1);
        arrive(&mut receivers, KEY, b"f", 3);
        arrive(&mut receivers, CopyKey { peer: NodeId(2), ..KEY }, b"", 9);
        assert_eq!((receivers.next(KEY), receivers.next(KEY)), (Some(1), None), "one is enough");
        receivers.advance(KEY, Some(place(b"c")));
        assert_eq!(receivers.next(KEY), None);
        arrive(&mut receivers, KEY, b"c", 2);
        assert_eq!(receivers.next(KEY), Some(2));
        receivers.advance(KEY, Some(place(b"f")));
        assert_eq!((receivers.next(KEY), receivers.reached(KEY)), (Some(3), Some(place(b"f"))));
        receivers.advance(KEY, None);
        assert_eq!(receivers.reached(KEY), None);
        receivers.forget(0);
        assert_eq!(receivers.reached(KEY), Some(WalkPlace::default()));
    }
}
