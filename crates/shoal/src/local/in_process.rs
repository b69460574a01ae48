//! A cluster within this process.

use super::Plan;
use super::ready::wait_ready;
use crate::{ask, procedures};
use net::{Distance, Secret};
use ring::rand::{SecureRandom, SystemRandom};
use server::{NodeConfig, Server};
use std::sync::Arc;
use types::NodeId;

/// See the module. It ends when this is dropped.
#[derive(Debug)]
pub struct InProcess {
    addresses: Vec<String>,
    _servers: Vec<Server>,
}

impl InProcess {
    /// Starts it, and waits until every shard is served.
    ///
    /// # Errors
    /// A sentence that says what went wrong.
    pub fn start(plan: &Plan) -> Result<InProcess, String> {
        let listeners = plan.listeners().map_err(|error| error.to_string())?;
        let addresses = listeners.iter().map(|it| Ok(it.local_addr()?.to_string()));
        let addresses: Vec<String> = addresses
            .collect::<std::io::Result<_>>()
            .map_err(|error| format!("no addresses to be had: {error}"))?;
        let topology = plan.topology(&addresses).map_err(|error| error.to_string())?;
        let names = plan.managers();
        let managers = topology.nodes().iter().filter(|node| names.contains(&node.name));
        let managers: Vec<NodeId> = managers.map(|node| node.id).collect();
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).map_err(|_| "no chance to be had".to_owned())?;
        let known = Arc::new(procedures::known());
        let mut servers = Vec::new();
        for (node, listener) in topology.nodes().iter().zip(listeners) {
            let secret = Secret::new(secret);
            let config = NodeConfig::new(&topology, node.id, managers.clone(), secret);
            let config = NodeConfig {
                distance: Distance { delay: plan.round_trip / 2, jitter: plan.jitter },
                protocol: plan.protocol,
                ..config.map_err(|error| error.to_string())?
            };
            let server = Server::start(&config, Arc::clone(&known), Some(listener));
            servers.push(server.map_err(|error| error.to_string())?);
        }
        let runtime = ask::runtime().map_err(|error| error.to_string())?;
        runtime.block_on(wait_ready(&addresses))?;
        Ok(InProcess { addresses, _servers: servers })
    }

    /// Where clients find it.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }
}
