//! An interactive transaction at its client: the steps that are not answered yet.
//!
//! A worker of a node executes the steps of a session in the order of their numbers, one at a time. It keeps a bounded
//! number of steps that arrive before their turn, so that they travel together: writes with the commit or the next
//! read, and the first read with the beginning, which is step 0. Steps that may be lost are sent again.
//!
//! ```text
//!   number   0     1     2     3     4     5     6
//!       answered answered │ sent  sent  sent │ not sent
//!                         └─ next            └─ next + sent
//! ```
//! Invariants:
//!
//! - A commit is sent only when all steps before it are answered, except puts and deletes: the worker commits nothing
//!   once one of these has failed. An insert may fail and leave the transaction open.
//! - A step is answered once, by the reply with its number; a put or a delete also by a later reply. Other replies are
//!   repeats.
//! - All answers belong to one transaction: the worker begins none twice under a registration and a number.
//! - A session that the worker does not know begins again, under another number, only while none of its steps was
//!   answered.
//! - If the commit was sent twice, and the worker does not know the session, the outcome is unknown: the first copy may
//!   have committed, and the worker may have dropped the session since. If the commit was sent once, the transaction
//!   did not commit and never will. Messages arrive in order, each once, and the worker executes no step of a session
//!   that it does not know. So the only commit message arrived before that reply, and was refused then, or arrives
//!   later, and is refused.

use shoal_engine::client::{AHEAD_BYTES_MAX, ClientRequest, STEPS_AHEAD_MAX, SessionEnd};
use shoal_engine::operation::{Operation, OperationResult};
use shoal_types::{Aborted, Cause, Error, Result, Unknown};
use std::collections::VecDeque;
use std::ops::Range;
use tokio::sync::oneshot;

/// Bytes of the operations in one message, if there are several. More makes fewer messages; with less, the worker
/// executes the first operations while others are still being sent.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// The bytes that an operation takes in a message beside those of its key and value, at most.
const OPERATION_OVERHEAD: usize = 32;

/// About how many bytes of answers may be outstanding. The node closes a connection with twice as many bytes unread.
const ANSWERS_BYTES_MAX: usize = 32 << 20;

/// The estimated bytes of an answer before the first has arrived. Less than the longest, since few answers are that long.
const ANSWER_BYTES_FIRST: usize = 4 << 20;

/// How often a session that the worker does not know begins again.
const RESTARTS_MAX: u32 = 16;

/// The result of a step, for the task that waits for it.
pub(super) type StepReply = std::result::Result<OperationResult, StepError>;

/// Why a step has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StepError {
    /// The worker answered with an error.
    Error(Error),
    /// The connection has ended.
    Disconnected(Cause),
    /// The connection has ended after the commit of the session with this number was sent.
    CommitUnknown(u64),
}

/// The state of the session after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterReply {
    /// The session continues.
    Open,
    /// The session is over: later replies are ignored.
    Over,
    /// The worker has not begun the session: the caller has to [`ClientSession::restart`] it.
    NotBegun,
    /// The reply answers no step that was sent.
    Malformed,
}

#[derive(Debug)]
struct SentStep {
    what: StepKind,
    waiter: Option<oneshot::Sender<StepReply>>,
}

#[derive(Debug, Clone)]
enum StepKind {
    Operation(Operation),
    End(SessionEnd),
}

/// The id of a session at the worker that executes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionId {
    /// The registration that the worker granted to the connection.
    pub(super) registration: u64,
    /// The number that the client assigned.
    pub(super) number: u64,
}

/// An interactive transaction at its client: the steps that are not answered yet.
#[derive(Debug)]
pub(super) struct ClientSession {
    /// `None` until a step is sent.
    id: Option<SessionId>,
    /// The number of the first step that is not answered.
    next: u32,
    /// The steps that are not answered, in order.
    steps: VecDeque<SentStep>,
    /// How many of the steps were sent, counted from the front.
    sent: usize,
    /// The bytes of the longest answer so far.
    longest: Option<usize>,
    restarts: u32,
    /// The commit was sent more than once.
    commit_repeated: bool,
    over: bool,
    /// The error that ended the session before its commit or rollback was answered.
    ended_by: Option<StepError>,
    message_bytes_max: usize,
}

