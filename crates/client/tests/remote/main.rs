//! The client of a cluster: against an engine on real sockets, and against nodes that do what a script says.

mod calls;
mod conversation;
mod either;
mod engine;
mod failures;
mod nearest;
mod owners;
mod resolving;
mod scripted;
mod served;
mod sessions;
mod world;

use std::future::Future;
use std::time::Duration;

/// Longer than anything takes; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Of the nodes.
pub const SECRET: [u8; 32] = [7; 32];

/// Connections go on while a test waits.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let patient = async { tokio::time::timeout(PATIENCE, future).await.expect("it never ends") };
    runtime.expect("a runtime").block_on(patient)
}
