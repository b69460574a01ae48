//! Procedures that are executed by their footprints: each participating leader runs the piece of its shard, or all of it on what
//! the participants have sent each other.

use super::coordinator::oldest;
use super::transaction::{OpenCall, granule_of, part_of};
use super::{Tiga, TigaEffects};
use crate::coordinator::Outcome;
use crate::transaction::{
    Body, KeyAccess, NamedTable, Part, ProcedureCall, RangeAccess, RequestRow, Transaction,
};
use bytes::Bytes;
use shoal_cluster::topology::{Home, Homes};
use shoal_engine::execution::worker_context::{DeclaredCall, recovering};
use shoal_types::procedure::{Footprint, FootprintKey, FootprintRange, Shape};
use shoal_types::{Aborted, Result, ShardId, TableId, Unknown};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

type Parts = BTreeMap<ShardId, Part>;

/// Something that a procedure declares.
enum DeclaredAccess<'c> {
    /// A key, and whether it is written.
    Key(KeyAccess, bool),
    /// A range, and the granule that holds it, if one does.
    Range(Option<Bytes>, &'c FootprintRange),
}

impl DeclaredAccess<'_> {
    fn writes(&self) -> bool {
        match self {
            DeclaredAccess::Key(_, writes) => *writes,
            DeclaredAccess::Range(_, range) => range.access.writes(),
        }
    }

    fn add_to(&self, part: &mut Part) {
        match self {
            DeclaredAccess::Key(key, writes) => {
                let keys = if *writes { &mut part.writes } else { &mut part.reads };
                if !keys.contains(key) {
                    keys.push(key.clone());
                }
            }
            DeclaredAccess::Range(granule, range) => {
                let (table, granule) = (range.table, granule.clone());
                let (reads, writes) = (range.access.reads(), range.access.writes());
                part.ranges.push(RangeAccess { table, granule, reads, writes });
                part.declared_ranges.push((*range).clone());
            }
        }
    }
}

/// The keys that a call reads, and those that it writes, with the row of its request and the mark of those that were dropped.
fn keys_of(call: &DeclaredCall) -> impl Iterator<Item = (TableId, &Bytes, bool)> {
    let Footprint { reads, writes, .. } = &call.footprint;
    let read = reads.iter().map(|FootprintKey { table, key }| (*table, key, false));
    let written = writes.iter().map(|FootprintKey { table, key }| (*table, key, true));
    let request = call.request.iter().map(|row| (row.table, &row.key, true));
    let marks = call.request.iter().filter_map(|row| Some((row.table, row.mark.as_ref()?, false)));
    read.chain(written).chain(request).chain(marks)
}

impl Tiga {
    /// Executes a procedure, or says that it is to be run at the coordinator.
    pub(super) fn begin_call(&mut self, call: &Rc<DeclaredCall>, effects: &mut TigaEffects) {
        let parts = match self.parts_of(call) {
            Ok(parts) => parts,
            Err(error) => return call.results.fill(Err(error)),
        };
        let is_whole = call.footprint.shape == Shape::Whole && parts.len() > 1;
        if parts.is_empty() {
            return call.results.fill(Ok(None));
        }
        let id = call.remote_branches.id;
        let oldest = oldest(&self.runtime.worker_context, self.node.coordinator());
        let request = call.request.as_ref().map(|row| RequestRow {
            home: row.id.session.home,
            table: row.table,
            key: row.key.clone(),
            number: row.id.number,
            mark: row.mark.clone(),
        });
        let (procedure, arguments) = (call.procedure.clone(), call.arguments.clone());
        let tables = self.tables_of(&parts);
        let procedure_call = ProcedureCall { procedure, arguments, tables, request };
        let body = match is_whole {
            true => Body::Whole { call: procedure_call },
            false => Body::Pieces { call: procedure_call },
        };
        let transaction = Transaction { id, oldest, by_log: false, body, parts };
        if let Err(error) = transaction.check_bytes() {
            return call.results.fill(Err(error));
        }
        let parts = &transaction.parts;
        let keys: usize = parts.iter().map(|part| part.reads.len() + part.writes.len()).sum();
        let is_writer =
            |part: &&Part| !part.writes.is_empty() || part.ranges.iter().any(|range| range.writes);
        let writers = parts.iter().filter(is_writer).count();
        if writers > 0
            && let Err(full) = self.shared.check_room()
        {
            return call.results.fill(Err(full));
        }
        self.runtime.count_writes(&call.remote_branches, writers);
        self.runtime.counters.operations += keys as u64;
        let shards = parts.iter().map(|part| part.shard).collect();
        self.calls.insert(id.sequence, OpenCall { call: Rc::clone(call), shards });
        let patience = self.patience(keys);
        self.with_node(effects, |node, now, library| {
            node.begin(now, library, transaction, patience);
        });
    }

