//! The configuration manager: which nodes are alive, which of them leads each shard, which epoch is open, how
//! the closed ones ended, and where data lives (Mako §5.2; `docs/recovery.md`).
//!
//! ```text
//!   nodes                managers (few replicas)
//!   Member ─ Heartbeat ─► Manager ─ propose ─► Log ─ the same order to all ─► Machine
//!      ◄── Granted, … ────    ◄── led ─────────┘  effects of what is applied ─────┘
//!
//!   a leader dies in epoch e:
//!   lease runs out ─► appoint, epoch e+1 ─► every shard's leader reports the end of e ─► the ends of e are final
//! ```
//! [`StateMachine`] is the replicated state machine: the same commands, the same state. [`Manager`] runs
//! it over a [`ManagerLog`], receives nodes' messages and answers them; only the replica that leads does. [`ManagerClient`] is
//! a node's side. It is off the path of every transaction: without it nothing changes, and traffic
//! flows until leases run out.
//!
//! # Leases: no two leaders of a shard at one time (the lease rule)
//!
//! Clocks may differ by any offset, and a manager may be followed by one with any clock. Assumed is
//! only that while a true time t passes, every clock moves on by t·(1−ρ) to t·(1+ρ), where ρ is
//! [`ManagerOptions::drift_ppm`]. L is [`ManagerOptions::lease`]. True time goes on while a machine is suspended, and so must each
//! clock here: one that stood still would let a leader that slept past the end of its lease act under it. The times
//! that events carry are the caller's; production reads `CLOCK_BOOTTIME` (`net/src/clock.rs`). Then:
//!
//! 1. A node counts its lease from when it *sent* the heartbeat that was granted, L·(1−ρ) on its own
//!    clock: it ends less than L after the sending, in true time.
//! 2. The manager that receives the heartbeat notes its own time, which is after the sending. Most leases it renews by
//!    itself, without the log, when it is certain that it led at that time, and that no tick on its way takes the node
//!    for dead; each tick contains all heartbeats of the last lease. The argument is in `lease_tracker.rs`.
//! 3. The lease has run out when a tick of the *same* manager carries a time that is L·(1+ρ) later on that manager's
//!    clock than the last heartbeat in it: at least L of true time after the sending. Only then is another node
//!    appointed, and knows of it only after that tick was applied.
//! 4. Times of different managers are never compared. A manager in a new term first proposes
//!    [`Action::Take`], or the first one [`Action::Found`], and, once that is applied *to its own machine*, commands with times. The first
//!    of those begins all leases anew. Every heartbeat that a former manager granted came when that one led for
//!    certain, so before this one was elected, and before that time was read: no lease is counted from too early.
//!    Commands of former terms that come after `Take` are void. Of the log is asked one order, no two leaders of one
//!    term, and a correct time of [having led](ManagerLog::led).
//! 5. A grant names the [`Revision`] of the configuration at which it was given, and counts only on a
//!    node that has it. So a node that was deposed, and is reachable again, does not hold its old leadership
//!    under its new lease.
//! 6. A leadership belongs to one incarnation of a node. A node that has restarted does not lead what it
//!    led, and its former process may still be about, as far as the manager knows: its shards wait until
//!    the lease of that process has run out as well. Once it asks to be admitted, heartbeats of its former process are
//!    ignored, and the request carries the arrival time of the last of them.
//!
//! A node whose heartbeats arrive, and which receives no grants, gets no more grants after a while: its
//! heartbeats contain the last grant that arrived. So its shards go to other nodes; it could not keep them anyway. As long
//! as it is not declared dead, heartbeats whose leases would have ended are granted now and then, which allows nothing: once it has
//! received such a grant, it is reached again, and its heartbeats count.
//!
//! A node that is suspected wrongly loses its leaderships and nothing else: it learns the configuration
//! with its next heartbeat and follows.
//!
//! # Epochs and their ends (the rule of final ends)
//!
//! Each raise of the epoch, for any reason, closes the one before. The leader of every shard
//! reports for each closed epoch how it ended there, once that is durable in its logs: an [`EpochEnd`], which only
//! engines read. A report counts only from the
//! leader of the newest configuration, by node, incarnation and ballot. The first that counts is final for that epoch
//! and shard, whichever node leads later: its end is durable in the streams, where every successor finds it. When every shard
//! has reported, these ends are final, and no command can change them. The configuration contains the ends that are
//! known of epochs that are not settled, so nothing has to wait for those of other shards.
//!
//! A shard that lacks the end of a closed epoch for two leases is *out* from the next epoch on: it draws no clock
//! there, and so its end of that one is known when it closes. Epochs go on to be settled while a shard is lost, but for
//! those that began before it was out. When it has said how these ended, the next epoch has it in again.
//!
//! # Which nodes may lead, which may vote
//!
//! A replica that lost its memory is *empty*. It does not vote, and is appointed to nothing, until the
//! shard's leader reports that it has caught up. For a voter this must be a leader appointed after the
//! loss: such a one prepared at a majority without the empty voter, and so knows all that was
//! decided with its forgotten help; and every ballot that it may have promised is lower. A majority
//! is still counted over all voters, empty ones too. Replacing a voter is the same: the new one begins
//! empty, in an epoch of its own. So majorities before and after always share a replica that
//! remembers.
//!
//! Whether learners may lead is the engine's choice ([`LeaderCandidates`]). Where only voters may, a learner leads once it
//! votes: after it has taken the place of a voter, or when the loss of a majority is accepted and the survivors become the
//! voters.
//!
//! Read in this order: `ids.rs`, `command.rs`, `epoch_end.rs`, `loss.rs`, `configuration.rs`, `outage.rs`, `state_machine.rs` with
//! `appoint.rs`, `closing.rs`, `nodes.rs`, `change.rs` (refused for the reasons in `refusal.rs`), `accept_loss.rs`, `recovery.rs` and
//! `state_machine/image.rs` (the machine as bytes); `request.rs`, `message.rs`, `core.rs` with
//! `lease_tracker.rs`, `client.rs`; `log.rs`, `simulated.rs`; `wire.rs`.
//!
//! Sources: Gray and Cheriton, *Leases* (SOSP'89), for clocks that only drift; Ongaro, *Consensus: Bridging Theory and
//! Practice* (2014), §6.4, for being sure of the lead without the log; Mako §5, appendix A,
//! for epochs; Lamport, Malkhi and Zhou, *Vertical Paxos* (2009), for leaders made by a manager.

