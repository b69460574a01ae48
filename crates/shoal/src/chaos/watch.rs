//! Writers and recorded clients, at work while something fails.

use super::histories::{Judged, RecordedClients};
use super::tally::Tally;
use super::writers::Writers;
use shoal_client::{Cluster, Error};
use shoal_workloads::history::Verdict;
use std::time::Duration;

/// Both, at work. To be started within a `LocalSet`.
pub struct ChaosClients {
    writers: Writers,
    histories: RecordedClients,
}

/// What they have seen.
#[derive(Debug)]
pub struct ChaosObservations {
    /// By those that count.
    pub tally: Tally,
    /// By those that record.
    pub judged: Judged,
}

impl ChaosClients {
    /// Starts them, for about so long; writers pause for `pause` after each write. `run` is a number that no
    /// other run on this cluster has.
    ///
    /// # Errors
    /// A sentence, if the tables for them cannot be created.
    pub fn start(
        cluster: &Cluster,
        run: u32,
        pause: Duration,
        expected: Duration,
    ) -> Result<ChaosClients, String> {
        let none = |error: Error| error.to_string();
        let writers = Writers::start(cluster, run, pause).map_err(none)?;
        let histories = RecordedClients::start(cluster, run, run.into(), expected).map_err(none)?;
        Ok(ChaosClients { writers, histories })
    }

    /// How long they are at work.
    pub fn elapsed(&self) -> Duration {
        self.writers.elapsed()
    }

    /// See [`Writers::until_served`].
    ///
    /// # Errors
    /// As there.
    pub async fn until_served(&self, patience: Duration) -> Result<(), String> {
        self.writers.until_served(patience).await
    }

    /// Stops the observers, and returns what they have seen of a failure that began at `struck`.
    ///
    /// # Errors
    /// A sentence, if the database does not answer, or refuses what it must not.
    pub async fn finish(self, struck: Duration) -> Result<ChaosObservations, String> {
        let ChaosClients { writers, histories } = self;
        let tally = writers.finish(struck).await.map_err(|error| error.to_string())?;
        Ok(ChaosObservations { tally, judged: histories.finish().await? })
    }
}

impl ChaosObservations {
    /// Whether all that was acknowledged is there, and one order explains what was seen.
    pub fn holds(&self) -> bool {
        self.tally.holds() && self.judged.verdict() == Verdict::Consistent
    }
}
