//! The requests of operators to a node, and the replies. Operators have proved to know the secret of the nodes.

use shoal_cluster::manager::{Loss, ReplacementStage};
use shoal_raft::ChangeError;
use shoal_types::wire::Coded;
use shoal_types::{Epoch, NodeId, ShardId};

/// A request of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum FromOperator {
    /// Replace the manager of `outgoing`, which may be dead, by one of `incoming`; if both are one node, by a
    /// manager with a new log in place of a lost one. To be repeated to the manager that leads until it is
    /// done: the change goes on for as long as it is requested. Harmless if repeated.
    #[coded(tag = 0)]
    ReplaceManager {
        /// The node whose manager is removed.
        outgoing: NodeId,
        /// The node that will host a manager in its place.
        incoming: NodeId,
    },
    /// Check whether the loss of the shard's majority may be accepted, and what survives. Changes nothing.
    #[coded(tag = 1)]
    CheckLoss {
        /// The shard that has lost the majority of its replicas.
        shard: ShardId,
    },
    /// Accept that the majority of the shard's voters is lost for good: the survivors go on with what they
    /// hold. To be repeated to the manager that leads until it is over. Harmless if repeated.
    #[coded(tag = 2)]
    AcceptLoss {
        /// The shard that has lost the majority of its replicas.
        shard: ShardId,
        /// Drawn by the operator; a repeat has the same number.
        number: u64,
        /// Seconds since 1970, on the operator's clock.
        at_s: u64,
    },
    /// Check what the manager on this node would go on with after the loss of a majority of the managers.
    /// Changes nothing. To be repeated until the other nodes have answered, or have had the time for it.
    #[coded(tag = 3)]
    CheckRecovery,
    /// Accept that a majority of the managers is lost for good: the one on this node goes on alone, with the
    /// state of the nodes. To be repeated until it is done. Harmless if repeated.
    #[coded(tag = 4)]
    RecoverManagers {
        /// Drawn by the operator; a repeat has the same number.
        number: u64,
        /// The nodes that the operator was shown as silent.
        silent: Vec<NodeId>,
        /// The shards that the operator was shown as lost. The recovery is refused if it would cost others.
        lost: Vec<ShardId>,
    },
    /// Add managers on two nodes. To be repeated to the manager that leads until it is done: the change goes
    /// on for as long as it is requested. Harmless if repeated.
    #[coded(tag = 5)]
    AddManagers {
        /// One of the two nodes.
        first: NodeId,
        /// The other one: managers are added in pairs, since there are 1, 3 or 5.
        second: NodeId,
    },
    /// Replace a replica of a shard, whose node may be dead, by one of another node, in the same role. To be repeated to the
    /// manager that leads until it is done. Harmless if repeated.
    #[coded(tag = 6)]
    ReplaceReplica {
        /// The shard whose replica moves.
        shard: ShardId,
        /// The node whose replica leaves.
        outgoing: NodeId,
        /// The node that gets a replica in its place.
        incoming: NodeId,
        /// Drawn by the operator; a repeat has the same number.
        number: u64,
    },
    /// Add a node to the cluster's topology, with the next number and without replicas. To be repeated to the manager that
    /// leads until all nodes that live know of it. Harmless if repeated.
    #[coded(tag = 7)]
    AddNode {
        /// The name of the node, which no other has or had.
        name: String,
        /// The name of its datacenter.
        datacenter: String,
        /// The address at which it listens, which no other node has.
        address: String,
        /// Drawn by the operator; a repeat has the same number.
        number: u64,
    },
    /// Remove a node from the cluster's topology for good, when its process has ended. It holds no replica and hosts no
    /// manager. To be repeated to the manager that leads until all nodes that live know of it. Harmless if repeated.
    #[coded(tag = 8)]
    RemoveNode {
        /// The node, whose number is never given again.
        node: NodeId,
        /// Drawn by the operator; a repeat has the same number.
        number: u64,
    },
}

