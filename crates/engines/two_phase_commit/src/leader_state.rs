//! How far a leadership over a shard is: `steps/leadership.rs` takes it from one state to the next.
//!
//! ```text
//!            appointed      stream prepared      all inherited     in doubt: locked, or    all workers'
//!  follows ──────────► waits ───────────► recovers ─────► is decided ─────► resolved; sealed ──────────► serves
//!     ▲                                                                                                  │
//!     └───────────────────────── another is appointed, or leads the stream ──────────────────────────────┘
//! ```

use shoal_types::{Ballot, Epoch};

/// A leadership over a shard, as a worker of its leader sees it, once the worker's stream is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaderState {
    /// The last appointment.
    ballot: Ballot,
    /// The epoch in which the leadership began.
    since: Epoch,
    /// How many entries the stream had when it was prepared.
    inherited: u64,
    /// The inherited entries are decided and replayed: nothing of former leaderships can follow.
    began: bool,
    /// Of this stream, all that is in doubt is locked or resolved.
    recovered: bool,
    /// Where the first entry of this leadership is in the stream, once it is appended.
    seal: Option<u64>,
    /// The entry is durable: a majority has accepted it under a ballot of this leadership, so every later leader inherits
    /// it, and of former leaderships nothing that is not before it.
    sealed: bool,
    /// All streams of the shard are recovered.
    serves: bool,
}

impl LeaderState {
    /// The stream is prepared under `ballot`, with so many entries, in a leadership that began in epoch `since`.
    pub(super) fn new(ballot: Ballot, since: Epoch, inherited: u64) -> LeaderState {
        let [began, recovered, sealed, serves] = [false; 4];
        LeaderState { ballot, since, inherited, began, recovered, seal: None, sealed, serves }
    }

    /// The stream is prepared again, under a later ballot of the same leadership: this worker reports its recovery again.
    pub(super) fn prepare_again(&mut self, ballot: Ballot) {
        (self.ballot, self.recovered) = (ballot, false);
    }

    /// All that was inherited is decided and replayed.
    pub(super) fn begin(&mut self) {
        assert!(!self.began, "P7: the leadership of {} begins twice", self.since);
        self.began = true;
    }

    /// An entry is appended at this place.
    pub(super) fn append(&mut self, index: u64) {
        assert!(
            self.began,
            "P7: {} appends before all that it has inherited is decided",
            self.since
        );
        self.seal.get_or_insert(index);
    }

    /// So many entries are decided.
    pub(super) fn decide(&mut self, length: u64) {
        self.sealed |= self.seal.is_some_and(|seal| seal < length);
    }

    /// Of this stream, all that is in doubt is locked or resolved.
    pub(super) fn recover(&mut self) {
        assert!(self.began, "P7: {} has recovered a stream in which it has not begun", self.since);
        self.recovered = true;
    }

    /// All streams of the shard are recovered.
    pub(super) fn serve(&mut self) {
        assert!(self.recovered, "P7: a shard is served that this worker has not recovered");
        self.serves = true;
    }

    pub(super) fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// The epoch in which the leadership began.
    pub(super) fn since(&self) -> Epoch {
        self.since
    }

    /// How many entries the stream had when it was prepared.
    pub(super) fn inherited(&self) -> u64 {
        self.inherited
    }

    /// Is all decided and replayed that was inherited?
    pub(super) fn has_begun(&self) -> bool {
        self.began
    }

    /// Is the first entry of this leadership still to be appended?
    pub(super) fn is_unsealed(&self) -> bool {
        self.seal.is_none()
    }

    /// Is an entry of this leadership durable?
    pub(super) fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// Has this worker recovered its stream under the last appointment?
    pub(super) fn is_recovered(&self) -> bool {
        self.recovered
    }

    /// Has this worker still to recover the shard, or to serve it?
    pub(super) fn is_recovering(&self) -> bool {
        !self.recovered || !self.serves
    }

    /// Is the shard served?
    pub(super) fn serves(&self) -> bool {
        self.serves
    }
}
