//! Reads of coordinators that buffer writes: a leader answers them from decided rows, with versions that `certify` compares.

use crate::digest::{granule_resource, table_resource};
use crate::execute::bounds_of;
use crate::leading::DeferredReads;
use crate::message::{Found, Message, Read};
use crate::planted_bugs::TigaPlantedBug;
use crate::replica::Replica;
use crate::rows::Rows;
use crate::step::Step;
use shoal_engine::operation::OperationResult;
use shoal_types::NodeId;

/// One answer brings no more rows than so, and no more bytes but for one row.
const PAGE_ROWS: usize = 1 << 12;
const PAGE_BYTES: usize = 1 << 20;

impl Replica {
    /// Answers reads, once all that they read is decided, and all is released that a recovery has found: it may be committed.
    pub fn read(&mut self, step: &mut Step<'_>, from: NodeId, number: u64, reads: Vec<Read>) {
        if self.serves().is_none() || !step.has_lease {
            return;
        }
        let rows = &self.ledger.rows;
        let waits = !step.options.bugs.has(TigaPlantedBug::ReadUnstable);
        let leading = self.leading.as_mut().expect("serves");
        let is_open = !leading.inherited.is_empty() || !reads.iter().all(|it| is_decided(rows, it));
        if waits && is_open {
            if !leading.reads.iter().any(|it| it.from == from && it.number == number) {
                leading.reads.push(DeferredReads { from, number, reads });
            }
            return;
        }
        let found = reads.iter().map(|read| find(rows, read)).collect();
        step.send(from, Message::ReadsDone { number, found });
    }
}

fn is_decided(rows: &Rows, read: &Read) -> bool {
    match read {
        Read::Key { table, key } => rows.is_decided(*table, key),
        Read::Range { table, granule, .. } => rows.is_range_decided(resource(*table, granule)),
    }
}

fn resource(table: shoal_types::TableId, granule: &Option<bytes::Bytes>) -> u64 {
    match granule {
        Some(prefix) => granule_resource(table, prefix),
        None => table_resource(table),
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
            let all = rows.scan(*table, &bounds_of(&scan), scan.reverse);
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
            Found { result, version: rows.range(resource(*table, granule)).version }
        }
    }
}
