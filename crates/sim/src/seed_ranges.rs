//! Which seeds have what. Seeds from before something was added keep the meaning that they had: many are recorded for what they found.

use std::ops::Range;

/// From this seed on, with an engine that allows it, one in so many seeds has a node without replicas, which
/// coordinates transactions and hosts half of the clients on workers. Lower seeds are recorded for what they
/// found, and do not change.
pub(crate) const COORDINATORS_FROM: u64 = 10_000_000;

/// These seeds have clients of a workload whose data has homes: its loads write hundreds of rows in a transaction.
pub(crate) const HOMES_SEEDS: Range<u64> = 1 << 23..COORDINATORS_FROM;

/// Of these seeds, in one of so many, stores are full after little more than what is loaded: far more often than in others,
/// of which some are recorded for what they found.
pub(crate) const FULL_SEEDS: Range<u64> = 3 << 23..1 << 25;

/// From this seed on, one in so many has clients that create and drop tables. Lower seeds keep the meaning that they had
/// before.
pub(crate) const TABLES_FROM: u64 = 1 << 25;

/// From this seed on replicas are replaced while clients run, and nodes without replicas are there to take them.
pub(crate) const REPLACEMENTS_FROM: u64 = 1 << 26;

/// From this seed on, commits of clients outside have request ids in one of so many. Lower seeds keep the meaning that they
/// had before.
pub(crate) const COMMIT_IDS_FROM: u64 = 1 << 27;

/// From this seed on, nodes are added and removed while clients run. Lower seeds keep the meaning that they had before.
pub(crate) const NODES_FROM: u64 = 1 << 28;

/// In these seeds, and in [`ACCEPTED_LOSS_SEEDS`], nodes have disks, and power fails. Others keep the meaning that they had before.
pub(crate) const DISK_SEEDS: Range<u64> = 1 << 29..1 << 30;

/// Of these seeds, from this one on, disks are full at times.
pub(crate) const FULL_DISKS_FROM: u64 = 3 << 28;

/// And from this one on they fail, too, and are damaged.
pub(crate) const BAD_DISKS_FROM: u64 = 7 << 27;

/// And from this one on, as many find a disk as it was at the end of an earlier process.
pub(crate) const OLDER_DISKS_FROM: u64 = 15 << 26;

/// And from this one on, as many processes do not begin, since a disk cannot be read.
pub(crate) const UNREADABLE_DISKS_FROM: u64 = 63 << 24;

/// In these seeds, too, nodes have disks. With an engine that allows it, one shard loses a majority of its voters, which an operator
/// accepts, and they return with their disks.
pub(crate) const ACCEPTED_LOSS_SEEDS: Range<u64> = 1 << 30..9 << 27;

/// All seeds whose nodes have disks.
pub(crate) const ALL_ON_DISKS: Range<u64> = DISK_SEEDS.start..ACCEPTED_LOSS_SEEDS.end;

/// From this seed on, one in so many has very unequal distances. Lower seeds keep the meaning that they had
/// before.
pub(crate) const UNEQUAL_FROM: u64 = 1 << 24;
