//! The messages of `two_phase_commit` in traces.

use super::engines::{
    TracedEngine, TwoPhaseCommit, TwoPhaseCommitMessage, TwoPhaseCommitObservation,
    TwoPhaseCommitOptions, TwoPhaseCommitReply, TwoPhaseCommitRequest,
};
use super::messages::show_transaction;
use super::messages::{apply_limits, branch, show_operations, show_relay, show_results};
use super::observations::show_two_phase_commit;
use shoal_golden::Words;
use shoal_two_phase_commit::message::{DecisionHome, SnapshotWrite};
use shoal_types::{Epoch, ShardId};
use std::time::Duration;

impl TracedEngine for TwoPhaseCommit {
    fn options(words: &Words<'_>) -> TwoPhaseCommitOptions {
        let mut options =
            TwoPhaseCommitOptions { batch_gap: Duration::ZERO, ..TwoPhaseCommitOptions::default() };
        apply_limits(&mut options.limits, words);
        if let Some(rows) = words.named("part") {
            options.snapshot_part.records_max = rows;
        }
        options
    }

    fn observe(seen: &TwoPhaseCommitObservation, replay: bool) -> Option<String> {
        show_two_phase_commit(seen, replay)
    }

    fn show(message: &TwoPhaseCommitMessage) -> String {
        match message {
            TwoPhaseCommitMessage::Request { header, request } => {
                let branch = branch(header.transaction, header.shard, header.step);
                match request {
                    TwoPhaseCommitRequest::Execute { operations } => {
                        format!("Execute {branch}{}", show_operations(operations))
                    }
                    TwoPhaseCommitRequest::Lock { operations } => {
                        format!("Lock {branch}{}", show_operations(operations))
                    }
                    TwoPhaseCommitRequest::Prepare { operations, home } => {
                        format!(
                            "Prepare {branch} home={}{}",
                            show_home(home),
                            show_operations(operations)
                        )
                    }
                    TwoPhaseCommitRequest::Validate => format!("Validate {branch}"),
                    TwoPhaseCommitRequest::OnePhase { operations, install } => {
                        let read_only = if *install { "" } else { ", writes nothing" };
                        format!("OnePhase {branch}{read_only}{}", show_operations(operations))
                    }
                    TwoPhaseCommitRequest::Commit => format!("Commit {branch}"),
                    TwoPhaseCommitRequest::Abort => format!("Abort {branch}"),
                    TwoPhaseCommitRequest::DecideLast { participants } => {
                        let others: Vec<String> =
                            participants.iter().map(ShardId::to_string).collect();
                        format!("DecideLast {branch} others=[{}]", others.join(" "))
                    }
                }
            }
            TwoPhaseCommitMessage::Reply { transaction, shard, step, reply } => {
                let branch = branch(*transaction, *shard, *step);
                match reply {
                    TwoPhaseCommitReply::Executed { answers } => {
                        format!("Executed {branch} {}", show_results(answers))
                    }
                    TwoPhaseCommitReply::Locked { clock } => {
                        format!("Locked {branch} clock={clock}")
                    }
                    TwoPhaseCommitReply::Validated => format!("Validated {branch}"),
                    TwoPhaseCommitReply::Committed { clock: Some(clock) } => {
                        format!("Committed {branch} clock={clock}")
                    }
                    TwoPhaseCommitReply::Committed { clock: None } => {
                        format!("Committed {branch}")
                    }
                    TwoPhaseCommitReply::Resolved => format!("Resolved {branch}"),
                    TwoPhaseCommitReply::Refused { error } => format!("Refused {branch}: {error}"),
                }
            }
            TwoPhaseCommitMessage::Relay(relay) => show_relay(relay),
            TwoPhaseCommitMessage::Inquiry { transaction, home, participant } => {
                let of = show_transaction(*transaction);
                format!("Inquiry {of} home={} for {}", show_home(home), participant.shard)
            }
            TwoPhaseCommitMessage::Decision { transaction, home, participant, committed } => {
                let outcome = if *committed { "committed" } else { "aborted" };
                let of = show_transaction(*transaction);
                format!("Decision {of} home={home} for {}: {outcome}", participant.shard)
            }
            TwoPhaseCommitMessage::Acknowledgement { transaction, home, shard } => {
                format!("Acknowledgement {} home={home} of {shard}", show_transaction(*transaction))
            }
            TwoPhaseCommitMessage::Chunk(part) => {
                let rows = part.contents.rows.iter().map(|row| {
                    let (key, clock) = (row.key.escape_ascii(), row.clock);
                    match &row.value {
                        Some(value) => format!("{key}={} at {clock}", value.escape_ascii()),
                        None => format!("{key} deleted at {clock}"),
                    }
                });
                let writes =
                    part.contents.writes.iter().map(|SnapshotWrite { transaction, write }| {
                        format!("{write} of {}", show_transaction(*transaction))
                    });
                let rows = rows.chain(writes).collect::<Vec<_>>().join(", ");
                let last = if part.until.is_none() { ", the last" } else { "" };
                format!("Chunk {} cut={} [{rows}]{last}", part.shard, part.cut)
            }
            TwoPhaseCommitMessage::ChunkTaken { shard, reached, .. } => {
                format!("ChunkTaken {shard}{}", if reached.is_none() { ", all" } else { "" })
            }
        }
    }

    fn shard(message: &TwoPhaseCommitMessage) -> Option<ShardId> {
        match message {
            TwoPhaseCommitMessage::Request { header, .. } => Some(header.shard),
            TwoPhaseCommitMessage::Reply { shard, .. } => Some(*shard),
            TwoPhaseCommitMessage::Inquiry { participant, .. }
            | TwoPhaseCommitMessage::Decision { participant, .. } => Some(participant.shard),
            TwoPhaseCommitMessage::Acknowledgement { shard, .. }
            | TwoPhaseCommitMessage::ChunkTaken { shard, .. } => Some(*shard),
            TwoPhaseCommitMessage::Chunk(part) => Some(part.shard),
            TwoPhaseCommitMessage::Relay(_) => None,
        }
    }

    fn repeats(_: &TwoPhaseCommitMessage) -> Option<Epoch> {
        None
    }
}

fn show_home(home: &DecisionHome) -> String {
    format!("{} since {}", home.shard, home.leadership)
}
