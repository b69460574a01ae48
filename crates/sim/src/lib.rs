//! Shoal's simulator: a whole cluster in one process, in virtual time, from one seed.
//!
//! What runs is the code that would run on machines: the same workers, engines, streams and stores. Only
//! the world around them is made up. Nothing but the seed decides what happens, so that all that is
//! found can be found again.
//!
//! Read in this order:
//!
//! | module | holds |
//! |---|---|
//! | [`queue`], [`clock`], `transaction_clocks`, [`network`], [`cpu`], [`fault_schedule`] | the parts of the world |
//! | [`simulation`] | the world: one thing happens after another |
//! | [`clients`] | who uses the cluster, from within and from outside |
//! | [`managers`], [`recovery`] | who manages the cluster, and how far each recovery is |
//! | [`checks`], [`observed`] | the rules, each judged as things happen; what else is made of what engines let be seen |
//! | [`scenario`], [`distances`], [`failures`] | what a seed stands for |
//! | [`run`](mod@run) | one seed from beginning to end |
//! | [`subject`], [`planted`] | the engines, bugs to plant in them, and how soon each is to be caught |
//! | [`coverage`], [`metrics`], [`trace`], [`digest`] | what is known of a run |

pub mod catalog;
pub mod checks;
pub mod clients;
pub mod clock;
mod cluster;
pub mod coverage;
pub mod cpu;
pub mod demonstrations;
pub mod digest;
pub mod distances;
pub mod failures;
pub mod fault_schedule;
pub mod managers;
pub mod metrics;
pub mod network;
pub mod observed;
mod panics;
pub mod planted;
pub mod queue;
pub mod recovery;
pub mod run;
pub mod scenario;
pub mod simulation;
pub mod subject;
pub mod trace;
mod transaction_clocks;
mod violation;

pub use distances::SimulatedRegions;
pub use run::{RunFailure, RunOptions, RunReport, run};
pub use subject::{AnyPlantedBug, ENGINES, Runner, SimulatedEngine, Subject};
pub use violation::Violation;
