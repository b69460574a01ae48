//! Which cluster a command is about.

use super::CommandError;
use crate::local::{ClusterFolder, LocalCluster, join};
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
    #[command(flatten)]
    credentials: Credentials,
}

/// What lets clients into a cluster, beside its addresses. A cluster of `shoal local` has all of it in its folder.
#[derive(Debug, Args)]
pub struct Credentials {
    /// The cluster's name [default: shoal]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// A file with the secret of its clients, if it has one
    #[arg(long, value_name = "FILE")]
    client_secret: Option<PathBuf>,
    /// A PEM file with the authorities of the nodes' certificates, if the cluster uses TLS
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
}

impl Credentials {
    /// Whether the command line has any of them.
    pub fn are_given(&self) -> bool {
        self.cluster.is_some() || self.client_secret.is_some() || self.authorities.is_some()
    }

    /// Access with these.
    pub fn access(&self) -> Result<Access, CommandError> {
        self.instead_of(Access::open("shoal"))
    }

    /// The same access, with those that the command line has.
    fn instead_of(&self, mut access: Access) -> Result<Access, CommandError> {
        if let Some(cluster) = &self.cluster {
            access.cluster.clone_from(cluster);
        }
        if let Some(path) = &self.client_secret {
            access.secret = read_secret("--client-secret", path)?;
        }
        if let Some(path) = &self.authorities {
            let trusted = read_certificates(path)
                .and_then(|authorities| ClientTls::new(&authorities, &access.cluster));
            access.tls = Some(trusted.map_err(|error| CommandError::file("trust", path, error))?);
        }
        Ok(access)
    }
}

impl Target {
    /// Where it is.
    pub fn addresses(&self) -> Result<Vec<String>, CommandError> {
        if !self.connect.is_empty() {
            return Ok(self.connect.clone());
        }
        let cluster = self.folder()?;
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
        if !self.connect.is_empty() {
            return self.credentials.access();
        }
        self.credentials.instead_of(self.folder()?.access)
    }

    fn folder(&self) -> Result<LocalCluster, CommandError> {
        ClusterFolder(self.local.clone()).read().map_err(CommandError::Usage)
    }
}

/// The secret in the file that this option names.
fn read_secret(option: &str, path: &Path) -> Result<Secret, CommandError> {
    Secret::read(path).map_err(|error| CommandError::Usage(format!("{option} {error}")))
}
