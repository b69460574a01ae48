//! The number of data bytes in a message, for pricing. Large amounts of data are only in stream entries,
//! copies of shards, and requests of coordinators and clients; headers are not counted.
use shoal_engine::client::ClientRequest;
use shoal_node::{WorkerEffect, WorkerEvent, WorkerMessage};

fn of_message<M>(message: &WorkerMessage<M>) -> u64 {
    let WorkerMessage::Stream { message, .. } = message else { return 0 };
    match message {
        shoal_log::StreamMessage::Append { entries, .. }
        | shoal_log::StreamMessage::Promise { entries, .. } => {
            entries.iter().map(|entry| entry.len() as u64).sum()
        }
        shoal_log::StreamMessage::Snapshot { state, .. } => state.len() as u64,
        _ => 0,
    }
}

/// The data bytes of an event that a worker takes.
pub(super) fn of_event<M>(event: &WorkerEvent<M>) -> u64 {
    match event {
        WorkerEvent::Received { message, .. } => of_message(message),
        WorkerEvent::Client(asked) => match &asked.request {
            ClientRequest::Call { arguments, .. } => arguments.len() as u64,
            ClientRequest::Steps { operations, .. } => {
                operations.iter().map(|operation| operation.bytes() as u64).sum()
            }
            ClientRequest::Register
            | ClientRequest::OpenCalls { .. }
            | ClientRequest::Resolve { .. }
            | ClientRequest::ChangeTable { .. } => 0,
        },
        _ => 0,
    }
}

/// The data bytes of an effect of a worker's step.
pub(super) fn of_effect<M>(effect: &WorkerEffect<M>) -> u64 {
    match effect {
        WorkerEffect::Send { message, .. } => of_message(message),
        _ => 0,
    }
}
