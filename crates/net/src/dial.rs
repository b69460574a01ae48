//! Dialing a node: the socket, TLS if it is on, and the handshake, within a time limit.

use crate::config::NetworkLimits;
use crate::frame::FrameReader;
use crate::handshake::{
    self, DialOutcome, DialingEnd, HandshakeError, HandshakeTerms, MESSAGE_BYTES_MAX, Preamble,
};
use crate::reason::CloseReason;
use crate::secret::Secret;
use crate::stream::{SocketStream, set_options};
use crate::tls::ClientTls;
use shoal_types::wire::MessageVersions;
use shoal_types::{ClusterId, NodeId, WorkerId};
use std::io;
use std::net::SocketAddr;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use zerocopy::IntoBytes;

/// The parameters of a dial.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialer<'a> {
    pub cluster: &'a str,
    /// The identity of this end's cluster, as far as it knows.
    pub identity: Option<ClusterId>,
    /// The digest of this end's engine; 0 for clients.
    pub engine_digest: u16,
    /// The versions of messages that this end uses.
    pub versions: MessageVersions,
    pub secret: &'a Secret,
    pub tls: Option<&'a ClientTls>,
    pub limits: &'a NetworkLimits,
    pub caller: DialingEnd,
    pub worker: Option<WorkerId>,
    pub wanted: Option<NodeId>,
}

/// An established connection to a node.
#[derive(Debug)]
pub(crate) struct DialedConnection {
    pub stream: SocketStream,
    pub reader: FrameReader,
    pub outcome: DialOutcome,
}

impl Dialer<'_> {
    /// Dials, and authenticates the node.
    pub async fn dial(&self, address: &str) -> Result<DialedConnection, HandshakeError> {
        let met = timeout(self.limits.handshake_max, self.meet(address)).await;
        met.unwrap_or(Err(HandshakeError::Here(CloseReason::SlowHandshake)))
    }

    async fn meet(&self, address: &str) -> Result<DialedConnection, HandshakeError> {
        let mut socket = connect(address).await?;
        set_options(&socket, self.limits).map_err(|_| CloseReason::Unreachable)?;
        let preamble = Preamble::new(&self.caller, self.worker, self.tls.is_some());
        let written = socket.write_all(preamble.as_bytes()).await;
        written.map_err(|_| CloseReason::Vanished)?;
        let mut stream = match self.tls {
            None => SocketStream::Plain(socket),
            Some(tls) => {
                let (connector, name) = tls.connector();
                let secured = connector.connect(name, socket).await;
                let secured = secured.map_err(|_| CloseReason::TlsFailed)?;
                SocketStream::Secured(Box::new(secured.into()))
            }
        };
        let binding = stream.binding().map_err(|_| CloseReason::TlsFailed)?;
        let Dialer { cluster, identity, engine_digest, versions, secret, .. } = *self;
        let terms = HandshakeTerms {
            cluster,
            identity,
            engine_digest,
            versions,
            secret,
            preamble,
            binding,
        };
        let mut reader = FrameReader::new(MESSAGE_BYTES_MAX);
        let outcome =
            handshake::dial(&mut stream, &mut reader, &terms, &self.caller, self.wanted).await?;
        Ok(DialedConnection { stream, reader, outcome })
    }
}

/// Connects to a host and port; the error names the step that failed.
async fn connect(address: &str) -> Result<TcpStream, CloseReason> {
    let resolved = lookup_host(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => CloseReason::BadAddress,
        _ => CloseReason::UnknownHost,
    })?;
    let resolved: Vec<SocketAddr> = resolved.collect();
    if resolved.is_empty() {
        return Err(CloseReason::UnknownHost);
    }
    TcpStream::connect(&resolved[..]).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => CloseReason::NotListening,
        _ => CloseReason::Unreachable,
    })
}
