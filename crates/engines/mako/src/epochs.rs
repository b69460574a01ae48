//! The epochs of a node, as its workers share them: which one is open, how far those are durable that
//! are not settled, and what came of those that are (`docs/recovery.md`).
//!
//! ```text
//!   e opens ──► e+1 opens: e closes ──► every worker that leads appends the end of e ─► report
//!                                        all shards have reported ─► FVW(e): e is settled
//! ```
//! No epoch waits for another: where a shard is lost, those in which it took part stay, and later ones are settled.
//!
//! A worker that sees an epoch open aborts what it coordinates in the one before and has not certified,
//! and takes no more of it from others; what is certified is installed as ever. Once nothing of the
//! epoch is in flight on it, nothing of the epoch can follow, and the worker's stream says so. What hangs
//! for too long, since its coordinator is gone, is lost: then the stream says how far it has everything.

use super::epoch_ends::end_at;
use super::shared_watermark::SharedWatermark;
use shoal_cluster::manager::{Knowledge, KnownEpochs};
use shoal_types::{Ballot, Clock, Epoch, ShardId, StampRef, VectorWatermark, WorkerId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The epochs that the workers of a node have open, closed or settled.
#[derive(Debug)]
pub(super) struct Epochs {
    shards: usize,
    workers: u32,
    /// The one that is open for new work. A worker that draws a clock looks at it afterwards.
    open: AtomicU32,
    /// Moves with every change of the rest.
    version: AtomicU64,
    state: Mutex<EpochsState>,
}

#[derive(Debug)]
struct EpochsState {
    /// Of all epochs that are not settled.
    live: BTreeMap<Epoch, Arc<SharedWatermark>>,
    /// FVWs that do not cover all of their epoch. Of any other that is closed and not live it does.
    finals: BTreeMap<Epoch, VectorWatermark>,
    /// The epochs up to which each worker asks for no FVW any more: those up to the least of them are forgotten.
    forgotten: Vec<Epoch>,
    /// How streams of a shard have ended an epoch, durably, under the last appointment of its leader.
    ended: BTreeMap<(Epoch, ShardId), EndedStreams>,
    /// Of epochs before these nothing is learned of these shards any more: their majority is lost.
    frozen: BTreeMap<ShardId, Epoch>,
    /// How far streams of such a shard hold those epochs, under the last appointment of its leader.
    held: BTreeMap<ShardId, HeldStreams>,
}

/// How far the streams of a shard hold epochs that lack their end.
#[derive(Debug)]
struct HeldStreams {
    ballot: Ballot,
    /// So many have said so.
    workers: u32,
    /// So far all of them have each.
    clocks: BTreeMap<Epoch, Clock>,
}

/// How the streams of a shard have ended an epoch.
#[derive(Debug)]
struct EndedStreams {
    ballot: Ballot,
    /// How many have.
    workers: u32,
    /// How far all of them have all of it.
    clock: Clock,
}

/// What a worker has not seen yet.
#[derive(Debug, Default)]
pub(super) struct EpochNews {
    /// Epochs that have opened, in order.
    pub(super) opened: Vec<(Epoch, Arc<SharedWatermark>)>,
    /// How the epochs up to this one ended is known no more.
    pub(super) forgotten: Epoch,
    /// The ends of epochs that the worker took for live, those among them that it has not learned of.
    pub(super) settled: Vec<VectorWatermark>,
}

impl Epochs {
    /// `first` is open, and none was before.
    pub(super) fn new(first: Epoch, shards: usize, workers: u32) -> Epochs {
        let live = [(first, Arc::new(SharedWatermark::new(shards)))].into();
        let (finals, ended) = (BTreeMap::new(), BTreeMap::new());
        let (frozen, held) = (BTreeMap::new(), BTreeMap::new());
        let forgotten = vec![Epoch(0); workers as usize];
        let state = EpochsState { live, finals, forgotten, ended, frozen, held };
        Epochs {
            shards,
            workers,
            open: AtomicU32::new(first.0),
            version: AtomicU64::new(1),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, EpochsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The epoch that is open on this node.
    pub(super) fn open(&self) -> Epoch {
        Epoch(self.open.load(Ordering::SeqCst))
    }

    /// What is shared of the oldest epoch that is not settled.
    pub(super) fn first(&self) -> Arc<SharedWatermark> {
        Arc::clone(self.state().live.values().next().expect("one is open"))
    }

    /// `epoch` is open, if none after it is. Says whether that is news.
    pub(super) fn raise(&self, epoch: Epoch) -> bool {
        let mut state = self.state();
        let before = self.open();
        if epoch <= before {
            return false;
        }
        for epoch in before.0 + 1..=epoch.0 {
            state.live.insert(Epoch(epoch), Arc::new(SharedWatermark::new(self.shards)));
        }
        // From here on a clock that is drawn belongs to the new epoch or to none.
        self.open.store(epoch.0, Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    /// An epoch has ended like this. It is closed, then, and the next one open. Says whether that is
    /// news.
    pub(super) fn settle(&self, last: VectorWatermark) -> bool {
        self.raise(Epoch(last.epoch().0 + 1));
        let mut state = self.state();
        let epoch = last.epoch();
        if state.live.remove(&epoch).is_none() {
            let known = state.last(epoch, self.shards);
            assert!(
                epoch <= state.forgotten() || known == last,
                "M9: {epoch} has two final watermarks, {known:?} and {last:?}"
            );
            return false;
        }
        if !last.is_whole() && epoch > state.forgotten() {
            state.finals.insert(epoch, last);
        }
        state.ended.retain(|(ended, _), _| *ended != epoch);
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    /// Is all that `stamp`, kept by `own`, depends on committed? What any worker of this node takes for that
    /// is so here, too, if this is asked later.
    pub(super) fn covers(&self, own: ShardId, stamp: StampRef<'_>) -> bool {
        let state = self.state();
        match state.live.get(&stamp.epoch) {
            Some(live) => live.covers(own, stamp),
            None => {
                let last = state.finals.get(&stamp.epoch);
                stamp.epoch <= self.open() && last.is_none_or(|last| last.covers(own, stamp))
            }
        }
    }

    /// How far `epoch` is known to be durable: its FVW, where it is settled. `None` where this node has not learned
    /// that it opened.
    pub(super) fn watermark(&self, epoch: Epoch) -> Option<VectorWatermark> {
        let state = self.state();
        let Some(live) = state.live.get(&epoch) else {
            return (epoch <= self.open()).then(|| state.last(epoch, self.shards));
        };
        let mut watermark = VectorWatermark::new(epoch, self.shards);
        live.refresh(&mut watermark);
        Some(watermark)
    }

    /// Is a version with this stamp, kept by `own`, in a decided entry, and can only other shards say whether it counts?
    /// Its epoch has ended on its own shard, which is then durable up to the end.
    pub(super) fn is_undecided(&self, own: ShardId, stamp: StampRef<'_>) -> bool {
        let state = self.state();
        let Some(live) = state.live.get(&stamp.epoch) else { return false };
        live.has_ended(own)
            && stamp.clock <= live.of(own)
            && !live.covers(own, stamp)
            && !live.rejects(own, stamp)
    }

    /// Is a version with this stamp, kept by `own`, lost for good? Either its epoch is settled without it, or a shard has ended
    /// that before what it depends on.
    pub(super) fn rejects(&self, own: ShardId, stamp: StampRef<'_>) -> bool {
        let state = self.state();
        match state.live.get(&stamp.epoch) {
            Some(live) => live.rejects(own, stamp),
            None => state.finals.get(&stamp.epoch).is_some_and(|last| !last.covers(own, stamp)),
        }
    }

    /// How `epoch` ends is not known yet.
    pub(super) fn is_live(&self, epoch: Epoch) -> bool {
        self.state().live.contains_key(&epoch)
    }

    /// A worker's stream of `shard`, which leads under `ballot`, has ended `epoch`, durably, and has all of
    /// it up to `clock`. Returns how far the shard has, once all its streams have ended.
    pub(super) fn end(
        &self,
        shard: ShardId,
        ballot: Ballot,
        epoch: Epoch,
        clock: Clock,
    ) -> Option<Clock> {
        let mut state = self.state();
        if !state.live.contains_key(&epoch) {
            return None; // It is settled: none is asked for.
        }
        let new = || EndedStreams { ballot, workers: 0, clock: Clock::MAX };
        let ended = state.ended.entry((epoch, shard)).or_insert_with(new);
        if ended.ballot < ballot {
            *ended = new();
        }
        if ended.ballot > ballot {
            return None; // Another worker has learned of a later appointment: it is said again under that.
        }
        ended.workers += 1;
        ended.clock = ended.clock.min(clock);
        assert!(ended.workers <= self.workers, "M9: a stream of {shard} ended {epoch} twice");
        (ended.workers == self.workers).then_some(ended.clock)
    }

    /// The majority of `shard` is lost, and `begun` is the epoch that began with that: of those before nothing is learned
    /// of the shard any more; but for a planted bug, with which it `learns`. Returns what is known here, if that is news.
    pub(super) fn freeze(&self, shard: ShardId, begun: Epoch, learns: bool) -> Option<Knowledge> {
        let mut state = self.state();
        if state.frozen.get(&shard).is_some_and(|frozen| *frozen >= begun) {
            return None;
        }
        state.frozen.insert(shard, begun);
        let mut knowledge = Knowledge::default();
        for (epoch, live) in state.live.range(..begun) {
            let (clock, has_ended) = match learns {
                true => (live.of(shard), live.has_ended(shard)),
                false => live.freeze(shard),
            };
            let list = if has_ended { &mut knowledge.ends } else { &mut knowledge.durable };
            list.insert(*epoch, end_at(clock));
        }
        Some(knowledge)
    }

    /// What is known here of the epochs after `settled`.
    pub(super) fn known(&self, settled: Epoch) -> KnownEpochs {
        let (state, open) = (self.state(), self.open());
        let first = settled.max(state.forgotten()).0.saturating_add(1);
        let ends = (first..open.0).map(Epoch).map(|epoch| {
            let shards = (0..self.shards).map(|shard| ShardId(shard as u32));
            let ends = match state.live.get(&epoch) {
                Some(live) => {
                    shards.map(|it| live.has_ended(it).then(|| end_at(live.of(it)))).collect()
                }
                None => {
                    let last = state.last(epoch, self.shards);
                    shards.map(|shard| Some(end_at(last.of(shard)))).collect()
                }
            };
            (epoch, ends)
        });
        KnownEpochs { open, ends: ends.collect() }
    }

    /// A worker's stream of `shard`, which leads under `ballot` for the survivors of a lost majority, holds epochs that lack
    /// their end up to these clocks, decided. Returns how far the shard holds them, once all its streams have said so.
    pub(super) fn hold(
        &self,
        shard: ShardId,
        ballot: Ballot,
        clocks: BTreeMap<Epoch, Clock>,
    ) -> Option<BTreeMap<Epoch, Clock>> {
        let mut state = self.state();
        let new = || HeldStreams { ballot, workers: 0, clocks: BTreeMap::new() };
        let held = state.held.entry(shard).or_insert_with(new);
        if held.ballot < ballot {
            *held = new();
        }
        if held.ballot > ballot {
            return None; // Another worker has learned of a later appointment: it is said again under that.
        }
        held.workers += 1;
        for (epoch, clock) in clocks {
            let least = held.clocks.entry(epoch).or_insert(clock);
            *least = clock.min(*least);
        }
        (held.workers == self.workers).then(|| held.clocks.clone())
    }

    /// What a worker has not seen, which knows epochs up to `newest`, and takes these for live. `seen` is the version of
    /// what it has seen.
    pub(super) fn news(
        &self,
        seen: &mut u64,
        newest: Epoch,
        live: impl Iterator<Item = Epoch>,
    ) -> Option<EpochNews> {
        if self.version.load(Ordering::Acquire) == *seen {
            return None;
        }
        let state = self.state();
        *seen = self.version.load(Ordering::Acquire);
        // One that is settled by now opened too: nothing of it is live any more.
        let opened = (newest.0 + 1..=self.open().0).map(Epoch).map(|epoch| {
            let new = || Arc::new(SharedWatermark::new(self.shards));
            (epoch, state.live.get(&epoch).cloned().unwrap_or_else(new))
        });
        let opened: Vec<_> = opened.collect();
        let live = live.chain(opened.iter().map(|(epoch, _)| *epoch));
        let settled = live.filter(|epoch| !state.live.contains_key(epoch));
        let settled = settled.map(|epoch| state.last(epoch, self.shards)).collect();
        Some(EpochNews { opened, forgotten: state.forgotten(), settled })
    }

    /// A worker asks no more how the epochs up to `last` ended.
    pub(super) fn forget(&self, worker: WorkerId, last: Epoch) {
        let mut state = self.state();
        let own = &mut state.forgotten[worker.0 as usize];
        *own = last.max(*own);
        state.drop_finals();
    }

    /// This node, which has nothing of them, does not know how the epochs up to `last` ended.
    pub(super) fn begin_behind(&self, last: Epoch) {
        let mut state = self.state();
        state.forgotten.iter_mut().for_each(|own| *own = last.max(*own));
        state.drop_finals();
        self.version.fetch_add(1, Ordering::Release);
    }

    /// How much is kept: epochs that are not settled, FVWs, and ends of epochs that are not settled.
    pub(super) fn sizes(&self) -> [usize; 3] {
        let EpochsState { live, finals, ended, frozen, held, .. } = &*self.state();
        let held = held.values().map(|held| held.clocks.len());
        [live.len(), finals.len(), ended.len() + frozen.len() + held.sum::<usize>()]
    }
}

impl EpochsState {
    fn forgotten(&self) -> Epoch {
        self.forgotten.iter().copied().min().unwrap_or_default()
    }

    fn drop_finals(&mut self) {
        self.finals = self.finals.split_off(&Epoch(self.forgotten().0 + 1));
    }

    /// How an epoch ended that is settled.
    fn last(&self, epoch: Epoch, shards: usize) -> VectorWatermark {
        let known = self.finals.get(&epoch).cloned();
        known.unwrap_or_else(|| VectorWatermark::whole(epoch, shards))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::manager::EpochEnd;
    use shoal_types::NodeId;

    fn last(epoch: u32) -> VectorWatermark {
        let mut last = VectorWatermark::new(Epoch(epoch), 1);
        last.raise(ShardId(0), Clock::MAX);
        last
    }

    #[test]
    fn ends_come_in_any_order() {
        let epochs = Epochs::new(Epoch(1), 1, 2);
        let mut seen = 0;
        let mut news = |newest, live: &[u32]| {
            epochs.news(&mut seen, Epoch(newest), live.iter().map(|epoch| Epoch(*epoch)))
        };
        let first = news(1, &[1]).expect("never looked before");
        assert!(first.opened.is_empty() && first.settled.is_empty());
        assert!(news(1, &[1]).is_none());
        assert!(epochs.settle(last(2)));
        assert_eq!(epochs.open(), Epoch(3), "what has ended is closed");
        let second = news(1, &[1]).expect("two epochs opened");
        let opened: Vec<Epoch> = second.opened.iter().map(|(epoch, _)| *epoch).collect();
        assert_eq!((opened, second.settled), (vec![Epoch(2), Epoch(3)], vec![last(2)]));
        assert!(epochs.is_live(Epoch(1)) && !epochs.is_live(Epoch(2)));
        assert!(epochs.settle(last(1)));
        assert!(!epochs.settle(last(1)), "told twice");
        assert_eq!(news(3, &[1, 3]).expect("one has ended").settled, [last(1)]);
        assert_eq!(epochs.sizes(), [1, 0, 0], "what ended whole needs no entry");
        let mut partial = VectorWatermark::new(Epoch(3), 1);
        partial.raise(ShardId(0), Clock(7));
        assert!(epochs.settle(partial.clone()) && !epochs.settle(partial.clone()));
        assert_eq!((epochs.sizes(), epochs.watermark(Epoch(3))), ([1, 1, 0], Some(partial)));
        assert_eq!((epochs.watermark(Epoch(2)), epochs.watermark(Epoch(5))), (Some(last(2)), None));
    }

    #[test]
    fn known_epochs_contain_the_ends_of_shards() {
        let epochs = Epochs::new(Epoch(1), 2, 1);
        let whole = |epoch| VectorWatermark::whole(Epoch(epoch), 2);
        assert!(epochs.settle(whole(1)) && epochs.settle(whole(3)));
        let live = epochs.state().live[&Epoch(2)].clone();
        live.end_at(ShardId(1), Clock(7));
        let (known, all) = (vec![None, Some(end_at(Clock(7)))], vec![Some(EpochEnd::Whole); 2]);
        let ends = [(Epoch(2), known), (Epoch(3), all)].into();
        assert_eq!(epochs.known(Epoch(1)), KnownEpochs { open: Epoch(4), ends });
        assert_eq!(epochs.known(Epoch(9)).ends, BTreeMap::new());
    }

    #[test]
    #[should_panic(expected = "M9")]
    fn an_epoch_that_ended_whole_ends_no_other_way() {
        let epochs = Epochs::new(Epoch(1), 1, 1);
        assert!(epochs.settle(last(1)));
        epochs.settle(VectorWatermark::new(Epoch(1), 1));
    }

    #[test]
    fn a_shard_ends_an_epoch_with_its_last_stream() {
        let epochs = Epochs::new(Epoch(1), 1, 2);
        assert!(epochs.raise(Epoch(2)) && !epochs.raise(Epoch(2)));
        let end = |ballot, clock| {
            let ballot = Ballot { epoch: Epoch(ballot), node: NodeId(0) };
            epochs.end(ShardId(0), ballot, Epoch(1), clock)
        };
        assert_eq!(end(1, Clock::MAX), None);
        assert_eq!(end(2, Clock(7)), None, "appointed anew: all say it again");
        assert_eq!(end(1, Clock::MAX), None);
        assert_eq!(end(2, Clock::MAX), Some(Clock(7)));
    }
}