mod accept_loss;
mod appoint;
mod change;
mod client;
mod closing;
mod command;
mod configuration;
mod core;
mod epoch_end;
mod ids;
mod lease_tracker;
mod log;
mod loss;
mod message;
mod nodes;
mod options;
mod outage;
mod recovery;
mod refusal;
mod replacement;
mod request;
mod simulated;
mod state_machine;
mod table_changes;
mod tables;
#[cfg(test)]
mod wire;

pub use self::core::{Manager, ManagerCounters, ManagerEffect, ManagerEvent};
pub use client::{ManagerClient, ManagerClientEffect, ManagerClientEvent};
pub use command::{Action, ClusterChange, Command, HeartbeatRecord, LeadershipClaim, TableChange};
pub use configuration::{AddedVoter, Assignment, CatchingUp, Configuration, Move, NodeStanding};
pub use epoch_end::{EPOCH_END_BYTES_MAX, EpochEnd, FinalEnds};
pub use ids::{Ask, Generation, Incarnation, ProcessInstance, Revision, Term};
pub use log::{CarriedLog, ManagerLog};
pub use loss::{Knowledge, Loss, LossStage, LostEnd};
pub use message::{ToManager, ToNode};
pub use options::{LeaderCandidates, LearnerLeads, ManagerOptions, ManagerPlantedBugs};
pub use outage::Outage;
pub use recovery::{KnownEpochs, NotRecovered, Recollection};
pub use refusal::ChangeRefusal;
pub use replacement::ReplacementStage;
pub use request::ManagerRequest;
pub use simulated::{LogPace, SimulatedLog};
pub use state_machine::{Applied, StateMachine};
