//! The configuration of the engine.

use crate::options::TigaOptions;
use shoal_engine::execution::Limits;

/// How `tiga` behaves. The default does the right thing.
#[derive(Debug, Clone, Default)]
pub struct TigaEngineOptions {
    /// How transactions run until they commit.
    pub limits: Limits,
    /// The protocol between nodes.
    pub protocol: TigaOptions,
}
