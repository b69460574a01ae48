//! What a frame from node to node says.

use bytes::Bytes;
use shoal_cluster::manager::{ToManager, ToNode};
use shoal_node::WorkerMessage;
use shoal_raft::{LogMembers, Volume};
use shoal_types::{coded_enum, coded_struct};

/// The content of a frame between workers. Everything but what workers say to each other goes between the first workers of
/// two nodes.
#[derive(Debug, Clone)]
pub(crate) enum Envelope<M> {
    /// From worker to worker.
    Worker(WorkerMessage<M>),
    /// From a node's member of the cluster to a manager.
    ToManager {
        /// Which list of managers the node has. Who has a later one answers with that.
        version: u64,
        /// What it says.
        message: ToManager,
    },
    /// From a manager to a node's member.
    ToNode(ToNode),
    /// From manager inbox to manager inbox: a question.
    Ask {
        /// Counts what the sender has asked in this process.
        number: u64,
        /// The request to the other inbox.
        question: RpcRequest,
    },
    /// From manager inbox to manager inbox: the answer.
    Answer {
        /// Which question.
        number: u64,
        /// What was answered.
        answer: RpcReply,
    },
    /// From manager inbox to manager inbox: who the managers are, as far as the sender knows. Who knows more answers with that.
    Members(LogMembers),
}

/// What one manager inbox asks another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RpcRequest {
    /// The log of a manager asks that of another one.
    Log(Bytes),
    /// Host a manager, with an empty log unless there is one, and say which. Harmless if repeated.
    Host {
        /// Only if the log outlives the process.
        on_disk: bool,
    },
}

/// What it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RpcReply {
    /// To `Log`.
    Log(Bytes),
    /// To `Host`: there is one.
    Hosts(Hosting),
    /// To `Host`: it would be in memory.
    InMemory,
    /// To `Host`: there cannot be one, for this reason.
    CannotHost(String),
}

/// The log of a manager that a node hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hosting {
    /// Which volume it is.
    pub(crate) volume: Volume,
    /// It was never told anything, and its node has never heard of a cluster.
    pub(crate) is_new: bool,
}

coded_enum!(RpcRequest {
    0 => Log(request),
    1 => Host { on_disk },
});

coded_enum!(RpcReply {
    0 => Log(response),
    1 => Hosts(hosting),
    2 => InMemory,
    3 => CannotHost(why),
});

coded_struct!(Hosting { volume: Volume, is_new: bool });

coded_enum!(Envelope<M> {
    0 => Worker(message),
    1 => ToManager { version as short, message },
    2 => ToNode(message),
    3 => Ask { number as short, question },
    4 => Answer { number as short, answer },
    5 => Members(members),
});

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::manager::{Incarnation, ProcessInstance};
    use shoal_raft::LogMember;
    use shoal_types::NodeId;
    use shoal_types::wire::check::withstands;
    use shoal_types::wire::{decode, encode};

    type Frame = Envelope<shoal_mako::MakoMessage>;

    #[test]
    fn forms_stay_as_they_are() {
        let stranger =
            ToNode::Stranger { instance: ProcessInstance(5), incarnation: Incarnation(2) };
        let join =
            ToManager::Join { instance: ProcessInstance(5), after: Incarnation(2), lost: true };
        let bytes = Bytes::from_static(b"x");
        let manager_client = LogMember { node: NodeId(1), volume: Volume(7) };
        let members = LogMembers { version: 8, voters: vec![manager_client], learners: vec![] };
        let hosting = Hosting { volume: Volume(7), is_new: true };
        let frames = [
            Frame::ToManager { version: 3, message: join },
            Frame::ToNode(stranger),
            Frame::Ask { number: 300, question: RpcRequest::Log(bytes.clone()) },
            Frame::Answer { number: 1, answer: RpcReply::Log(bytes) },
            Frame::Members(members),
            Frame::Ask { number: 2, question: RpcRequest::Host { on_disk: true } },
            Frame::Answer { number: 2, answer: RpcReply::Hosts(hosting) },
            Frame::Answer { number: 2, answer: RpcReply::InMemory },
            Frame::Answer { number: 2, answer: RpcReply::CannotHost("no room".to_owned()) },
        ];
        let firsts = frames.iter().map(|frame| encode(frame)[0]);
        assert_eq!(firsts.collect::<Vec<_>>(), [1, 2, 3, 4, 5, 3, 4, 4, 4]);
        assert_eq!(encode(&frames[2])[..], [3, 0xac, 2, 0, 1, b'x']);
        for frame in &frames {
            let back: Frame = decode(&encode(frame)).expect("as it was");
            assert_eq!(format!("{back:?}"), format!("{frame:?}"));
        }
        (0..7_u8).for_each(|first| withstands::<Frame>(&Bytes::from(vec![first; 40])));
    }
}
