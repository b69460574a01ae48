//! Figure 13 of the paper: one of several shards fails. In virtual time, as `shoal sim show failure` shows it.

use super::experiment::About;
use shoal_sim::demonstrations::{Demonstration, DemonstrationOptions, DemonstrationResults};

/// What there is to be known of it.
pub fn about_failure() -> About {
    About {
        name: "mako-fig13",
        title: "Mako, figure 13: a single shard fails",
        paper: "TPC-C; the leader of one shard is shut down, and a learner takes over. The failed shard does \
                nothing for 10 seconds, the timeout of a heartbeat, and is back at its throughput soon after. \
                A healthy shard goes on with what does not touch the failed one, and takes up the rest once \
                the FVW is there. Mako-epoch, which commits in groups, executes nothing successfully until \
                the failure is noticed. Its text has no throughput.",
        scaled: vec![
            "In virtual time: the engines, streams and managers are the real ones; distances, processors and \
             the failure are made up, so that the rates say nothing of a machine, and a seed shows the same \
             everywhere."
                .to_owned(),
            "Four shards and the micro-benchmark instead of TPC-C.".to_owned(),
            "A lease takes 600 ms here, where the paper's heartbeat takes 10 s.".to_owned(),
            "\"Groups\" is what the paper calls Mako-epoch; \"one timestamp\" is one more way to do without \
             vectors."
                .to_owned(),
        ],
    }
}

/// Shows it.
///
/// # Errors
/// Where a cluster did not work at all.
pub fn show_failure(orders: &DemonstrationOptions) -> Result<DemonstrationResults, String> {
    Demonstration::Failure.show(orders)
}
