//! Retries of aborted transactions.
//!
//! After any abort nothing has happened: so a transaction is retried not only after a conflict, but also if its node
//! failed or does not lead any more, and then elsewhere. A transaction whose outcome is unknown is never retried.

use super::shared::{ClusterInner, TransactionPermit};
use shoal_types::{Aborted, Backoff, Error, Result, Time, Unknown, Wait};
use std::sync::Arc;
use std::time::Duration;

/// The first and the longest limit of the random pause between two attempts.
const PAUSE_MIN: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The time that a call with all its attempts may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallSpan {
    /// When the first attempt began.
    pub(super) began: Time,
    /// The deadline: no attempt begins later, and none is waited for any longer.
    pub(super) until: Time,
}

/// The attempts of one transaction.
#[derive(Debug)]
pub(crate) struct Attempts {
    permit: TransactionPermit,
    attempts: u32,
    backoff: Backoff,
    began: Time,
    until: Time,
}

impl Attempts {
    /// The attempts of a transaction that has not begun.
    ///
    /// # Errors
    /// [`TooManyTransactions`](shoal_types::Rejected::TooManyTransactions).
    pub(super) fn new(inner: &Arc<ClusterInner>, deadline: Duration) -> Result<Attempts> {
        let (began, until) = (inner.world().now(), inner.after(deadline));
        let backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        Ok(Attempts { permit: inner.enter()?, attempts: 0, backoff, began, until })
    }

    /// The time for all of them.
    pub(super) fn span(&self) -> CallSpan {
        CallSpan { began: self.began, until: self.until }
    }

    /// The deadline.
    pub(crate) fn until(&self) -> Time {
        self.until
    }

    /// Pauses after an attempt that `error` ended.
    ///
    /// # Errors
    /// `error` itself where a retry is no use or not allowed; [`Aborted::RetriesExhausted`] where conflicts
    /// have taken all attempts, or all the time.
    pub(crate) async fn pause(&mut self, error: Error) -> Result<()> {
        let inner = Arc::clone(self.permit.inner());
        inner.refresh_if_outdated(&error);
        let elsewhere = match &error {
            Error::Aborted(
                Aborted::Conflict(_)
                | Aborted::RolledBack { .. }
                | Aborted::Moved { .. }
                | Aborted::UnknownSession { .. }
                | Aborted::CallSessionOver { .. },
            ) => false,
            Error::Aborted(Aborted::NotServing { node }) => {
                inner.client_shared.view.suspect(*node);
                true
            }
            Error::Aborted(Aborted::Unanswered(_)) => true,
            Error::Aborted(
                Aborted::RetriesExhausted { .. }
                | Aborted::Overloaded { .. }
                | Aborted::Idle { .. }
                | Aborted::ShardOut { .. }
                | Aborted::OpenTooLong { .. },
            )
            | Error::Rejected(_)
            | Error::Unknown(_) => return Err(self.last(error)),
        };
        self.attempts += 1;
        if self.attempts >= inner.options.attempts_max || inner.world().now() >= self.until {
            return Err(self.last(error));
        }
        if elsewhere {
            inner.refresh(self.until).await;
        }
        inner.pause(self.backoff.advance(), self.until).await;
        Ok(())
    }

    /// The error that callers receive: a wait in it is that of all attempts.
    fn last(&self, error: Error) -> Error {
        let attempts = self.attempts;
        let waited = self.permit.inner().world().now() - self.began;
        let whole = |wait: Wait| Wait { waited, ..wait };
        match error {
            Error::Aborted(Aborted::Conflict(last)) => {
                Aborted::RetriesExhausted { attempts, last }.into()
            }
            Error::Aborted(Aborted::Unanswered(wait)) => Aborted::Unanswered(whole(wait)).into(),
            Error::Unknown(Unknown::Commit { session, wait }) => {
                Unknown::Commit { session, wait: whole(wait) }.into()
            }
            Error::Unknown(Unknown::Call { request, wait }) => {
                Unknown::Call { request, wait: whole(wait) }.into()
            }
            error @ (Error::Aborted(_) | Error::Rejected(_) | Error::Unknown(_)) => error,
        }
    }
}
