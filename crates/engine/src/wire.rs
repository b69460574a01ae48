//! The forms of what engines have in common: operations and their answers, what clients ask and are told,
//! and how requests to branches begin.

use crate::client::{
    ClientId, ClientReply, ClientRequest, Directory, FromClient, Relay, SessionEnd, ToClient,
};
use crate::execution::participant_table::BranchHeader;
use crate::operation::{Operation, OperationResult, OwnedScan, RangeEnd};
use crate::replication::codec::StreamWrite;
use crate::transaction_id::TransactionId;
use bytes::Bytes;
use shoal_cluster::manager::Configuration;
use shoal_cluster::topology::Topology;
use shoal_types::{
    Epoch, NodeId, ShardId, TableId, WorkerId, coded_enum, coded_newtype, coded_struct,
};
use std::ops::Bound;
use std::sync::Arc;

coded_newtype!(ClientId(u64));

coded_struct!(TransactionId {
    node: NodeId as short,
    worker: WorkerId as short,
    sequence: u64 as short,
});

coded_struct!(StreamWrite { table: TableId as short, key: Bytes, value: Option<Bytes> });

coded_struct!(BranchHeader {
    transaction: TransactionId,
    shard: ShardId as short,
    step: u32 as short,
    oldest: u64 as short,
    epoch: Epoch as short,
    leadership: Epoch as short,
});

coded_enum!(Operation of 3 bytes or more {
    0 => Get { table as short, key },
    1 => Scan { table as short, range },
    2 => Put { table as short, key, value },
    3 => Insert { table as short, key, value },
});

coded_enum!(OperationResult {
    0 => Value(value),
    1 => Rows(rows as short),
    2 => Done,
    3 => Page(rows as short),
    4 => Later,
});

coded_struct!(OwnedScan {
    start: Bound<Bytes>,
    end: RangeEnd,
    reverse: bool,
    limit: u64 as short,
});

coded_enum!(RangeEnd {
    0 => Bound(bound),
    1 => Prefix(prefix),
});

// Steps one by one had the numbers from 1 to 3, and their replies 1 and 2: other releases may still say them.
coded_enum!(ClientRequest {
    0 => Call { id, procedure as short, arguments },
    4 => OpenCalls { token, home as short },
    5 => Register,
    6 => Steps { registration, session as short, number as short, operations as short, ending },
});

coded_enum!(SessionEnd {
    0 => Commit,
    1 => Confirm,
    2 => Rollback,
});

coded_enum!(ClientReply {
    0 => Called { id, result },
    3 => CallsOpened { token, result },
    4 => Registered { registration },
    5 => Done { session as short, number as short, result },
});

coded_enum!(Relay {
    0 => Request { from as short, request },
    1 => Reply { to as short, reply },
});

coded_enum!(FromClient {
    0 => Request(request),
    1 => Directory,
    2 => Status,
    3 => Isolate(isolated),
});

coded_enum!(ToClient {
    0 => Reply(reply),
    1 => Directory(directory),
    2 => Status(json),
    3 => Isolated(isolated),
});

coded_struct!(Directory { topology: Arc<Topology>, configuration: Option<Arc<Configuration>> });

#[cfg(any(test, feature = "strategies"))]
pub mod strategies;
#[cfg(test)]
mod tests;
