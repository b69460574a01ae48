//! The experiments of the papers on Mako (OSDI'25, §7), Zeus (EuroSys'21, §8) and Tiga (SOSP'25, §5), scaled down to one
//! machine, and beside ours the numbers that the papers have published.
//!
//! | file | holds |
//! |---|---|
//! | `experiment.rs` | what an experiment is: runs, and the charts in which they stand beside the paper's numbers |
//! | `quantity.rs` | what is shown of a run |
//! | `run.rs` | one run: a workload on a cluster, or on an embedded database |
//! | `scale.rs` | how all of them are scaled |
//! | `throughput.rs` | figures 6, 9 and 12: throughput over shards, shares, stamps |
//! | `latency.rs` | figures 7 and 8: batches, and light load |
//! | `concurrency.rs` | figure 11: more and more clients |
//! | `locality.rs` | figures 7, 8 and 9 of Zeus: handovers, SmallBank, TATP |
//! | `moves.rs` | figures 10, 11 and 12 of Zeus: moves in bulk, beside votes, and how long one takes |
//! | `tiga/` | tables and figures of Tiga, by clients in several regions |
//! | `factors.rs` | the table of §7.9: what each part costs |
//! | `failure.rs` | figure 13: a shard that fails, in virtual time |
//! | `view.rs` | tables and plots |
//! | `outcome.rs` | the results, on the terminal, as a page and as JSON |
//!
//! What always holds: a number of the paper is one that its text or a table says; what stands only in a
//! drawing is left out, and so is what it does not say.

mod concurrency;
mod experiment;
mod factors;
mod failure;
mod latency;
mod locality;
mod moves;
mod outcome;
mod quantity;
mod run;
mod scale;
mod throughput;
mod tiga;
mod view;

pub use experiment::Experiment;
pub use failure::{about_failure, show_failure};
pub use outcome::ExperimentOutcome;
pub use run::Budget;

/// An experiment that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// Throughput over shards.
    Figure6,
    /// Latency over the size of batches.
    Figure7,
    /// Latency under light load.
    Figure8,
    /// Share of transactions that leave their shard.
    Figure9,
    /// Number of clients.
    Figure11,
    /// Forms of stamps.
    Figure12,
    /// What each part costs.
    Factors,
    /// Zeus: handovers.
    Handovers,
    /// Zeus: SmallBank.
    SmallBank,
    /// Zeus: TATP.
    Tatp,
    /// Zeus: moves in bulk.
    BulkMoves,
    /// Zeus: moves beside votes.
    MovesBesideVotes,
    /// Zeus: the latency of a move.
    MoveLatency,
    /// Tiga: the most throughput.
    TigaTable1,
    /// Tiga: leaders apart.
    TigaTable2,
    /// Tiga: throughput by clock.
    TigaTable3,
    /// Tiga: rates, in the leaders' region.
    TigaFigure7,
    /// Tiga: rates, in a region without replicas.
    TigaFigure8,
    /// Tiga: skews.
    TigaFigure9,
    /// Tiga: TPC-C over rates.
    TigaFigure10,
    /// Tiga: a leader stops.
    TigaFigure11,
    /// Tiga: leaders apart, over skews.
    TigaFigure12,
    /// Tiga: headroom.
    TigaFigure13,
    /// Tiga: latency by clock.
    TigaFigure14,
}

impl Measured {
    /// All of them.
    #[cfg(test)]
    const ALL: [Measured; 24] = [
        Measured::Figure6,
        Measured::Figure7,
        Measured::Figure8,
        Measured::Figure9,
        Measured::Figure11,
        Measured::Figure12,
        Measured::Factors,
        Measured::Handovers,
        Measured::SmallBank,
        Measured::Tatp,
        Measured::BulkMoves,
        Measured::MovesBesideVotes,
        Measured::MoveLatency,
        Measured::TigaTable1,
        Measured::TigaTable2,
        Measured::TigaTable3,
        Measured::TigaFigure7,
        Measured::TigaFigure8,
        Measured::TigaFigure9,
        Measured::TigaFigure10,
        Measured::TigaFigure11,
        Measured::TigaFigure12,
        Measured::TigaFigure13,
        Measured::TigaFigure14,
    ];

    /// What is to be run.
    pub fn experiment(self) -> Experiment {
        match self {
            Measured::Figure6 => throughput::over_shards(),
            Measured::Figure7 => latency::over_batches(),
            Measured::Figure8 => latency::under_light_load(),
            Measured::Figure9 => throughput::over_shares(),
            Measured::Figure11 => concurrency::over_clients(),
            Measured::Figure12 => throughput::over_stamps(),
            Measured::Factors => factors::table(),
            Measured::Handovers => locality::handovers(),
            Measured::SmallBank => locality::small_bank(),
            Measured::Tatp => locality::tatp(),
            Measured::BulkMoves => moves::in_bulk(),
            Measured::MovesBesideVotes => moves::beside_votes(),
            Measured::MoveLatency => moves::latency(),
            Measured::TigaTable1 => tiga::most_throughput(),
            Measured::TigaTable2 => tiga::leaders_apart(),
            Measured::TigaTable3 => tiga::throughput_by_clock(),
            Measured::TigaFigure7 => tiga::in_local_region(),
            Measured::TigaFigure8 => tiga::in_remote_region(),
            Measured::TigaFigure9 => tiga::over_skew(),
            Measured::TigaFigure10 => tiga::orders_over_rates(),
            Measured::TigaFigure11 => tiga::leader_stops(),
            Measured::TigaFigure12 => tiga::leaders_over_skew(),
            Measured::TigaFigure13 => tiga::over_headroom(),
            Measured::TigaFigure14 => tiga::latency_by_clock(),
        }
    }
}

#[cfg(test)]
mod tests;
