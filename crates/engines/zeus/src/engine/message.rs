//! What workers of `zeus` say to each other.

use crate::message::ZeusMessage;
use shoal_engine::WorkerPlace;
use shoal_engine::client::Relay;
use shoal_engine::engine::EngineEffect;
use shoal_engine::execution::participant_table::BranchHeader;
use shoal_engine::execution::runtime::RuntimeMessage;
use shoal_types::wire::Coded;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// So many messages travel together at most.
const TOGETHER_MAX: usize = 128;

/// Messages that travel together have no more bytes of rows and records than this, unless one alone has: nothing else waits long
/// behind them.
const TOGETHER_BYTES_MAX: usize = 64 << 10;

/// A message between two workers.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum ZeusEngineMessage {
    /// Of the protocol, between nodes: any worker takes them, one after the other.
    #[coded(tag = 0)]
    Protocol(Vec<ZeusMessage>),
    /// Between the node that a client asked and the one that serves its call.
    #[coded(tag = 1)]
    Relay(Relay),
}

impl RuntimeMessage for ZeusEngineMessage {
    /// No operation is sent to another node: granules come here.
    type Request = Infallible;

    fn request(_: BranchHeader, request: Infallible) -> ZeusEngineMessage {
        match request {}
    }

    fn relay(relay: Relay) -> ZeusEngineMessage {
        ZeusEngineMessage::Relay(relay)
    }
}

/// The messages to a worker that travel together.
struct Together {
    /// Their place among the effects.
    at: usize,
    bytes: usize,
}

/// Puts the messages of a step that go to the same worker together. Its receiver takes them in one step, and so what answers
/// them travels together too: many granules that a transaction wants at once cost few frames. Each remains a message by
/// itself: the network may lose all of them, or repeat them, as it may with each.
pub(super) fn join(effects: &mut Vec<EngineEffect<ZeusEngineMessage>>) {
    let is_send = |effect: &&EngineEffect<_>| matches!(effect, EngineEffect::Send { .. });
    if effects.iter().filter(is_send).nth(1).is_none() {
        return;
    }
    let mut joined = Vec::with_capacity(effects.len());
    let mut open: BTreeMap<WorkerPlace, Together> = BTreeMap::new();
    for effect in effects.drain(..) {
        let EngineEffect::Send { to, message: ZeusEngineMessage::Protocol(messages) } = effect
        else {
            joined.push(effect);
            continue;
        };
        let bytes: usize = messages.iter().map(|message| message.body.bytes_carried()).sum();
        if let Some(together) = open.get_mut(&to)
            && together.bytes + bytes <= TOGETHER_BYTES_MAX
            && let Some(EngineEffect::Send { message: ZeusEngineMessage::Protocol(others), .. }) =
                joined.get_mut(together.at)
            && others.len() < TOGETHER_MAX
        {
            together.bytes += bytes;
            others.extend(messages);
            continue;
        }
        open.insert(to, Together { at: joined.len(), bytes });
        joined.push(EngineEffect::Send { to, message: ZeusEngineMessage::Protocol(messages) });
    }
    *effects = joined;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GranuleId;
    use crate::message::{MessageBody, OwnershipRequest};
    use crate::record::{OwnershipTs, RequestKind};
    use bytes::Bytes;
    use shoal_types::{Epoch, NodeId, TableId, Time, WorkerId};
    use std::time::Duration;

    fn request(to: u32, number: u64) -> EngineEffect<ZeusEngineMessage> {
        let granule = GranuleId { family: TableId(0), prefix: Bytes::from_static(b"g") };
        let body = MessageBody::Request(OwnershipRequest {
            number,
            granule,
            kind: RequestKind::Own,
            as_of: OwnershipTs::default(),
            waited: Duration::ZERO,
        });
        let message = ZeusEngineMessage::Protocol(vec![ZeusMessage { epoch: Epoch(1), body }]);
        EngineEffect::Send { to: WorkerPlace { node: NodeId(to), worker: WorkerId(0) }, message }
    }

    /// How many messages each effect has, in order; 0 where it sends none.
    fn counts(effects: &[EngineEffect<ZeusEngineMessage>]) -> Vec<usize> {
        let count = |effect: &EngineEffect<ZeusEngineMessage>| match effect {
            EngineEffect::Send { message: ZeusEngineMessage::Protocol(messages), .. } => {
                messages.len()
            }
            _ => 0,
        };
        effects.iter().map(count).collect()
    }

    #[test]
    fn what_goes_to_one_worker_travels_together_in_order() {
        let mut effects = vec![
            request(1, 1),
            EngineEffect::Timer { at: Time(3) },
            request(2, 2),
            request(1, 3),
            request(1, 4),
        ];
        join(&mut effects);
        assert_eq!(counts(&effects), [3, 0, 1]);
        let EngineEffect::Send { message: ZeusEngineMessage::Protocol(messages), .. } = &effects[0]
        else {
            panic!("it was sent")
        };
        let numbers = messages.iter().map(|message| match &message.body {
            MessageBody::Request(request) => request.number,
            _ => 0,
        });
        assert_eq!(numbers.collect::<Vec<_>>(), [1, 3, 4]);
    }

    #[test]
    fn no_more_travel_together_than_is_said() {
        let mut effects: Vec<_> = (0..300).map(|number| request(1, number)).collect();
        join(&mut effects);
        assert_eq!(counts(&effects), [TOGETHER_MAX, TOGETHER_MAX, 300 - 2 * TOGETHER_MAX]);
    }
}
