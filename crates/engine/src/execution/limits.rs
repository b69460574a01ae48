//! How execution behaves: the limits of a worker, and the checks that the options of engines share.

use crate::planted_bugs::PlantedBugs;
use shoal_store::DeltaUse;
use std::time::Duration;

/// After this the worker goes on with what a step left.
pub const TURN: Duration = Duration::from_micros(1);

/// How execution behaves, the same for all engines. Part of every engine's options.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Transactions that a worker may have running, or certified and not committed. Beyond it new work
    /// waits. More cost memory; fewer let the worker idle while replication is on its way: at 100 000
    /// transactions a second and 100 ms, 10 000 are under way. Default 65 536.
    pub open_max: usize,
    /// Transactions that a worker lets begin at once. What has reached it meanwhile has its turn before
    /// the next: answers that hold up others do not queue behind new work, and an overloaded leader
    /// does not start more than it can finish. Default 4.
    pub begins_max: usize,
    /// Transactions that may wait for room. Beyond it they are refused at once. Default 65 536.
    pub queue_max: usize,
    /// How long a transaction waits for room before it is refused. Default 1 s.
    pub queue_wait_max: Duration,
    /// How often a transaction that meets conflicts is run. Default 1000.
    pub attempts_max: u32,
    /// So long after it came, a transaction that meets a conflict is not run again. Longer outlasts longer
    /// contention; but a client that asked and has stopped waiting never learns that nothing happened. Default
    /// 7 s, below the 10 s that clients wait by default, with room for the last attempt.
    pub attempts_span_max: Duration,
    /// The first pause after a conflict is drawn below this; it doubles with every attempt.
    /// Default 50 µs.
    pub pause: Duration,
    /// The longest pause, which is reached after as many conflicts as show that others hold what is wanted for long: vain
    /// attempts would keep the worker from what they wait for. Conflicts that show nothing of the kind, while a shard is
    /// recovered or an epoch ends, do not count here, and after them no pause is longer than 10 ms. Default 100 ms.
    pub pause_max: Duration,
    /// How long a request to another worker waits for an answer before it is sent again; after that twice
    /// as long each time, up to 16 times: a node that does not answer may have too much to do. Default 250 ms,
    /// above the round trip between any two datacenters.
    pub retry_after: Duration,
    /// How long a transaction waits for another shard: for an answer to one request, and, once it is certified, until
    /// the shards that it depends on are durable; 40 ms longer for each `step_keys_max` of the keys that it writes. Then
    /// it ends with an error that names the shard. Longer outlasts longer failovers; together with [`attempts_span_max`](Limits::attempts_span_max) it stays below the 10 s that
    /// clients wait by default. Default 2.5 s.
    pub shard_wait_max: Duration,
    /// An interactive transaction whose client is silent for so long is given up. Default 10 s.
    pub session_idle_max: Duration,
    /// An interactive transaction that is open for so long is given up: memory that it may look at
    /// cannot be freed. Default 30 s.
    pub session_open_max: Duration,
    /// Connections without an open interactive transaction that a worker keeps registered, with the last answer to each.
    /// One more, and the one without for longest has to register again, which takes a round trip; a transaction that it
    /// asked to begin and to commit in one message then ends as unknown. Default 16 384, more than a worker has clients.
    pub answers_remembered: usize,
    /// Sessions of clients that call procedures, which a worker keeps for each shard that its node leads; a client has as
    /// many as it makes calls on the shard at once. One more, and the oldest is over: its client has to ask for another,
    /// which takes a round trip. More cost memory, about 200 bytes each with its row, and what its last call returned.
    /// Default 32 768.
    pub call_sessions_max: usize,
    /// How long at least the result of a call is kept when its session is over, for a client that received no answer; twice as
    /// long at most. Of `call_sessions_max` sessions that are over at least, of any age, no results are dropped
    /// before; of more, the oldest are. Longer lets clients ask for longer what has become of a call, and costs
    /// memory where many come and go. Default 10 min.
    pub call_rows_kept: Duration,
    /// Store sessions, and so transactions executing or being certified, that a replica allows. Default
    /// 4096.
    pub sessions_max: usize,
    /// A step locks, installs and rolls back no more keys than so, for one transaction, and validates no more than sixteen
    /// times as many reads: what is left of a larger one is for the next steps, and others have their turn in
    /// between. More costs fewer steps, which last longer. Default 4096.
    pub step_keys_max: usize,
    /// Bytes of keys, versions and index that a replica may hold. Default: no limit.
    pub memory_bytes_max: usize,
    /// Bytes that a replica takes from the system at once, so that growing to that size costs no transaction the time
    /// in which the system finds and clears a page. More is taken as needed. Default 0.
    pub memory_bytes_reserved: usize,
    /// Keys the hash by which transactions find their own writes: clients that know it can choose keys that
    /// collide, and make a transaction slow. A node draws one at random. Default 0.
    pub hash_seed: u64,
    /// A transaction that takes longer at its coordinator is counted, and said by
    /// [`Engine::take_slow`](crate::Engine::take_slow). `None`: none is. Default `None`.
    pub slow_after: Option<Duration>,
    /// Where a log has a delta of a row that is updated in place. Default: where it is short.
    pub deltas: DeltaUse,
    /// Bugs planted in what all engines share. Default: none.
    pub faults: PlantedBugs,
}

impl Limits {
    /// Checks them.
    ///
    /// # Panics
    /// If one is out of its range; says which.
    pub fn check(&self) {
        at_least_one([
            ("open_max", self.open_max),
            ("begins_max", self.begins_max),
            ("queue_max", self.queue_max),
            ("attempts_max", self.attempts_max as usize),
            ("call_sessions_max", self.call_sessions_max),
            ("sessions_max", self.sessions_max),
            ("step_keys_max", self.step_keys_max),
            ("memory_bytes_max", self.memory_bytes_max),
        ]);
        not_zero([
            ("retry_after", self.retry_after),
            ("queue_wait_max", self.queue_wait_max),
            ("shard_wait_max", self.shard_wait_max),
            ("call_rows_kept", self.call_rows_kept),
        ]);
    }
}

/// Checks options that count something.
///
/// # Panics
/// If one is 0; says which.
pub fn at_least_one<const N: usize>(options: [(&str, usize); N]) {
    for (name, value) in options {
        assert!(value > 0, "the option {name} is 0; it is 1 at least");
    }
}

/// Checks options that say how long.
///
/// # Panics
/// If one is 0; says which.
pub fn not_zero<const N: usize>(options: [(&str, Duration); N]) {
    for (name, value) in options {
        assert!(!value.is_zero(), "the option {name} is 0; it is 1 ns at least");
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            open_max: 1 << 16,
            begins_max: 4,
            queue_max: 1 << 16,
            queue_wait_max: Duration::from_secs(1),
            attempts_max: 1000,
            attempts_span_max: Duration::from_secs(7),
            pause: Duration::from_micros(50),
            pause_max: Duration::from_millis(100),
            retry_after: Duration::from_millis(250),
            shard_wait_max: Duration::from_millis(2500),
            session_idle_max: Duration::from_secs(10),
            session_open_max: Duration::from_secs(30),
            answers_remembered: 1 << 14,
            call_sessions_max: 1 << 15,
            call_rows_kept: Duration::from_secs(600),
            sessions_max: 4096,
            step_keys_max: 1 << 12,
            memory_bytes_max: usize::MAX,
            memory_bytes_reserved: 0,
            hash_seed: 0,
            slow_after: None,
            deltas: DeltaUse::Short,
            faults: PlantedBugs::NONE,
        }
    }
}
