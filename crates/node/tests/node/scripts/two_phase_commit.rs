//! The messages of `two_phase_commit` in traces.

use super::engines::{
    TracedEngine, TwoPhaseCommit, TwoPhaseCommitMessage, TwoPhaseCommitOptions,
    TwoPhaseCommitReply, TwoPhaseCommitRequest,
};
use super::messages::{apply_limits, branch, show_operations, show_relay, show_results};
use shoal_golden::Words;
use shoal_types::{Epoch, ShardId};
use std::time::Duration;

impl TracedEngine for TwoPhaseCommit {
    fn options(words: &Words<'_>) -> TwoPhaseCommitOptions {
        let mut options =
            TwoPhaseCommitOptions { batch_gap: Duration::ZERO, ..TwoPhaseCommitOptions::default() };
        apply_limits(&mut options.limits, words);
        options
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
                        format!("Prepare {branch} home={home}{}", show_operations(operations))
                    }
                    TwoPhaseCommitRequest::Validate => format!("Validate {branch}"),
                    TwoPhaseCommitRequest::OnePhase { operations, install } => {
                        let read_only = if *install { "" } else { ", writes nothing" };
                        format!("OnePhase {branch}{read_only}{}", show_operations(operations))
                    }
                    TwoPhaseCommitRequest::Commit => format!("Commit {branch}"),
                    TwoPhaseCommitRequest::Abort => format!("Abort {branch}"),
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
        }
    }

    fn shard(message: &TwoPhaseCommitMessage) -> Option<ShardId> {
        match message {
            TwoPhaseCommitMessage::Request { header, .. } => Some(header.shard),
            TwoPhaseCommitMessage::Reply { shard, .. } => Some(*shard),
            TwoPhaseCommitMessage::Relay(_) => None,
        }
    }

    fn repeats(_: &TwoPhaseCommitMessage) -> Option<Epoch> {
        None
    }
}
