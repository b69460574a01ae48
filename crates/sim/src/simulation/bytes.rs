//! How many bytes of data a message carries, for what they cost. All that is large goes through streams, in copies of
//! shards, or in what coordinators and clients ask; headers cost nothing here.
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

/// What a worker reads.
pub(super) fn of_event<M>(event: &WorkerEvent<M>) -> u64 {
    match event {
        WorkerEvent::Received { message, .. } => of_message(message),
        WorkerEvent::Client(asked) => match &asked.request {
            ClientRequest::Call { arguments, .. } => arguments.len() as u64,
            ClientRequest::Steps { operations, .. } => {
                operations.iter().map(|operation| operation.bytes() as u64).sum()
            }
            ClientRequest::Register | ClientRequest::OpenCalls { .. } => 0,
        },
        _ => 0,
    }
}

/// What a worker sends.
pub(super) fn of_effect<M>(effect: &WorkerEffect<M>) -> u64 {
    match effect {
        WorkerEffect::Send { message, .. } => of_message(message),
        _ => 0,
    }
}
