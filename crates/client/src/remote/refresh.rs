//! Asking nodes where everything is.
//!
//! Any node will do, so they are asked one after the other, each a moment after the one before, until one
//! has told. The answers come like any frame, and are seen by all.

use super::after;
use super::error::ConnectError;
use super::link::Link;
use super::options::ClusterOptions;
use super::shared::{Desk, Inner};
use engines::Place;
use engines::client::{Directory, FromClient, ToClient};
use net::client::{Access, Connection, connect};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use types::wire::{decode, encode};
use types::{NodeId, WorkerId};

/// So long after one node the next is asked.
const NEXT_AFTER: Duration = Duration::from_millis(50);

/// Longest wait for a node to tell.
const ROUND_MAX: Duration = Duration::from_millis(500);

impl Inner {
    /// Has nodes asked, and waits until one has told, or for a while.
    pub(super) async fn refresh(self: &Arc<Self>, until: Instant) {
        let mut told = self.desk.view.told();
        told.mark_unchanged();
        let until = until.min(Instant::now() + ROUND_MAX);
        let heard = async {
            // It ends with the view, which we hold.
            let _ = told.changed().await;
        };
        let asks = async {
            // A second task waits for what the first hears.
            let _one = self.refreshing.lock().await;
            for node in self.desk.view.nodes() {
                self.ask_directory(node);
                sleep(NEXT_AFTER).await;
            }
            for address in self.addresses.clone() {
                self.visit(address);
                sleep(NEXT_AFTER).await;
            }
            std::future::pending::<()>().await;
        };
        let either = async {
            tokio::select! {
                () = heard => {}
                () = asks => {}
            }
        };
        let _ = timeout_at(until, either).await;
    }

    /// The same, without waiting.
    pub(super) fn refresh_aside(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        if inner.refreshing.try_lock().is_ok() {
            self.runtime.spawn(async move { inner.refresh(Instant::now() + ROUND_MAX).await });
        }
    }

    /// Asks another node than that, without waiting. It may be cut off from all others, and tell for
    /// ever what was true before.
    pub(super) fn ask_beside(self: &Arc<Self>, node: NodeId) {
        let view = &self.desk.view;
        let mut others = view.nodes();
        others.retain(|other| *other != node);
        let standing =
            others.iter().filter(|other| !view.is_dead(**other) && !view.is_suspect(**other));
        let first = match standing.count() {
            0 => others.len(),
            standing => standing,
        };
        if first > 0 {
            self.ask_directory(others[self.below(first)]);
        }
    }

    /// Asks one node, over a connection that stands or is made for it.
    fn ask_directory(self: &Arc<Self>, node: NodeId) {
        let inner = Arc::clone(self);
        self.runtime.spawn(async move {
            let worker = WorkerId(inner.below(inner.desk.view.workers()) as u32);
            if let Ok(link) = inner.link(Place { node, worker }).await {
                link.send(&FromClient::Directory);
            }
        });
    }

    /// Asks the node that listens at an address.
    fn visit(self: &Arc<Self>, address: Arc<str>) {
        let inner = Arc::clone(self);
        self.runtime.spawn(async move {
            let founding = &inner.desk.founding;
            let access = Access { identity: founding.own(), ..inner.options.access.clone() };
            if let Ok(Ok((connection, directory))) =
                timeout(ROUND_MAX, visit(&access, &address)).await
                && founding.meet(connection.node, connection.identity)
            {
                inner.desk.hear_directory(connection.node, directory);
            }
        });
    }
}

/// Connects to the node that listens at an address, and asks where everything is.
async fn visit(access: &Access, address: &str) -> Result<(Connection, Directory), String> {
    let connected = connect(address, access, None).await;
    let mut connection = connected.map_err(|error| error.to_string())?;
    let asked = connection.sender.send(encode(&FromClient::Directory)).await;
    asked.map_err(|error| error.to_string())?;
    loop {
        let frame = connection.receiver.receive().await.map_err(|closed| closed.to_string())?;
        let said = decode::<ToClient>(&frame);
        match said.map_err(|malformed| malformed.to_string())? {
            ToClient::Directory(directory) => return Ok((connection, directory)),
            ToClient::Reply(_) | ToClient::Status(_) | ToClient::Isolated(_) => {}
        }
    }
}

/// What the first node told that answered, and the connection to it.
pub(super) async fn first(
    options: &ClusterOptions,
    addresses: &[Arc<str>],
) -> Result<(Arc<str>, Connection, Directory), ConnectError> {
    let until = after(options.deadline);
    let (tell, mut told) = mpsc::channel(addresses.len().max(1));
    for (address, place) in addresses.iter().zip(0_u32..) {
        let (address, options, tell) = (Arc::clone(address), options.clone(), tell.clone());
        tokio::spawn(async move {
            sleep(NEXT_AFTER * place).await;
            let visited = tokio::select! {
                visited = timeout_at(until, visit(&options.access, &address)) => visited,
                // Another was faster.
                () = tell.closed() => return,
            };
            let silent = |_| Err(format!("no answer within {:.1?}", options.deadline));
            let visited = visited.unwrap_or_else(silent);
            // Another may have been faster.
            let _ = tell.send((address, visited)).await;
        });
    }
    drop(tell);
    let mut tried = Vec::new();
    while let Some((address, visited)) = told.recv().await {
        match visited {
            Ok((connection, directory)) => return Ok((address, connection, directory)),
            Err(what) => tried.push((address.as_ref().to_owned(), what)),
        }
    }
    Err(ConnectError { tried })
}

/// Keeps the connection over which the directory came.
pub(super) fn settle(inner: &Inner, desk: &Arc<Desk>, address: &str, connection: Connection) {
    let place = Place { node: connection.node, worker: connection.worker };
    desk.view.met(place.node, address);
    inner.lines.adopt(place, &Link::start(connection, desk));
}
