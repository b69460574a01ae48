//! The bench: runs a [`Workload`](crate::workload::Workload) against a
//! [`Database`](shoal_types::Database) and measures it.
//!
//! Read in this order: [`runner`] has the phases of a run, [`place`] the places of clients, `worker` is the loop whose speed
//! is measured, `schedule` wakes clients that share a thread, [`measurement`] is what comes out, [`stages`] the time of each stage of a commit, [`processor_time`] what a transaction costs, [`machine`] states where it was measured.
//!
//! This is the one place of the crate that reads real clocks. Numbers of one run are compared only
//! with numbers of the same run on the same machine.

#![allow(clippy::disallowed_methods, reason = "measuring takes clocks, a fixed rate takes waiting")]

mod executor;
mod gate;
mod loader;
pub mod machine;
pub mod measurement;
pub mod place;
pub mod processor_time;
pub mod runner;
mod schedule;
pub mod stages;
mod worker;

pub use executor::block_on;
pub use machine::Machine;
pub use measurement::Measurement;
pub use place::{BenchPlace, BenchRole, Threads, Work};
pub use processor_time::ProcessorTime;
pub use runner::{BenchProgress, BenchSettings, Build, Failure, Stage, run};
pub use stages::StageTime;
