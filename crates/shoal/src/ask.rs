//! Asking nodes where everything is, and how they are.

use shoal_cluster::topology::Topology;
use shoal_engine::client::{Directory, FromClient, ToClient};
use shoal_net::CloseReason;
use shoal_net::client::{Access, ClientConnection, ConnectError, connect};
use shoal_server::{FromOperator, NodeStatus, ToOperator};
use shoal_types::WorkerId;
use shoal_types::wire::{Coded, decode, encode};
use std::fmt::Display;
use std::time::Duration;
use thiserror::Error;

/// After so long a node that has not answered is not there.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a node does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unanswered {
    /// The node does not let this client in.
    #[error("{address}: {}", ConnectError::Refused(*.why))]
    Refused {
        /// Where it is.
        address: String,
        /// The reason that the node gave.
        why: CloseReason,
    },
    /// Anything else, in a sentence.
    #[error("{0}")]
    Broken(String),
}

/// A runtime for a command that talks to nodes.
///
/// # Errors
/// If the system has no room for one.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// How the node at `address` is, as one of its workers sees it.
///
/// # Errors
/// A sentence that says why it is not known.
pub async fn status(address: &str, access: &Access, worker: u32) -> Result<NodeStatus, String> {
    match ask(address, access, worker, &FromClient::Status).await? {
        ToClient::Status(json) => serde_json::from_slice(&json)
            .map_err(|error| format!("{address} says nonsense: {error}")),
        _ => Err(format!("{address} was asked for its status, and sent another reply")),
    }
}

/// The topology, from the first of these addresses that answers: that of its configuration, if it has one.
///
/// # Errors
/// The error of the last one, if none answers.
pub async fn topology(addresses: &[String], access: &Access) -> Result<Topology, String> {
    let mut last = "no address was given".to_owned();
    for address in addresses {
        match ask(address, access, 0, &FromClient::Directory).await {
            Ok(ToClient::Directory(Directory { topology, configuration, .. })) => {
                let configured = configuration.map(|configuration| configuration.topology.clone());
                return Ok((*configured.unwrap_or(topology)).clone());
            }
            Ok(_) => {
                last = format!("{address} was asked for the directory, and sent another reply");
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Asks a worker of the node at `address`.
///
/// # Errors
/// A sentence that says why there is no answer.
pub async fn ask(
    address: &str,
    access: &Access,
    worker: u32,
    question: &FromClient,
) -> Result<ToClient, String> {
    exchange(address, access, worker, question).await.map_err(|error| error.to_string())
}

/// Asks the node at `address` for a change of the cluster, with the access of an operator.
///
/// # Errors
/// Why there is no answer. The request may have arrived.
pub async fn operate(
    address: &str,
    access: &Access,
    wanted: &FromOperator,
) -> Result<ToOperator, Unanswered> {
    exchange(address, access, 0, wanted).await
}

async fn exchange<A: Coded>(
    address: &str,
    access: &Access,
    worker: u32,
    question: &impl Coded,
) -> Result<A, Unanswered> {
    let broken = |error: &dyn Display| Unanswered::Broken(format!("{address}: {error}"));
    let asked = async {
        let connection = connect(address, access, Some(WorkerId(worker))).await;
        let ClientConnection { sender, mut receiver, .. } =
            connection.map_err(|error| match error {
                ConnectError::Refused(why) => {
                    Unanswered::Refused { address: address.to_owned(), why }
                }
                error @ (ConnectError::Failed(_)
                | ConnectError::FoundedAgain { .. }
                | ConnectError::NoCommonVersion { .. }) => broken(&error),
            })?;
        sender.send(encode(question)).await.map_err(|error| broken(&error))?;
        let answer = receiver.receive().await.map_err(|error| broken(&error))?;
        let nonsense = |error| Unanswered::Broken(format!("{address} says nonsense: {error}"));
        decode(&answer).map_err(nonsense)
    };
    let late = |_| Unanswered::Broken(format!("{address} does not answer"));
    tokio::time::timeout(PATIENCE, asked).await.map_err(late)?
}
