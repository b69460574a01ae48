//! The events of a simulation, in the order of its queue.

use crate::clients::process::{ConnectAnswer, ConnectionNumber};
use crate::fault_schedule::ScheduledFault;
use shoal_cluster::manager::{ToManager, ToNode};
use shoal_engine::WorkerPlace;
use shoal_engine::client::{ClientId, RequestFromClient, ToClient};
use shoal_node::WorkerMessage;
use shoal_types::{NodeId, Time};

/// Something that is going to happen.
pub(super) enum SimulationEvent<M> {
    /// A worker of this process of its node begins.
    Start {
        simulated_worker: u32,
        instance: u32,
    },
    Message {
        simulated_worker: u32,
        /// The process of the worker's node that takes it, if it comes from another worker of that process. Those of other
        /// nodes are taken by any.
        instance: Option<u32>,
        from: WorkerPlace,
        message: WorkerMessage<M>,
    },
    /// A client asks something of a worker of this process of its node.
    Request {
        simulated_worker: u32,
        instance: u32,
        request: RequestFromClient,
    },
    /// A client asks such a worker where everything is. One that is busy is asked once more when it is free.
    Asked {
        simulated_worker: u32,
        instance: u32,
        from: ClientId,
        waits: bool,
    },
    /// A client wants to connect to a worker. One that is busy looks at it when it is free.
    Dial {
        client: u32,
        number: ConnectionNumber,
        simulated_worker: u32,
        waits: bool,
    },
    /// A dialed connection is established, or has failed.
    Dialed {
        client: u32,
        number: ConnectionNumber,
        answer: ConnectAnswer,
    },
    /// A message of a worker arrives at a client.
    Said {
        client: u32,
        number: ConnectionNumber,
        said: ToClient,
    },
    /// A client learns that a connection has ended.
    Lost {
        client: u32,
        number: ConnectionNumber,
    },
    Nudge {
        simulated_worker: u32,
    },
    Timer {
        simulated_worker: u32,
    },
    /// Some of what the streams of a worker have changed, in this process of its node, is durable.
    Persisted {
        simulated_worker: u32,
        instance: u32,
    },
    /// A worker that was busy looks into its inbox.
    Free {
        simulated_worker: u32,
    },
    ClientTimer {
        client: u32,
    },
    /// A fault is drawn from the fault schedule.
    RandomFault,
    /// A fault that an earlier fault has planned.
    Planned {
        scheduled_fault: ScheduledFault,
        until: Time,
    },
    /// A message from a node arrives at a manager.
    ToManager {
        manager: u32,
        from: NodeId,
        message: ToManager,
    },
    /// A message from a manager arrives at a node.
    ToNode {
        node: NodeId,
        message: ToNode,
    },
    ManagerTimer {
        manager: u32,
    },
    /// The managers' log has events.
    Log,
    /// An epoch is to begin.
    Change,
    /// A replica is to be replaced.
    Replace,
    /// An operator is to accept the loss of a majority.
    AcceptLoss,
    /// A node is to be added, or removed.
    ChangeNodes,
    /// The last process of a node that was removed ends.
    Retire {
        node: NodeId,
    },
    /// A crashed node restarts as process `instance`, without its memory if that was `lost`.
    Restart {
        node: NodeId,
        instance: u32,
        lost: bool,
    },
    /// This process of a node cannot use what its disks have, and ends.
    EndVoid {
        node: NodeId,
        instance: u32,
    },
    /// A stopped manager restarts with what its disk holds.
    ManagerUp {
        manager: u32,
    },
    /// An outage of the managers' log ends.
    OutageOver,
    /// A node crashes in the middle of a recovery, of a replacement or of a checkpoint.
    Strike {
        node: NodeId,
    },
}
