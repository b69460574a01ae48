//! Shoal's simulator: a whole cluster in one process, in virtual time, from one seed.
//!
//! The simulated code is the code of real nodes: the same workers, engines, streams and stores. Time,
//! network, disks and clocks are simulated. The seed alone decides what happens, so that every failure that
//! was found can be repeated.
//!
//! Read in this order:
//!
//! | module | holds |
//! |---|---|
//! | [`queue`], [`clock`], [`transaction_clocks`], [`network`], [`cpu`], `disk`, [`fault_schedule`] | the parts of the simulated environment |
//! | [`simulation`] | the event loop that runs a cluster in it |
//! | [`clients`] | the clients, on workers and outside |
//! | [`managers`], [`recovery`], `replacements`, `node_changes` | the configuration managers, the progress of each recovery, replicas that move, and nodes that are added and removed |
//! | [`checks`], [`observed`] | the rules, each judged at every step; what else is done with observations |
//! | [`scenario`], [`distances`], [`failures`], [`majority_loss`], `draw`, `seed_ranges` | what is drawn from a seed, and how |
//! | [`run`](mod@run) | one seed from beginning to end |
//! | [`subject`], [`engines`], [`planted`] | an engine and its bugs to plant; the engines; how soon each bug has to be caught |
//! | [`coverage`], [`metrics`], [`trace`], [`digest`], [`panics`] | what a run reports |

pub mod checks;
pub mod clients;
pub mod clock;
mod cluster;
pub mod coverage;
pub mod cpu;
pub mod demonstrations;
pub mod digest;
mod disk;
pub mod distances;
mod draw;
pub mod engines;
pub mod failures;
pub mod fault_schedule;
pub mod majority_loss;
pub mod managers;
pub mod metrics;
pub mod network;
mod node_changes;
pub mod observed;
pub mod panics;
pub mod planted;
pub mod queue;
pub mod recovery;
mod replacements;
pub mod run;
pub mod scenario;
mod seed_ranges;
pub mod simulation;
pub mod subject;
pub mod trace;
pub mod transaction_clocks;
mod violation;

pub use distances::SimulatedRegions;
pub use engines::{Runner, SimulatedEngine};
pub use run::{RunFailure, RunOptions, RunReport, run};
pub use subject::{AnyPlantedBug, Subject};
pub use violation::Violation;
