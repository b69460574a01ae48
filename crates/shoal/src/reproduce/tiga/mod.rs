//! The experiments of the paper on Tiga (SOSP'25, §5), on clusters of this process with clients in each region.
//!
//! | file | holds |
//! |---|---|
//! | `setup.rs` | what they have in common: clusters, workloads, charts |
//! | `tables.rs` | tables 1 and 2: the most throughput, with leaders in one region and in three |
//! | `rates.rs` | figures 7, 8 and 10: over the rate at which transactions begin |
//! | `skew.rs` | figures 9 and 12: over the skew of the keys |
//! | `failure.rs` | figure 11: a leader that stops |
//! | `headroom.rs` | figure 13: by how much timestamps are ahead |
//! | `clocks.rs` | table 3 and figure 14: what the paper says, and why it is not measured |

mod clocks;
mod failure;
mod headroom;
mod rates;
mod setup;
mod skew;
mod tables;

pub use clocks::{latency_by_clock, throughput_by_clock};
pub use failure::leader_stops;
pub use headroom::over_headroom;
pub use rates::{in_local_region, in_remote_region, orders_over_rates};
pub use skew::{leaders_over_skew, over_skew};
pub use tables::{leaders_apart, most_throughput};
