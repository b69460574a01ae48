//! A node with procedures of its user's own: the equivalent of `shoal serve` in a program of the user.

use crate::config::{ConfigError, NodeConfig};
use crate::server::{Server, ServerStartError};
use shoal_types::{Procedure, Procedures};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

/// A node that is not started yet: its configuration, and the procedures that clients call by name.
///
/// ```no_run
/// use shoal_server::ServerBuilder;
/// # use bytes::Bytes;
/// # use shoal_types::{ProcedureTransaction, Result, Transaction};
/// # async fn deposit(tx: &ProcedureTransaction<'_>, account: &[u8]) -> Result<Bytes> {
/// #     let balance = tx.add(tx.table("accounts")?, account, 1).await?;
/// #     Ok(Bytes::copy_from_slice(&balance.to_le_bytes()))
/// # }
///
/// # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
/// let server = ServerBuilder::from_file("node.toml")?.procedure("deposit", deposit).start()?;
/// server.join()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ServerBuilder {
    config: NodeConfig,
    procedures: Procedures,
    listener: Option<TcpListener>,
}

impl ServerBuilder {
    /// A node of this configuration.
    pub fn new(config: NodeConfig) -> ServerBuilder {
        ServerBuilder { config, procedures: Procedures::new(), listener: None }
    }

    /// A node of the configuration in this file, which `shoal serve --config` reads as well.
    ///
    /// # Errors
    /// The configuration is invalid; the error names the file, the key, and what to do.
    pub fn from_file(path: impl AsRef<Path>) -> Result<ServerBuilder, ConfigError> {
        Ok(ServerBuilder::new(NodeConfig::read(path.as_ref())?))
    }

    /// The configuration that the node will run with.
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// Adds a procedure under a name. All nodes of a cluster have to know the same ones.
    ///
    /// # Panics
    /// If the name is taken.
    #[must_use]
    pub fn procedure(self, name: &str, procedure: impl Procedure + 'static) -> ServerBuilder {
        ServerBuilder { procedures: self.procedures.with(name, procedure), ..self }
    }

    /// Listens at this socket instead of the address in the topology: for callers that let the system choose
    /// a port.
    #[must_use]
    pub fn listener(self, listener: TcpListener) -> ServerBuilder {
        ServerBuilder { listener: Some(listener), ..self }
    }

    /// Starts the node. It runs until it is [stopped](Server::stop), for which [`Server::join`] waits.
    ///
    /// # Errors
    /// If an address, a thread or a file is not available.
    pub fn start(self) -> Result<Server, ServerStartError> {
        Server::start(&self.config, Arc::new(self.procedures), self.listener)
    }
}
