//! How many bytes of data a message carries, for what they cost. All that is large goes through streams, in copies of
//! shards, or in what coordinators and clients ask; headers cost nothing here.

use consensus::stream;
use engines::client::Request;
use node::{Effect, Event, Message};

fn of_message<M>(message: &Message<M>) -> u64 {
    let Message::Stream { message, .. } = message else { return 0 };
    match message {
        stream::Message::Append { entries, .. } | stream::Message::Promise { entries, .. } => {
            entries.iter().map(|entry| entry.len() as u64).sum()
        }
        stream::Message::Snapshot { state, .. } => state.len() as u64,
        _ => 0,
    }
}

/// What a worker reads.
pub(super) fn of_event<M>(event: &Event<M>) -> u64 {
    match event {
        Event::Received { message, .. } => of_message(message),
        Event::Client { request: Request::Call { arguments, .. }, .. } => arguments.len() as u64,
        Event::Client { request: Request::Operation { operation, .. }, .. } => {
            operation.bytes() as u64
        }
        _ => 0,
    }
}

/// What a worker sends.
pub(super) fn of_effect<M>(effect: &Effect<M>) -> u64 {
    match effect {
        Effect::Send { message, .. } => of_message(message),
        _ => 0,
    }
}
