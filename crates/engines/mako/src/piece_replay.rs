//! Replays pieces on a node's copy of a shard, as many as fit into a step.

use super::piece::Piece;
use super::shared::MakoShared;
use super::undecided_versions::order;
use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use bytes::Bytes;
use shoal_engine::PlantedBugs;
use shoal_engine::execution::session_pool::SessionPool;
use shoal_replication::codec::StreamWrite;
use shoal_replication::replay::{Unapplied, replay};
use shoal_replication::replay_budget::{ReplayBudget, bytes_of, bytes_of_encoded};
use shoal_replication::replica::ShardReplica;
use shoal_store::{Change, ReplayedWrite};
use shoal_types::{ShardId, Stamp};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

/// Replays covered pieces on a node's copy of a shard, as many as fit into the step, and says which are done. All of their
/// rows are looked up together, and the newest come first, so that a row that several of them write is written once.
pub(super) fn replays<'a>(
    shared: &'a MakoShared,
    shard: ShardId,
    budget: &'a ReplayBudget,
    observations: &'a mut Option<Vec<MakoObservation>>,
) -> impl FnMut(&Rc<SessionPool>, &VecDeque<Piece>) -> ReplayedPieces + 'a {
    let replica = shared.replica(shard).expect("held");
    let (undecided, options) = (shared.undecided(shard), &shared.setup.options);
    let faults = options.limits.faults;
    move |sessions, covered| {
        let fits = |piece: &&Piece| budget.take(bytes_of_encoded(&piece.writes));
        let until = covered.iter().take_while(fits).count();
        let floor = &*replica.floor();
        // Before anything is looked for.
        let reached = replica.reached();
        let pieces = covered.range(..until).rev();
        let writes = pieces.clone().flat_map(|piece| {
            let stamp = piece.stamp.as_ref();
            piece.writes.iter().map(move |write| write.replayed(stamp))
        });
        let mut unapplied =
            replay(replica, Some(floor), sessions, writes, faults, observations.as_mut());
        // A copy brings beside the rows what is undecided: the base of a delta, or that version itself, whole.
        let mut commit_kept = |write: &ReplayedWrite<'_>| {
            let Change::Delta(delta) = write.change else { return false };
            let key = (write.table, Bytes::copy_from_slice(write.key));
            let mut kept = undecided.lock();
            let mut was_kept = false;
            for version in [delta.base, order(write.stamp)] {
                was_kept |= kept.has(key.0, &key.1, version);
                kept.commit(&key, version, |stamp, write| {
                    replay_kept(replica, sessions, stamp, write, faults, observations)
                });
            }
            was_kept
        };
        // Deltas whose bases are neither on their way nor beside the store.
        let mut missed = Vec::new();
        for (place, write) in std::mem::take(&mut unapplied.waiting) {
            let is_past = matches!(&write.change, Change::Delta(delta) if delta.base.1 <= reached);
            match !commit_kept(&write) && is_past {
                true => missed.push((place, write)),
                false => unapplied.wait(place, write),
            }
        }
        for (place, write) in std::mem::take(&mut unapplied.replaced) {
            match commit_kept(&write) {
                true => unapplied.wait(place, write),
                false => missed.push((place, write)),
            }
        }
        // The bases were replaced (`undecided_versions.rs`), unless another worker has put them into the store since.
        for (place, write) in missed {
            let write_again = std::iter::once(write);
            let observe = observations.as_mut();
            let again = replay(replica, Some(floor), sessions, write_again, faults, observe);
            if again.from.is_some() {
                unapplied.wait(place, write);
            }
        }
        let done = pieces_done(pieces, until, &unapplied);
        if !options.faults.has(MakoPlantedBug::InstallUndecidedAbove) {
            undecided.supersede(|| {
                done.iter().map(|place| &covered[place]).flat_map(|piece| {
                    let stamp = piece.stamp.as_ref();
                    // What a copy has brought was not applied here: if it was undecided then, it is in the table (seed 13771).
                    let is_new =
                        move |write: &StreamWrite| !floor.has(write.table, &write.key, stamp.clock);
                    piece
                        .writes
                        .shared()
                        .filter(is_new)
                        .map(move |write| (order(stamp), write.table, write.key))
                })
            });
        }
        done
    }
}