/// Sums over the steps that were sent and are not answered.
#[derive(Debug, Default)]
struct StepsAhead {
    steps: usize,
    /// The bytes of all but the first.
    bytes: usize,
    reads: usize,
    /// One of them wants an answer of its own.
    wants_answers: bool,
}

impl StepsAhead {
    fn add(&mut self, what: &StepKind) {
        if self.steps > 0 {
            self.bytes += what.bytes();
        }
        self.steps += 1;
        self.reads += usize::from(what.reads());
        self.wants_answers |= what.wants_answer();
    }
}

impl ClientSession {
    /// A session without steps, whose messages have to fit frames of `frame_bytes_max` bytes.
    pub(super) fn new(frame_bytes_max: usize) -> ClientSession {
        ClientSession {
            id: None,
            next: 0,
            steps: VecDeque::new(),
            sent: 0,
            longest: None,
            restarts: 0,
            commit_repeated: false,
            over: false,
            ended_by: None,
            message_bytes_max: MESSAGE_BYTES_MAX.min(frame_bytes_max / 2),
        }
    }

    /// The session's number, once it has an id.
    pub(super) fn number(&self) -> Option<u64> {
        self.id.map(|id| id.number)
    }

    /// Whether the session is over: all waiting tasks have a result, and later replies are ignored.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether its commit was sent, and is not answered.
    pub(super) fn is_committing(&self) -> bool {
        let sent = self.steps.iter().take(self.sent);
        sent.into_iter().any(|step| matches!(&step.what, StepKind::End(ending) if ending.commits()))
    }

    /// Whether steps wait to be sent until the session has an id.
    pub(super) fn needs_id(&self) -> bool {
        self.id.is_none() && !self.steps.is_empty() && !self.over
    }

    /// Assigns the id, whose number is greater than all earlier numbers on the connection.
    ///
    /// # Panics
    /// If the session has an id.
    pub(super) fn assign_id(&mut self, id: SessionId) {
        assert!(self.id.is_none(), "a second id, {id:?}, is assigned to {self:?}");
        self.id = Some(id);
    }

    /// Adds a write, for which no task waits.
    pub(super) fn write(&mut self, operation: Operation) {
        self.push(StepKind::Operation(operation), None);
    }

    /// Adds an operation. Its result arrives at the returned receiver.
    pub(super) fn perform(&mut self, operation: Operation) -> oneshot::Receiver<StepReply> {
        let (waiter, reply) = oneshot::channel();
        self.push(StepKind::Operation(operation), Some(waiter));
        reply
    }

    /// Adds the end of the transaction. The outcome arrives at the returned receiver.
    pub(super) fn end(&mut self, ending: SessionEnd) -> oneshot::Receiver<StepReply> {
        let (waiter, reply) = oneshot::channel();
        self.push(StepKind::End(ending), Some(waiter));
        reply
    }

    fn push(&mut self, what: StepKind, waiter: Option<oneshot::Sender<StepReply>>) {
        if self.over {
            let session = self.number().unwrap_or(0);
            let unknown = || StepError::Error(Aborted::UnknownSession { session }.into());
            let fault = self.ended_by.clone().unwrap_or_else(unknown);
            if let Some(waiter) = waiter {
                send_reply(waiter, Err(fault));
            }
            return;
        }
        self.steps.push_back(SentStep { what, waiter });
    }

    /// Rolls back, even if tasks wait for answers. Steps that are not sent yet are dropped.
    ///
    /// # Panics
    /// If the commit was sent: then only its answer decides.
    pub(super) fn roll_back(&mut self) {
        assert!(!self.is_committing(), "{self:?} is rolled back while it commits");
        if self.over {
            return;
        }
        self.steps.truncate(self.sent);
        if self.id.is_none() {
            self.over = true;
        } else if !self.is_ending() {
            self.push(StepKind::End(SessionEnd::Rollback), None);
        }
    }

    fn is_ending(&self) -> bool {
        self.steps.back().is_some_and(|step| matches!(step.what, StepKind::End(_)))
    }

    fn is_rolling_back(&self) -> bool {
        let last = self.steps.back().map(|step| &step.what);
        matches!(last, Some(StepKind::End(SessionEnd::Rollback)))
    }

