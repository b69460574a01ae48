//! The messages of `mako` in traces.

use super::engines::{
    Mako, MakoMessage, MakoObservation, MakoOptions, MakoReply, MakoRequest, StampForm,
    TracedEngine,
};
use super::messages::{
    apply_limits, branch, show_operations, show_relay, show_results, show_stamp, show_watermark,
};
use super::observations::show_mako;
use shoal_golden::Words;
use shoal_types::{Clock, Epoch, ShardId};
use std::time::Duration;

impl TracedEngine for Mako {
    fn options(words: &Words<'_>) -> MakoOptions {
        let mut options = MakoOptions {
            batch_gap: Duration::ZERO,
            gossip_gap: Duration::ZERO,
            hang_after: Duration::from_millis(10),
            stalled_after: Duration::from_millis(60),
            ..MakoOptions::default()
        };
        if let Some(remote_max) = words.named("stamps") {
            options.stamps = StampForm::Sparse { remote_max };
        }
        apply_limits(&mut options.limits, words);
        options
    }

    fn observe(seen: &MakoObservation, replay: bool) -> Option<String> {
        show_mako(seen, replay)
    }

    fn show(message: &MakoMessage) -> String {
        match message {
            MakoMessage::Request { header, request } => {
                let branch = branch(header.transaction, header.shard, header.step);
                match request {
                    MakoRequest::Execute { operations } => {
                        format!("Execute {branch}{}", show_operations(operations))
                    }
                    MakoRequest::Lock { operations, validate } => {
                        let validate = if *validate { " and validate" } else { "" };
                        format!("Lock {branch}{validate}{}", show_operations(operations))
                    }
                    MakoRequest::Validate { last } => {
                        format!("Validate {branch}{}", if *last { ", the last" } else { "" })
                    }
                    MakoRequest::Commit { operations, install } => {
                        let read_only = if *install { "" } else { ", writes nothing" };
                        format!("Commit {branch}{read_only}{}", show_operations(operations))
                    }
                    MakoRequest::Install { stamp } => {
                        format!("Install {branch} at {}", show_stamp(stamp))
                    }
                    MakoRequest::Abort => format!("Abort {branch}"),
                }
            }
            MakoMessage::Reply { transaction, shard, step, reply } => {
                let branch = branch(*transaction, *shard, *step);
                match reply {
                    MakoReply::Executed { answers, dependencies } => {
                        let answers = show_results(answers);
                        format!("Executed {branch} {answers} after {}", show_stamp(dependencies))
                    }
                    MakoReply::Locked { clock, dependencies } => {
                        format!("Locked {branch} clock={clock} after {}", show_stamp(dependencies))
                    }
                    MakoReply::Validated => format!("Validated {branch}"),
                    MakoReply::Certified { stamp } => {
                        format!("Certified {branch} at {}", show_stamp(stamp))
                    }
                    MakoReply::Resolved => format!("Resolved {branch}"),
                    MakoReply::Refused { error } => format!("Refused {branch}: {error}"),
                }
            }
            MakoMessage::Relay(relay) => show_relay(relay),
            MakoMessage::Gossip { watermark, ended, floor } => {
                let ended = ended.iter().map(|shard| format!(" {shard} ended"));
                let floor = match *floor {
                    Clock::ZERO => String::new(),
                    floor => format!(" floor={floor}"),
                };
                format!("Gossip {}{}{floor}", show_watermark(watermark), ended.collect::<String>())
            }
            MakoMessage::Chunk(chunk) => {
                let rows = chunk.contents.rows.iter().map(|row| {
                    let (key, value) = (row.key.escape_ascii(), row.value.escape_ascii());
                    format!("{key}={value} at {}:{}", row.epoch, row.clock)
                });
                let undecided = chunk.contents.undecided.iter().map(|row| {
                    format!("{} undecided at {}", row.key.escape_ascii(), show_stamp(&row.stamp))
                });
                let rows = rows.chain(undecided).collect::<Vec<_>>().join(", ");
                let last = if chunk.until.is_none() { ", the last" } else { "" };
                format!("Chunk {} cut={} [{rows}]{last}", chunk.shard, chunk.cut)
            }
            MakoMessage::ChunkTaken { shard, reached, .. } => {
                format!("ChunkTaken {shard}{}", if reached.is_none() { ", all" } else { "" })
            }
        }
    }

    fn shard(message: &MakoMessage) -> Option<ShardId> {
        match message {
            MakoMessage::Request { header, .. } => Some(header.shard),
            MakoMessage::Reply { shard, .. } | MakoMessage::ChunkTaken { shard, .. } => {
                Some(*shard)
            }
            MakoMessage::Chunk(chunk) => Some(chunk.shard),
            MakoMessage::Relay(_) | MakoMessage::Gossip { .. } => None,
        }
    }

    fn repeats(message: &MakoMessage) -> Option<Epoch> {
        match message {
            MakoMessage::Gossip { watermark, .. } => Some(watermark.epoch()),
            _ => None,
        }
    }
}
