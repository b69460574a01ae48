//! The mailboxes through which other threads reach a worker's loop, and the handle of a node's network.
//!
//! A sender that leaves something wakes the loop, and the loop handles all there is. Wakeups that come before it has
//! handled the first are one.

use crate::clock::SystemClock;
use crate::config::{NetworkLimits, PeerConfig};
use crate::counters::{CounterTotals, LoopCounters};
use crate::distance::LinkFaults;
use crate::handshake::Preamble;
use crate::passed_frames::{PassedFrame, PassedFrames};
use crossbeam_utils::CachePadded;
use shoal_types::{NodeId, WorkerId};
use std::collections::VecDeque;
use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;
use tokio::sync::Notify;

/// Wakes one loop.
pub(crate) type LoopWaker = Arc<Notify>;

/// Locks a queue. Its contents are consistent whenever it is not locked, panics or not.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An accepted connection for another worker.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub socket: TcpStream,
    pub preamble: Preamble,
    pub address: SocketAddr,
}

/// Accepted connections that wait for a worker.
#[derive(Debug)]
pub(crate) struct HandedOverConnections {
    queue: Mutex<VecDeque<AcceptedConnection>>,
    loop_waker: LoopWaker,
}

impl HandedOverConnections {
    /// Adds a connection. Returns it if `waiting_max` connections wait already.
    pub fn hand_over(
        &self,
        accepted_connection: AcceptedConnection,
        waiting_max: usize,
    ) -> Result<(), AcceptedConnection> {
        let mut queue = lock(&self.queue);
        if queue.len() >= waiting_max {
            return Err(accepted_connection);
        }
        queue.push_back(accepted_connection);
        drop(queue);
        self.loop_waker.notify_one();
        Ok(())
    }

    pub fn take(&self) -> VecDeque<AcceptedConnection> {
        std::mem::take(&mut *lock(&self.queue))
    }
}

/// A change of the network at run time.
#[derive(Debug, Clone)]
pub(crate) enum NetworkControl {
    SetPeer(PeerConfig),
    RemovePeer(NodeId),
    /// For one peer, or for all.
    SetLinkFaults(Option<NodeId>, LinkFaults),
}

/// What other threads leave for one loop.
pub(crate) struct LoopMailbox<M> {
    nudged: AtomicBool,
    is_over: AtomicBool,
    commands: Mutex<VecDeque<M>>,
    commands_max: usize,
    controls: Mutex<VecDeque<NetworkControl>>,
    /// Frames that other workers of the node pass to this one.
    pub passed: PassedFrames,
    pub handed_over: Arc<HandedOverConnections>,
    pub loop_waker: LoopWaker,
}

impl<M> LoopMailbox<M> {
    pub fn new(limits: &NetworkLimits) -> LoopMailbox<M> {
        let loop_waker = LoopWaker::default();
        LoopMailbox {
            nudged: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            commands: Mutex::default(),
            commands_max: limits.commands_max,
            controls: Mutex::default(),
            passed: PassedFrames::new(limits),
            handed_over: Arc::new(HandedOverConnections {
                queue: Mutex::default(),
                loop_waker: Arc::clone(&loop_waker),
            }),
            loop_waker,
        }
    }

    /// What the nudging thread has written before is visible to the nudged core.
    pub fn nudge(&self) {
        if !self.nudged.swap(true, Ordering::AcqRel) {
            self.loop_waker.notify_one();
        }
    }

    pub fn take_nudge(&self) -> bool {
        self.nudged.load(Ordering::Relaxed) && self.nudged.swap(false, Ordering::AcqRel)
    }

    /// Passes a frame to this worker. Returns whether there was room for it.
    pub fn pass(&self, frame: PassedFrame) -> bool {
        let pushed = self.passed.push(frame);
        if pushed == Some(true) {
            self.loop_waker.notify_one();
        }
        pushed.is_some()
    }

    /// Up to so many commands, and whether there are more.
    pub fn take_commands(&self, most: usize) -> (VecDeque<M>, bool) {
        let mut commands = lock(&self.commands);
        let taken = most.min(commands.len());
        let rest = commands.split_off(taken);
        let has_more = !rest.is_empty();
        (std::mem::replace(&mut *commands, rest), has_more)
    }

    pub fn take_controls(&self) -> VecDeque<NetworkControl> {
        std::mem::take(&mut *lock(&self.controls))
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.loop_waker.notify_one();
    }
}

/// Why a command was not delivered, and the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UndeliveredCommand<M> {
    /// The queue is full: try again.
    #[error("too many commands wait")]
    Full(M),
    /// The loop has ended.
    #[error("the worker has ended")]
    Ended(M),
}

