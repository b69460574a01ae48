//! The options of a cluster's client.

use super::error::OptionsError;
use shoal_net::client::Access;
use std::time::Duration;

/// The limits and times of a cluster's client. Start from the default:
///
/// ```
/// # use shoal_client::{Access, ClusterOptions};
/// # use std::time::Duration;
/// let options = ClusterOptions {
///     access: Access::open("reef"),
///     deadline: Duration::from_secs(2),
///     ..ClusterOptions::default()
/// };
/// # assert_eq!(options.attempts_max, 1000);
/// ```
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// The cluster's name, the secret of its clients, TLS, and the limits of frames. Default: the cluster
    /// `shoal`, no secret, no TLS.
    pub access: Access,
    /// Where the client is: a datacenter of the cluster's topology, by its name. Its frames then take as long to each node
    /// and back as the topology says (`[[distance]]`), and [`patience`](ClusterOptions::patience) and
    /// [`silence_max`](ClusterOptions::silence_max) are at least twice the longest round trip. Emulated, to measure what a distance costs; one more task for each way of a connection. Default: none, and no delay.
    pub region: Option<String>,
    /// Longest time of a transaction with all its attempts, of a call, or of an operation of a transaction
    /// that the caller began. Then it is given up, with an error that says what it waited for. Longer
    /// survives longer outages. See [`Cluster::with_deadline`](crate::Cluster::with_deadline) for that of a
    /// single call. Default 10 s.
    pub deadline: Duration,
    /// The time without an answer after which a request is sent again; each further time is twice as long, up
    /// to 16 times. Shorter detects losses and failed leaders earlier, longer sends fewer requests in vain.
    /// Default 100 ms.
    pub patience: Duration,
    /// A node that has sent nothing for so long after a request is given up: transactions that were not asked
    /// to commit there are aborted, and run elsewhere. At least [`patience`](ClusterOptions::patience), or a node would be
    /// given up before it is asked again. Default 2 s.
    pub silence_max: Duration,
    /// Most transactions and calls in progress at once. More make the next one fail, with an error that says
    /// so. Default 1024.
    pub transactions_max: usize,
    /// Whether a commit has a request id. Then the client finds out by itself what became of a commit whose answer was lost, by
    /// way of any node, until the deadline: [`Unknown`](shoal_types::Unknown) is left for commits whose deadline passed. It
    /// costs a row of some 60 bytes with each transaction that writes, on a shard that it writes to. Default true.
    pub commit_ids: bool,
    /// How often [`Cluster::transact`](crate::Cluster::transact) runs a transaction that keeps meeting
    /// conflicts before it gives up. Default 1000.
    pub attempts_max: u32,
}

impl Default for ClusterOptions {
    fn default() -> ClusterOptions {
        ClusterOptions {
            access: Access::open("shoal"),
            region: None,
            deadline: Duration::from_secs(10),
            patience: Duration::from_millis(100),
            silence_max: Duration::from_secs(2),
            transactions_max: 1024,
            commit_ids: true,
            attempts_max: 1000,
        }
    }
}

impl ClusterOptions {
    /// Whether a client can work with them.
    ///
    /// # Errors
    /// What is wrong.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let ClusterOptions { patience, silence_max, .. } = *self;
        if silence_max < patience {
            return Err(OptionsError::SilenceBelowPatience { silence_max, patience });
        }
        Ok(())
    }

    /// Without a pause a client would only send requests.
    pub(super) fn with_least_patience(self) -> ClusterOptions {
        let patience = self.patience.max(Duration::from_millis(1));
        ClusterOptions { patience, silence_max: self.silence_max.max(patience), ..self }
    }

    /// The options of a client whose round trips to nodes take this long.
    pub(super) fn at_distance(self, round_trip: Duration) -> ClusterOptions {
        let patience = self.patience.max(2 * round_trip);
        ClusterOptions { patience, silence_max: self.silence_max.max(patience), ..self }
    }

    /// Longest time between two requests.
    pub(super) fn patience_max(&self) -> Duration {
        self.patience.saturating_mul(16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_not_given_up_before_it_is_asked_again() {
        let ms = Duration::from_millis;
        let options = |patience, silence_max| ClusterOptions {
            patience,
            silence_max,
            ..ClusterOptions::default()
        };
        assert_eq!(ClusterOptions::default().validate(), Ok(()));
        assert_eq!(options(ms(300), ms(300)).validate(), Ok(()));
        let wrong = options(ms(300), ms(299)).validate().expect_err("it is given up too early");
        let (patience, silence_max) = (ms(300), ms(299));
        assert_eq!(wrong, OptionsError::SilenceBelowPatience { silence_max, patience });
        assert_eq!(
            wrong.to_string(),
            "`silence_max` is 299ms, less than `patience`, 300ms: a node would be given up before it is asked again; make \
             it several times as long"
        );
        // Nor where it is far away, and patience is longer than was said.
        let far = options(ms(100), ms(150)).at_distance(ms(400));
        assert_eq!((far.patience, far.silence_max, far.validate()), (ms(800), ms(800), Ok(())));
    }
}
