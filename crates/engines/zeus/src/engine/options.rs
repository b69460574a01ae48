//! The configuration of the engine.

use crate::options::ZeusOptions;
use shoal_engine::execution::Limits;
use std::time::Duration;

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

impl Default for ZeusEngineOptions {
    fn default() -> ZeusEngineOptions {
        ZeusEngineOptions {
            limits: Limits::default(),
            protocol: ZeusOptions::DEFAULT,
            pending_wait_max: Duration::from_millis(10),
            moves_within: Duration::from_millis(100),
        }
    }
}
