//! The listener: one port for each node, for all its workers.
//!
//! The first worker's loop listens. It reads the preamble, which names the worker that a connection is for, and hands
//! it over to that worker's loop, which authenticates it. Clients without a preference are distributed round robin.

use crate::connection::ConnectionTask;
use crate::connection_queue::ConnectionOrigin;
use crate::frame::{FrameHeader, FrameKind, FrameReader};
use crate::handshake::{
    self, AcceptOutcome, DialingEnd, HandshakeError, HandshakeTerms, MESSAGE_BYTES_MAX, Preamble,
};
use crate::loop_connections::LoopConnections;
use crate::loop_state::LoopState;
use crate::mailbox::{AcceptedConnection, HandedOverConnections};
use crate::reason::CloseReason;
use crate::secret::Secret;
use crate::stream::{SocketStream, set_options};
use shoal_types::{ClusterId, WorkerId};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use zerocopy::{FromBytes, IntoBytes};

/// The pause after the system had no more sockets.
const BREATHER: Duration = Duration::from_millis(10);

/// Accepts connections for all workers of the node.
pub(crate) async fn listen(
    connections: Rc<LoopConnections>,
    listener: TcpListener,
    workers: Arc<[Arc<HandedOverConnections>]>,
) {
    let turn = Rc::new(Cell::new(0));
    loop {
        match listener.accept().await {
            Ok((socket, address)) => {
                connections.loop_state.counters.accepted.add(1);
                let (near, workers, turn) =
                    (Rc::clone(&connections), Arc::clone(&workers), Rc::clone(&turn));
                connections
                    .authenticate(|number| dispatch(near, number, socket, address, workers, turn));
            }
            Err(error) => {
                tracing::warn!(node = %connections.loop_state.host.node, %error, "cannot accept");
                sleep(BREATHER).await;
            }
        }
    }
}

/// Reads which worker a connection is for, and hands it over.
async fn dispatch(
    connections: Rc<LoopConnections>,
    number: u64,
    mut socket: TcpStream,
    address: SocketAddr,
    workers: Arc<[Arc<HandedOverConnections>]>,
    turn: Rc<Cell<usize>>,
) {
    let loop_state = &connections.loop_state;
    let limits = &loop_state.config.limits;
    let routed = timeout(limits.handshake_max, route(loop_state, &mut socket, &turn)).await;
    let refused = match routed.unwrap_or(Err(CloseReason::SlowHandshake)) {
        Ok((preamble, worker)) if worker == loop_state.host.worker => {
            return receive(Rc::clone(&connections), number, socket, preamble, address).await;
        }
        Ok((preamble, worker)) => {
            let accepted_connection =
                socket.into_std().map(|socket| AcceptedConnection { socket, preamble, address });
            let Ok(accepted_connection) = accepted_connection else {
                return connections.finish_authentication(number);
            };
            let handed_over = &workers[worker.0 as usize];
            handed_over
                .hand_over(accepted_connection, limits.unauthenticated_max)
                .err()
                .map(|_| CloseReason::TooManyUnauthenticated)
        }
        Err(reason) => Some(reason),
    };
    connections.finish_authentication(number);
    if let Some(reason) = refused {
        loop_state.note_close(reason, "unauthenticated", &address.to_string());
    }
}

/// Reads the preamble, and returns the worker that it leads to.
async fn route(
    loop_state: &LoopState,
    socket: &mut TcpStream,
    turn: &Cell<usize>,
) -> Result<(Preamble, WorkerId), CloseReason> {
    set_options(socket, &loop_state.config.limits).map_err(|_| CloseReason::Vanished)?;
    let mut bytes = [0; Preamble::BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        match socket.read(&mut bytes[filled..]).await {
            Ok(0) if filled == 0 => return Err(CloseReason::Left),
            Ok(0) => return Err(CloseReason::Truncated),
            Ok(count) => filled += count,
            Err(_) => return Err(CloseReason::Vanished),
        }
    }
    let preamble = Preamble::read_from_bytes(&bytes).map_err(|_| CloseReason::Malformed)?;
    let workers = usize::from(loop_state.config.workers);
    let worker = match preamble.worker() {
        Some(worker) => worker,
        None => WorkerId(turn.replace((turn.get() + 1) % workers) as u32),
    };
    let exists = (worker.0 as usize) < workers;
    let exists = if exists { Ok(()) } else { Err(CloseReason::WrongWorker) };
    if let Err(reason) = preamble.check(loop_state.config.tls.is_some()).and(exists) {
        if reason != CloseReason::WrongMagic && !preamble.wants_tls() {
            let told =
                [FrameHeader::new(FrameKind::Refused, 1).as_bytes(), &[reason.code()]].concat();
            // Best effort.
            let _ = socket.write_all(&told).await;
        }
        return Err(reason);
    }
    Ok((preamble, worker))
}

