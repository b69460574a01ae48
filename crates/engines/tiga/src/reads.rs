//! Reads of coordinators that buffer writes: a leader answers them from decided rows, with versions that `certify` compares.
//!
//! What was read at once from one leader is not certified if nothing is written, so it has to be the last state. A leader that
//! is `Ready` for a transaction of several shards does not know whether another participant has released it, and what rests on
//! it there may be committed: reads of what it writes wait until it is decided here, or refused. A transaction for which this
//! leader is not ready is released nowhere, unless others go by their clocks.
//!
//! ```text
//!   leader of X                        leader of Y
//!   Ready(T) ────────────────────────► releases T, then U, which is behind it; U is committed
//!   a read that begins now sees T      (T's `Ready` of Y is on its way to X)
//! ```

use crate::clock_agreement::is_ready_awaited;
use crate::leading::DeferredReads;
use crate::locks::Lock;
use crate::message::{Found, Message, Read};
use crate::planted_bugs::TigaPlantedBug;
use crate::queue::Waiting;
use crate::replica::Replica;
use crate::rows::Rows;
use crate::step::Step;
use crate::transaction::{KeyAccess, Part, ROW_BYTES, RangeAccess};
use shoal_cluster::topology::TableMap;
use shoal_engine::client::REQUESTS_TABLE;
use shoal_engine::operation::OperationResult;
use shoal_types::procedure::{Access, FootprintRange};
use shoal_types::{Ballot, NodeId, ShardId, Time};
use std::time::Duration;

/// One answer brings no more rows than so, and no more bytes but for one row.
const PAGE_ROWS: usize = 1 << 12;
const PAGE_BYTES: usize = 1 << 20;

/// Reads wait for so long at a leader. Their coordinator asks again for as long as it waits itself.
const DEFERRED_MAX: Duration = Duration::from_secs(2);

impl Replica {
    /// Answers reads, once all that they read is decided, and all is released that may be committed: what a recovery has found,
    /// and that for which this leader is `Ready`.
    pub fn read(&mut self, step: &mut Step<'_>, from: NodeId, number: u64, reads: Vec<Read>) {
        self.read_until(step, from, number, reads, step.now + DEFERRED_MAX);
    }

    /// The same; reads that have to wait are dropped then.
    pub(crate) fn read_until(
        &mut self,
        step: &mut Step<'_>,
        from: NodeId,
        number: u64,
        reads: Vec<Read>,
        until: Time,
    ) {
        if self.serves().is_none() || !step.has_lease || until <= step.now {
            return;
        }
        let is_promised = self.is_promised(step, &reads);
        let rows = &self.ledger.rows;
        let waits = !step.options.bugs.has(TigaPlantedBug::ReadUnstable);
        let leading = self.leading.as_mut().expect("serves");
        let is_open = !leading.inherited.is_empty() || !reads.iter().all(|it| is_decided(rows, it));
        if waits && (is_open || is_promised) {
            leading.reads.insert((from, number), DeferredReads { reads, until });
            return;
        }
        let (mut found, mut bytes) = (Vec::new(), 0);
        for read in &reads {
            let one = find(rows, read);
            bytes += ROW_BYTES + one.result.bytes();
            found.push(one);
            if bytes >= step.options.window_bytes {
                break; // The coordinator asks for the others.
            }
        }
        step.send(from, Message::ReadsDone { number, found });
    }

    /// Whether something waits that writes what is read, and for which this leader has said `Ready` or voted, under any ballots. Of the
    /// row of a request anything that waits counts (rule T10): where the row is not there, the client receives that the call never
    /// takes effect. The leader of the call's home coordinates it, so a call that may still take effect waits here.
    fn is_promised(&self, step: &Step<'_>, reads: &[Read]) -> bool {
        if step.options.bugs.has(TigaPlantedBug::ReadOverReady) || self.queue.is_empty() {
            return false;
        }
        let tables = step.library.tables;
        let requests = tables.named(REQUESTS_TABLE);
        let is_of_request =
            |read: &&Read| matches!(read, Read::Key { table, .. } if Some(*table) == requests);
        let of_requests: Vec<Read> = reads.iter().filter(is_of_request).cloned().collect();
        let of_requests = locks(tables, self.shard, &of_requests);
        let all = locks(tables, self.shard, reads);
        let is_by_clocks = |waiting: &Waiting| {
            waiting.needs_agreement()
                && !is_ready_awaited(step, &waiting.work.transaction, self.shard)
        };
        let may_be_released = |waiting: &Waiting| {
            waiting.own.is_some() || waiting.voted.is_some() || is_by_clocks(waiting)
        };
        self.queue.rivals(&all).any(may_be_released)
            || self.queue.rivals(&of_requests).next().is_some()
    }
}

/// What a transaction locks that reads so.
fn locks(tables: &TableMap, shard: ShardId, reads: &[Read]) -> Vec<Lock> {
    let mut part = Part::new(shard, Ballot::default());
    for read in reads {
        match read {
            Read::Key { table, key } => part.reads.push(KeyAccess::new(tables, *table, key)),
            Read::Range { table, granule, .. } => {
                let (table, granule) = (*table, granule.clone());
                part.ranges.push(RangeAccess { table, granule, reads: true, writes: false });
            }
        }
    }
    part.locks()
}

fn is_decided(rows: &Rows, read: &Read) -> bool {
    match read {
        Read::Key { table, key } => rows.is_decided(*table, key),
        Read::Range { table, granule, .. } => rows.is_range_decided(*table, granule.as_deref()),
    }
}

fn find(rows: &Rows, read: &Read) -> Found {
    match read {
        Read::Key { table, key } => {
            let row = rows.get(*table, key);
            let value = row.and_then(|row| row.value.clone());
            let version = row.map_or(0, |row| row.version);
            Found { result: OperationResult::Value(value), version }
        }
        Read::Range { table, range, granule } => {
            let scan = range.scan();
            let all = rows.scan(&FootprintRange::of(*table, &scan, Access::Read), scan.reverse);
            let (mut found, mut bytes, mut is_cut) = (Vec::new(), 0, false);
            for (key, value) in all.take(scan.limit) {
                if found.len() == PAGE_ROWS || bytes > PAGE_BYTES {
                    is_cut = true;
                    break;
                }
                bytes += key.len() + value.len();
                found.push((key.clone(), value.clone()));
            }
            let result = match is_cut {
                true => OperationResult::Page(found),
                false => OperationResult::Rows(found),
            };
            Found { result, version: rows.range_version(*table, granule.as_deref()) }
        }
    }
}
