//! Where others knock: one port for each node, whichever worker they want.
//!
//! The first worker's loop listens. It reads the preamble, which says for which worker a connection is,
//! and hands it over to that one's loop, where it proves itself. Clients that do not care are dealt out
//! by turns.

use crate::connection::{Origin, Pump};
use crate::frame::{FrameReader, Header, Kind};
use crate::handshake::{self, Caller, Failure, MESSAGE_BYTES_MAX, Preamble, Terms};
use crate::hub::Hub;
use crate::mailbox::Guests;
use crate::reason::CloseReason;
use crate::secret::Secret;
use crate::stream::{Stream, set_options};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use types::{ClusterId, WorkerId};
use zerocopy::{FromBytes, IntoBytes};

/// How long to wait when no more sockets can be had.
const BREATHER: Duration = Duration::from_millis(10);

/// A connection on its way to its worker.
#[derive(Debug)]
pub(crate) struct Guest {
    pub socket: std::net::TcpStream,
    pub preamble: Preamble,
    pub address: SocketAddr,
}

/// Accepts connections for all workers of the node.
pub(crate) async fn listen(hub: Rc<Hub>, listener: TcpListener, workers: Arc<[Arc<Guests>]>) {
    let turn = Rc::new(Cell::new(0));
    loop {
        match listener.accept().await {
            Ok((socket, address)) => {
                hub.counters.accepted.add(1);
                let (near, workers, turn) =
                    (Rc::clone(&hub), Arc::clone(&workers), Rc::clone(&turn));
                hub.meet(|number| knock(near, number, (socket, address), workers, turn));
            }
            Err(error) => {
                tracing::warn!(node = %hub.host.node, %error, "cannot accept");
                sleep(BREATHER).await;
            }
        }
    }
}

/// Finds out which worker a connection is for.
async fn knock(
    hub: Rc<Hub>,
    number: u64,
    (mut socket, address): (TcpStream, SocketAddr),
    workers: Arc<[Arc<Guests>]>,
    turn: Rc<Cell<usize>>,
) {
    let limits = &hub.config.limits;
    let routed = timeout(limits.handshake_max, route(&hub, &mut socket, &turn)).await;
    let refused = match routed.unwrap_or(Err(CloseReason::SlowHandshake)) {
        Ok((preamble, worker)) if worker == hub.host.worker => {
            return receive(hub, number, socket, preamble, address).await;
        }
        Ok((preamble, worker)) => {
            let guest = socket.into_std().map(|socket| Guest { socket, preamble, address });
            let Ok(guest) = guest else { return hub.met(number) };
            let guests = &workers[worker.0 as usize];
            guests.hand_over(guest, limits.strangers_max).err().map(|_| CloseReason::Crowded)
        }
        Err(reason) => Some(reason),
    };
    hub.met(number);
    if let Some(reason) = refused {
        hub.note_close(reason, "a stranger", &address.to_string());
    }
}

/// Reads the preamble, and says which worker it leads to.
async fn route(
    hub: &Hub,
    socket: &mut TcpStream,
    turn: &Cell<usize>,
) -> Result<(Preamble, WorkerId), CloseReason> {
    set_options(socket, &hub.config.limits).map_err(|_| CloseReason::Vanished)?;
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
    let workers = usize::from(hub.config.workers);
    let worker = match preamble.worker() {
        Some(worker) => worker,
        None => WorkerId(turn.replace((turn.get() + 1) % workers) as u32),
    };
    let exists = (worker.0 as usize) < workers;
    let exists = if exists { Ok(()) } else { Err(CloseReason::WrongWorker) };
    if let Err(reason) = preamble.check(hub.config.tls.is_some()).and(exists) {
        if reason != CloseReason::WrongMagic && !preamble.wants_tls() {
            let told = [Header::new(Kind::Refused, 1).as_bytes(), &[reason.code()]].concat();
            // Nothing depends on it.
            let _ = socket.write_all(&told).await;
        }
        return Err(reason);
    }
    Ok((preamble, worker))
}

/// Lets a connection prove itself, and serves it from then on.
pub(crate) async fn receive(
    hub: Rc<Hub>,
    number: u64,
    socket: TcpStream,
    preamble: Preamble,
    address: SocketAddr,
) {
    // What this end tells of itself, however long the handshake takes.
    let told = hub.config.identity.get();
    let proving = prove(&hub, socket, preamble, told);
    let proof = timeout(hub.config.limits.handshake_max, proving).await;
    hub.met(number);
    let proof = proof.unwrap_or(Err(Failure::Here(CloseReason::SlowHandshake)));
    let (stream, reader, caller) = match proof {
        Ok(proved) => proved,
        Err(failure) => {
            let whom = match failure {
                Failure::Other(_) => format!("a stranger ({failure})"),
                Failure::Here(_) | Failure::There(_) => "a stranger".to_owned(),
            };
            return hub.note_close(failure.reason(), &whom, &address.to_string());
        }
    };
    let (entered, whom) = match caller {
        Caller::Peer { node, life, .. } => (hub.enter_peer((node, life), told), node.to_string()),
        Caller::Client => (Some(hub.enter_client(Origin::Client, told)), "a client".to_owned()),
        Caller::Operator => {
            (Some(hub.enter_client(Origin::Operator, told)), "an operator".to_owned())
        }
    };
    let Some(channel) = entered else {
        return hub.note_close(CloseReason::StaleLife, &whom, &address.to_string());
    };
    let reason = Pump::new(stream, reader, Rc::clone(&channel), &hub).run(&hub).await;
    hub.leave(&channel);
    hub.note_close(reason, &whom, &address.to_string());
}

async fn prove(
    hub: &Hub,
    socket: TcpStream,
    preamble: Preamble,
    identity: Option<ClusterId>,
) -> Result<(Stream, FrameReader, Caller), Failure> {
    let mut stream = match &hub.config.tls {
        None => Stream::Plain(socket),
        Some(tls) => {
            let secured = tls.acceptor(preamble.is_peer()).accept(socket).await;
            let secured = secured.map_err(|_| CloseReason::TlsFailed)?;
            Stream::Secured(Box::new(secured.into()))
        }
    };
    let binding = stream.binding().map_err(|_| CloseReason::TlsFailed)?;
    let secret: &Secret = match preamble.is_peer() || preamble.is_operator() {
        true => &hub.config.secret,
        false => &hub.config.client_secret,
    };
    let cluster = &hub.config.cluster;
    let terms = Terms { cluster, identity, secret, preamble, binding };
    let mut reader = FrameReader::new(MESSAGE_BYTES_MAX);
    let caller = handshake::accept(&mut stream, &mut reader, &terms, &hub.host, hub).await?;
    Ok((stream, reader, caller))
}