/// A reply to an operator.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum ToOperator {
    /// Done: these nodes have the managers.
    #[coded(tag = 0)]
    Done {
        /// The nodes that host a manager now.
        managers: Vec<NodeId>,
    },
    /// In progress: ask again.
    #[coded(tag = 1)]
    UnderWay(RecoveryStage),
    /// This manager does not lead: ask the one that does.
    #[coded(tag = 2)]
    NotLeading {
        /// The node of the leader, as far as is known here.
        leader: Option<NodeId>,
    },
    /// The request is refused for this reason, and repeating it does not help.
    #[coded(tag = 3)]
    Refused(OperatorRefusal),
    /// To `CheckLoss`: it may be accepted.
    #[coded(tag = 4)]
    MayLose {
        /// The live replicas that have their memory: they become the voters.
        survivors: Vec<NodeId>,
        /// The other replicas, which are set aside.
        aside: Vec<NodeId>,
        /// Nodes that do not answer, and so are not asked what they know of the shard.
        silent: Vec<NodeId>,
    },
    /// To `AcceptLoss`: it is accepted, with this progress.
    #[coded(tag = 5)]
    Lost(Loss),
    /// To `ReplaceReplica`: it is accepted, with this progress.
    #[coded(tag = 7)]
    Replacing(ReplacementStage),
    /// To `AddNode`: it is added.
    #[coded(tag = 8)]
    NodeAdded {
        /// The number of the node.
        node: NodeId,
        /// Whether all nodes that live know of it.
        is_known: bool,
    },
    /// To `RemoveNode`: it is removed.
    #[coded(tag = 9)]
    NodeRemoved {
        /// Whether all nodes that live know of it.
        is_known: bool,
    },
    /// To `CheckRecovery`: the managers can be recovered.
    #[coded(tag = 6)]
    MayRecover(RememberedManagers),
}

/// The state with which recovered managers would go on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Coded)]
pub struct RememberedManagers {
    /// Nodes that answer, and go on with what they have in memory.
    pub nodes: Vec<NodeId>,
    /// The other nodes, which are treated as having lost their memory.
    pub silent: Vec<NodeId>,
    /// The shards of which no majority has its memory then.
    pub lost: Vec<ShardId>,
    /// The number of configurations that nodes have and the log of this manager lacks.
    pub lacking: u64,
    /// The epoch of the newest configuration of any node.
    pub epoch: Epoch,
    /// The latest epoch that a node knows to be open.
    pub open: Epoch,
    /// A recovery was begun before: nodes that have pledged accept nothing from their former managers.
    pub pledged: bool,
}

/// The stage of a request in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub enum RecoveryStage {
    /// The incoming node was asked to host a manager, and has not answered yet.
    #[coded(tag = 0)]
    Reaching,
    /// The manager learns the log.
    #[coded(tag = 1)]
    Learning {
        /// Entries that the incoming manager has.
        has: u64,
        /// The total number.
        of: u64,
    },
    /// The incoming manager votes, and the outgoing one is being removed.
    #[coded(tag = 2)]
    Voting,
    /// The loss of a shard is written into the managers' log.
    #[coded(tag = 3)]
    Accepting,
    /// Nodes are asked for their state.
    #[coded(tag = 4)]
    Asking {
        /// Nodes that have answered.
        answered: u64,
        /// The total number.
        of: u64,
    },
    /// The node that is to be removed is alive.
    #[coded(tag = 5)]
    Living,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum OperatorRefusal {
    /// This cluster has no managers.
    #[coded(tag = 0)]
    NoManagers,
    /// There is no such node.
    #[coded(tag = 1)]
    NoNode(NodeId),
    /// The outgoing node hosts no manager.
    #[coded(tag = 2)]
    NotManager {
        /// The nodes that host managers.
        managers: Vec<NodeId>,
    },
    /// The incoming node hosts one already.
    #[coded(tag = 3)]
    IsManager,
    /// The incoming node would keep the log in memory; its file has to name a folder.
    #[coded(tag = 4)]
    InMemory,
    /// The incoming node cannot host one, for this reason.
    #[coded(tag = 5)]
    CannotHost(String),
    /// The managers' log refuses.
    #[coded(tag = 6)]
    Failed(String),
    /// A majority of the managers is alive.
    #[coded(tag = 7)]
    MajorityLives,
    /// The node that is to be removed hosts a manager.
    #[coded(tag = 9)]
    HostsManager(NodeId),
    /// The recovery of the managers would cost more than the operator was shown.
    #[coded(tag = 8)]
    LosesMore {
        /// Nodes whose memory would be lost.
        silent: Vec<NodeId>,
        /// Shards of which no majority would remember anything.
        lost: Vec<ShardId>,
    },
}

