//! Reaching a node: the socket, TLS if it is on, and the handshake, within one span of time.

use crate::config::{Limits, Secret};
use crate::frame::FrameReader;
use crate::handshake::{self, Caller, Failure, Host, MESSAGE_BYTES_MAX, Preamble, Terms};
use crate::reason::CloseReason;
use crate::stream::{Stream, set_options};
use crate::tls::ClientTls;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use types::{NodeId, WorkerId};
use zerocopy::IntoBytes;

/// Who dials, and whom it wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialing<'a> {
    pub cluster: &'a str,
    pub secret: &'a Secret,
    pub tls: Option<&'a ClientTls>,
    pub limits: &'a Limits,
    pub caller: Caller,
    pub worker: Option<WorkerId>,
    pub wanted: Option<NodeId>,
}

impl Dialing<'_> {
    /// Dials, and says who is there.
    pub async fn dial(&self, address: &str) -> Result<(Stream, FrameReader, Host), Failure> {
        let met = timeout(self.limits.handshake_max, self.meet(address)).await;
        met.unwrap_or(Err(Failure::Here(CloseReason::SlowHandshake)))
    }

    async fn meet(&self, address: &str) -> Result<(Stream, FrameReader, Host), Failure> {
        let unreachable = |_| Failure::Here(CloseReason::Unreachable);
        let mut socket = TcpStream::connect(address).await.map_err(unreachable)?;
        set_options(&socket, self.limits).map_err(unreachable)?;
        let preamble = Preamble::new(&self.caller, self.worker, self.tls.is_some());
        let written = socket.write_all(preamble.as_bytes()).await;
        written.map_err(|_| CloseReason::Vanished)?;
        let mut stream = match self.tls {
            None => Stream::Plain(socket),
            Some(tls) => {
                let (connector, name) = tls.connector();
                let secured = connector.connect(name, socket).await;
                let secured = secured.map_err(|_| CloseReason::TlsFailed)?;
                Stream::Secured(Box::new(secured.into()))
            }
        };
        let binding = stream.binding().map_err(|_| CloseReason::TlsFailed)?;
        let terms = Terms { cluster: self.cluster, secret: self.secret, preamble, binding };
        let mut reader = FrameReader::new(MESSAGE_BYTES_MAX);
        let host =
            handshake::dial(&mut stream, &mut reader, &terms, &self.caller, self.wanted).await?;
        Ok((stream, reader, host))
    }
}
