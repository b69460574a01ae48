//! Procedures that are executed by their footprints: each participating leader runs the piece of its shard.
//!
//! A procedure of shape `Whole` is executed so where one shard has all that it touches; otherwise its body runs at the
//! coordinator, as that of any other transaction, and is certified.

use super::transaction::{OpenCall, granule_of_scan, part_of};
use super::{Tiga, TigaEffects};
use crate::coordinator::{Outcome, joined};
use crate::transaction::{Body, KeyAccess, Part, RangeAccess, RequestRow, Transaction};
use bytes::Bytes;
use shoal_cluster::topology::{Home, Homes};
use shoal_engine::execution::worker_context::{DeclaredCall, DeclaredRow, recovering};
use shoal_types::procedure::{FootprintKey, Shape};
use shoal_types::transaction::ScanEnd;
use shoal_types::{Result, Scan, ShardId, TableId, Unknown};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

type Parts = BTreeMap<ShardId, Part>;

impl Tiga {
    /// Executes a procedure, or says that it is to be run at the coordinator.
    pub(super) fn begin_call(&mut self, call: &Rc<DeclaredCall>, effects: &mut TigaEffects) {
        let parts = match self.parts_of(call) {
            Ok(parts) => parts,
            Err(error) => return call.results.fill(Err(error)),
        };
        let is_whole = call.footprint.shape == Shape::Whole;
        if parts.is_empty() || (is_whole && parts.len() > 1) {
            return call.results.fill(Ok(None));
        }
        let id = call.remote_branches.id;
        let oldest = self.runtime.worker_context.sequences.borrow().oldest();
        let request = call.request.as_ref().map(|row| RequestRow {
            home: row.home,
            table: row.table,
            key: row.key.clone(),
            number: row.number,
        });
        let (procedure, arguments) = (call.procedure.clone(), call.arguments.clone());
        let body = Body::Pieces { procedure, arguments, request };
        let keys: usize = parts.iter().map(|part| part.reads.len() + part.writes.len()).sum();
        let is_writer =
            |part: &&Part| !part.writes.is_empty() || part.ranges.iter().any(|range| range.writes);
        let writers = parts.iter().filter(is_writer).count();
        self.runtime.count_writes(&call.remote_branches, writers);
        self.runtime.counters.operations += keys as u64;
        let transaction = Transaction { id, oldest, body, parts };
        self.calls.insert(id.sequence, OpenCall { call: Rc::clone(call) });
        let patience = self.patience(keys);
        self.with_node(effects, |node, now, library| {
            node.begin(now, library, transaction, patience);
        });
    }

    /// What the procedure touches on each shard.
    fn parts_of(&self, call: &DeclaredCall) -> Result<Vec<Part>> {
        let mut parts = Parts::new();
        let footprint = &call.footprint;
        for FootprintKey { table, key } in &footprint.reads {
            self.add_key(&mut parts, *table, key, false)?;
        }
        for FootprintKey { table, key } in &footprint.writes {
            self.add_key(&mut parts, *table, key, true)?;
        }
        for range in &footprint.ranges {
            let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let scan = Scan {
                start: Bound::Included(&range.start[..]),
                end: ScanEnd::Bound(end),
                reverse: false,
                limit: usize::MAX,
            };
            self.add_range(&mut parts, range.table, &scan, range.access.writes())?;
        }
        if let Some(DeclaredRow { table, key, .. }) = &call.request {
            self.add_key(&mut parts, *table, key, true)?;
        }
        Ok(parts.into_values().collect())
    }

    fn add_key(&self, parts: &mut Parts, table: TableId, key: &Bytes, writes: bool) -> Result<()> {
        let worker_context = &self.runtime.worker_context;
        let access = KeyAccess::new(&worker_context.known_tables(), table, key);
        let shards = match worker_context.home_of(table, key)? {
            Home::One(shard) => vec![shard],
            Home::Everywhere => worker_context.topology.shard_ids().collect(),
        };
        for shard in shards {
            let part = part_of(parts, self.node.view(), shard);
            let accesses = if writes { &mut part.writes } else { &mut part.reads };
            if !accesses.contains(&access) {
                accesses.push(access.clone());
            }
        }
        Ok(())
    }

    fn add_range(
        &self,
        parts: &mut Parts,
        table: TableId,
        scan: &Scan<'_>,
        writes: bool,
    ) -> Result<()> {
        let worker_context = &self.runtime.worker_context;
        let granule = granule_of_scan(&worker_context.known_tables(), table, scan);
        let shards = match worker_context.homes_of(table, scan)? {
            Homes::One(shard) => vec![shard],
            Homes::Ordered(shards) | Homes::Mixed(shards) => shards,
            Homes::Everywhere => worker_context.topology.shard_ids().collect(),
        };
        for shard in shards {
            let part = part_of(parts, self.node.view(), shard);
            part.ranges.push(RangeAccess { table, granule: granule.clone(), writes });
        }
        Ok(())
    }

    /// A procedure has been executed, or was not.
    pub(super) fn call_ended(&mut self, sequence: u64, outcome: Outcome) {
        let Some(OpenCall { call }) = self.calls.remove(&sequence) else { return };
        let results = match outcome {
            Outcome::Committed(results) => {
                let arguments = Bytes::new();
                let body = Body::Pieces { procedure: "".into(), arguments, request: None };
                joined(&body, results).map(Some)
            }
            Outcome::Gone(shard) => Err(recovering(shard)),
            Outcome::Unknown(shard) => Err(Unknown::Participant { shard }.into()),
        };
        call.results.fill(results);
    }
}
