//! Calls of procedures: each takes effect at most once, however often its request is sent.
//!
//! ```text
//!   session ◄── an idle one, or a new one from the leader of the home shard
//!     │
//!   request to the leader of home ── no answer ──► to another node, and again, after growing pauses
//!     │                           ── unsettled ──► pause, and send again
//!     ├── aborted ──► call under another id, while attempts and time are left
//!     └── a result, or another error ──► done
//! ```
//! Where any node coordinates, a call is the only step of a transaction at the nearest node, and is sent once under its id. If
//! its answer is lost, what became of it is asked for as for a commit.
//!
//! Lost messages leave no outcome unknown: an aborted call has not taken effect and never will, so it is made again under
//! another id. The outcome of a commit whose reply was lost is requested in the same way, and the request does not execute it.
//! Only the deadline ends either without an answer; the outcome can still be requested by the id.

use super::answers::AnswerReceiver;
use super::attempts::{Attempts, CallSpan};
use super::granule_routes::GranuleName;
use super::lock;
use super::request_ids::CallSessionUse;
use super::retransmission::Retransmission;
use super::shared::ClusterInner;
use super::transaction::{ClusterTransaction, OperationTimeout};
use bytes::Bytes;
use shoal_cluster::manager::{Ask, TableChange};
use shoal_engine::WorkerPlace;
use shoal_engine::client::{ClientRequest, FromClient, worker_of};
use shoal_types::{
    Aborted, Awaited, Backoff, CallSession, Cause, Error, NodeId, Rejected, RequestId, Result,
    ShardId, TableId, Time, Unknown, Wait, WorkerId,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The bytes of a frame beside those of the procedure's name and arguments, at most.
const FRAME_OVERHEAD: usize = 64;

/// The first and the longest pause before a request is sent again that could not be served yet.
const UNSETTLED_MIN: Duration = Duration::from_millis(10);
const UNSETTLED_MAX: Duration = Duration::from_millis(500);

/// The worker of a node that takes changes of tables.
const TABLES_WORKER: WorkerId = WorkerId(0);

/// A call of a procedure, without its id.
#[derive(Debug, Clone)]
pub(super) struct CalledProcedure {
    pub(super) home: ShardId,
    /// The granule that it accesses, if granules move to the node that uses them: then it is executed at that node, if it
    /// leads a shard. What is executed on a shard need not access it.
    pub(super) granule: Option<GranuleName>,
    pub(super) procedure: Box<str>,
    pub(super) arguments: Bytes,
}

/// The result of one transmission of a request.
enum CallReply<T> {
    Answer(Result<T>),
    /// No answer in time; or none can arrive any more, for this reason.
    None(Option<Cause>),
}

/// A request that is sent until it is answered.
struct RepeatedCall<'a> {
    inner: &'a Arc<ClusterInner>,
    request: ClientRequest,
    home: ShardId,
    /// The worker that is asked, on any node.
    worker: WorkerId,
    began: Time,
    /// A copy of the call was sent, by this request or an earlier one.
    sent: bool,
    retransmission: Retransmission,
    last_failure: TransmissionFailure,
}

/// Why the last transmission was not answered, and the node that it was sent to.
#[derive(Debug, Clone, Copy)]
struct TransmissionFailure {
    node: Option<NodeId>,
    cause: Cause,
}

impl ClusterInner {
    /// Calls a procedure under a session of this client, again while it is aborted.
    pub(super) async fn call(
        self: &Arc<Self>,
        call: &CalledProcedure,
        deadline: Duration,
    ) -> Result<Bytes> {
        self.call_until(call, Attempts::new(self, deadline)?).await
    }

    async fn call_until(
        self: &Arc<Self>,
        call: &CalledProcedure,
        mut attempts: Attempts,
    ) -> Result<Bytes> {
        loop {
            match self.call_once(call, attempts.span()).await {
                Err(error) => attempts.pause(error).await?,
                result => return result,
            }
        }
    }