/// The covered pieces that a step has replayed: those of a range, but for some.
#[derive(Debug)]
pub(super) struct ReplayedPieces {
    range: Range<usize>,
    /// The places of those in the range that are not, descending.
    waiting: Vec<usize>,
}

impl ReplayedPieces {
    /// The first piece was tried.
    #[cfg(test)]
    pub(super) fn first(waits: bool) -> ReplayedPieces {
        let waiting = if waits { vec![0] } else { Vec::new() };
        ReplayedPieces { range: 0..1, waiting }
    }

    /// The step has replayed enough.
    #[cfg(test)]
    pub(super) fn deferred() -> ReplayedPieces {
        ReplayedPieces { range: 0..0, waiting: Vec::new() }
    }

    /// Whether none was looked at, since the step had replayed enough.
    pub(super) fn is_deferred(&self) -> bool {
        self.range.end == 0
    }

    /// Their places.
    fn iter(&self) -> impl Iterator<Item = usize> {
        let is_done = |place: &usize| {
            let search = self.waiting.binary_search_by(|waits| place.cmp(waits));
            search.is_err()
        };
        self.range.clone().filter(is_done)
    }

    /// Takes them out, and puts those of the range that wait behind the others that do. Returns whether any are replayed.
    pub(super) fn drain(
        self,
        covered: &mut VecDeque<Piece>,
        waiting: &mut VecDeque<Piece>,
        mut done: impl FnMut(&Piece),
    ) -> bool {
        let mut places = self.range.clone();
        let mut waits = self.waiting.iter().rev().peekable();
        let is_any = places.len() > self.waiting.len();
        for piece in covered.drain(self.range) {
            let place = places.next().expect("it is one of them");
            match waits.next_if_eq(&&place) {
                Some(_) => waiting.push_back(piece),
                None => done(&piece),
            }
        }
        is_any
    }
}

/// Which of the pieces before this place, which are brought from there on backwards, are done. Such as have a write that is
/// not are done again.
fn pieces_done<'p>(
    pieces: impl Iterator<Item = &'p Piece>,
    until: usize,
    unapplied: &Unapplied<'_>,
) -> ReplayedPieces {
    let mut done = ReplayedPieces { range: 0..until, waiting: Vec::new() };
    if unapplied.is_empty() {
        return done;
    }
    let mut waiting = unapplied.waiting.iter().map(|(place, _)| *place).peekable();
    let mut first = 0;
    for (piece, place) in pieces.zip((0..until).rev()) {
        let next = first + piece.writes.len();
        if unapplied.from.is_some_and(|from| from < next) {
            // The piece with that place, or what is behind it.
            done.range.start = place + 1;
            break;
        }
        if waiting.peek().is_some_and(|place| *place < next) {
            done.waiting.push(place);
            while waiting.next_if(|place| *place < next).is_some() {}
        }
        first = next;
    }
    done
}

/// The same for versions that were undecided, and are committed. What a copy has brought does not matter: its sender did not know. No
/// copy may be taken meanwhile.
pub(super) fn replays_kept<'a>(
    shared: &'a MakoShared,
    shard: ShardId,
    budget: &'a ReplayBudget,
    observations: &'a mut Option<Vec<MakoObservation>>,
) -> impl FnMut(&Rc<SessionPool>, &Stamp, &StreamWrite) -> bool + 'a {
    let replica = shared.replica(shard).expect("held");
    let faults = shared.setup.options.limits.faults;
    move |sessions, stamp, write| {
        budget.take(bytes_of(std::slice::from_ref(write)))
            && replay_kept(replica, sessions, stamp, write, faults, observations)
    }
}

