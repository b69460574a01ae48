//! Calling a procedure once, however often it has to be asked for.
//!
//! ```text
//!   ask the leader of home ── no answer ──► ask elsewhere, and again, with growing patience
//!     │                    ── fenced ─────► name that epoch, and ask again
//!     │                    ── unsettled ──► pause, and ask again
//!     └── result, or an error of a copy that named the latest epoch ──► done
//! ```
//! Whatever is lost, the answer is definite in the end. Only the deadline ends it without one, and then the
//! id can still be asked for.

use super::after;
use super::shared::Inner;
use bytes::Bytes;
use engines::Place;
use engines::client::{FromClient, Request, worker_of};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use types::{
    Aborted, Awaited, Cause, Epoch, Error, NodeId, Rejected, RequestId, Result, ShardId, Unknown,
    Wait,
};

/// Of a frame, what is not the procedure's name or what it is called with.
const FRAME_REST: usize = 64;

/// Longest pause before a request that nobody could look up is asked for again, and first one.
const UNSETTLED_MAX: Duration = Duration::from_millis(500);
const UNSETTLED_MIN: Duration = Duration::from_millis(10);

/// What is called.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) home: ShardId,
    pub(super) procedure: Box<str>,
    pub(super) arguments: Bytes,
}

/// What came of asking once.
enum Came {
    Answer(Result<Bytes>),
    Nothing(Cause),
}

/// A call that is asked for.
struct Asking<'a> {
    inner: &'a Arc<Inner>,
    id: RequestId,
    call: &'a Call,
    began: Instant,
    until: Instant,
    /// Some copy was sent.
    sent: bool,
    /// So many asks brought nothing.
    in_vain: u32,
    patience: Duration,
    /// What stood in the way last, and where.
    last: (Option<NodeId>, Cause),
}

impl Inner {
    /// Calls a procedure under a number of ours.
    pub(super) async fn call(self: &Arc<Self>, call: &Call, deadline: Duration) -> Result<Bytes> {
        let _permit = self.enter()?;
        let (began, until) = span(deadline);
        let mut attempts = 0_u32;
        loop {
            let mut number = self.numbers.take();
            let result = self.ask_for(number.request(), call, (began, until)).await;
            if !matches!(result, Err(Error::Unknown(_))) {
                self.numbers.give_back(number);
            }
            let Err(Error::Aborted(Aborted::NotServing { node })) = result else { return result };
            // That id was refused for good: another may be served elsewhere.
            attempts += 1;
            if Instant::now() >= until || attempts >= self.options.attempts_max {
                return result;
            }
            self.desk.view.suspect(node);
            self.refresh(until).await;
            self.pause(self.options.patience, until).await;
        }
    }

    /// Asks for a call whose fate is open.
    pub(super) async fn call_again(
        self: &Arc<Self>,
        id: RequestId,
        call: &Call,
        deadline: Duration,
    ) -> Result<Bytes> {
        let _permit = self.enter()?;
        self.ask_for(id, call, span(deadline)).await
    }

    async fn ask_for(
        self: &Arc<Self>,
        id: RequestId,
        call: &Call,
        (began, until): (Instant, Instant),
    ) -> Result<Bytes> {
        let max = self.options.access.limits.frame_bytes_max;
        let bytes = FRAME_REST + call.procedure.len() + call.arguments.len();
        if bytes > max {
            Err(Rejected::CallTooLong { bytes, max })?;
        }
        let (patience, last) = (self.options.patience, (None, Cause::Unreachable));
        let inner = self;
        let asking =
            Asking { inner, id, call, began, until, sent: false, in_vain: 0, patience, last };
        asking.run().await
    }
}

/// From now on for so long.
fn span(deadline: Duration) -> (Instant, Instant) {
    (Instant::now(), after(deadline))
}

