//! The messages of `zeus` in traces.

use super::engines::{TracedEngine, Zeus, ZeusEngineMessage, ZeusEngineOptions, ZeusObservation};
use super::messages::{apply_limits, show_relay};
use shoal_golden::Words;
use shoal_types::{Epoch, ShardId};
use shoal_zeus::ShownRow;

impl TracedEngine for Zeus {
    fn options(words: &Words<'_>) -> ZeusEngineOptions {
        let mut options = ZeusEngineOptions::default();
        apply_limits(&mut options.limits, words);
        if let Some(bytes) = words.named("part") {
            options.protocol.part_bytes = bytes;
        }
        options
    }

    fn observe(seen: &ZeusObservation, replay: bool) -> Option<String> {
        match seen {
            ZeusObservation::Serves { shard, .. } => Some(format!("serves {shard}")),
            // Answers and messages show the same.
            ZeusObservation::Transaction { .. } | ZeusObservation::Forgotten => None,
            ZeusObservation::Granule { granule, level, record, rows, .. } => {
                let rows: String = rows.iter().map(show_row).collect();
                let name = granule.prefix.escape_ascii();
                replay.then(|| format!("has \"{name}\" as {level:?} {record}{rows}"))
            }
        }
    }

    fn show(message: &ZeusEngineMessage) -> String {
        match message {
            ZeusEngineMessage::Protocol(messages) => {
                let each: Vec<String> = messages.iter().map(ToString::to_string).collect();
                each.join("; ")
            }
            ZeusEngineMessage::Relay(relay) => show_relay(relay),
        }
    }

    /// Messages are about granules.
    fn shard(_: &ZeusEngineMessage) -> Option<ShardId> {
        None
    }

    fn repeats(_: &ZeusEngineMessage) -> Option<Epoch> {
        None
    }
}

/// A row, with a question mark while it is not validated.
fn show_row(ShownRow { key: (_, key), row }: &ShownRow) -> String {
    let key = key.escape_ascii();
    let Some(row) = row else { return format!(" {key} gone") };
    let pending = if row.is_valid { "" } else { "?" };
    match &row.value {
        Some(value) => format!(" {key}={}{pending}", value.escape_ascii()),
        None => format!(" {key} deleted{pending}"),
    }
}
