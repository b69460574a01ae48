//! Reads that the body of a transaction has announced: they are sent together, with the first operation that has an answer.
//!
//! A read ahead is a step of the transaction, and so is validated at the commit. Its result is that of the next read of
//! its key, unless the transaction writes the key before.

use super::session::{ClientSession, StepReply};
use bytes::Bytes;
use shoal_engine::operation::Operation;
use shoal_types::TableId;
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// The most keys that are announced and not sent; others are read when they are needed. Each is a step, which the worker
/// may have to keep until its turn.
const WANTED_MAX: usize = 1024;

/// The keys that were announced and are not read.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    reads: BTreeMap<(TableId, Bytes), AnnouncedRead>,
}

#[derive(Debug)]
enum AnnouncedRead {
    /// Not sent: it goes with the next operation.
    Wanted,
    /// Sent: its result arrives at this receiver.
    Sent(oneshot::Receiver<StepReply>),
}

impl ReadAhead {
    /// Announces a read of a key.
    pub(super) fn want(&mut self, table: TableId, key: Bytes) {
        if self.reads.len() < WANTED_MAX {
            self.reads.entry((table, key)).or_insert(AnnouncedRead::Wanted);
        }
    }

    /// Takes the announced read of a key: the receiver of its result, if it was sent.
    pub(super) fn take(
        &mut self,
        table: TableId,
        key: &Bytes,
    ) -> Option<oneshot::Receiver<StepReply>> {
        match self.reads.remove(&(table, key.clone()))? {
            AnnouncedRead::Wanted => None,
            AnnouncedRead::Sent(reply) => Some(reply),
        }
    }

    /// Drops the announced read of a key, which the transaction writes.
    pub(super) fn forget(&mut self, table: TableId, key: &Bytes) {
        self.reads.remove(&(table, key.clone()));
    }

    /// Adds all announced reads to the session.
    pub(super) fn send(&mut self, session: &mut ClientSession) {
        for ((table, key), read) in &mut self.reads {
            if let AnnouncedRead::Wanted = read {
                let (table, key) = (*table, key.clone());
                *read = AnnouncedRead::Sent(session.perform(Operation::Get { table, key }));
            }
        }
    }
}
