//! What a frame from node to node says.

use bytes::Bytes;
use consensus::manager::{ToManager, ToNode};
use node::Message;
use types::coded_enum;

/// The content of a frame between workers of the same number. Everything but what workers say to each other
/// goes between the first workers.
#[derive(Debug, Clone)]
pub(crate) enum Envelope<M> {
    /// From worker to worker.
    Worker(Message<M>),
    /// From a node's member of the cluster to a manager.
    ToManager(ToManager),
    /// From a manager to a node's member.
    ToNode(ToNode),
    /// From manager to manager: what the log of one asks that of the other.
    Ask {
        /// Counts what the sender has asked in this life.
        number: u64,
        /// What.
        request: Bytes,
    },
    /// From manager to manager: the answer.
    Answer {
        /// Which question.
        number: u64,
        /// What was answered.
        response: Bytes,
    },
}

coded_enum!(Envelope<M> {
    0 => Worker(message),
    1 => ToManager(message),
    2 => ToNode(message),
    3 => Ask { number as short, request },
    4 => Answer { number as short, response },
});

#[cfg(test)]
mod tests {
    use super::*;
    use consensus::manager::{Incarnation, Life};
    use engines::mako;
    use types::wire::check::withstands;
    use types::wire::{decode, encode};

    type Frame = Envelope<mako::Message>;

    #[test]
    fn forms_stay_as_they_are() {
        let stranger = ToNode::Stranger { life: Life(5), incarnation: Incarnation(2) };
        let join = ToManager::Join { life: Life(5), after: Incarnation(2), lost: true };
        let bytes = Bytes::from_static(b"x");
        let frames = [
            Frame::ToManager(join),
            Frame::ToNode(stranger),
            Frame::Ask { number: 300, request: bytes.clone() },
            Frame::Answer { number: 1, response: bytes },
        ];
        let firsts = frames.iter().map(|frame| encode(frame)[0]);
        assert_eq!(firsts.collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(encode(&frames[2])[..], [3, 0xac, 2, 1, b'x']);
        for frame in &frames {
            let back: Frame = decode(&encode(frame)).expect("as it was");
            assert_eq!(format!("{back:?}"), format!("{frame:?}"));
        }
        (0..6_u8).for_each(|first| withstands::<Frame>(&Bytes::from(vec![first; 40])));
    }
}
