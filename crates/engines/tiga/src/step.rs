//! What a step of a node's part of the protocol has at hand, and what it leaves.

use crate::execute::Library;
use crate::message::{Envelope, Message};
use crate::observation::TigaObservation;
use crate::options::TigaOptions;
use crate::record::Entry;
use crate::view::View;
use bytes::Bytes;
use shoal_types::wire::encode;
use shoal_types::{NodeId, ShardId, Time};

/// What the node does next.
#[derive(Debug, Default)]
pub struct Output {
    /// Messages, in their order. Some may be for the node itself.
    pub sends: Vec<Envelope>,
    /// Entries for the logs of shards that the node leads, in their order.
    pub proposals: Vec<(ShardId, Bytes)>,
    /// What replicas want in the log on disk, in their order and behind the entries.
    pub records: Vec<VoteRecord>,
    /// What a checker sees, if there is one.
    pub observations: Option<Vec<TigaObservation>>,
}

/// What a replica wants in the log on disk of its node.
#[derive(Debug, Clone, PartialEq)]
pub struct VoteRecord {
    /// The shard of the replica.
    pub shard: ShardId,
    /// A tentative list; empty where only the order counts.
    pub record: Bytes,
    /// It has all that counts of those before it.
    pub is_first: bool,
    /// What those before it were to send is void.
    pub voids: bool,
    /// What is sent when it is durable.
    pub sends: Vec<Envelope>,
}

/// The surroundings of a step.
pub struct Step<'s> {
    /// The local time.
    pub now: Time,
    /// The time on the transaction clock.
    pub clock: Time,
    /// When the message of this step arrived, on the transaction clock.
    pub arrived: Time,
    /// The node holds its lease.
    pub has_lease: bool,
    /// The transaction clock is as accurate as the options ask for.
    pub is_accurate: bool,
    /// Votes are durable before they are sent.
    pub is_recorded: bool,
    /// The options of the protocol.
    pub options: &'s TigaOptions,
    /// Procedures and tables.
    pub library: &'s Library<'s>,
    /// The shards, as the node knows them.
    pub view: &'s mut View,
    /// What the step leaves.
    pub output: &'s mut Output,
}

impl Step<'_> {
    /// Sends a message.
    pub fn send(&mut self, to: NodeId, message: Message) {
        self.output.sends.push(Envelope { to, message });
    }

    /// Sends a message to the leader of a shard, if the node knows one.
    pub fn send_to_leader(&mut self, shard: ShardId, message: Message) {
        if let Some(leader) = self.view.leader(shard) {
            self.send(leader, message);
        }
    }

    /// Lets a checker see something.
    pub fn observe(&mut self, observation: impl FnOnce() -> TigaObservation) {
        if let Some(observations) = &mut self.output.observations {
            observations.push(observation());
        }
    }

    /// Appends an entry to the log of a shard that the node leads.
    pub fn propose(&mut self, shard: ShardId, entry: &Entry) {
        self.output.proposals.push((shard, encode(entry)));
    }
}
