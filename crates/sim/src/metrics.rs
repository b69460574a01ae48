//! Counters of a run.

use shoal_engine::Engine;
use std::collections::BTreeMap;
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
            /// The name and count of each counter, in the order of declaration.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }
        }
    };
}

counts! {
    /// What the network did with messages.
    Traffic {
        /// Messages handed to the network.
        sent,
        /// Messages lost, by chance or on a cut link.
        lost,
        /// Messages that were delivered a second time.
        duplicated,
        /// Messages that arrived out of order.
        reordered,
        /// Messages that took a multiple of the usual time.
        late,
        /// Messages that waited for the end of a clog.
        clogged,
        /// How often a link was clogged.
        clogs,
        /// How often a direction of a link was cut.
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
        /// Timers of workers that fired.
        timers,
        /// Steps of workers, one for each event.
        steps,
        /// How often a worker was stalled, those of paused nodes included.
        stalls,
        /// How often a node crashed.
        crashes,
        /// Nodes that lost their memory in a crash.
        lost,
        /// How often all nodes of a datacenter crashed at once.
        datacenters_lost,
        /// How often all nodes lost power at once.
        power_lost,
        /// Connections of clients that broke.
        connections_broken,
        /// How often all workers of a node were stalled.
        pauses,
        /// Nodes that were cut off from some others.
        parts,
        /// Outages of the managers' log.
        outages,
        /// Replacements of replicas that were asked for, or taken back.
        replacements,
        /// Nodes that were added to the cluster.
        nodes_added,
        /// Nodes that were removed from the cluster.
        nodes_removed,
        /// How often a manager was stopped.
        managers_lost,
        /// Clocks that exceeded their bounds.
        wild_clocks,
        /// Nodes that stayed crashed until the end of the run.
        gone,
        /// Steps that were interrupted within their work.
        interrupted,
        /// Workers that acted within another worker's step.
        interleaved,
        /// Replicas that lost their memory while few others had what was decided last.
        forgot_behind,
        /// Leaders that were cut off until their successor was.
        diverged,
        /// Leaders that failed when a replica without memory was about to be sent copies.
        senders_struck,
        /// Shards that lost a majority of their voters at once.
        majorities_lost,
        /// Majorities that returned with their disks after their loss was accepted.
        majorities_returned,
        /// Checkpoints of workers that became durable.
        checkpoints,
        /// Workers that began with a checkpoint.
        restarts_from_checkpoints,
        /// Times that a disk had no room for the log of a worker.
        full_disks,
        /// Disks of which an operation failed.
        failed_disks,
        /// Disks that were damaged while their node was down, and found to be of no use.
        damaged_disks,
        /// Processes that did not begin since a disk could not be read.
        unreadable_disks,
        /// Restarts with a disk that was put back as it was before the last process that was admitted.
        disks_put_back,
        /// Streams whose last records were void when their process began: they stood behind a snapshot without its rows.
        void_streams,
        /// Messages with entries that a replica did not take, since its disk was too far behind.
        refused_appends,
        /// Torn ends of logs that were cut.
        torn_ends,
        /// Workers that began with an older checkpoint, since a newer one was damaged.
        older_checkpoints,
        /// Processes that ended while blocks of a checkpoint were written.
        ended_in_blocks,
        /// Processes that ended while a checkpoint was to become durable.
        ended_in_finish,
        /// Observations of engines that were judged.
        observations,
    }
}

/// Counters of all engines' workers together, by the names that the engine declares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Engines(BTreeMap<&'static str, u64>);

impl Engines {
    /// What a worker of an engine has counted.
    pub fn of<E: Engine>(engine: &E) -> Engines {
        let counted = shoal_engine::declarations::counted(engine);
        Engines(counted.map(|(metric, count)| (metric.name, count)).collect())
    }

    /// The count of this name; 0 where the engine declares none.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

impl AddAssign<&Engines> for Engines {
    fn add_assign(&mut self, other: &Engines) {
        for (name, count) in &other.0 {
            *self.0.entry(name).or_default() += count;
        }
    }
}

counts! {
    /// Outcomes that clients of workloads received.
    Outcomes {
        /// Transactions whose commit was acknowledged to the client.
        done,
        /// Transactions that the workload rolled back itself.
        rolled_back,
        /// Transactions aborted for good: the retry budget was spent, or the engine refused.
        gave_up,
        /// Transactions refused for overload, which are counted in `gave_up` too.
        refused,
        /// Transactions whose outcome is unknown.
        unknown,
        /// Transactions aborted or unknown because the shard that the error names was unavailable.
        for_want_of_shard,
        /// Transactions aborted because a version that they read is undecided.
        undecided,
        /// Transactions rejected for lack of memory.
        full,
        /// Requests that clients outside sent again.
        asked_again,
        /// Calls of unknown outcome that were repeated.
        called_again,
        /// Clients that died with the node on which they lived.
        died,
    }
}

/// All counters of one or several runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// What the network did with messages.
    pub traffic: Traffic,
    /// What the simulator did.
    pub work: Work,
    /// What the workers of all engines did.
    pub engines: Engines,
    /// What clients were answered.
    pub outcomes: Outcomes,
    /// The virtual time of the run, in nanoseconds.
    pub simulated_ns: u128,
}

impl AddAssign<&Metrics> for Metrics {
    fn add_assign(&mut self, other: &Metrics) {
        self.traffic += other.traffic;
        self.work += other.work;
        self.engines += &other.engines;
        self.outcomes += other.outcomes;
        self.simulated_ns += other.simulated_ns;
    }
}
