//! The commit protocols that a node can run, by name. Elsewhere only `reproduce` names one, with the figures that papers publish of it.

use crate::config::NodeConfig;
use crate::protocol::Protocol;
use crate::server::{Server, ServerStartError, limit, start};
use shoal_engine::Procedures;
use shoal_mako::Mako;
use shoal_two_phase_commit::{TwoPhaseCommit, TwoPhaseCommitOptions};
use shoal_zeus::{Zeus, ZeusEngineOptions};
use std::net::TcpListener;
use std::sync::Arc;

/// What the server needs of a protocol.
struct ServedEngine {
    /// Its name in files and on the command line.
    name: &'static str,
    /// A description, for the help of the command.
    about: &'static str,
    /// An operator may accept the loss of a shard's majority.
    accepts_losses: bool,
    /// Starts a node that runs it.
    start: StartEngine,
}

type StartEngine =
    fn(&NodeConfig, Arc<Procedures>, Option<TcpListener>) -> Result<Server, ServerStartError>;

const MAKO: ServedEngine = ServedEngine {
    name: "mako",
    about: "Certify first, replicate in the background",
    accepts_losses: true,
    start: |config, procedures, listener| {
        let mut options = config.mako.clone();
        limit(&mut options.limits, config)?;
        start::<Mako>(config, options, MAKO.accepts_losses, procedures, listener)
    },
};

const TWO_PHASE_COMMIT: ServedEngine = ServedEngine {
    name: "two-phase-commit",
    about: "The classic one, to compare with",
    accepts_losses: false,
    start: |config, procedures, listener| {
        let mut options = TwoPhaseCommitOptions::default();
        limit(&mut options.limits, config)?;
        start::<TwoPhaseCommit>(
            config,
            options,
            TWO_PHASE_COMMIT.accepts_losses,
            procedures,
            listener,
        )
    },
};

const ZEUS: ServedEngine = ServedEngine {
    name: "zeus",
    about: "Move rows to the node that uses them, commit there",
    accepts_losses: false,
    start: |config, procedures, listener| {
        let mut options = ZeusEngineOptions::default();
        limit(&mut options.limits, config)?;
        start::<Zeus>(config, options, ZEUS.accepts_losses, procedures, listener)
    },
};

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 3] = [Protocol::Mako, Protocol::TwoPhaseCommit, Protocol::Zeus];

    const fn engine(self) -> &'static ServedEngine {
        match self {
            Protocol::Mako => &MAKO,
            Protocol::TwoPhaseCommit => &TWO_PHASE_COMMIT,
            Protocol::Zeus => &ZEUS,
        }
    }

    /// Its name in files and on the command line.
    pub const fn name(self) -> &'static str {
        self.engine().name
    }

    /// A description in a few words.
    pub const fn about(self) -> &'static str {
        self.engine().about
    }

    /// Whether an operator may accept the loss of a shard's majority.
    pub const fn accepts_losses(self) -> bool {
        self.engine().accepts_losses
    }

    /// The protocol of this name.
    pub fn named(name: &str) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)
    }
}

impl Server {
    /// Starts the node of this configuration, with these procedures. It listens at the address in the
    /// topology, or at `listener`, for callers that let the system choose a port.
    ///
    /// # Errors
    /// If an address, a thread or a file is not available, or the configuration is invalid.
    pub fn start(
        config: &NodeConfig,
        procedures: Arc<Procedures>,
        listener: Option<TcpListener>,
    ) -> Result<Server, ServerStartError> {
        (config.protocol.engine().start)(config, procedures, listener)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_the_command_line_have_the_same_names() {
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::named(protocol.name()), Some(protocol));
            let read = toml::from_str::<std::collections::BTreeMap<String, Protocol>>(&format!(
                "engine = \"{}\"",
                protocol.name()
            ));
            assert_eq!(read.expect("a name that files know")["engine"], protocol);
        }
        assert_eq!(Protocol::named("raft"), None);
    }
}
