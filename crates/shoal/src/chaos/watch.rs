//! Writers and recorded clients, at work while something fails.

use super::histories::{Histories, Judged};
use super::tally::Tally;
use super::writers::Writers;
use client::{Cluster, Error};
use std::time::Duration;
use workloads::history::Verdict;

/// Both, at work. To be started within a `LocalSet`.
pub struct Watch {
    writers: Writers,
    histories: Histories,
}

/// What they have seen.
#[derive(Debug)]
pub struct Seen {
    /// By those that count.
    pub tally: Tally,
    /// By those that record.
    pub judged: Judged,
}

impl Watch {
    /// Starts them, for about so long; writers pause for `pause` after each write. `run` is a number that no
    /// other run on this cluster has.
    ///
    /// # Errors
    /// A sentence, if the cluster has no tables for them.
    pub fn start(
        cluster: &Cluster,
        run: u32,
        pause: Duration,
        expected: Duration,
    ) -> Result<Watch, String> {
        let none = |error: Error| error.to_string();
        let writers = Writers::start(cluster, run, pause).map_err(none)?;
        let histories = Histories::start(cluster, (run, run.into()), expected).map_err(none)?;
        Ok(Watch { writers, histories })
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

    /// Ends them, and says what they have seen of a failure that began at `struck`.
    ///
    /// # Errors
    /// A sentence, if the database does not tell, or refuses what it must not.
    pub async fn finish(self, struck: Duration) -> Result<Seen, String> {
        let Watch { writers, histories } = self;
        let tally = writers.finish(struck).await.map_err(|error| error.to_string())?;
        Ok(Seen { tally, judged: histories.finish().await? })
    }
}

impl Seen {
    /// Whether all that was acknowledged is there, and one order explains what was seen.
    pub fn holds(&self) -> bool {
        self.tally.holds() && self.judged.verdict() == Verdict::Consistent
    }
}
