//! Parts of the simulator, each alone, without a cluster.

mod client_process;
mod clock;
mod cpu;
mod digest;
mod distances;
mod fault_schedule;
mod network;
mod panics;
mod queue;
mod replicas;
mod scenario;
mod trace;
mod transaction_clocks;
