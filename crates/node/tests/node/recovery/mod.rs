//! Nodes crash, restart, and are cut off, and the shards they led are taken over: a small cluster with a
//! manager, on a network that loses and delays. What was acknowledged stays, what was aborted
//! never was, and all replicas end equal.
//!
//! `RECOVERY_FIRST` and `RECOVERY_SEEDS` choose other bad times, `RECOVERY_TRACE` shows what happened in one
//! that fails.

mod accepted_loss;
mod cluster;
mod former_leaders;
mod lost_shard;
mod odd_times;
mod parts;
mod plateau;
mod scenarios;
mod snapshots;
mod two_phase_commit;
mod undecided;
