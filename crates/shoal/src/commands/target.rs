//! Which cluster a command is about.

use super::CommandError;
use crate::local::{ClusterFolder, join};
use clap::Args;
use shoal_net::Secret;
use shoal_net::client::{Access, Role};
use shoal_net::tls::{ClientTls, read_certificates};
use std::path::{Path, PathBuf};

/// Which cluster is meant.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which cluster")]
pub struct Target {
    /// The folder of a cluster that `shoal local` has started
    #[arg(long, value_name = "FOLDER", default_value = "shoal-local")]
    local: PathBuf,
    /// Addresses of a cluster that runs elsewhere, instead
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    connect: Vec<String>,
    /// The cluster's name
    #[arg(long, default_value = "shoal")]
    cluster: String,
    /// A file with the secret of its clients, if it has one
    #[arg(long, value_name = "FILE")]
    client_secret: Option<PathBuf>,
    /// A PEM file with the authorities of the nodes' certificates, if the cluster uses TLS
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
}

impl Target {
    /// Where it is.
    pub fn addresses(&self) -> Result<Vec<String>, CommandError> {
        if !self.connect.is_empty() {
            return Ok(self.connect.clone());
        }
        let cluster = ClusterFolder(self.local.clone()).read().map_err(CommandError::Usage)?;
        join(&cluster).map_err(CommandError::Usage)?;
        Ok(cluster.addresses())
    }

    /// What lets operators in: the secret of the nodes, which a cluster of `shoal local` has in its folder.
    pub fn operator(&self, secret: Option<&Path>) -> Result<Access, CommandError> {
        let path = match secret {
            Some(path) => path.to_owned(),
            None if self.connect.is_empty() => ClusterFolder(self.local.clone()).file("secret"),
            None => {
                let missing = "--secret is missing: the file with the secret of the nodes, as `secret` in a node's \
                               file names it";
                return Err(CommandError::Usage(missing.to_owned()));
            }
        };
        let secret = read_secret("--secret", &path)?;
        Ok(Access { role: Role::Operator, secret, ..self.access()? })
    }

    /// What lets clients in.
    pub fn access(&self) -> Result<Access, CommandError> {
        let mut access = Access::open(&*self.cluster);
        if let Some(path) = &self.client_secret {
            access.secret = read_secret("--client-secret", path)?;
        }
        if let Some(path) = &self.authorities {
            let trusted = read_certificates(path)
                .and_then(|authorities| ClientTls::new(&authorities, &self.cluster));
            access.tls = Some(trusted.map_err(|error| CommandError::file("trust", path, error))?);
        }
        Ok(access)
    }
}

/// The secret in the file that this option names.
fn read_secret(option: &str, path: &Path) -> Result<Secret, CommandError> {
    Secret::read(path).map_err(|error| CommandError::Usage(format!("{option} {error}")))
}
