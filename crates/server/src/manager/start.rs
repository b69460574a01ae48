//! Starts a node's manager inbox on its thread.

use super::folder::ManagerFolder;
use super::inbox::{ManagerInbox, ManagerPlan};
use super::input::InputReceiver;
use crate::end_reason::EndReason;
use crate::worker_command::WorkerCommand;
use std::io;
use std::thread;

/// Starts a node's manager inbox. It ends when all senders to it are gone, which is when its node has ended.
pub(crate) fn start(
    plan: ManagerPlan,
    inbox: InputReceiver,
    worker_hosts: shoal_net::Handle<WorkerCommand>,
    end_reason: EndReason,
) -> io::Result<thread::JoinHandle<()>> {
    let name = format!("{}-manager", plan.node);
    let InputReceiver { mut input_queue, shared_status } = inbox;
    let folder = ManagerFolder(plan.data.clone());
    shared_status.learn(folder.members()?);
    // A node that has a log hosts a manager, even if its file does not say so. A node that the file names,
    // and that knows of a cluster and has no log, hosts none: its manager was removed, or has lost its log.
    let hosts = folder.has_log()
        || (shared_status.named.contains(&plan.node) && shared_status.version() == 0);
    let storage = hosts.then(|| folder.log()).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    thread::Builder::new().name(name).spawn(move || {
        let stops = StopWorkersOnDrop(worker_hosts.clone());
        let node = plan.node;
        runtime.block_on(async {
            let mut manager_inbox = ManagerInbox::new(plan, shared_status, worker_hosts);
            if let Err(error) = manager_inbox.work(storage, &mut input_queue).await {
                tracing::error!(%node, %error, "the manager has stopped");
                end_reason.set(format!("the manager of {node} has stopped: {error}"));
            }
            manager_inbox.close().await;
        });
        drop(stops);
    })
}

/// A node whose manager has ended stops.
struct StopWorkersOnDrop(shoal_net::Handle<WorkerCommand>);

impl Drop for StopWorkersOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