/// Authenticates a connection, and serves it from then on.
pub(crate) async fn receive(
    connections: Rc<LoopConnections>,
    number: u64,
    socket: TcpStream,
    preamble: Preamble,
    address: SocketAddr,
) {
    let loop_state = &connections.loop_state;
    // The identity that this end sends, however long the handshake takes.
    let told = loop_state.config.identity.get();
    let proving = prove(&connections, socket, preamble, told);
    let proof = timeout(loop_state.config.limits.handshake_max, proving).await;
    connections.finish_authentication(number);
    let proof = proof.unwrap_or(Err(HandshakeError::Here(CloseReason::SlowHandshake)));
    let (stream, reader, AcceptOutcome { caller, version }) = match proof {
        Ok(proved) => proved,
        Err(failure) => {
            let other_end = match failure {
                HandshakeError::Other(_) | HandshakeError::NoCommonVersion { .. } => {
                    format!("unauthenticated ({failure})")
                }
                HandshakeError::Here(_) | HandshakeError::There(_) => "unauthenticated".to_owned(),
            };
            return loop_state.note_close(failure.reason(), &other_end, &address.to_string());
        }
    };
    let (entered, other_end) = match caller {
        DialingEnd::Peer { node, instance, .. } => {
            (connections.enter_peer(node, instance, told), node.to_string())
        }
        DialingEnd::Client => {
            (Some(connections.enter_client(ConnectionOrigin::Client, told)), "a client".to_owned())
        }
        DialingEnd::Operator => (
            Some(connections.enter_client(ConnectionOrigin::Operator, told)),
            "an operator".to_owned(),
        ),
    };
    let Some(channel) = entered else {
        return loop_state.note_close(CloseReason::FormerProcess, &other_end, &address.to_string());
    };
    tracing::debug!(node = %loop_state.host.node, worker = %loop_state.host.worker, other_end, %address, %version, "admitted");
    let reason =
        ConnectionTask::new(stream, reader, Rc::clone(&channel), loop_state).run(loop_state).await;
    connections.leave(&channel);
    loop_state.note_close(reason, &other_end, &address.to_string());
}

async fn prove(
    connections: &LoopConnections,
    socket: TcpStream,
    preamble: Preamble,
    identity: Option<ClusterId>,
) -> Result<(SocketStream, FrameReader, AcceptOutcome), HandshakeError> {
    let loop_state = &connections.loop_state;
    let mut stream = match &loop_state.config.tls {
        None => SocketStream::Plain(socket),
        Some(tls) => {
            let secured = tls.acceptor(preamble.is_peer()).accept(socket).await;
            let secured = secured.map_err(|_| CloseReason::TlsFailed)?;
            SocketStream::Secured(Box::new(secured.into()))
        }
    };
    let binding = stream.binding().map_err(|_| CloseReason::TlsFailed)?;
    let secret: &Secret = match preamble.is_peer() || preamble.is_operator() {
        true => &loop_state.config.secret,
        false => &loop_state.config.client_secret,
    };
    let versions = match preamble.is_peer() {
        true => loop_state.config.peer_versions,
        false => loop_state.config.client_versions,
    };
    let cluster = &loop_state.config.cluster;
    let engine_digest = loop_state.config.engine_digest;
    let terms =
        HandshakeTerms { cluster, identity, engine_digest, versions, secret, preamble, binding };
    let mut reader = FrameReader::new(MESSAGE_BYTES_MAX);
    let outcome =
        handshake::accept(&mut stream, &mut reader, &terms, &loop_state.host, connections).await?;
    Ok((stream, reader, outcome))
}
