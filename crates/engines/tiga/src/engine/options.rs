//! The configuration of the engine.

use crate::options::TigaOptions;
use shoal_engine::execution::Limits;
use shoal_replication::snapshot_transfer::PART;
use shoal_store::CopyPart;

/// How `tiga` behaves. The default does the right thing.
#[derive(Debug, Clone)]
pub struct TigaEngineOptions {
    /// How transactions run until they commit.
    pub limits: Limits,
    /// The protocol between nodes.
    pub protocol: TigaOptions,
    /// How much one part of a snapshot has, at most.
    pub snapshot_part: CopyPart,
}

impl Default for TigaEngineOptions {
    fn default() -> TigaEngineOptions {
        TigaEngineOptions {
            limits: Limits::default(),
            protocol: TigaOptions::default(),
            snapshot_part: PART,
        }
    }
}
