//! The messages of `tiga` in recorded conversations. Its traces are those of the crate's own scripts.

use super::engines::{Tiga, TigaEngineMessage, TigaEngineOptions, TigaObservation, TracedEngine};
use super::messages::{apply_limits, show_relay};
use shoal_golden::Words;
use shoal_types::{Epoch, ShardId};
use std::time::Duration;

impl TracedEngine for Tiga {
    fn options(words: &Words<'_>) -> TigaEngineOptions {
        let mut options = TigaEngineOptions::default();
        // The nodes of a script are near, and votes have a form, too.
        options.protocol.by_log_within = Duration::ZERO;
        apply_limits(&mut options.limits, words);
        options
    }

    fn observe(_: &TigaObservation, _: bool) -> Option<String> {
        None
    }

    fn show(message: &TigaEngineMessage) -> String {
        match message {
            TigaEngineMessage::Protocol(message) => format!("{message:?}"),
            TigaEngineMessage::Relay(relay) => show_relay(relay),
            TigaEngineMessage::SnapshotPart(part) => format!("{part:?}"),
            TigaEngineMessage::SnapshotPartTaken { shard, reached, .. } => {
                format!("SnapshotPartTaken {shard}{}", if reached.is_none() { ", all" } else { "" })
            }
        }
    }

    /// Messages are about transactions, which have parts on shards.
    fn shard(_: &TigaEngineMessage) -> Option<ShardId> {
        None
    }

    fn repeats(_: &TigaEngineMessage) -> Option<Epoch> {
        None
    }
}
