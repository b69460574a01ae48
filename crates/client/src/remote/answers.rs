//! To whom the answers of calls go. They may come over any connection.

use super::lock;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use types::{Epoch, RequestId, Result};

/// Answers of one call that may wait to be looked at: more are repetitions.
const WAITING_MAX: usize = 16;

/// An answer, and the epoch that the copy of the call named which is answered.
pub(super) type Answered = (Epoch, Result<Bytes>);

type Waiters = Mutex<BTreeMap<RequestId, mpsc::Sender<Answered>>>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Answers {
    waiters: Arc<Waiters>,
}

/// Where the answers of one call come, as long as this is there.
#[derive(Debug)]
pub(super) struct Inbox {
    id: RequestId,
    answers: mpsc::Receiver<Answered>,
    waiters: Arc<Waiters>,
}

impl Answers {
    /// Where those of `id` will come. `None` if somebody waits for them already.
    pub(super) fn expect(&self, id: RequestId) -> Option<Inbox> {
        let (waiter, answers) = mpsc::channel(WAITING_MAX);
        let mut waiters = lock(&self.waiters);
        if waiters.contains_key(&id) {
            return None;
        }
        waiters.insert(id, waiter);
        Some(Inbox { id, answers, waiters: Arc::clone(&self.waiters) })
    }

    /// One has come. Nobody may wait for it any more.
    pub(super) fn deliver(&self, id: RequestId, epoch: Epoch, result: Result<Bytes>) {
        if let Some(waiter) = lock(&self.waiters).get(&id) {
            // What has no room is asked for again.
            let _ = waiter.try_send((epoch, result));
        }
    }
}

impl Inbox {
    /// The next answer that counts: a result, or an error of a copy that named `named` or a later epoch. An
    /// error of an earlier copy says nothing of what came of the later one.
    pub(super) async fn next(&mut self, named: Epoch) -> Result<Bytes> {
        loop {
            let (epoch, result) = self.answers.recv().await.expect("we hold the other end");
            if result.is_ok() || epoch >= named {
                return result;
            }
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        lock(&self.waiters).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_executor::block_on;
    use types::Error;

    #[test]
    fn errors_of_earlier_copies_do_not_count_and_results_do() {
        let answers = Answers::default();
        let id = RequestId(7);
        let mut inbox = answers.expect(id).expect("the only one");
        assert!(answers.expect(id).is_none(), "two wait for one call");
        answers.deliver(id, Epoch(3), Err(Error::reject("old")));
        answers.deliver(RequestId(8), Epoch(9), Err(Error::reject("another's")));
        answers.deliver(id, Epoch(4), Err(Error::reject("new")));
        answers.deliver(id, Epoch(0), Ok(Bytes::from_static(b"done")));
        assert_eq!(block_on(inbox.next(Epoch(4))), Err(Error::reject("new")));
        assert_eq!(block_on(inbox.next(Epoch(4))), Ok(Bytes::from_static(b"done")));
        drop(inbox);
        answers.deliver(id, Epoch(4), Ok(Bytes::new()));
        assert!(answers.expect(id).is_some(), "whoever left waits no more");
    }
}
