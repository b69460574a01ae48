//! How the protocol behaves.

use crate::planted_bugs::TigaPlantedBug;
use shoal_engine::PlantedBugs;
use shoal_engine::execution::limits::not_zero;
use shoal_types::Backoff;
use std::time::Duration;

/// What is sent again waits no longer than so many times as long as at first.
const REPEAT_MAX: u32 = 8;

/// The questions of a recovery.
const RECOVERY_REPEAT_MAX: u32 = 4;

/// How the protocol behaves, the same on all nodes.
#[derive(Debug, Clone, Copy)]
pub struct TigaOptions {
    /// What is added to the delays for the timestamp of a transaction, at least. More lets fewer messages be late, and delays
    /// each transaction. Default 0.2 ms.
    pub margin: Duration,
    /// By how much a timestamp may be further ahead than the nearest leader's delay. Default 20 ms.
    pub headroom_max: Duration,
    /// A timestamp that is further ahead of a replica's clock is refused. Default 1 s.
    pub ahead_max: Duration,
    /// A replica whose clock is behind waits no longer than this for a timestamp. More keeps the order that timestamps ask for
    /// over longer distances; less lets a wrong clock cost less time. Default 500 ms.
    pub hold_max: Duration,
    /// How far behind the clock the seals are. Less bounds memory more tightly, and spoils the fast path of transactions that
    /// are late. Default 100 ms.
    pub seal_lag: Duration,
    /// How often a leader announces seals. Default 100 ms.
    pub seal_every: Duration,
    /// What is not answered is sent again after this, and then each time after twice as long, up to 8 times. Default 250 ms.
    pub repeat_after: Duration,
    /// A leader votes for a transaction of several shards before their leaders have agreed on its timestamp, if one of them is
    /// at least so far away (detective agreement). Sooner saves a delay between leaders; where timestamps are raised it costs
    /// executions that are discarded. Default 10 ms.
    pub detective_from: Duration,
    /// Where a majority of each participant is so near to the coordinator, it waits for the logs and asks for no votes: these
    /// would save less time than they cost. Default 1 ms.
    pub by_log_within: Duration,
    /// By how much the clocks of two nodes differ at most: then procedures in pieces are agreed on by the clocks (ε mode, §6 of
    /// the paper). A node whose clock may be wrong by more than half of it, or does not know, takes no part. Default: none, and
    /// leaders send each other `Ready`.
    pub epsilon: Option<Duration>,
    /// Messages about a transaction that has not come are kept for so long. Default 5 s.
    pub early_max: Duration,
    /// Entries of logs, and the messages of recoveries, are made of so many bytes and one transaction at most. A leader releases
    /// nothing while so many are not decided, and a follower accepts nothing while it has so many that are not synced. More lets
    /// more be on its way over long distances; a frame that is longer than the network takes (`NetworkLimits::frame_bytes_max`)
    /// never arrives. Default 4 MiB.
    pub window_bytes: usize,
    /// Bugs planted in the protocol. Default: none.
    pub bugs: PlantedBugs<TigaPlantedBug>,
}

impl Default for TigaOptions {
    fn default() -> TigaOptions {
        TigaOptions {
            margin: Duration::from_micros(200),
            headroom_max: Duration::from_millis(20),
            ahead_max: Duration::from_secs(1),
            hold_max: Duration::from_millis(500),
            seal_lag: Duration::from_millis(100),
            seal_every: Duration::from_millis(100),
            repeat_after: Duration::from_millis(250),
            detective_from: Duration::from_millis(10),
            by_log_within: Duration::from_millis(1),
            epsilon: None,
            early_max: Duration::from_secs(5),
            window_bytes: 4 << 20,
            bugs: PlantedBugs::NONE,
        }
    }
}

impl TigaOptions {
    /// When something is sent again, the first time and each further one: a node that does not answer may have too much to do,
    /// and every copy is more of that.
    #[must_use]
    pub fn backoff(&self) -> Backoff {
        Backoff::new(self.repeat_after, self.repeat_after * REPEAT_MAX)
    }

    /// The same for the questions of a recovery, for which others wait.
    #[must_use]
    pub fn recovery_backoff(&self) -> Backoff {
        Backoff::new(self.repeat_after, self.repeat_after * RECOVERY_REPEAT_MAX)
    }

    /// Whether a node takes part whose clock may be wrong by so much, or that does not know (rule T12).
    #[must_use]
    pub fn is_accurate(&self, error_bound: Option<Duration>) -> bool {
        let Some(epsilon) = self.epsilon else { return true };
        error_bound.is_some_and(|error_bound| error_bound <= epsilon / 2)
    }

    /// Checks them.
    ///
    /// # Panics
    /// If one is out of its range; says which.
    pub fn check(&self) {
        not_zero([
            ("headroom_max", self.headroom_max),
            ("ahead_max", self.ahead_max),
            ("hold_max", self.hold_max),
            ("seal_every", self.seal_every),
            ("repeat_after", self.repeat_after),
            ("early_max", self.early_max),
            ("epsilon", self.epsilon.unwrap_or(Duration::MAX)),
        ]);
        assert!(self.window_bytes > 0, "window_bytes is 0; nothing would ever be released");
    }
}
