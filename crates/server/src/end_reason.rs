//! Why a node ends by itself.

use crate::worker_command::WorkerCommand;
use shoal_net::Handle;
use std::sync::{Arc, OnceLock};
use std::thread;

/// What has ended a node that another process has to follow: its supervisor learns of it. Shared by its threads; the first one counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndReason(Arc<OnceLock<String>>);

impl EndReason {
    /// The node ends, for this reason.
    pub(crate) fn set(&self, reason: String) {
        let _ = self.0.set(reason);
    }

    pub(crate) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// Ends the node if the thread panics that drops this. The `name` is that of the thread.
    pub(crate) fn on_panic(
        &self,
        name: &str,
        worker_hosts: &Handle<WorkerCommand>,
    ) -> EndOnPanic<impl FnMut() + Send + use<>> {
        let (reason, worker_hosts) = (self.clone(), worker_hosts.clone());
        let what = format!("the thread {name} panicked");
        EndOnPanic(move || {
            reason.set(what.clone());
            worker_hosts.stop();
        })
    }
}

/// Ends the node while a thread panics: nothing would be durable any more, and its workers would wait for that.
pub(crate) struct EndOnPanic<F: FnMut()>(F);

impl<F: FnMut()> Drop for EndOnPanic<F> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.0)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_thread_that_panics_ends_the_node_and_another_one_does_not() {
        let ends = AtomicU32::new(0);
        let guard = || EndOnPanic(|| _ = ends.fetch_add(1, Ordering::Relaxed));
        thread::scope(|threads| {
            assert!(threads.spawn(|| drop(guard())).join().is_ok());
            assert_eq!(ends.load(Ordering::Relaxed), 0);
            let panics = threads.spawn(|| {
                let _guard = guard();
                panic!("a test")
            });
            assert!(panics.join().is_err());
        });
        assert_eq!(ends.load(Ordering::Relaxed), 1);
    }
}
