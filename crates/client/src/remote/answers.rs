//! The tasks that wait for answers which may arrive on any connection: answers of calls, and sessions for calls.

use super::lock;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// Most answers of one request that wait to be read: more are repetitions.
const WAITING_MAX: usize = 16;

type Waiters<K, T> = Mutex<BTreeMap<K, mpsc::Sender<T>>>;

/// The tasks that wait for answers of type `T`, by the id `K` of the request.
#[derive(Debug)]
pub(super) struct PendingAnswers<K, T> {
    waiters: Arc<Waiters<K, T>>,
}

/// Receives the answers of one request until it is dropped.
#[derive(Debug)]
pub(super) struct AnswerReceiver<K: Ord + Copy + fmt::Debug, T> {
    id: K,
    answers: mpsc::Receiver<T>,
    waiters: Arc<Waiters<K, T>>,
}

impl<K, T> Default for PendingAnswers<K, T> {
    fn default() -> PendingAnswers<K, T> {
        PendingAnswers { waiters: Arc::default() }
    }
}

impl<K: Ord + Copy + fmt::Debug, T> PendingAnswers<K, T> {
    /// The receiver of the answers to `id`. `None` if another task waits for them already.
    pub(super) fn expect(&self, id: K) -> Option<AnswerReceiver<K, T>> {
        let (waiter, answers) = mpsc::channel(WAITING_MAX);
        let mut waiters = lock(&self.waiters);
        if waiters.contains_key(&id) {
            return None;
        }
        waiters.insert(id, waiter);
        Some(AnswerReceiver { id, answers, waiters: Arc::clone(&self.waiters) })
    }

    /// An answer has arrived. Perhaps no task waits for it any more.
    pub(super) fn deliver(&self, id: K, answer: T) {
        if let Some(waiter) = lock(&self.waiters).get(&id) {
            // An answer without room is dropped; the request is repeated.
            let _ = waiter.try_send(answer);
        }
    }
}

impl<K: Ord + Copy + fmt::Debug, T> AnswerReceiver<K, T> {
    /// The next answer.
    pub(super) async fn next(&mut self) -> T {
        self.answers.recv().await.expect("we hold the other end")
    }
}

impl<K: Ord + Copy + fmt::Debug, T> Drop for AnswerReceiver<K, T> {
    fn drop(&mut self) {
        lock(&self.waiters).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_executor::block_on;

    #[test]
    fn answers_reach_the_task_that_waits() {
        let answers = PendingAnswers::default();
        let mut inbox = answers.expect(7).expect("the only one");
        assert!(answers.expect(7).is_none(), "two wait for one call");
        answers.deliver(8, "another's");
        answers.deliver(7, "first");
        answers.deliver(7, "second");
        assert_eq!(block_on(inbox.next()), "first");
        assert_eq!(block_on(inbox.next()), "second");
        drop(inbox);
        answers.deliver(7, "late");
        assert!(answers.expect(7).is_some(), "a dropped receiver waits no more");
    }
}
