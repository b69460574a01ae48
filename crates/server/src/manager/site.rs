//! A manager that runs, over its replica of the log.

use super::courier::Courier;
use crate::envelope::Envelope;
use crate::seat::Command;
use consensus::manager::{Effect, Event, Machine, Mailbox, Manager, ToNode};
use net::Clock;
use raft::Replica;
use std::time::Duration;
use types::{NodeId, Time};

/// See the module.
pub(super) struct Site {
    node: NodeId,
    manager: Manager<Mailbox>,
    replica: Replica,
    pub(super) log: raft::Handle,
    courier: Courier,
    clock: Clock,
    timer: Option<Time>,
}

impl Site {
    pub(super) fn new(
        manager: Manager<Mailbox>,
        (replica, log): (Replica, raft::Handle),
        courier: Courier,
        clock: Clock,
    ) -> Site {
        let node = log.me().node;
        Site { node, manager, replica, log, courier, clock, timer: None }
    }

    /// Until its timer goes off; `None` if there is none.
    pub(super) fn left(&self) -> Option<Duration> {
        self.timer.map(|at| at - self.clock.now())
    }

    /// Waits until there is something to exchange. May be given up at any time.
    pub(super) async fn news(&mut self) {
        self.replica.news().await;
    }

    /// What the manager here has applied.
    pub(super) fn machine(&self) -> &Machine {
        self.manager.machine()
    }

    /// Whether the manager leads, and may say so.
    pub(super) fn leads(&self) -> bool {
        self.manager.leads().is_some()
    }

    /// Whether the managers have a majority, as far as is known here: this one has led lately, or follows one that does.
    pub(super) fn has_majority(&mut self) -> bool {
        let now = self.clock.now();
        let lease = self.manager.machine().options().lease_at_manager();
        let follows = self.log.status().leader.is_some_and(|leader| leader != self.node);
        let led = self.manager.log_mut().led;
        follows || (self.leads() && led.is_some_and(|led| led + lease > now))
    }

    pub(super) fn step(&mut self, event: Event) -> Result<(), raft::Stopped> {
        self.steps([event])
    }

    pub(super) fn steps(
        &mut self,
        events: impl IntoIterator<Item = Event>,
    ) -> Result<(), raft::Stopped> {
        events.into_iter().for_each(|event| self.take(event));
        self.exchange()
    }

    /// Gives the log what the manager proposes, and the manager what the log has for it.
    pub(super) fn exchange(&mut self) -> Result<(), raft::Stopped> {
        while self.replica.exchange(self.clock.now(), self.manager.log_mut())? {
            self.take(Event::Log);
        }
        Ok(())
    }

    fn take(&mut self, event: Event) {
        let mut effects = Vec::new();
        if event == Event::Timer {
            self.timer = None;
        }
        self.manager.step(self.clock.now(), event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => self.tell(to, message),
                Effect::Answer { ask, result } => {
                    tracing::info!(node = %self.node, ?ask, ?result, "a change was asked for");
                }
                Effect::Applied(applied) => {
                    tracing::info!(node = %self.node, ?applied, "the manager");
                }
                Effect::Timer { at } => self.timer = Some(at),
            }
        }
    }

    pub(super) fn tell(&self, to: NodeId, message: ToNode) {
        if to == self.node {
            self.courier.command(Command::Told(message));
        } else {
            self.courier.send(to, &Envelope::ToNode(message));
        }
    }
}
