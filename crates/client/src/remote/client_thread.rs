//! The thread of a client that has one of its own, and waiting for what it drives.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The thread that drives the connections of a client. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ClientThread {
    runtime: Handle,
    _alive: oneshot::Sender<()>,
}

impl ClientThread {
    /// A thread that drives this runtime, until the other end of `alive` has received something or is closed.
    pub(super) fn new(runtime: Handle, alive: oneshot::Sender<()>) -> ClientThread {
        ClientThread { runtime, _alive: alive }
    }

    /// Waits on the calling thread.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let _entered = self.runtime.enter();
        let parked =
            Arc::new(ParkedThread { thread: thread::current(), woken: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&parked));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                return result;
            }
            while !parked.woken.swap(false, Ordering::Acquire) {
                thread::park();
            }
        }
    }
}

/// A thread that waits for a future.
struct ParkedThread {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for ParkedThread {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
