//! Reads of a transaction that its body has announced: they travel together, with the first operation that has an answer.
//!
//! A read ahead is a step of the transaction like any other, so it is validated at the commit. Its result is for the
//! next read of its key, unless the transaction writes the key before that.

use super::session::{ClientSession, StepReply};
use bytes::Bytes;
use shoal_engine::operation::Operation;
use shoal_types::TableId;
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// Keys that may be announced at once; more are read when they are asked for. Every one costs a step, which waits for its turn.
const WANTED_MAX: usize = 1024;

/// The keys that were announced and are not read.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    reads: BTreeMap<(TableId, Bytes), AnnouncedRead>,
}

#[derive(Debug)]
enum AnnouncedRead {
    /// It is sent with the next operation.
    Wanted,
    /// It was sent, and its result arrives there.
    Asked(oneshot::Receiver<StepReply>),
}

impl ReadAhead {
    /// A key will be read soon.
    pub(super) fn want(&mut self, table: TableId, key: Bytes) {
        if self.reads.len() < WANTED_MAX {
            self.reads.entry((table, key)).or_insert(AnnouncedRead::Wanted);
        }
    }

    /// The key is read: the receiver of its result, if it was sent.
    pub(super) fn take(
        &mut self,
        table: TableId,
        key: &Bytes,
    ) -> Option<oneshot::Receiver<StepReply>> {
        match self.reads.remove(&(table, key.clone()))? {
            AnnouncedRead::Wanted => None,
            AnnouncedRead::Asked(told) => Some(told),
        }
    }

    /// The key is written: what was read before is not what a read would see.
    pub(super) fn forget(&mut self, table: TableId, key: &Bytes) {
        self.reads.remove(&(table, key.clone()));
    }

    /// Asks for all that are wanted.
    pub(super) fn ask(&mut self, session: &mut ClientSession) {
        for ((table, key), read) in &mut self.reads {
            if let AnnouncedRead::Wanted = read {
                let (table, key) = (*table, key.clone());
                *read = AnnouncedRead::Asked(session.perform(Operation::Get { table, key }));
            }
        }
    }
}
