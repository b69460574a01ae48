//! The configuration of the engine.

use crate::options::ZeusOptions;
use shoal_engine::execution::Limits;
use std::time::Duration;

/// Transactions that a worker lets begin at once. More than the other engines: most find all that they want at the node, so that
/// they hold up no other, and what they send to the followers travels together.
const BEGINS_MAX: usize = 16;

/// How `zeus` behaves. The default does the right thing.
#[derive(Debug, Clone)]
pub struct ZeusEngineOptions {
    /// How transactions run until they commit.
    pub limits: Limits,
    /// The protocol between nodes.
    pub protocol: ZeusOptions,
    /// For how long a read waits for a pending row to be validated, before its transaction starts again. 10 ms.
    pub pending_wait_max: Duration,
    /// A granule that moves to a node for the third time within this span stays where it is, and transactions of clients go there.
    /// 100 ms.
    pub moves_within: Duration,
}

impl ZeusEngineOptions {
    /// Adapts the waits to nodes whose messages take this long there and back.
    pub(crate) fn fit_distance(&mut self, round_trip: Duration) {
        self.protocol = self.protocol.over(round_trip);
        self.pending_wait_max = self.pending_wait_max.max(4 * round_trip);
        self.moves_within = self.moves_within.max(8 * round_trip);
    }
}

impl Default for ZeusEngineOptions {
    fn default() -> ZeusEngineOptions {
        ZeusEngineOptions {
            limits: Limits { begins_max: BEGINS_MAX, ..Limits::default() },
            protocol: ZeusOptions::DEFAULT,
            pending_wait_max: Duration::from_millis(10),
            moves_within: Duration::from_millis(100),
        }
    }
}
