//! Workloads to judge a transactional store by, histories and their checker, reports.

pub mod model;
pub mod workload;
