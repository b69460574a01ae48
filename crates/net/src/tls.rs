//! TLS, where it is switched on: mutual between nodes, and to clients.
//!
//! Only version 1.3, only `ring`. Nodes prove to each other, both ways, that an authority of the cluster
//! vouches for them; clients only ask that of the node. All certificates of nodes say one name, that of
//! the cluster, so it is of no matter by which address a node is reached. The handshake above
//! (`handshake.rs`) still asks for the shared secret, and its proofs hold on this one TLS session
//! only.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;

/// Why certificates or keys cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file that is missing, or is not PEM.
    #[error("{path}: {error}")]
    Unreadable {
        /// The path of the file.
        path: String,
        /// What is wrong with it.
        error: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not match.
    #[error("certificates: {0}")]
    Refused(#[from] rustls::Error),
    /// The authorities cannot be used to verify a certificate.
    #[error("authorities: {0}")]
    Authorities(#[from] rustls::server::VerifierBuilderError),
    /// The name is invalid.
    #[error("{0} is not a name that a certificate can say")]
    Name(String),
}

/// So that a client whose certificates cannot be used ends with the error of a database.
impl From<TlsError> for shoal_types::Error {
    fn from(error: TlsError) -> shoal_types::Error {
        shoal_types::Error::not_connected(&error)
    }
}

/// A certificate with those between it and the authority, and its key.
#[derive(Debug)]
pub struct Certificate {
    /// The certificate first.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The private key of the certificate.
    pub key: PrivateKeyDer<'static>,
}

/// The authorities that a client trusts.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// The certificate of a node, and the authorities that it trusts.
#[derive(Clone)]
pub struct NodeTls {
    dialing: ClientTls,
    to_peers: Arc<ServerConfig>,
    to_clients: Arc<ServerConfig>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientTls({:?})", self.name)
    }
}

impl fmt::Debug for NodeTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeTls({:?})", self.dialing.name)
    }
}

const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&version::TLS13];

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(authorities: &[CertificateDer<'static>]) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    Ok(Arc::new(roots))
}

fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))
}

/// The certificates of a PEM file.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| TlsError::Unreadable { path: path.display().to_string(), error })
}

impl Certificate {
    /// Reads PEM files.
    pub fn read(certificates: &Path, key: &Path) -> Result<Certificate, TlsError> {
        let unreadable = |error| TlsError::Unreadable { path: key.display().to_string(), error };
        let key_read = PrivateKeyDer::from_pem_file(key).map_err(unreadable)?;
        Ok(Certificate { certificates: read_certificates(certificates)?, key: key_read })
    }
}

impl ClientTls {
    /// Trusts nodes for which one of the certificates in a PEM file vouches, by the name of the cluster.
    ///
    /// # Errors
    /// If the file cannot be read, or what is in it cannot be used.
    pub fn read(authorities: &Path, name: &str) -> Result<ClientTls, TlsError> {
        ClientTls::new(&read_certificates(authorities)?, name)
    }

    /// Trusts nodes for which one of `authorities` vouches, by the name of the cluster.
    pub fn new(authorities: &[CertificateDer<'static>], name: &str) -> Result<ClientTls, TlsError> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)?
            .with_root_certificates(roots(authorities)?)
            .with_no_client_auth();
        Ok(ClientTls { config: Arc::new(config), name: server_name(name)? })
    }

    pub(crate) fn connector(&self) -> (tokio_rustls::TlsConnector, ServerName<'static>) {
        (Arc::clone(&self.config).into(), self.name.clone())
    }
}

impl NodeTls {
    /// Shows `identity`, and trusts nodes for which one of `authorities` vouches, by `name`.
    pub fn new(
        identity: &Certificate,
        authorities: &[CertificateDer<'static>],
        name: &str,
    ) -> Result<NodeTls, TlsError> {
        let roots = roots(authorities)?;
        let (certificates, key) = (&identity.certificates, &identity.key);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider()).build()?;
        let dialing = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates.clone(), key.clone_key())?;
        let server =
            || ServerConfig::builder_with_provider(provider()).with_protocol_versions(VERSIONS);
        let to_peers = server()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates.clone(), key.clone_key())?;
        let to_clients = server()?
            .with_no_client_auth()
            .with_single_cert(certificates.clone(), key.clone_key())?;
        Ok(NodeTls {
            dialing: ClientTls { config: Arc::new(dialing), name: server_name(name)? },
            to_peers: Arc::new(to_peers),
            to_clients: Arc::new(to_clients),
        })
    }

    pub(crate) fn dialing(&self) -> &ClientTls {
        &self.dialing
    }

    pub(crate) fn acceptor(&self, of_peer: bool) -> tokio_rustls::TlsAcceptor {
        Arc::clone(if of_peer { &self.to_peers } else { &self.to_clients }).into()
    }
}
