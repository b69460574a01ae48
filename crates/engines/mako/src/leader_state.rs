//! How far a leadership over a shard is: `steps/leadership.rs` takes it from one state to the next.

use shoal_types::{Ballot, Epoch};

/// A leadership over a shard, as a worker of its leader sees it: first it has to recover the shard, then it
/// serves.
#[derive(Debug)]
pub(super) struct LeaderState {
    /// The last appointment under which this worker's stream is prepared.
    ballot: Ballot,
    /// The epoch in which the leadership began.
    since: Epoch,
    /// Entries of this worker's stream that were there before.
    inherited: u64,
    /// This worker has said how far its stream holds epochs whose end was lost with a majority.
    held: bool,
    /// This worker has closed the epochs before the leadership, and may append.
    closed: bool,
    /// This worker has recovered its part.
    recovered: bool,
    /// All workers have.
    serves: bool,
}

impl LeaderState {
    /// This worker's stream is prepared under `ballot`, with so many entries, in a leadership that began in epoch `since`.
    pub(super) fn begin(ballot: Ballot, since: Epoch, inherited: u64) -> LeaderState {
        LeaderState {
            ballot,
            since,
            inherited,
            held: false,
            closed: false,
            recovered: false,
            serves: false,
        }
    }

    /// The stream is prepared again, under a later ballot of the same leadership: this worker's part is to be looked at again.
    pub(super) fn prepare_again(&mut self, ballot: Ballot) {
        (self.ballot, self.recovered, self.held) = (ballot, false, false);
    }

    /// The last appointment under which this worker's stream is prepared.
    pub(super) fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// The epoch in which the leadership began.
    pub(super) fn since(&self) -> Epoch {
        self.since
    }

    /// Entries of this worker's stream that were there before.
    pub(super) fn inherited(&self) -> u64 {
        self.inherited
    }

    /// This worker says how far its stream holds epochs whose end was lost. Says whether it has said so before.
    pub(super) fn hold(&mut self) -> bool {
        std::mem::replace(&mut self.held, true)
    }

    /// This worker has closed the epochs before the leadership, and may append.
    pub(super) fn close(&mut self) {
        assert!(!self.closed, "M9: the epochs before {} are closed twice", self.since);
        self.closed = true;
    }

    /// May this worker append?
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// This worker has recovered its part.
    pub(super) fn recover(&mut self) {
        assert!(self.closed, "M9: the epochs before {} are not closed", self.since);
        self.recovered = true;
    }

    /// Has this worker recovered its part?
    pub(super) fn is_recovered(&self) -> bool {
        self.recovered
    }

    /// All workers have recovered theirs.
    pub(super) fn serve(&mut self) {
        assert!(self.recovered, "M9: a shard is served that this worker has not recovered");
        self.serves = true;
    }

    /// Is the shard served?
    pub(super) fn serves(&self) -> bool {
        self.serves
    }

    /// Has this worker still to recover the shard, or to serve it?
    pub(super) fn is_recovering(&self) -> bool {
        !self.recovered || !self.serves
    }
}
