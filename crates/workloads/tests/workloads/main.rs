//! The workloads, the bench and its reports on the embedded database; and the checker of histories.

mod bench;
mod footprints;
mod history_common;
mod history_fuzz;
mod history_generator;
mod history_oracle;
mod history_planted;
mod history_properties;
mod increments;
mod locality;
mod micro;
mod report;
mod tpcc;
mod ycsb;
