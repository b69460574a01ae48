//! The clients of the cluster: those that run on its workers, and clients outside. Both run the same
//! workloads.
//!
//! In reading order: `ledger.rs` (what clients record), `scenario_clients.rs` (a workload that any client can
//! run), `retrying_database.rs` (how their data is loaded), `outside.rs` (the shipped client), `process.rs`
//! (the simulated environment of that client), then the groups of clients that are made for the simulator:
//! `histories.rs`, `tokens.rs`, `calls.rs`, `skew.rs`, `tables.rs`.

pub mod calls;
pub mod histories;
pub mod ledger;
pub mod outside;
pub mod process;
mod retrying_database;
pub mod scenario_clients;
pub mod skew;
pub mod tables;
pub mod tokens;

pub use ledger::Ledger;
pub use scenario_clients::{ClientContext, ScenarioClients};