/// What all handles of a node share.
pub(crate) struct HandleShared<M> {
    pub mailboxes: Vec<CachePadded<LoopMailbox<M>>>,
    pub counters: Vec<Arc<LoopCounters>>,
    pub clock: SystemClock,
}

/// Controls a node's loops from any thread.
pub struct Handle<M>(pub(crate) Arc<HandleShared<M>>);

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Handle<M> {
        Handle(Arc::clone(&self.0))
    }
}

impl<M> fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({} workers)", self.0.mailboxes.len())
    }
}

impl<M> Handle<M> {
    /// # Panics
    /// If there is no such worker.
    pub(crate) fn mailbox(&self, worker: WorkerId) -> &LoopMailbox<M> {
        &self.0.mailboxes[worker.0 as usize]
    }

    /// Gives a worker [`CoreInput::Nudged`](crate::CoreInput::Nudged). Cheap when one is on its way already.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn nudge(&self, worker: WorkerId) {
        self.mailbox(worker).nudge();
    }

    /// Gives a worker's core a command.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn command(&self, worker: WorkerId, command: M) -> Result<(), UndeliveredCommand<M>> {
        let mailbox = self.mailbox(worker);
        if mailbox.is_over() {
            return Err(UndeliveredCommand::Ended(command));
        }
        let mut commands = lock(&mailbox.commands);
        if commands.len() >= mailbox.commands_max {
            return Err(UndeliveredCommand::Full(command));
        }
        commands.push_back(command);
        drop(commands);
        mailbox.loop_waker.notify_one();
        Ok(())
    }

    /// Ends all loops soon. Queued frames are lost, as in a crash.
    pub fn stop(&self) {
        self.0.mailboxes.iter().for_each(|mailbox| mailbox.end());
    }

    /// Whether they were ended.
    pub fn is_stopped(&self) -> bool {
        self.0.mailboxes.iter().any(|mailbox| mailbox.is_over())
    }

    /// Adds a peer, or changes its address.
    pub fn set_peer(&self, peer: &PeerConfig) {
        self.control(&NetworkControl::SetPeer(peer.clone()));
    }

    /// Closes the connections to a node, which is no peer from now on: it is refused, with the reason that it was removed.
    pub fn remove_peer(&self, node: NodeId) {
        self.control(&NetworkControl::RemovePeer(node));
    }

    /// Injects link faults between this node and a peer, or removes them. Only frames are affected:
    /// connections stay, as they would in a network that loses all packets for a while.
    pub fn set_link_faults(&self, node: NodeId, link_faults: LinkFaults) {
        self.control(&NetworkControl::SetLinkFaults(Some(node), link_faults));
    }

    /// Removes all link faults.
    pub fn heal(&self) {
        self.control(&NetworkControl::SetLinkFaults(None, LinkFaults::default()));
    }

    fn control(&self, control: &NetworkControl) {
        for mailbox in &self.0.mailboxes {
            lock(&mailbox.controls).push_back(control.clone());
            mailbox.loop_waker.notify_one();
        }
    }

    /// The counters of all workers, summed.
    pub fn counters(&self) -> CounterTotals {
        let mut sum = CounterTotals::zero();
        self.0.counters.iter().for_each(|counters| sum += &counters.totals());
        sum
    }

    /// The counters of one worker.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn counters_of(&self, worker: WorkerId) -> CounterTotals {
        self.0.counters[worker.0 as usize].totals()
    }

    /// The clock of all loops of the node.
    pub fn clock(&self) -> SystemClock {
        self.0.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nudges_are_made_one_and_commands_keep_their_order_and_limit() {
        let limits = NetworkLimits { commands_max: 2, ..NetworkLimits::default() };
        let mailbox = LoopMailbox::new(&limits);
        let counters = vec![Arc::new(LoopCounters::new())];
        let mailboxes = vec![CachePadded::new(mailbox)];
        let handle =
            Handle(Arc::new(HandleShared { mailboxes, counters, clock: SystemClock::new() }));
        let worker = WorkerId(0);
        handle.nudge(worker);
        handle.nudge(worker);
        let mailbox = handle.mailbox(worker);
        assert_eq!([mailbox.take_nudge(), mailbox.take_nudge()], [true, false]);
        assert_eq!(handle.command(worker, 1), Ok(()));
        assert_eq!(handle.command(worker, 2), Ok(()));
        assert_eq!(handle.command(worker, 3), Err(UndeliveredCommand::Full(3)));
        assert_eq!(mailbox.take_commands(1), (VecDeque::from([1]), true));
        assert_eq!(mailbox.take_commands(9), (VecDeque::from([2]), false));
        handle.stop();
        assert_eq!(handle.command(worker, 4), Err(UndeliveredCommand::Ended(4)));
    }
}
