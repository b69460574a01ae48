//! Clients that wait for a change of tables, at the worker that hosts the manager client.

use super::events::{WorkerEffect, WorkerEffects};
use shoal_cluster::manager::Ask;
use shoal_engine::client::{ClientId, ClientReply, ReplyToClient};
use shoal_types::{Result, TableId};
use std::collections::BTreeMap;

/// The most clients that wait for an answer. One more is passed over, and asks again.
const CLIENTS_MAX: usize = 1024;

/// The clients that wait for an answer, by the numbers of their requests.
#[derive(Debug, Default)]
pub(super) struct TableClients {
    waiting: BTreeMap<Ask, ClientId>,
}

impl TableClients {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns false where too many wait already.
    pub(super) fn add(&mut self, ask: Ask, client: ClientId) -> bool {
        if self.waiting.len() >= CLIENTS_MAX && !self.waiting.contains_key(&ask) {
            // They may have gone: those that have not ask again.
            self.waiting.clear();
            return false;
        }
        self.waiting.insert(ask, client);
        true
    }

    /// Takes out the client that waits for the answer to a request.
    pub(super) fn take(&mut self, ask: Ask) -> Option<ClientId> {
        self.waiting.remove(&ask)
    }
}

/// Answers a client that has asked for a change of tables.
pub(super) fn answer<M, O>(
    client: ClientId,
    ask: Ask,
    result: Result<TableId>,
    effects: &mut WorkerEffects<M, O>,
) {
    let reply = ClientReply::TableChanged { ask, result };
    effects.effects.push(WorkerEffect::Reply(ReplyToClient { to: client, reply }));
}