impl Asking<'_> {
    async fn run(mut self) -> Result<Bytes> {
        let Some(mut inbox) = self.inner.desk.answers.expect(self.id) else {
            return Err(Error::reject(format!("{} is being asked for already", self.id)));
        };
        let mut unsettled = UNSETTLED_MIN;
        let mut is_first = true;
        while std::mem::take(&mut is_first) || Instant::now() < self.until {
            let named = self.inner.desk.epoch();
            let node = self.node();
            let end = self.until.min(after(self.patience));
            let came = tokio::select! {
                biased;
                result = inbox.next(named) => Came::Answer(result),
                cause = self.ask(node, named) => Came::Nothing(cause),
                () = sleep_until(end) => Came::Nothing(Cause::Silent),
            };
            let result = match came {
                Came::Answer(result) => result,
                Came::Nothing(cause) => {
                    self.in_vain(node, cause).await;
                    if let Some(error) = self.inner.desk.founded_again() {
                        return Err(self.lost(error));
                    }
                    continue;
                }
            };
            match result {
                Err(Error::Unknown(Unknown::Fenced { epoch, .. })) => {
                    self.last = (Some(node), Cause::NotServing);
                    self.inner.desk.hear_epoch(epoch);
                    self.inner.refresh_aside();
                    if epoch > named {
                        continue;
                    }
                }
                Err(Error::Unknown(Unknown::Unsettled { .. })) => {
                    self.last = (Some(node), Cause::Unsettled);
                }
                Err(Error::Rejected(Rejected::OtherWorker { .. })) => {
                    // Nodes have another number of workers than we know of.
                    self.last = (Some(node), Cause::NotServing);
                    self.inner.refresh(self.until).await;
                }
                result => {
                    self.inner.desk.view.trust(node);
                    return result;
                }
            }
            self.inner.pause(unsettled, self.until).await;
            unsettled = UNSETTLED_MAX.min(unsettled * 2);
        }
        Err(self.given_up())
    }

    /// Whom to ask now: the leader, by turns with others, who pass it on.
    fn node(&self) -> NodeId {
        let view = &self.inner.desk.view;
        let leader = view.leader(self.call.home);
        let direct =
            leader.filter(|leader| self.in_vain.is_multiple_of(2) && !view.is_suspect(*leader));
        direct.unwrap_or_else(|| {
            let nodes = view.nodes();
            let others: Vec<NodeId> = nodes
                .iter()
                .copied()
                .filter(|node| Some(*node) != leader && !view.is_suspect(*node))
                .collect();
            match others.len() {
                0 => leader.unwrap_or_else(|| nodes.first().copied().unwrap_or(NodeId(0))),
                count => others[self.inner.below(count)],
            }
        })
    }

    /// Asks a node, and returns why nothing more can come from there.
    async fn ask(&mut self, node: NodeId, epoch: Epoch) -> Cause {
        let workers = u32::try_from(self.inner.desk.view.workers()).unwrap_or(u32::MAX);
        let place = Place { node, worker: worker_of(self.id, workers) };
        let link = match self.inner.link(place).await {
            Ok(link) => link,
            Err(cause) => return cause,
        };
        let Call { home, procedure, arguments } = self.call.clone();
        self.sent = true;
        link.send(&FromClient::Request(Request::Call {
            id: self.id,
            home,
            procedure,
            arguments,
            epoch,
        }));
        let silent_at = after(self.inner.options.silence_max);
        tokio::select! {
            cause = link.ended() => cause,
            () = sleep_until(silent_at) => Cause::Silent,
        }
    }

    /// Nothing came from there in time.
    async fn in_vain(&mut self, node: NodeId, cause: Cause) {
        self.last = (Some(node), cause);
        self.in_vain += 1;
        self.patience = self.inner.options.patience_max().min(self.patience.saturating_mul(2));
        self.inner.refresh_aside();
        if cause != Cause::Silent {
            self.inner.desk.view.suspect(node);
            self.inner.pause(self.inner.options.patience / 2, self.until).await;
        }
    }

    /// The cluster is gone that this was asked of, if it was.
    fn lost(&self, error: Rejected) -> Error {
        match error {
            Rejected::FoundedAgain { known, found } if self.sent => {
                Unknown::FoundedAgain { request: self.id, known, found }.into()
            }
            error => error.into(),
        }
    }

    fn given_up(&self) -> Error {
        let (node, mut cause) = self.last;
        if self.inner.desk.view.has_no_majority(self.call.home) {
            cause = Cause::NoMajority;
        }
        let wait = Wait { node, awaited: Awaited::Call, cause, waited: self.began.elapsed() };
        match self.sent {
            true => Unknown::Call { request: self.id, wait }.into(),
            false => Aborted::Unanswered(wait).into(),
        }
    }
}
