//! What a run counts.

use std::ops::AddAssign;

macro_rules! counts {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                $(self.$field += other.$field;)*
            }
        }

        impl $name {
            /// Names and counts, in this order.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }
        }
    };
}

counts! {
    /// What became of messages.
    Traffic {
        /// Handed to the network.
        sent,
        /// Lost, by chance or on a cut link.
        lost,
        /// Arrived twice.
        duplicated,
        /// Arrived out of order.
        reordered,
        /// Took much longer than usual.
        late,
        /// Waited for the end of a clog.
        clogged,
        /// Links that were clogged.
        clogs,
        /// Links that were cut.
        cuts,
    }
}

counts! {
    /// What the simulator did.
    Work {
        /// Messages between nodes that arrived.
        delivered,
        /// Requests of clients outside that arrived.
        requests,
        /// Replies to clients outside that arrived.
        replies,
        /// Timers that went off.
        timers,
        /// Events that workers took.
        steps,
        /// Workers that stood still for a while.
        stalls,
        /// Nodes that crashed.
        crashes,
        /// Nodes that lost their memory by that.
        lost,
        /// Datacenters that failed.
        datacenters_lost,
        /// Connections of clients that ended without being asked to.
        connections_broken,
        /// Nodes that stood still.
        pauses,
        /// Nodes that were cut off from some others.
        parts,
        /// Outages of the managers' log.
        outages,
        /// Managers that stopped.
        managers_lost,
        /// Clocks that broke their bounds.
        wild_clocks,
        /// Nodes that never came back.
        gone,
        /// Steps that stood still in the midst of their work.
        interrupted,
        /// Workers that acted in the midst of another one's step.
        interleaved,
        /// Times that a replica forgot what few others had.
        forgot_behind,
        /// Leaders that were cut off until another one was.
        diverged,
        /// Leaders that failed when a replica without memory was about to be given copies.
        senders_struck,
        /// Shards that lost a majority of their voters at once.
        majorities_lost,
        /// Facts that engines let checkers see.
        observations,
    }
}

counts! {
    /// What engines counted, all workers together.
    Engines {
        /// Certified transactions.
        certified,
        /// Transactions whose outcome was told.
        committed,
        /// Certified transactions that wrote.
        wrote,
        /// Those of them that wrote several shards.
        cross_shard,
        /// Attempts that met a conflict.
        conflicts,
        /// Requests between workers that were sent again.
        resent,
        /// Messages that made no sense any more.
        dropped,
        /// Stamps kept with versions, one for each shard that a transaction wrote.
        stamps,
        /// Their entries, the shard's own included.
        stamp_entries,
        /// Batches appended to streams.
        batches,
        /// Bytes of those batches.
        batch_bytes,
    }
}

counts! {
    /// What clients of workloads met.
    Outcomes {
        /// Transactions that were told as committed.
        done,
        /// Rolled back, as the workload demands.
        rolled_back,
        /// Aborted for good: the retry budget was spent, or the engine refused.
        gave_up,
        /// Of those, refused for overload.
        refused,
        /// What became of it is not known.
        unknown,
        /// Aborted or unknown for want of a shard that the error names.
        for_want_of_shard,
        /// Of those, since a version that was read is undecided.
        undecided,
        /// Rejected for want of memory.
        full,
        /// Requests that clients outside sent again.
        asked_again,
        /// Calls whose outcome was not known and that were asked for again.
        called_again,
        /// Clients that died with the node on which they lived.
        died,
    }
}

/// All counts of a run, or of many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Metrics {
    /// What became of messages.
    pub traffic: Traffic,
    /// What the simulator did.
    pub work: Work,
    /// What engines counted.
    pub engines: Engines,
    /// What clients met.
    pub outcomes: Outcomes,
    /// True time that passed.
    pub simulated_ns: u128,
}

impl AddAssign for Metrics {
    fn add_assign(&mut self, other: Metrics) {
        self.traffic += other.traffic;
        self.work += other.work;
        self.engines += other.engines;
        self.outcomes += other.outcomes;
        self.simulated_ns += other.simulated_ns;
    }
}
