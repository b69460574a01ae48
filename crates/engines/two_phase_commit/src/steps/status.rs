//! What a worker reports of itself.

use crate::TwoPhaseCommit;
use crate::shard_stream::ShardStream;

impl TwoPhaseCommit {
    /// The size of each table that transactions, clients, restarts of nodes or epochs could make grow.
    pub(crate) fn table_sizes(&self) -> Vec<(&'static str, usize)> {
        let sum = |of: fn(&ShardStream) -> usize| self.streams.iter().map(of).sum::<usize>();
        let [coordinators, over, due_branches] = self.branches.sizes();
        let [coordinated, records_due] = self.coordinator.sizes();
        let own = [
            ("transactions that commit", coordinated),
            ("times to look at transactions", records_due),
            ("branches", self.branches.len()),
            ("requests that wait for recovery", self.deferred.len()),
            ("what goes on in another step", self.sliced()),
            ("coordinators", coordinators),
            ("branches that are over", over),
            ("times to look at branches", due_branches),
            ("branches in doubt", sum(|stream| stream.in_doubt().len())),
            ("decisions that are not acknowledged", sum(ShardStream::open_decisions)),
            ("times to send again", self.streams.resends()),
            ("prepared in streams", sum(|stream| stream.replay().sizes()[0])),
            ("decided in streams", sum(|stream| stream.replay().sizes()[1])),
            ("parts in streams", sum(|stream| stream.replay().sizes()[2])),
            ("records to be applied", sum(|stream| stream.replay().sizes()[3])),
            ("reports of epochs", self.reported.len()),
            ("copies that are given", self.senders.sizes()[0]),
            ("copies that are taken", self.receivers.size()),
            ("transactions whose writes copies have brought", self.copied_writes.len()),
        ];
        self.runtime.sizes().into_iter().chain(own).collect()
    }
}
