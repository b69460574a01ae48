//! One interactive transaction, as its client keeps it: the steps that were not answered yet.
//!
//! The other side does steps in the order of their numbers, one at a time. Those that come before their turn wait for
//! it there, as many as may, so that they travel together: writes with the commit or the next read, and the first of
//! all with the beginning, which is step 0. What is lost on the way is sent again.
//!
//! ```text
//!   number   0     1     2     3     4     5     6
//!           done  done │ sent  sent  sent │ waits waits
//!                      └─ next            └─ next + sent
//! ```
//! What always holds:
//!
//! - A commit is sent only when all steps before it are answered, but for puts and deletes: the other side commits
//!   nothing once one of these has failed. An insert may fail and leave the transaction open.
//! - A step is answered by the reply with its number, once, and a put or a delete also by a later one; other replies
//!   are late.
//! - All answers are of one transaction: the other side begins none twice under a registration and a number.
//! - A session that the other side does not know begins anew, under another number, only while nothing of it was
//!   answered.
//! - If its commit was sent a second time, the outcome is unknown then: the first may have been done, and forgotten. One
//!   that was sent once was not done, and never will be. Messages arrive in order, each once, and of a session that the
//!   other side does not know it does nothing any more; so the only message that commits has come before that was said,
//!   and was not known then, or comes later, and is not known either.

use shoal_engine::client::{AHEAD_BYTES_MAX, ClientRequest, STEPS_AHEAD_MAX, SessionEnd};
use shoal_engine::operation::{Operation, OperationResult};
use shoal_types::{Aborted, Cause, Error, Result, Unknown};
use std::collections::VecDeque;
use std::ops::Range;
use tokio::sync::oneshot;

/// Bytes of the operations in one message, if there are several. More makes fewer messages; less lets the other side
/// begin with the first while others are on their way.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// What an operation costs beside its bytes.
const OPERATION_REST: usize = 32;

/// Bytes of answers that may be under way at once, about: the other side closes a connection that leaves twice as
/// much behind.
const ANSWERS_BYTES_MAX: usize = 32 << 20;

/// What an answer may take, as long as there was none. Less than the longest: few are.
const ANSWER_BYTES_FIRST: usize = 4 << 20;

/// So often it begins anew where it has not begun.
const RESTARTS_MAX: u32 = 16;

/// What a step brought, to the task that waits for it.
pub(super) type StepReply = std::result::Result<OperationResult, StepError>;

/// Why it brought nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StepError {
    /// The other side says so.
    Error(Error),
    /// Its connection is gone.
    Lost(Cause),
    /// The same, and it was asked to commit.
    CommitLost(u64),
}

/// What a reply makes of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterReply {
    /// It goes on.
    Open,
    /// It is over: nothing more comes.
    Over,
    /// It has not begun: [`ClientSession::restart`] it.
    Anew,
    /// The reply makes no sense.
    Nonsense,
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

/// The name of a session, for the worker that it runs at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionName {
    /// What the worker granted to the connection.
    pub(super) registration: u64,
    /// The client's number.
    pub(super) number: u64,
}

/// One interactive transaction at its client: the steps that were not answered yet.
#[derive(Debug)]
pub(super) struct ClientSession {
    /// `None` until something of it is sent.
    name: Option<SessionName>,
    /// The number of the first step that is not answered.
    next: u32,
    /// Those that are not answered, in order.
    steps: VecDeque<SentStep>,
    /// So many of them, from the front, were sent.
    sent: usize,
    /// The longest answer so far.
    longest: Option<usize>,
    restarts: u32,
    /// Its commit was sent more than once.
    commit_repeated: bool,
    over: bool,
    /// What ended it, if it did not come to its own end.
    ended_by: Option<StepError>,
    message_bytes_max: usize,
}

