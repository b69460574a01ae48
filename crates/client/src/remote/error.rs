//! Why a client could not connect to a cluster.

use shoal_types::Error;
use std::fmt::{self, Display};
use std::time::Duration;

/// Why a client could not connect to a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No node was reached at any of these addresses.
    #[error("cannot connect to the cluster{}", Tried(.tried))]
    Unreached {
        /// The addresses, and the error at each.
        tried: Vec<(String, String)>,
    },
    /// The system gave no thread or no runtime for the connections.
    #[error("cannot start the thread of the client: {error}")]
    Thread {
        /// What the system says.
        error: String,
    },
    /// The client's options contradict each other.
    #[error("the options of the client: {0}")]
    Options(#[from] OptionsError),
}

/// What is wrong with the options of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A node would be given up before it is asked a second time.
    #[error(
        "`silence_max` is {silence_max:?}, less than `patience`, {patience:?}: a node would be given up before it is asked \
         again; make it several times as long"
    )]
    SilenceBelowPatience {
        /// The value of [`ClusterOptions::silence_max`](crate::ClusterOptions::silence_max).
        silence_max: Duration,
        /// The value of [`ClusterOptions::patience`](crate::ClusterOptions::patience).
        patience: Duration,
    },
}

/// So that connecting and transactions end with one error.
impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Error {
        Error::not_connected(&error)
    }
}

impl From<OptionsError> for Error {
    fn from(error: OptionsError) -> Error {
        ConnectError::from(error).into()
    }
}

/// Addresses and what happened there, behind the sentence that nothing came of them.
struct Tried<'a>(&'a [(String, String)]);

impl Display for Tried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(": no address was given");
        }
        for (at, (address, what)) in self.0.iter().enumerate() {
            let mark = if at == 0 { ':' } else { ';' };
            write!(f, "{mark} {address}: {what}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_an_error_of_the_database() {
        fn connect(result: Result<(), ConnectError>) -> Result<(), Error> {
            Ok(result?)
        }
        let tried = vec![("a:1".into(), "left".into())];
        let error =
            connect(Err(ConnectError::Unreached { tried })).expect_err("it was not reached");
        assert_eq!(error.to_string(), "rejected: cannot connect to the cluster: a:1: left");
    }

    #[test]
    fn it_says_what_happened_at_each_address() {
        assert_eq!(
            ConnectError::Unreached { tried: Vec::new() }.to_string(),
            "cannot connect to the cluster: no address was given"
        );
        let tried = vec![("a:1".into(), "left".into()), ("b:2".into(), "unreachable".into())];
        assert_eq!(
            ConnectError::Unreached { tried }.to_string(),
            "cannot connect to the cluster: a:1: left; b:2: unreachable"
        );
    }
}
