//! When replies are given: not before what was written and read is durable, on a disk whose flushes are held back; and what
//! is seen where a planted bug gives them earlier.

use super::{Opened, SharedDisk, state_of};
use crate::embedded::durable::durability::Durability;
use crate::embedded::durable::restore::{restore, store_to_look_at};
use crate::embedded::durable::shared::lock;
use crate::embedded::planted::EmbeddedPlantedBugs;
use shoal_types::{Scan, TableId, Unknown};
use shoal_wal::virtual_disk::{DiskFaults, VirtualDisk};
use std::pin::Pin;
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::{Context, Waker};

/// Where flushes wait while it is closed.
#[derive(Default)]
pub(super) struct FlushGate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl FlushGate {
    pub(super) fn pass(&self) {
        let closed = self.opened.wait_while(lock(&self.is_closed), |is_closed| *is_closed);
        drop(closed.unwrap_or_else(PoisonError::into_inner));
    }

    fn close(&self) -> ClosedGate<'_> {
        *lock(&self.is_closed) = true;
        ClosedGate(self)
    }
}

/// Opens the gate when it is dropped, also by a test that fails: the log's thread ends only then.
struct ClosedGate<'g>(&'g FlushGate);

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        *lock(&self.0.is_closed) = false;
        self.0.opened.notify_all();
    }
}

const KEY: &[u8] = b"k";

/// The replies to a transaction that changed a row, and to two that then read it.
struct Replies {
    write: Durability,
    get: Durability,
    scan: Durability,
}

impl Replies {
    /// Puts or deletes the row, and reads it: what is written is seen before it is durable.
    fn of(opened: &mut Opened, value: Option<&[u8]>) -> Replies {
        let (table, transactions) = (opened.table, opened.log.transactions());
        let writer = opened.session.begin();
        match value {
            Some(value) => writer.put(table, KEY, value).unwrap(),
            None => writer.delete(table, KEY).unwrap(),
        }
        let write = transactions.commit(writer).unwrap();
        let reader = opened.session.begin();
        assert_eq!(reader.get(table, KEY).unwrap(), value);
        let get = transactions.commit(reader).unwrap();
        let reader = opened.session.begin();
        let rows = reader.scan(table, Scan::all()).unwrap();
        assert_eq!(rows.first().map(|(_, value)| *value), value);
        drop(rows);
        let scan = transactions.commit(reader).unwrap();
        Replies { write, get, scan }
    }

    /// The names of those that are given by now.
    fn given(&mut self) -> Vec<&'static str> {
        let Replies { write, get, scan } = self;
        let mut context = Context::from_waker(Waker::noop());
        let mut replies = [("write", write), ("get", get), ("scan", scan)];
        let mut is_given = |reply: &mut Durability| Pin::new(reply).poll(&mut context).is_ready();
        let given = replies.iter_mut().filter_map(|(name, reply)| is_given(reply).then_some(*name));
        given.collect()
    }

    fn wait(self) -> [shoal_types::Result<()>; 3] {
        [self.write, self.get, self.scan].map(Durability::wait)
    }
}

/// The row, as a process finds it that restarts on this disk, which fails no more.
fn restored(mut disk: VirtualDisk, table: TableId) -> Option<Vec<u8>> {
    disk.faults = DiskFaults::default();
    let restored = restore(&mut disk, store_to_look_at).expect("it is whole");
    state_of(&restored.store).remove(&(table, KEY.to_vec()))
}

impl Opened {
    /// With the row, durably.
    fn with_row(planted: EmbeddedPlantedBugs) -> Opened {
        let mut opened = Opened::with_planted(SharedDisk::default(), planted);
        opened.put(KEY).unwrap();
        opened.log.flush(&opened.store).unwrap();
        opened
    }

    /// The row, if the process were killed now.
    fn after_a_kill(&self) -> Option<Vec<u8>> {
        restored(self.disk.state().clone(), self.table)
    }

    /// The row, if power were lost now.
    fn after_a_loss_of_power(&self) -> Option<Vec<u8>> {
        let mut disk = self.disk.state().clone();
        disk.lose_power(|| false);
        restored(disk, self.table)
    }
}

/// Changes the row while flushes are held back, and reads it. Returns which replies are given though a loss of power takes back what
/// they say.
fn taken_back(value: Option<&[u8]>, planted: EmbeddedPlantedBugs) -> Vec<&'static str> {
    let mut opened = Opened::with_row(planted);
    let flushes = opened.disk.flushes.clone();
    let gate = flushes.close();
    let mut replies = Replies::of(&mut opened, value);
    // The log has written it, and goes on to the flush.
    while opened.after_a_kill().as_deref() != value {
        std::thread::yield_now();
    }
    let given = replies.given();
    // So what any of them says is gone.
    assert_eq!(opened.after_a_loss_of_power(), Some(vec![7; 300]));
    drop(gate);
    assert_eq!(replies.wait(), [const { Ok(()) }; 3]);
    opened.log.flush(&opened.store).unwrap();
    assert_eq!(opened.after_a_loss_of_power().as_deref(), value);
    given
}

#[test]
fn no_reply_is_given_before_what_was_written_and_read_is_durable() {
    for value in [Some(&b"new"[..]), None] {
        assert_eq!(taken_back(value, EmbeddedPlantedBugs::default()), [""; 0], "{value:?}");
    }
}

#[test]
fn a_reply_before_what_was_read_is_durable_is_seen() {
    let planted = EmbeddedPlantedBugs { reply_before_reads: true, ..Default::default() };
    for value in [Some(&b"new"[..]), None] {
        assert_eq!(taken_back(value, planted), ["get", "scan"], "{value:?}");
    }
}

#[test]
fn a_reply_before_what_was_written_is_durable_is_seen() {
    let planted = EmbeddedPlantedBugs { reply_before_flush: true, ..Default::default() };
    for value in [Some(&b"new"[..]), None] {
        assert_eq!(taken_back(value, planted), ["write"], "{value:?}");
    }
}

#[test]
fn a_tombstone_that_leaves_before_it_is_durable_is_seen() {
    let planted = EmbeddedPlantedBugs { forget_tombstones: true, ..Default::default() };
    assert_eq!(taken_back(Some(b"new"), planted), [""; 0]);
    assert_eq!(taken_back(None, planted), ["get", "scan"]);
}

/// The flush fails for which a reader waits.
#[test]
fn what_was_read_and_never_becomes_durable_is_no_reply() {
    for value in [Some(&b"new"[..]), None] {
        let mut opened = Opened::with_row(EmbeddedPlantedBugs::default());
        let flushes = opened.disk.flushes.clone();
        let gate = flushes.close();
        let replies = Replies::of(&mut opened, value);
        opened.disk.state().faults.flushes = true;
        drop(gate);
        let lost = || Err(Unknown::LogFailed.into());
        assert_eq!(replies.wait(), [lost(), lost(), lost()], "{value:?}");
        assert_eq!(opened.after_a_loss_of_power(), Some(vec![7; 300]));
    }
}