/// Applies a version that was undecided. Returns whether that could be done.
fn replay_kept(
    replica: &ShardReplica,
    sessions: &Rc<SessionPool>,
    stamp: &Stamp,
    write: &StreamWrite,
    faults: PlantedBugs,
    observations: &mut Option<Vec<MakoObservation>>,
) -> bool {
    let write = std::iter::once(write.borrowed().replayed(stamp.as_ref()));
    replay(replica, None, sessions, write, faults, observations.as_mut()).is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::options::MakoOptions;
    use super::super::piece::{OpenBatch, StreamEntry};
    use super::super::undecided_versions::UndecidedVersion;
    use super::*;
    use shoal_cluster::topology::{Partitioning, Topology};
    use shoal_engine::engine::Setup;
    use shoal_engine::procedure::Procedures;
    use shoal_replication::codec::WriteRef;
    use shoal_store::Delta;
    use shoal_types::{Clock, Epoch, NodeId, StampRef, TableId, Time, WorkerId};
    use std::sync::Arc;

    const T: TableId = TableId(0);
    const KEY: &[u8] = b"key";
    /// All three bytes of a row are others.
    const PATCH: &[u8] = b"\0\0\x03\0new";

    /// The replica of a shard that another shard is beside.
    fn shared() -> MakoShared {
        let table = ("t", Partitioning::Hash { prefix_bytes: 0 });
        let topology = Topology::symmetric(1, 2, 1, 0, 1).with_tables([table]).expect("valid");
        let setup = Setup {
            topology: Arc::new(topology),
            procedures: Arc::new(Procedures::new()),
            streams: Default::default(),
            options: MakoOptions::default(),
        };
        MakoShared::new(&setup, NodeId(0), Epoch(1))
    }

    /// A piece at a clock, whose delta is of the version at another.
    fn delta(clock: u64, base: u64) -> Piece {
        let mut batch = OpenBatch::default();
        batch.push(Stamp::local(Epoch(1), Clock(clock)).as_ref(), |write| {
            let base = (Epoch(1), Clock(base));
            let change = Change::Delta(Delta { base, length: 3, patch: PATCH });
            write(WriteRef { table: T, key: KEY, change });
        });
        let entry = batch.close(Clock(0), &[], &[]);
        StreamEntry::decode(ShardId(0), entry).expect("well formed").pieces.pop().expect("one")
    }

    /// A version of the row at this clock, whole, which depends on another shard.
    fn whole(clock: u64, row: &'static [u8]) -> UndecidedVersion {
        let mut stamp = Stamp::local(Epoch(1), Clock(clock));
        stamp.push(ShardId(0), ShardId(1), Clock(70));
        UndecidedVersion { stamp, change: Change::Row(Bytes::from_static(row)) }
    }

    /// A copy has brought this beside the rows.
    fn bring(shared: &MakoShared, version: UndecidedVersion) {
        shared.undecided(ShardId(0)).lock().insert((T, Bytes::from_static(KEY)), version);
    }

    /// Replays a delta twice, after a copy that had everything up to a clock. Says whether the second time it was done, and
    /// what the row is then.
    fn replay_behind_a_copy(shared: &MakoShared, cut: u64) -> (bool, Option<Vec<u8>>) {
        let (shard, budget) = (ShardId(0), ReplayBudget::default());
        let replica = shared.replica(shard).expect("held");
        replica.floor_mut().raise(Clock(cut), None);
        let sessions = SessionPool::new(replica.store.clone(), usize::MAX);
        let (mut covered, mut waiting) = (VecDeque::from([delta(8, 5)]), VecDeque::new());
        let mut is_done = false;
        for step in 1..=2 {
            budget.begin(Time(step), usize::MAX);
            let replayed = replays(shared, shard, &budget, &mut None)(&sessions, &covered);
            is_done = replayed.drain(&mut covered, &mut waiting, |_| {});
            std::mem::swap(&mut covered, &mut waiting);
            if is_done {
                break;
            }
        }
        let mut session = replica.store.session().expect("one more");
        let value = session.begin().get(T, KEY).expect("no rival").map(<[u8]>::to_vec);
        (is_done, value)
    }

    #[test]
    fn a_delta_waits_for_a_base_that_a_copy_has_brought_undecided() {
        let shared = shared();
        bring(&shared, whole(5, b"old"));
        assert_eq!(replay_behind_a_copy(&shared, 6), (true, Some(b"new".to_vec())));
        assert_eq!(shared.undecided(ShardId(0)).len(), 0);
    }

    /// The sender had applied it on top of its base, as that of a committed delta, and did not know what it depends on.
    #[test]
    fn a_version_that_a_copy_has_brought_whole_needs_no_base() {
        for cut in [3, 6] {
            let shared = shared();
            bring(&shared, whole(8, b"new"));
            // Its own stream has it as a delta, and this node keeps it, too.
            let Piece { stamp, writes } = delta(8, 5);
            let StreamWrite { change, .. } = writes.shared().next().expect("one");
            bring(&shared, UndecidedVersion { stamp, change });
            let brought = replay_behind_a_copy(&shared, cut);
            assert_eq!(brought, (true, Some(b"new".to_vec())), "a copy up to {cut}");
            assert_eq!(shared.undecided(ShardId(0)).len(), 0);
        }
    }

    #[test]
    fn a_delta_gives_way_where_a_copy_has_brought_what_came_in_place_of_its_base() {
        assert_eq!(replay_behind_a_copy(&shared(), 6), (true, None));
    }

    /// The copy was up to clock 6, and the row is deleted later than at clock 12, in the stream of another worker.
    #[test]
    fn all_deltas_give_way_above_a_base_that_a_copy_has_left_out() {
        for (reached, left) in [(7, 1), (8, 0)] {
            let (shared, shard, budget) = (shared(), ShardId(0), ReplayBudget::default());
            let replica = shared.replica(shard).expect("held");
            replica.floor_mut().raise(Clock(6), None);
            replica.progress(WorkerId(0), Clock(reached));
            let sessions = SessionPool::new(replica.store.clone(), usize::MAX);
            let covered = VecDeque::from([delta(8, 5), delta(12, 8)]);
            budget.begin(Time(1), usize::MAX);
            let replayed = replays(&shared, shard, &budget, &mut None)(&sessions, &covered);
            let done = replayed.iter().count();
            assert_eq!(covered.len() - done, left, "replayed up to {reached}");
        }
    }

    #[test]
    fn what_is_decided_needs_no_base_below_a_deletion() {
        let (shared, shard, budget) = (shared(), ShardId(0), ReplayBudget::default());
        let replica = shared.replica(shard).expect("held");
        let sessions = SessionPool::new(replica.store.clone(), usize::MAX);
        for Piece { stamp, writes } in [delta(8, 5), delta(12, 8), delta(28, 24)] {
            let StreamWrite { change, .. } = writes.shared().next().expect("one");
            bring(&shared, UndecidedVersion { stamp, change });
        }
        let stamp = Stamp::local(Epoch(1), Clock(20));
        bring(&shared, UndecidedVersion { stamp, change: Change::Delete });
        bring(&shared, whole(24, b"old"));
        let decide = |known: u64| {
            let mut observations = None;
            let mut apply = replays_kept(&shared, shard, &budget, &mut observations);
            let apply = |stamp: &Stamp, write: &StreamWrite| apply(&sessions, stamp, write);
            budget.begin(Time(known), usize::MAX);
            let covers = |stamp: StampRef<'_>| stamp.clock <= Clock(known);
            shared.undecided(shard).lock().decide(|_| false, covers, apply).is_through
        };
        let row = || {
            let mut session = replica.store.session().expect("one more");
            session.begin().get(T, KEY).expect("no rival").map(<[u8]>::to_vec)
        };
        assert_eq!((decide(12), row()), (false, None), "its deletion is not known to be committed");
        assert_eq!((decide(20), row()), (true, None));
        assert_eq!((decide(28), row()), (true, Some(b"new".to_vec())));
        assert_eq!(shared.undecided(shard).len(), 0);
    }
}
