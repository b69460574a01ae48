//! Workloads to judge a transactional store by, histories and their checker, reports.

mod arguments;
pub mod bench;
pub mod catalog;
pub mod history;
pub mod increments;
pub mod locality;
pub mod micro;
pub mod model;
pub mod placed;
pub mod procedures;
pub mod report;
pub mod rows;
pub mod tally;
pub mod tpcc;
pub mod workload;
pub mod ycsb;
pub mod zipf;
