//! Requesting the directory from nodes.
//!
//! Any node can answer, so they are asked one after the other, each a moment after the one before, until one has
//! answered. Answers arrive like any frame, and are visible to all tasks.

use super::environment::timeout_at;
use super::shared::ClusterInner;
use shoal_engine::WorkerPlace;
use shoal_engine::client::FromClient;
use shoal_types::{NodeId, Time, WorkerId};
use std::sync::Arc;
use std::time::Duration;

/// The time after which the next node is asked.
const NEXT_AFTER: Duration = Duration::from_millis(50);

/// Longest wait for an answer.
const ROUND_MAX: Duration = Duration::from_millis(500);

impl ClusterInner {
    /// Asks nodes, and waits until one has answered, or for a while.
    pub(super) async fn refresh(self: &Arc<Self>, until: Time) {
        let mut updates = self.client_shared.view.updates();
        updates.mark_unchanged();
        let until = until.min(self.after(ROUND_MAX));
        let updated = async {
            // The sender is in the view, which outlives this task.
            let _ = updates.changed().await;
        };
        let requests = async {
            // Other tasks wait for the answer to the first.
            let _one = self.refreshing.lock().await;
            for node in self.client_shared.view.nodes() {
                self.ask_directory(node);
                self.world().sleep_until(self.after(NEXT_AFTER)).await;
            }
            for address in self.addresses.clone() {
                self.visit(address);
                self.world().sleep_until(self.after(NEXT_AFTER)).await;
            }
            std::future::pending::<()>().await;
        };
        let either = async {
            tokio::select! {
                biased;
                () = updated => {}
                () = requests => {}
            }
        };
        timeout_at(self.world(), until, either).await;
    }

    /// Asks nodes for the directory without waiting for an answer.
    pub(super) fn refresh_in_background(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        if inner.refreshing.try_lock().is_ok() {
            let refresh = async move { inner.refresh(inner.after(ROUND_MAX)).await };
            self.world().spawn(Box::pin(refresh));
        }
    }

    /// Asks a node other than `node`, without waiting: that one may be cut off from the others, and keep an old directory
    /// for ever.
    pub(super) fn ask_other_than(self: &Arc<Self>, node: NodeId) {
        let view = &self.client_shared.view;
        let mut others = view.nodes();
        others.retain(|other| *other != node);
        let live =
            others.iter().filter(|other| !view.is_dead(**other) && !view.is_suspect(**other));
        let first = match live.count() {
            0 => others.len(),
            live => live,
        };
        if first > 0 {
            self.ask_directory(others[self.below(first)]);
        }
    }

    /// Asks one node, over an existing connection or a new one.
    fn ask_directory(self: &Arc<Self>, node: NodeId) {
        let inner = Arc::clone(self);
        self.world().spawn(Box::pin(async move {
            let worker = WorkerId(inner.below(inner.client_shared.view.workers()) as u32);
            if let Ok(link) = inner.link(WorkerPlace { node, worker }).await {
                link.send(FromClient::Directory);
            }
        }));
    }

    /// Asks the node that listens at an address.
    fn visit(self: &Arc<Self>, address: Arc<str>) {
        let inner = Arc::clone(self);
        self.world().spawn(Box::pin(async move {
            let founding = &inner.client_shared.founding;
            if let Some((node, identity, directory)) =
                inner.world().visit(address, founding.own()).await
                && founding.meet(node, identity)
            {
                inner.client_shared.on_directory(node, directory);
            }
        }));
    }
}