impl From<ChangeError> for ToOperator {
    fn from(error: ChangeError) -> ToOperator {
        match error {
            ChangeError::NotLeading { leader } => ToOperator::NotLeading { leader },
            ChangeError::InProgress => ToOperator::UnderWay(RecoveryStage::Voting),
            error @ (ChangeError::Count(_)
            | ChangeError::NotMember(_)
            | ChangeError::Refused(_)
            | ChangeError::Stopped(_)) => {
                ToOperator::Refused(OperatorRefusal::Failed(error.to_string()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_cluster::manager::{EpochEnd, Incarnation, LossStage, LostEnd};
    use shoal_types::Epoch;
    use shoal_types::wire::check::withstands;
    use shoal_types::wire::{decode, encode};

    #[test]
    fn forms_stay_as_they_are() {
        let (outgoing, incoming) = (NodeId(1), NodeId(4));
        let wanted = encode(&FromOperator::ReplaceManager { outgoing, incoming });
        assert_eq!(wanted[..], [0, 1, 0, 0, 0, 4, 0, 0, 0]);
        let managers = vec![NodeId(0), NodeId(4)];
        let refusals = [
            OperatorRefusal::NoManagers,
            OperatorRefusal::NoNode(NodeId(9)),
            OperatorRefusal::NotManager { managers: managers.clone() },
            OperatorRefusal::IsManager,
            OperatorRefusal::InMemory,
            OperatorRefusal::CannotHost("no room".to_owned()),
            OperatorRefusal::Failed("it has stopped".to_owned()),
            OperatorRefusal::MajorityLives,
            OperatorRefusal::HostsManager(NodeId(2)),
            OperatorRefusal::LosesMore { silent: vec![NodeId(1)], lost: vec![ShardId(2)] },
        ];
        assert_eq!(encode(&FromOperator::CheckRecovery)[..], [3]);
        let shard = ShardId(3);
        let replace = FromOperator::ReplaceReplica { shard, outgoing, incoming, number: 5 };
        assert_eq!(encode(&replace)[..10], [6, 3, 0, 0, 0, 1, 0, 0, 0, 4]);
        let address = "a:1".to_owned();
        let (name, datacenter) = ("n".to_owned(), "d".to_owned());
        let add = encode(&FromOperator::AddNode { name, datacenter, address, number: 5 });
        assert_eq!(add[..11], [7, 1, 0, 0, 0, b'n', 1, 0, 0, 0, b'd']);
        let remove = encode(&FromOperator::RemoveNode { node: outgoing, number: 5 });
        assert_eq!(remove[..6], [8, 1, 0, 0, 0, 5]);
        let (silent, lost) = (vec![NodeId(7)], Vec::new());
        let wanted = encode(&FromOperator::RecoverManagers { number: 1, silent, lost });
        assert_eq!(wanted[..2], [4, 1]);
        let wanted = encode(&FromOperator::AcceptLoss { shard, number: 1, at_s: 2 });
        assert_eq!(wanted[..6], [2, 3, 0, 0, 0, 1]);
        assert_eq!(encode(&FromOperator::CheckLoss { shard })[..], [1, 3, 0, 0, 0]);
        let lost = (Epoch(4), LostEnd { known: EpochEnd::up_to(7), ..LostEnd::default() });
        let loss = Loss {
            number: 1,
            at_s: 2,
            stage: LossStage::Preparing,
            begun: Epoch(5),
            reported: [(NodeId(0), Incarnation(2))].into(),
            void: [(NodeId(1), Incarnation(1))].into(),
            calls_before: Epoch(6),
            ends: [lost].into(),
        };
        let (survivors, aside, silent) = (managers.clone(), vec![NodeId(1)], vec![]);
        let may_lose = ToOperator::MayLose { survivors, aside, silent };
        let remembered = RememberedManagers {
            nodes: vec![NodeId(2)],
            lost: vec![shard],
            lacking: 3,
            ..RememberedManagers::default()
        };
        let stages = [
            RecoveryStage::Reaching,
            RecoveryStage::Learning { has: 3, of: 5 },
            RecoveryStage::Voting,
            RecoveryStage::Accepting,
            RecoveryStage::Asking { answered: 1, of: 6 },
            RecoveryStage::Living,
        ];
        let replies = stages.map(ToOperator::UnderWay).into_iter();
        let replies = replies.chain(refusals.map(ToOperator::Refused)).chain([
            ToOperator::Done { managers },
            may_lose,
            ToOperator::MayRecover(remembered),
            ToOperator::Lost(loss),
            ToOperator::Replacing(ReplacementStage::Copying),
            ToOperator::NodeAdded { node: NodeId(6), is_known: false },
            ToOperator::NodeRemoved { is_known: true },
            ToOperator::NotLeading { leader: None },
            ToOperator::NotLeading { leader: Some(NodeId(2)) },
        ]);
        for reply in replies {
            assert_eq!(decode::<ToOperator>(&encode(&reply)), Ok(reply));
        }
        (0..8_u8).for_each(|first| withstands::<ToOperator>(&Bytes::from(vec![first; 40])));
    }
}
