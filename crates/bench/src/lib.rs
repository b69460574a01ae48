//! The workloads, measured: on an embedded database, on a cluster by clients outside of it, and by tasks within its leaders.
//!
//! ```text
//!   BenchLoad ──► Bench::embedded    threads that share a database of this process
//!             ├─► Bench::connected   clients of a cluster that runs already
//!             └─► Bench::on_cluster  a cluster that is started for each run: clients outside, or tasks in its leaders
//! ```
//! All code that is generic over workloads and databases is instantiated in this crate, and nothing of its interface is
//! generic: the command is compiled without it, and with fewer optimisations, while what is measured has all of them. A
//! cluster is a trait ([`OwnCluster`]), so that this crate needs no server and is compiled beside it.
//!
//! Read in this order: [`load`] has the workloads, [`cluster`] what is needed of a cluster, [`remote`], [`regions`], [`inside`]
//! and [`threads`] the places of clients, [`measure`] the runs.

pub mod cluster;
pub mod inside;
pub mod load;
pub mod measure;
pub mod regions;
pub mod remote;
pub mod threads;

pub use cluster::{MeasuredCluster, OwnCluster, table_definition};
pub use load::{BenchLoad, HomesLoad, IncrementsLoad, MicroLoad, TpccLoad, YcsbLoad};
pub use measure::{Bench, ClusterRuns, OutsideClients, build};
pub use remote::RemoteDatabase;

// It is defined here, since the command that it is for has fewer optimisations. Every write allocates a version, from any
// worker.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
