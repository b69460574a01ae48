//! The frames between nodes.

use bytes::Bytes;
use shoal_cluster::manager::{ToManager, ToNode};
use shoal_node::WorkerMessage;
use shoal_raft::{LogMembers, Volume};
use shoal_types::wire::Coded;

/// A frame between workers. All but messages of engines and streams go between the first workers of two
/// nodes.
#[derive(Debug, Clone, Coded)]
pub(crate) enum Envelope<M> {
    /// From worker to worker.
    #[coded(tag = 0)]
    Worker(WorkerMessage<M>),
    /// From a node to a manager.
    #[coded(tag = 1)]
    ToManager {
        /// The version of the list of managers that the node has. A receiver with a later one answers with
        /// that.
        #[coded(short)]
        version: u64,
        /// What it says.
        message: ToManager,
    },
    /// From a manager to a node.
    #[coded(tag = 2)]
    ToNode(ToNode),
    /// From manager inbox to manager inbox: a request.
    #[coded(tag = 3)]
    Ask {
        /// Counts the requests of the sender's process.
        #[coded(short)]
        number: u64,
        /// The request.
        question: RpcRequest,
    },
    /// From manager inbox to manager inbox: the reply.
    #[coded(tag = 4)]
    Answer {
        /// The number of the request.
        #[coded(short)]
        number: u64,
        /// The reply.
        answer: RpcReply,
    },
    /// From manager inbox to manager inbox: the list of managers that the sender has. A receiver with a later
    /// one answers with that.
    #[coded(tag = 5)]
    Members(LogMembers),
}

/// A request of one manager inbox to another.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub(crate) enum RpcRequest {
    /// A request of the log of a manager to that of another.
    #[coded(tag = 0)]
    Log(Bytes),
    /// Host a manager, with an empty log unless there is one, and return its volume. Harmless if repeated.
    #[coded(tag = 1)]
    Host {
        /// Only if the log outlives the process.
        on_disk: bool,
    },
}

/// The reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub(crate) enum RpcReply {
    /// The answer to `Log`.
    #[coded(tag = 0)]
    Log(Bytes),
    /// To `Host`: there is one.
    #[coded(tag = 1)]
    Hosts(Hosting),
    /// To `Host`: it would be in memory.
    #[coded(tag = 2)]
    InMemory,
    /// To `Host`: the node cannot host one, for this reason.
    #[coded(tag = 3)]
    CannotHost(String),
}

/// The log of a manager that a node hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub(crate) struct Hosting {
    /// The volume that the log belongs to.
    pub(crate) volume: Volume,
    /// Whether the log is empty and the node knows of no cluster.
    pub(crate) is_new: bool,
}

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
        let other_process = ToNode::OtherProcess {
            instance: ProcessInstance(5),
            incarnation: Incarnation(2),
            admitted: ProcessInstance(4),
        };
        let join =
            ToManager::Join { instance: ProcessInstance(5), after: Incarnation(2), lost: true };
        let bytes = Bytes::from_static(b"x");
        let manager_client = LogMember { node: NodeId(1), volume: Volume(7) };
        let members = LogMembers { version: 8, voters: vec![manager_client], learners: vec![] };
        let hosting = Hosting { volume: Volume(7), is_new: true };
        let frames = [
            Frame::ToManager { version: 3, message: join },
            Frame::ToNode(other_process),
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