impl ClientSession {
    /// One with no step yet, whose messages have to fit frames of so many bytes.
    pub(super) fn new(frame_bytes_max: usize) -> ClientSession {
        ClientSession {
            name: None,
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

    /// The number in its name, if something of it was sent.
    pub(super) fn number(&self) -> Option<u64> {
        self.name.map(|name| name.number)
    }

    /// Nothing more will come of it.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Has it been asked to commit?
    pub(super) fn is_committing(&self) -> bool {
        let sent = self.steps.iter().take(self.sent);
        sent.into_iter().any(|step| matches!(step.what, StepKind::End(ending) if ending.commits()))
    }

    /// Is there anything to send, and no name to send it under?
    pub(super) fn wants_name(&self) -> bool {
        self.name.is_none() && !self.steps.is_empty() && !self.over
    }

    /// Gives it a name, with a number that is greater than any before on its connection.
    pub(super) fn name(&mut self, name: SessionName) {
        assert!(
            self.name.is_none(),
            "it has a name already, and is to be called {name:?}: {self:?}"
        );
        self.name = Some(name);
    }

    /// Takes a write for which no task waits.
    pub(super) fn write(&mut self, operation: Operation) {
        self.push(StepKind::Operation(operation), None);
    }

    /// Takes an operation; what it brings comes there.
    pub(super) fn perform(&mut self, operation: Operation) -> oneshot::Receiver<StepReply> {
        let (waiter, told) = oneshot::channel();
        self.push(StepKind::Operation(operation), Some(waiter));
        told
    }

    /// Takes its end; how it went comes there.
    pub(super) fn end(&mut self, ending: SessionEnd) -> oneshot::Receiver<StepReply> {
        let (waiter, told) = oneshot::channel();
        self.push(StepKind::End(ending), Some(waiter));
        told
    }

    fn push(&mut self, what: StepKind, waiter: Option<oneshot::Sender<StepReply>>) {
        if self.over {
            let session = self.number().unwrap_or(0);
            let unknown = || StepError::Error(Aborted::UnknownSession { session }.into());
            let fault = self.ended_by.clone().unwrap_or_else(unknown);
            if let Some(waiter) = waiter {
                tell(waiter, Err(fault));
            }
            return;
        }
        self.steps.push_back(SentStep { what, waiter });
    }

    /// Rolls back, also where tasks wait for answers: what was not sent never will be. Not to be called when it
    /// is committing.
    pub(super) fn give_up(&mut self) {
        assert!(!self.is_committing(), "{self:?} is given up while it commits");
        if self.over {
            return;
        }
        self.steps.truncate(self.sent);
        if self.name.is_none() {
            self.over = true;
        } else if !self.is_ending() {
            self.push(StepKind::End(SessionEnd::Rollback), None);
        }
    }

    fn is_ending(&self) -> bool {
        self.steps.back().is_some_and(|step| matches!(step.what, StepKind::End(_)))
    }

    fn is_given_up(&self) -> bool {
        let last = self.steps.back().map(|step| &step.what);
        matches!(last, Some(StepKind::End(SessionEnd::Rollback)))
    }

    /// What can be sent now.
    pub(super) fn send(&mut self, out: &mut Vec<ClientRequest>) {
        if self.name.is_none() || self.over {
            return;
        }
        let first = self.sent;
        while let Some(step) = self.steps.get(self.sent)
            && (self.sent == 0 || self.may_go_ahead(&step.what))
        {
            self.sent += 1;
        }
        self.ask(first..self.sent, out);
    }

    /// May this be sent after what was, which has at least one step? The first waits for no turn, and takes no room.
    fn may_go_ahead(&self, what: &StepKind) -> bool {
        let waiting = self.steps.iter().take(self.sent).skip(1);
        let bytes: usize = waiting.map(|step| step.what.bytes()).sum();
        self.sent < STEPS_AHEAD_MAX
            && (what.goes_ahead() || !self.wants_answers(self.sent))
            && bytes + what.bytes() <= AHEAD_BYTES_MAX
            && self.answers_ahead() <= ANSWERS_BYTES_MAX
    }

    /// About how many bytes the answers to what was sent will have.
    fn answers_ahead(&self) -> usize {
        let reads = self.steps.iter().take(self.sent).filter(|step| step.what.reads()).count();
        reads * self.longest.unwrap_or(ANSWER_BYTES_FIRST)
    }

    /// Does one of so many steps, from the front, want an answer of its own?
    fn wants_answers(&self, steps: usize) -> bool {
        self.steps.iter().take(steps).any(|step| step.what.wants_answer())
    }

    /// All that may not have been heard, once more.
    pub(super) fn send_again(&mut self, out: &mut Vec<ClientRequest>) {
        self.commit_repeated |= self.name.is_some() && self.is_committing();
        self.ask(0..self.sent, out);
    }

    /// Asks for these steps, counted from the first that is not answered.
    fn ask(&self, steps: Range<usize>, out: &mut Vec<ClientRequest>) {
        let Some(SessionName { registration, number: session }) = self.name.filter(|_| !self.over)
        else {
            return;
        };
        let (mut operations, mut bytes, mut ending) = (Vec::new(), 0, None);
        let mut number = self.number_of(steps.start);
        for (at, step) in self.steps.iter().enumerate().take(steps.end).skip(steps.start) {
            match &step.what {
                StepKind::Operation(operation) => {
                    let more = operation.bytes() + OPERATION_REST;
                    if !operations.is_empty() && bytes + more > self.message_bytes_max {
                        let operations = std::mem::take(&mut operations);
                        out.push(ClientRequest::Steps {
                            registration,
                            session,
                            number,
                            operations,
                            ending,
                        });
                        (number, bytes) = (self.number_of(at), 0);
                    }
                    bytes += more;
                    operations.push(operation.clone());
                }
                StepKind::End(how) => ending = Some(*how),
            }
        }
        if !operations.is_empty() || ending.is_some() {
            out.push(ClientRequest::Steps { registration, session, number, operations, ending });
        }
    }

    /// The number of a step, so many after the first that is not answered.
    fn number_of(&self, at: usize) -> u32 {
        let number = u32::try_from(at).ok().and_then(|at| self.next.checked_add(at));
        number.expect("a transaction has fewer steps")
    }

    /// A reply to step `number`, and to the puts and deletes before it.
    pub(super) fn done(&mut self, number: u32, result: Result<OperationResult>) -> AfterReply {
        if number < self.next {
            return AfterReply::Open;
        }
        let before = (number - self.next) as usize;
        if before >= self.sent {
            return AfterReply::Nonsense;
        }
        if let Err(
            Error::Aborted(Aborted::UnknownSession { session })
            | Error::Unknown(Unknown::Session { session }),
        ) = result
        {
            return self.not_there(session);
        }
        let fits = |answer: &OperationResult| self.steps[before].what.fits(answer);
        if self.wants_answers(before) || result.as_ref().is_ok_and(|answer| !fits(answer)) {
            return AfterReply::Nonsense;
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
        // A write that failed spoils all that follow: the other side has ended it.
        let is_over = match &result {
            Ok(_) => is_end,
            Err(Error::Aborted(_) | Error::Unknown(_)) => true,
            Err(Error::Rejected(_)) => is_end || !step.what.wants_answer(),
        };
        let fault = result.clone().err().map(StepError::Error).filter(|_| is_over);
        if let Some(waiter) = step.waiter {
            tell(waiter, result.map_err(StepError::Error));
        }
        if let Some(fault) = fault {
            self.finish(&fault);
        }
        self.over |= is_over;
        if self.over { AfterReply::Over } else { AfterReply::Open }
    }

    /// The other side does not know it: so it has done none of the steps, or has forgotten how it ended.
    fn not_there(&mut self, session: u64) -> AfterReply {
        if self.commit_repeated {
            self.finish(&StepError::Error(Unknown::Session { session }.into()));
            return AfterReply::Over;
        }
        if self.next == 0 && !self.is_given_up() && self.restarts < RESTARTS_MAX {
            return AfterReply::Anew;
        }
        self.finish(&StepError::Error(Aborted::UnknownSession { session }.into()));
        AfterReply::Over
    }

    /// It has not begun: from the first step, under a name that is yet to be given.
    pub(super) fn restart(&mut self) {
        assert!(self.next == 0 && !self.commit_repeated, "{self:?} may have been done");
        self.name = None;
        self.restarts += 1;
        self.sent = 0;
    }

    /// Its connection is gone.
    pub(super) fn lose(&mut self, cause: Cause) {
        let fault = match self.number().filter(|_| self.is_committing()) {
            Some(session) => StepError::CommitLost(session),
            None => StepError::Lost(cause),
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
        waiters.for_each(|waiter| tell(waiter, Err(fault.clone())));
    }
}

/// The task that waited may have gone.
fn tell(waiter: oneshot::Sender<StepReply>, told: StepReply) {
    let _ = waiter.send(told);
}

impl StepKind {
    /// May it bring much?
    fn reads(&self) -> bool {
        matches!(self, StepKind::Operation(Operation::Get { .. } | Operation::Scan { .. }))
    }

    /// About how many bytes it takes to say.
    fn bytes(&self) -> usize {
        match self {
            StepKind::Operation(operation) => operation.bytes(),
            StepKind::End(_) => 0,
        }
    }

    /// Does it bring something of its own, so that it is answered by itself?
    fn wants_answer(&self) -> bool {
        !matches!(self, StepKind::Operation(Operation::Put { .. }))
    }

    /// May it be sent while steps that want answers have none?
    fn goes_ahead(&self) -> bool {
        match self {
            StepKind::Operation(_) | StepKind::End(SessionEnd::Rollback) => true,
            StepKind::End(SessionEnd::Commit | SessionEnd::CommitAs(_) | SessionEnd::Confirm) => {
                false
            }
        }
    }

    /// Can this be what it brought?
    fn fits(&self, answer: &OperationResult) -> bool {
        match self {
            StepKind::Operation(Operation::Get { .. }) => {
                matches!(answer, OperationResult::Value(_))
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