    /// Adds to `out` the requests for all steps that may be sent now.
    pub(super) fn send(&mut self, out: &mut Vec<ClientRequest>) {
        if self.id.is_none() || self.over {
            return;
        }
        let first = self.sent;
        let mut ahead = StepsAhead::default();
        self.steps.iter().take(first).for_each(|step| ahead.add(&step.what));
        while let Some(step) = self.steps.get(self.sent)
            && (self.sent == 0 || self.may_go_ahead(&ahead, &step.what))
        {
            ahead.add(&step.what);
            self.sent += 1;
        }
        self.push_requests(first..self.sent, out);
    }

    /// Whether a step may be sent while others are not answered. The first of those is not counted against the
    /// worker's limit: it is executed at once.
    fn may_go_ahead(&self, ahead: &StepsAhead, what: &StepKind) -> bool {
        // Of the answers to what was sent.
        let answers = ahead.reads * self.longest.unwrap_or(ANSWER_BYTES_FIRST);
        ahead.steps < STEPS_AHEAD_MAX
            && (what.goes_ahead() || !ahead.wants_answers)
            && ahead.bytes + what.bytes() <= AHEAD_BYTES_MAX
            && answers <= ANSWERS_BYTES_MAX
    }

    /// Whether one of the first `steps` steps wants an answer of its own.
    fn wants_answers(&self, steps: usize) -> bool {
        self.steps.iter().take(steps).any(|step| step.what.wants_answer())
    }

    /// Adds to `out` the requests for all steps that were sent and are not answered.
    pub(super) fn send_again(&mut self, out: &mut Vec<ClientRequest>) {
        self.commit_repeated |= self.id.is_some() && self.is_committing();
        self.push_requests(0..self.sent, out);
    }

    /// Adds to `out` the requests for these steps, counted from the first that is not answered.
    fn push_requests(&self, steps: Range<usize>, out: &mut Vec<ClientRequest>) {
        let Some(SessionId { registration, number: session }) = self.id.filter(|_| !self.over)
        else {
            return;
        };
        let (mut operations, mut bytes, mut ending) = (Vec::new(), 0, None);
        let mut number = self.number_of(steps.start);
        for (at, step) in self.steps.iter().enumerate().take(steps.end).skip(steps.start) {
            match &step.what {
                StepKind::Operation(operation) => {
                    let more = operation.bytes() + OPERATION_OVERHEAD;
                    if !operations.is_empty() && bytes + more > self.message_bytes_max {
                        let operations = std::mem::take(&mut operations);
                        out.push(ClientRequest::Steps {
                            registration,
                            session,
                            number,
                            operations,
                            ending: ending.clone(),
                        });
                        (number, bytes) = (self.number_of(at), 0);
                    }
                    bytes += more;
                    operations.push(operation.clone());
                }
                StepKind::End(how) => ending = Some(how.clone()),
            }
        }
        if !operations.is_empty() || ending.is_some() {
            out.push(ClientRequest::Steps { registration, session, number, operations, ending });
        }
    }

    /// The number of the step at index `at`, counted from the first that is not answered.
    fn number_of(&self, at: usize) -> u32 {
        let number = u32::try_from(at).ok().and_then(|at| self.next.checked_add(at));
        number.expect("a transaction has fewer steps")
    }

    /// Handles the reply to step `number`, which also answers the puts and deletes before it.
    pub(super) fn on_reply(&mut self, number: u32, result: Result<OperationResult>) -> AfterReply {
        if number < self.next {
            return AfterReply::Open;
        }
        let before = (number - self.next) as usize;
        if before >= self.sent {
            return AfterReply::Malformed;
        }
        if let Err(
            Error::Aborted(Aborted::UnknownSession { session })
            | Error::Unknown(Unknown::Session { session }),
        ) = result
        {
            return self.on_unknown_session(session);
        }
        let fits = |answer: &OperationResult| self.steps[before].what.fits(answer);
        if self.wants_answers(before) || result.as_ref().is_ok_and(|answer| !fits(answer)) {
            return AfterReply::Malformed;
        }
        self.next = self.number_of(before + 1);
        self.sent -= before + 1;
        let step = self.steps.drain(..=before).next_back().expect("it was sent");
        if step.what.reads()
            && let Ok(answer) = &result
        {
            self.longest = self.longest.max(Some(answer.bytes()));
        }
        let is_end = matches!(step.what, StepKind::End(_));
        // The worker ends a session when a put or a delete fails.
        let is_over = match &result {
            Ok(_) => is_end,
            Err(Error::Aborted(_) | Error::Unknown(_)) => true,
            Err(Error::Rejected(_)) => is_end || !step.what.wants_answer(),
        };
        let fault = result.clone().err().map(StepError::Error).filter(|_| is_over);
        if let Some(waiter) = step.waiter {
            send_reply(waiter, result.map_err(StepError::Error));
        }
        if let Some(fault) = fault {
            self.finish(&fault);
        }
        self.over |= is_over;
        if self.over { AfterReply::Over } else { AfterReply::Open }
    }