    async fn call_once(self: &Arc<Self>, call: &CalledProcedure, span: CallSpan) -> Result<Bytes> {
        self.check(call)?;
        let mut number = self.request_session(self.home_for(call), span).await?;
        let id = number.request();
        let result = match self.client_shared.view.goes_to_nearest() {
            true => {
                let tx = ClusterTransaction::new(self, None, OperationTimeout::Until(span.until));
                tx.call(id, &call.procedure, call.arguments.clone(), span).await
            }
            false => self.request_call(id, call, span, false).await,
        };
        self.numbers.give_back_if_known(number, &result);
        if let Err(error) = &result {
            self.client_shared.view.learn_owner(call.granule.as_ref(), error);
        }
        result
    }

    /// The shard whose leader executes the next attempt of a call.
    fn home_for(&self, call: &CalledProcedure) -> ShardId {
        let view = &self.client_shared.view;
        let node = call.granule.as_ref().and_then(|granule| view.coordinator(granule));
        node.and_then(|node| view.shard_led_by(node, call.home)).unwrap_or(call.home)
    }

    /// A session for requests on a shard, of which none is in progress.
    pub(super) async fn request_session(
        self: &Arc<Self>,
        home: ShardId,
        span: CallSpan,
    ) -> Result<CallSessionUse> {
        match self.numbers.take(home) {
            Some(number) => Ok(number),
            None => Ok(CallSessionUse::new(self.open_calls(home, span).await?)),
        }
    }

    /// Requests the outcome of a commit, or of a call that any node may have coordinated, until a node answers. Returns what its row
    /// has. `unknown` is the error if it cannot be known.
    pub(super) async fn resolve(
        self: &Arc<Self>,
        id: RequestId,
        unknown: Error,
        span: CallSpan,
    ) -> Result<Bytes> {
        let inbox = self.client_shared.answers.expect(id).expect("a commit is resolved once");
        let (home, worker) = (id.session.home, worker_of(&id.session, self.workers()));
        let request = ClientRequest::Resolve { id };
        match RepeatedCall::new(self, request, home, worker, span).run(inbox).await {
            Ok(result) => Ok(result),
            Err(over @ Error::Aborted(Aborted::CallSessionOver { .. })) => Err(over),
            Err(Error::Rejected(Rejected::FoundedAgain { known, found })) => {
                Err(Unknown::FoundedAgain { request: id, known, found }.into())
            }
            // The row was dropped.
            Err(lost @ Error::Unknown(_)) => Err(lost),
            Err(Error::Aborted(_) | Error::Rejected(_)) => Err(unknown),
        }
    }

    /// Requests the outcome of an earlier call. If it was aborted, calls again under another id.
    pub(super) async fn call_again(
        self: &Arc<Self>,
        id: RequestId,
        call: &CalledProcedure,
        deadline: Duration,
    ) -> Result<Bytes> {
        let mut attempts = Attempts::new(self, deadline)?;
        self.check(call)?;
        let span = attempts.span();
        let asked = match self.client_shared.view.goes_to_nearest() {
            true => {
                let (node, awaited, cause) = (None, Awaited::Call, Cause::Silent);
                let wait = Wait { node, awaited, cause, waited: Duration::ZERO };
                self.resolve(id, Unknown::Call { request: id, wait }.into(), span).await
            }
            false => self.request_call(id, call, span, true).await,
        };
        match asked {
            Err(error @ Error::Aborted(_)) => attempts.pause(error).await?,
            result => return result,
        }
        self.call_until(call, attempts).await
    }

    /// Checks that the call fits a frame.
    fn check(&self, call: &CalledProcedure) -> Result<()> {
        let max = self.options.access.limits.frame_bytes_max;
        let bytes = FRAME_OVERHEAD + call.procedure.len() + call.arguments.len();
        if bytes > max {
            Err(Rejected::CallTooLong { bytes, max })?;
        }
        Ok(())
    }

    async fn request_call(
        self: &Arc<Self>,
        id: RequestId,
        call: &CalledProcedure,
        span: CallSpan,
        sent: bool,
    ) -> Result<Bytes> {
        let Some(inbox) = self.client_shared.answers.expect(id) else {
            return Err(Error::reject(format!("{id} is already requested")));
        };
        let CalledProcedure { procedure, arguments, .. } = call.clone();
        let home = id.session.home;
        let request = ClientRequest::Call { id, procedure, arguments };
        let worker = worker_of(&id.session, self.workers());
        RepeatedCall { sent, ..RepeatedCall::new(self, request, home, worker, span) }
            .run(inbox)
            .await
    }