    /// The tables of these parts, by their names.
    fn tables_of(&self, parts: &[Part]) -> Vec<NamedTable> {
        let known = self.runtime.worker_context.known_tables();
        let keys = parts.iter().flat_map(|part| part.reads.iter().chain(&part.writes));
        let ranges = parts.iter().flat_map(|part| &part.ranges).map(|range| range.table);
        let tables: BTreeSet<TableId> = keys.map(|key| key.table).chain(ranges).collect();
        let named = |table: TableId| {
            let name = known.get(table)?.name().into();
            Some(NamedTable { name, table })
        };
        tables.into_iter().filter_map(named).collect()
    }

    /// What the procedure touches on each shard. What every shard has is read on each that takes part; reading it does not
    /// make a shard take part.
    fn parts_of(&self, call: &DeclaredCall) -> Result<Vec<Part>> {
        let worker_context = &self.runtime.worker_context;
        let tables = worker_context.known_tables();
        let (mut parts, mut read_anywhere) = (Parts::new(), Vec::new());
        for (table, key, writes) in keys_of(call) {
            let access = DeclaredAccess::Key(KeyAccess::new(&tables, table, key), writes);
            let homes = match worker_context.home_of(table, key)? {
                Home::One(shard) => Homes::One(shard),
                Home::Everywhere => Homes::Everywhere,
            };
            self.place(&mut parts, &mut read_anywhere, homes, access);
        }
        for range in &call.footprint.ranges {
            let granule = granule_of(&tables, range);
            let access = DeclaredAccess::Range(granule, range);
            let homes = worker_context.homes_of(range.table, &range.scan())?;
            self.place(&mut parts, &mut read_anywhere, homes, access);
        }
        if parts.is_empty() && !read_anywhere.is_empty() {
            part_of(&mut parts, self.node.view(), worker_context.nearest());
        }
        for part in parts.values_mut() {
            read_anywhere.iter().for_each(|access| access.add_to(part));
        }
        Ok(parts.into_values().collect())
    }

    /// Adds an access to the parts of the shards that it makes take part, or to those that can be made on any.
    fn place<'c>(
        &self,
        parts: &mut Parts,
        read_anywhere: &mut Vec<DeclaredAccess<'c>>,
        homes: Homes,
        access: DeclaredAccess<'c>,
    ) {
        let shards = match homes {
            Homes::One(shard) => vec![shard],
            Homes::Ordered(shards) | Homes::Mixed(shards) => shards,
            Homes::Everywhere if access.writes() => {
                self.runtime.worker_context.topology.shard_ids().collect()
            }
            Homes::Everywhere => return read_anywhere.push(access),
        };
        for shard in shards {
            access.add_to(part_of(parts, self.node.view(), shard));
        }
    }

    /// A procedure has been executed, or was not.
    pub(super) fn call_ended(&mut self, sequence: u64, outcome: Outcome) {
        let Some(OpenCall { call, shards }) = self.calls.remove(&sequence) else { return };
        let results = match outcome {
            Outcome::Committed(mut results) => {
                if call.footprint.shape == Shape::Whole {
                    // Each participant has executed all of it, and found the same.
                    results.truncate(1);
                }
                match refused_in_part(&results).and_then(|place| shards.get(place)) {
                    Some(shard) => Err(Unknown::Participant { shard: *shard }.into()),
                    None => results.into_iter().collect::<Result<Vec<Bytes>>>().map(Some),
                }
            }
            Outcome::Gone(shard) => {
                Err(match call.request.as_ref().filter(|it| it.mark.is_some()) {
                    // Its row may say that it never takes effect.
                    Some(row) if row.id.session.home == shard => {
                        Aborted::CallSessionOver { request: row.id }.into()
                    }
                    _ => recovering(shard),
                })
            }
            Outcome::Unknown(shard) => Err(Unknown::Participant { shard }.into()),
        };
        call.results.fill(results);
    }
}

/// The place of the piece that has refused what others have done: they cannot know of it, so that what the procedure has done
/// is neither all nor nothing.
fn refused_in_part(results: &[Result<Bytes>]) -> Option<usize> {
    let refused = results.iter().position(Result::is_err)?;
    results.iter().any(Result::is_ok).then_some(refused)
}