    /// The worker does not know the session: it has executed none of the steps, or has dropped the session since its end.
    fn on_unknown_session(&mut self, session: u64) -> AfterReply {
        if self.commit_repeated {
            self.finish(&StepError::Error(Unknown::Session { session }.into()));
            return AfterReply::Over;
        }
        if self.next == 0 && !self.is_rolling_back() && self.restarts < RESTARTS_MAX {
            return AfterReply::NotBegun;
        }
        self.finish(&StepError::Error(Aborted::UnknownSession { session }.into()));
        AfterReply::Over
    }

    /// Begins again from the first step, under an id that is not assigned yet. The worker has not begun the session.
    ///
    /// # Panics
    /// If a step was answered, or the commit was sent twice.
    pub(super) fn restart(&mut self) {
        assert!(self.next == 0 && !self.commit_repeated, "{self:?} may have been executed");
        self.id = None;
        self.restarts += 1;
        self.sent = 0;
    }

    /// The connection has ended.
    pub(super) fn on_disconnect(&mut self, cause: Cause) {
        let fault = match self.number().filter(|_| self.is_committing()) {
            Some(session) => StepError::CommitUnknown(session),
            None => StepError::Disconnected(cause),
        };
        self.finish(&fault);
    }

    fn finish(&mut self, fault: &StepError) {
        if !self.over {
            self.ended_by = Some(fault.clone());
        }
        self.over = true;
        self.sent = 0;
        let waiters = self.steps.drain(..).filter_map(|step| step.waiter);
        waiters.for_each(|waiter| send_reply(waiter, Err(fault.clone())));
    }
}

fn send_reply(waiter: oneshot::Sender<StepReply>, reply: StepReply) {
    let _ = waiter.send(reply); // The task that waited may have been dropped.
}

impl StepKind {
    /// Whether the answer may be long.
    fn reads(&self) -> bool {
        matches!(self, StepKind::Operation(Operation::Get { .. } | Operation::Scan { .. }))
    }

    /// About how many bytes the step takes in a message.
    fn bytes(&self) -> usize {
        match self {
            StepKind::Operation(operation) => operation.bytes(),
            StepKind::End(SessionEnd::Call { procedure, arguments, .. }) => {
                procedure.len() + arguments.len()
            }
            StepKind::End(_) => 0,
        }
    }

    /// Whether the worker answers the step by a reply of its own.
    fn wants_answer(&self) -> bool {
        !matches!(self, StepKind::Operation(Operation::Put { .. }))
    }

    /// Whether the step may be sent before earlier steps that want an answer have theirs.
    fn goes_ahead(&self) -> bool {
        match self {
            StepKind::Operation(_) | StepKind::End(SessionEnd::Rollback) => true,
            StepKind::End(
                SessionEnd::Commit
                | SessionEnd::CommitAs(_)
                | SessionEnd::Call { .. }
                | SessionEnd::Confirm,
            ) => false,
        }
    }

    /// Whether `answer` is of the kind that this step has.
    fn fits(&self, answer: &OperationResult) -> bool {
        match self {
            StepKind::Operation(Operation::Get { .. }) => {
                matches!(answer, OperationResult::Value(_))
            }
            StepKind::End(SessionEnd::Call { .. }) => {
                matches!(answer, OperationResult::Value(Some(_)))
            }
            StepKind::Operation(Operation::Scan { .. }) => {
                matches!(answer, OperationResult::Rows(_))
            }
            StepKind::Operation(Operation::Put { .. } | Operation::Insert { .. })
            | StepKind::End(_) => {
                matches!(answer, OperationResult::Done)
            }
        }
    }
}

#[cfg(test)]
mod tests;