    /// Requests a call session from the leader of a shard.
    async fn open_calls(self: &Arc<Self>, home: ShardId, span: CallSpan) -> Result<CallSession> {
        let token = lock(&self.random).next_u64();
        let inbox = self.client_shared.opened.expect(token).expect("tokens differ");
        let worker = WorkerId(self.below(self.client_shared.view.workers()) as u32);
        let request = ClientRequest::OpenCalls { token, home };
        RepeatedCall::new(self, request, home, worker, span).run(inbox).await
    }

    /// Has the managers create or drop a table, once, however often the request is sent.
    pub(super) async fn change_table(
        self: &Arc<Self>,
        change: TableChange,
        span: CallSpan,
    ) -> Result<TableId> {
        let ask = Ask(lock(&self.random).next_u64());
        let inbox = self.client_shared.tables.expect(ask).expect("numbers differ");
        let request = ClientRequest::ChangeTable { ask, change };
        RepeatedCall::new(self, request, self.any_shard(), TABLES_WORKER, span).run(inbox).await
    }

    /// A random shard, for a call that any shard may execute.
    pub(super) fn any_shard(&self) -> ShardId {
        let shards = self.client_shared.view.topology().shards();
        ShardId(self.below(shards as usize) as u32)
    }

    fn workers(&self) -> u32 {
        u32::try_from(self.client_shared.view.workers()).unwrap_or(u32::MAX)
    }
}

