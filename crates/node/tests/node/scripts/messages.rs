//! What messages of all engines are made of, in traces: operations, answers, stamps; and the messages of streams.

use super::engines::{Operation, OperationResult, Relay, TracedEngine, TransactionId};
use bytes::Bytes;
use shoal_cluster::manager::{ToManager, ToNode};
use shoal_engine::client::{ReplyToClient, RequestFromClient};
use shoal_engine::execution::Limits;
use shoal_golden::Words;
use shoal_log::StreamMessage;
use shoal_node::WorkerMessage;
use shoal_types::{Clock, NodeId, Result, ShardId, Stamp, VectorWatermark};
use std::fmt::Debug;
use std::time::Duration;

/// What scripts change of the limits: a transaction that meets a conflict ends, unless the script says how often it is run.
pub fn apply_limits(limits: &mut Limits, words: &Words<'_>) {
    limits.attempts_max = words.named("attempts").unwrap_or(1);
    limits.retry_after = Duration::from_millis(20);
    limits.shard_wait_max = Duration::from_millis(words.named("wait").unwrap_or(2500));
}

pub fn show_transaction(id: TransactionId) -> String {
    format!("{}.{}", id.node, id.sequence)
}

/// A request or an answer: whose, where, and which.
pub fn branch(transaction: TransactionId, shard: ShardId, step: u32) -> String {
    format!("{} {shard} #{step}", show_transaction(transaction))
}

pub fn show_row((key, value): &(Bytes, Bytes)) -> String {
    format!("{}={}", key.escape_ascii(), value.escape_ascii())
}

fn show_operation(operation: &Operation) -> String {
    match operation {
        Operation::Get { key, .. } => format!("get {}", key.escape_ascii()),
        Operation::Scan { .. } => "scan".to_owned(),
        Operation::Put { key, value: Some(value), .. } => {
            format!("put {} {}", key.escape_ascii(), value.escape_ascii())
        }
        Operation::Put { key, value: None, .. } => format!("delete {}", key.escape_ascii()),
        Operation::Insert { key, value, .. } => {
            format!("insert {} {}", key.escape_ascii(), value.escape_ascii())
        }
    }
}

/// Nothing where there are none.
pub fn show_operations(operations: &[Operation]) -> String {
    if operations.is_empty() {
        return String::new();
    }
    let operations: Vec<_> = operations.iter().map(show_operation).collect();
    format!(" [{}]", operations.join(", "))
}

fn show_result(result: &Result<OperationResult>) -> String {
    let rows = |rows: &[(Bytes, Bytes)]| rows.iter().map(show_row).collect::<Vec<_>>().join(" ");
    match result {
        Ok(OperationResult::Value(Some(value))) => value.escape_ascii().to_string(),
        Ok(OperationResult::Value(None)) => "none".to_owned(),
        Ok(OperationResult::Rows(found)) => format!("rows {}", rows(found)),
        Ok(OperationResult::Page(found)) => format!("rows {} and more", rows(found)),
        Ok(OperationResult::Done) => "done".to_owned(),
        Ok(OperationResult::Later) => "later".to_owned(),
        Err(error) => error.to_string(),
    }
}

pub fn show_results(results: &[Result<OperationResult>]) -> String {
    format!("[{}]", results.iter().map(show_result).collect::<Vec<_>>().join(", "))
}

/// The epoch and the clock of the shard that keeps it, and the clocks of others.
pub fn show_stamp(stamp: &Stamp) -> String {
    let remote = stamp.as_ref().remote.iter().map(|entry| match entry.shard {
        ShardId::EVERY => format!("+all:{}", entry.clock),
        shard => format!("+{shard}:{}", entry.clock),
    });
    format!("{}:{}{}", stamp.epoch, stamp.clock, remote.collect::<String>())
}

pub fn show_clock(clock: Clock) -> String {
    match clock {
        Clock::MAX => "inf".to_owned(),
        clock => clock.to_string(),
    }
}

/// One clock for each shard.
pub fn show_watermark(watermark: &VectorWatermark) -> String {
    let shards = (0..watermark.shards() as u32).map(ShardId);
    let clocks: Vec<_> = shards.map(|shard| show_clock(watermark.of(shard))).collect();
    format!("{}:[{}]", watermark.epoch(), clocks.join(" "))
}

pub fn show_relay(relay: &Relay) -> String {
    match relay {
        Relay::Request(RequestFromClient { request, .. }) => format!("Relay {request:?}"),
        Relay::Reply(ReplyToClient { reply, .. }) => format!("Relay {reply:?}"),
    }
}

/// What a worker says to another one, in one line, which begins with the kind of message.
pub fn show_worker_message<E: TracedEngine>(message: &WorkerMessage<E::Message>) -> String {
    match message {
        WorkerMessage::Engine { message, .. } => E::show(message),
        WorkerMessage::Stream { shard, message, .. } => {
            let text = show_stream(message, |entry| E::describe_entry(*shard, entry));
            let (kind, rest) = text.split_once(' ').expect("a ballot");
            format!("{kind} {shard} {rest}")
        }
    }
}

/// The variant of a message.
fn kind_of(message: &impl Debug) -> String {
    format!("{message:?}").chars().take_while(|c| c.is_alphanumeric()).collect()
}

pub fn to_manager_text(from: NodeId, message: &ToManager) -> String {
    let kind = match message {
        ToManager::Request { request, .. } => kind_of(request),
        ToManager::Heartbeat { .. }
        | ToManager::Join { .. }
        | ToManager::Recalled { .. }
        | ToManager::ChangeTable { .. } => kind_of(message),
    };
    format!("{from} → manager {kind}")
}

pub fn to_node_text(to: NodeId, message: &ToNode) -> String {
    format!("manager → {to} {}", kind_of(message))
}

/// A message of a stream; `describe` says what an entry holds.
pub fn show_stream(message: &StreamMessage, describe: impl Fn(&Bytes) -> String) -> String {
    let entries = |entries: &[Bytes]| {
        entries.iter().map(|entry| format!(" {}", describe(entry))).collect::<String>()
    };
    match message {
        StreamMessage::Prepare { ballot, accepted_ballot, accepted, decided } => {
            format!("Prepare {ballot} has={accepted_ballot}:{accepted} decided={decided}")
        }
        StreamMessage::Promise {
            ballot,
            accepted_ballot,
            accepted,
            decided,
            from,
            entries: e,
            votes,
        } => {
            let votes = if *votes { "" } else { " voteless" };
            let has = format!("has={accepted_ballot}:{accepted} decided={decided}");
            format!("Promise {ballot} {has} from={from}{votes}{}", entries(e))
        }
        StreamMessage::Fetch { ballot, from, .. } => format!("Fetch {ballot} from={from}"),
        StreamMessage::Append { ballot, prev, entries: e, decided, .. } => {
            format!("Append {ballot} prev={prev} decided={decided}{}", entries(e))
        }
        StreamMessage::Accepted { ballot, length, votes, .. } => {
            let votes = if *votes { "" } else { " voteless" };
            format!("Accepted {ballot} length={length}{votes}")
        }
        StreamMessage::Decide { ballot, decided, .. } => {
            format!("Decide {ballot} decided={decided}")
        }
        StreamMessage::Snapshot { ballot, length, .. } => {
            format!("Snapshot {ballot} length={length}")
        }
        StreamMessage::Rejected { ballot, promised } => {
            format!("Rejected {ballot} promised={promised}")
        }
    }
}
