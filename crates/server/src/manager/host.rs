//! A running manager, over its replica of the log.

use super::rpc::Rpc;
use crate::envelope::Envelope;
use crate::worker_command::WorkerCommand;
use shoal_cluster::manager::{
    CarriedLog, Manager, ManagerEffect, ManagerEvent, StateMachine, ToNode,
};
use shoal_net::SystemClock;
use shoal_raft::RaftReplica;
use shoal_types::{NodeId, Time};
use std::time::Duration;

/// One manager and its replica of the log, on the thread that runs them.
pub(super) struct ManagerHost {
    node: NodeId,
    manager: Manager<CarriedLog>,
    replica: RaftReplica,
    pub(super) log: shoal_raft::RaftHandle,
    rpc: Rpc,
    clock: SystemClock,
    timer: Option<Time>,
}

impl ManagerHost {
    pub(super) fn new(
        manager: Manager<CarriedLog>,
        replica: RaftReplica,
        log: shoal_raft::RaftHandle,
        rpc: Rpc,
        clock: SystemClock,
    ) -> ManagerHost {
        let node = log.me().node;
        ManagerHost { node, manager, replica, log, rpc, clock, timer: None }
    }

    /// The time until its timer fires; `None` if it is not set.
    pub(super) fn left(&self) -> Option<Duration> {
        self.timer.map(|at| at - self.clock.now())
    }

    /// Waits until there is something to exchange. Cancellation safe.
    pub(super) async fn news(&mut self) {
        self.replica.news().await;
    }

    /// The state machine, as far as the manager here has applied the log.
    pub(super) fn machine(&self) -> &StateMachine {
        self.manager.machine()
    }

    /// Whether the manager leads, for certain.
    pub(super) fn leads(&self) -> bool {
        self.manager.leads().is_some()
    }

    /// Whether the managers have a majority, as far as is known here: this one has led lately, or follows a
    /// leader.
    pub(super) fn has_majority(&mut self) -> bool {
        let now = self.clock.now();
        let lease = self.manager.machine().options().lease_at_manager();
        let follows = self.log.status().leader.is_some_and(|leader| leader != self.node);
        let led = self.manager.log_mut().led;
        follows || (self.leads() && led.is_some_and(|led| led + lease > now))
    }

    pub(super) fn step(&mut self, event: ManagerEvent) -> Result<(), shoal_raft::Stopped> {
        self.steps([event])
    }

    pub(super) fn steps(
        &mut self,
        events: impl IntoIterator<Item = ManagerEvent>,
    ) -> Result<(), shoal_raft::Stopped> {
        events.into_iter().for_each(|event| self.take(event));
        self.exchange()
    }

    /// Passes the proposals of the manager to the log, and the log's news to the manager.
    pub(super) fn exchange(&mut self) -> Result<(), shoal_raft::Stopped> {
        while self.replica.exchange(self.clock.now(), self.manager.log_mut())? {
            self.take(ManagerEvent::Log);
        }
        Ok(())
    }

    fn take(&mut self, event: ManagerEvent) {
        let mut effects = Vec::new();
        if event == ManagerEvent::Timer {
            self.timer = None;
        }
        self.manager.step(self.clock.now(), event, &mut effects);
        for effect in effects {
            match effect {
                ManagerEffect::Send { to, message } => self.tell(to, message),
                ManagerEffect::Answer { ask, result } => {
                    tracing::info!(node = %self.node, ?ask, ?result, "a change was asked for");
                }
                ManagerEffect::Applied(applied) => {
                    tracing::info!(node = %self.node, ?applied, "the manager");
                }
                ManagerEffect::Timer { at } => self.timer = Some(at),
            }
        }
    }

    pub(super) fn tell(&self, to: NodeId, message: ToNode) {
        if to == self.node {
            self.rpc.command(WorkerCommand::FromManager(message));
        } else {
            self.rpc.send(to, &Envelope::ToNode(message));
        }
    }
}