impl RepeatedCall<'_> {
    fn new(
        inner: &Arc<ClusterInner>,
        request: ClientRequest,
        home: ShardId,
        worker: WorkerId,
        span: CallSpan,
    ) -> RepeatedCall<'_> {
        let retransmission = Retransmission::new(&inner.options, span.until);
        RepeatedCall {
            inner,
            request,
            home,
            worker,
            began: span.began,
            sent: false,
            retransmission,
            last_failure: TransmissionFailure { node: None, cause: Cause::Unreachable },
        }
    }

    async fn run<K, T>(mut self, mut inbox: AnswerReceiver<K, Result<T>>) -> Result<T>
    where
        K: Ord + Copy + fmt::Debug,
    {
        let until = self.retransmission.until();
        let mut unsettled = Backoff::new(UNSETTLED_MIN, UNSETTLED_MAX);
        let mut is_first = true;
        while std::mem::take(&mut is_first) || self.inner.world().now() < until {
            let node = self.node();
            let reply = self.send_and_wait(node, &mut inbox).await;
            let result = match reply {
                CallReply::Answer(result) => result,
                CallReply::None(failed) => {
                    self.on_unanswered(node, failed).await;
                    if let Some(error) = self.inner.client_shared.founded_again() {
                        return Err(self.founded_again(error));
                    }
                    continue;
                }
            };
            let cause = match &result {
                Err(error) => self.cause_to_repeat(error),
                Ok(_) => None,
            };
            let Some(cause) = cause else {
                self.inner.client_shared.view.trust(node);
                return result;
            };
            self.last_failure = TransmissionFailure { node: Some(node), cause };
            if cause == Cause::NotServing {
                self.inner.refresh(until).await;
            }
            self.inner.pause(unsettled.advance(), until).await;
        }
        Err(self.deadline_error())
    }

    /// Sends the request to a node, and waits until it is answered or has to be sent again.
    async fn send_and_wait<K, T>(
        &mut self,
        node: NodeId,
        inbox: &mut AnswerReceiver<K, Result<T>>,
    ) -> CallReply<T>
    where
        K: Ord + Copy + fmt::Debug,
    {
        let world = Arc::clone(&self.inner.client_shared.world);
        let place = WorkerPlace { node, worker: self.worker };
        let sends = !self.opens();
        let (inner, request, sent) = (self.inner, &self.request, &mut self.sent);
        let either = async {
            tokio::select! {
                biased;
                result = inbox.next() => CallReply::Answer(result),
                cause = send(inner, place, request, || *sent |= sends) => CallReply::None(Some(cause)),
            }
        };
        let reply = self.retransmission.wait(&*world, either).await;
        reply.unwrap_or(CallReply::None(None))
    }

    /// Why the request has to be sent again, if the error says that this node cannot answer it, or not yet.
    fn cause_to_repeat(&self, error: &Error) -> Option<Cause> {
        match error {
            Error::Unknown(Unknown::Unsettled { shard, .. }) => Some(Cause::Unsettled(*shard)),
            // The number of workers has changed since the directory was received.
            Error::Rejected(Rejected::OtherWorker { .. }) => Some(Cause::NotServing),
            Error::Aborted(Aborted::Conflict(_) | Aborted::NotServing { .. }) if self.opens() => {
                Some(Cause::NotServing)
            }
            Error::Aborted(_) | Error::Rejected(_) | Error::Unknown(_) => None,
        }
    }

    /// Whether the request is for a call session.
    fn opens(&self) -> bool {
        matches!(self.request, ClientRequest::OpenCalls { .. })
    }

    /// The node to send to: the leader, alternating with other nodes, which forward the request.
    fn node(&self) -> NodeId {
        let view = &self.inner.client_shared.view;
        let leader = view.leader(self.home);
        let to_leader = self.retransmission.unanswered().is_multiple_of(2);
        let direct = leader.filter(|leader| to_leader && !view.is_suspect(*leader));
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

    /// Notes that a transmission was not answered. After a failure it pauses: a node that could not be connected to fails at
    /// once for a while, without another attempt.
    async fn on_unanswered(&mut self, node: NodeId, failed: Option<Cause>) {
        let cause = failed.unwrap_or(Cause::Silent);
        self.last_failure = TransmissionFailure { node: Some(node), cause };
        self.retransmission.count();
        self.inner.refresh_in_background();
        if failed.is_some() {
            self.inner.client_shared.view.suspect(node);
            let until = self.retransmission.until();
            self.inner.pause(self.inner.options.patience / 2, until).await;
        }
    }

    /// The error after the cluster was founded again: the outcome is unknown if a call was sent before.
    fn founded_again(&self, error: Rejected) -> Error {
        match (error, &self.request) {
            (Rejected::FoundedAgain { known, found }, ClientRequest::Call { id, .. })
                if self.sent =>
            {
                Unknown::FoundedAgain { request: *id, known, found }.into()
            }
            (error, _) => error.into(),
        }
    }

    /// The error of a request that was not answered within its deadline.
    fn deadline_error(&self) -> Error {
        let TransmissionFailure { node, mut cause } = self.last_failure;
        if self.inner.client_shared.view.has_no_majority(self.home) {
            cause = Cause::NoMajority;
        }
        let awaited = match &self.request {
            ClientRequest::OpenCalls { .. } => Awaited::CallSession,
            ClientRequest::ChangeTable { .. } => Awaited::TableChange,
            _ => Awaited::Call,
        };
        let wait = Wait { node, awaited, cause, waited: self.inner.world().now() - self.began };
        match &self.request {
            ClientRequest::Call { id, .. } if self.sent => {
                Unknown::Call { request: *id, wait }.into()
            }
            ClientRequest::ChangeTable { .. } if self.sent => Unknown::Table { wait }.into(),
            _ => Aborted::Unanswered(wait).into(),
        }
    }
}

/// Sends a request to a worker, and returns why no answer can come from there any more. `sent` is called when the request
/// is about to be sent.
async fn send(
    inner: &Arc<ClusterInner>,
    place: WorkerPlace,
    request: &ClientRequest,
    sent: impl FnOnce(),
) -> Cause {
    let link = match inner.link(place).await {
        Ok(link) => link,
        Err(cause) => return cause,
    };
    sent();
    link.send(FromClient::Request(request.clone()));
    let silent_at = inner.after(inner.options.silence_max);
    tokio::select! {
        biased;
        cause = link.ended() => cause,
        () = inner.world().sleep_until(silent_at) => Cause::Silent,
    }
}
