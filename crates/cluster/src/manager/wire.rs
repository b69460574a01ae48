//! The forms of commands, which logs keep, and of what nodes and managers tell each other. No number is
//! short: it is little and seldom, and what is on a disk stays as it is.

use super::{
    Action, Ask, Assignment, ClusterChange, Command, Configuration, EpochEnd, FinalEnds,
    Generation, HeardEpochs, HeartbeatRecord, Incarnation, Knowledge, LeadershipClaim, Loss,
    LossStage, LostEnd, ManagerRequest, Move, NodeStanding, ProcessInstance, Recollection,
    Revision, Term, ToManager, ToNode,
};
use crate::topology::{Partitioning, Topology};
use shoal_types::{
    Ballot, ClusterId, Epoch, NodeId, ShardId, TableId, Time, coded_enum, coded_newtype,
    coded_struct,
};
use std::collections::BTreeMap;
use std::sync::Arc;

coded_newtype!(
    Term(u64),
    ProcessInstance(u64),
    Incarnation(u32),
    Ask(u64),
    Revision(u64),
    Generation(u64)
);

coded_struct!(Command { term: Term, at: Time, action: Action });
coded_struct!(LeadershipClaim {
    node: NodeId,
    incarnation: Incarnation,
    shard: ShardId,
    ballot: Ballot
});
coded_struct!(HeartbeatRecord {
    node: NodeId,
    incarnation: Incarnation,
    round: u64,
    at: Time,
    known: Revision,
});

coded_enum!(Action {
    // 0 was one that founded nothing.
    9 => Take { drawn },
    // 1 and 2 were ticks and joins of another form.
    7 => Tick { heard },
    8 => Join { node, instance, after, lost, heard },
    // 3, 10 and 11 told ends of epochs as numbers.
    12 => Report { claim, epoch, end },
    4 => CaughtUp { claim, replica, incarnation },
    5 => Change { ask, change },
    6 => Close { claim, epoch },
    13 => Known { node, incarnation, shard, begun, knowledge },
    14 => Held { claim, held },
});

coded_enum!(ClusterChange {
    0 => ReplaceReplica { shard, outgoing, incoming },
    1 => KeepReplicas { shard },
    2 => CreateTable { name, partitioning },
    3 => BeginMove { table, partitioning },
    4 => EndMove { table },
    5 => CancelMove { table },
    6 => AcceptLoss { shard, number, at_s },
});

coded_enum!(ToManager {
    0 => Heartbeat { instance, incarnation, round, granted, known },
    1 => Join { instance, after, lost },
    2 => Request { incarnation, ballot, request },
    3 => Recalled { generation, told },
});

coded_enum!(ManagerRequest {
    0 => Report { shard, epoch, end },
    1 => Close { shard, epoch },
    2 => CaughtUp { shard, replica, ballot, incarnation },
    3 => Known { shard, begun, knowledge },
    4 => Held { shard, held },
});

coded_enum!(ToNode {
    0 => Stranger { instance, incarnation },
    1 => Welcome { instance, incarnation, configuration },
    2 => Granted { generation, incarnation, round, revision, configuration },
    3 => Configured { configuration },
    4 => Reported { claim, epoch },
    5 => Recall { generation, pledges },
});

coded_struct!(HeardEpochs { open: Epoch, ends: BTreeMap<Epoch, Vec<Option<EpochEnd>>> });
coded_struct!(Recollection {
    instance: ProcessInstance,
    incarnation: Incarnation,
    pledged: Generation,
    configuration: Option<Arc<Configuration>>,
    heard: HeardEpochs,
});
// Whether its parts fit together is for the member to see.
coded_struct!(Configuration {
    cluster: Option<ClusterId>,
    generation: Generation,
    revision: Revision,
    epoch: Epoch,
    topology: Arc<Topology>,
    nodes: Vec<NodeStanding>,
    shards: Vec<Assignment>,
    settled: Epoch,
    forgotten: Epoch,
    finals: Vec<FinalEnds>,
    ends: BTreeMap<Epoch, Vec<Option<EpochEnd>>>,
    moving: Option<Move>,
});
coded_struct!(NodeStanding { incarnation: Incarnation, alive: bool });
coded_struct!(Assignment {
    leader: NodeId,
    incarnation: Incarnation,
    ballot: Ballot,
    since: Epoch,
    voters: Vec<NodeId>,
    learners: Vec<NodeId>,
    out: Option<Epoch>,
    empty: BTreeMap<NodeId, Epoch>,
    loss: Option<Loss>,
});
coded_struct!(Loss {
    number: u64,
    at_s: u64,
    stage: LossStage,
    begun: Epoch,
    told: BTreeMap<NodeId, Incarnation>,
    void: BTreeMap<NodeId, Incarnation>,
    calls_before: Epoch,
    ends: BTreeMap<Epoch, LostEnd>,
});
coded_struct!(LostEnd {
    known: EpochEnd,
    has_ended: bool,
    held: Option<EpochEnd>,
    end: Option<EpochEnd>,
});
coded_struct!(Knowledge { durable: BTreeMap<Epoch, EpochEnd>, ends: BTreeMap<Epoch, EpochEnd> });
coded_enum!(LossStage {
    0 => Asking,
    1 => Preparing,
    2 => Over,
});
coded_struct!(Move { table: TableId, partitioning: Partitioning, begun: Epoch });

#[cfg(test)]
mod tests;
