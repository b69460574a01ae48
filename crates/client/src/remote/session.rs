//! One interactive transaction, as its client keeps it: the steps that were not answered yet.
//!
//! The other side does steps in the order of their numbers, one at a time. Those that come before their turn wait
//! for it there, as many as may, so that they travel together. What is lost on the way is sent again.
//!
//! ```text
//!   number   0     1     2     3     4     5     6
//!           done  done │ sent  sent  sent │ waits waits
//!                      └─ next            └─ next + sent
//! ```
//! What always holds:
//!
//! - No commit is sent while a step before it is not answered: a put that failed has no task that waits for
//!   it, and must not be left out of what commits.
//! - A step is answered by the reply with its number, once; other replies are late ones.
//! - All answers are of one transaction, the first that was heard of: the other side may have forgotten it and, by
//!   a late copy, begun another one under the same name.
//! - The first frame of a session is its beginning. A session that the other side does not know, though
//!   nothing of it was answered, has not begun there, and begins anew under another number.

use shoal_engine::client::{AHEAD_BYTES_MAX, ClientRequest, STEPS_AHEAD_MAX, SessionEnd};
use shoal_engine::operation::{Operation, OperationResult};
use shoal_types::{Aborted, Cause, Error, Result};
use std::collections::VecDeque;
use tokio::sync::oneshot;

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

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ClientSession {
    /// Its name; `None` until something of it is sent.
    number: Option<u64>,
    /// The other side has said that it began.
    began: bool,
    /// What the other side calls it, once that was heard.
    serial: Option<u64>,
    /// The number of the first step that is not answered.
    next: u32,
    /// Those that are not answered, in order.
    steps: VecDeque<SentStep>,
    /// So many of them, from the front, were sent.
    sent: usize,
    /// The longest answer so far.
    longest: Option<usize>,
    /// A step for which no task waits has failed.
    failed: Option<Error>,
    restarts: u32,
    over: bool,
    /// What ended it, if it did not come to its own end.
    ended_by: Option<StepError>,
}

impl ClientSession {
    /// Its name, if something of it was sent.
    pub(super) fn number(&self) -> Option<u64> {
        self.number
    }

    /// Nothing more will come of it.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Has it been asked to commit?
    pub(super) fn is_committing(&self) -> bool {
        let sent = self.steps.iter().take(self.sent);
        sent.into_iter().any(|step| matches!(step.what, StepKind::End(SessionEnd::Commit)))
    }

    /// A step for which no task waits has failed.
    pub(super) fn failed(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Is there anything to send, and no name to send it under?
    pub(super) fn wants_number(&self) -> bool {
        self.number.is_none() && !self.steps.is_empty() && !self.over
    }

    /// Gives it a name, greater than any before on its connection.
    pub(super) fn name(&mut self, number: u64) {
        assert!(self.number.is_none(), "session {number} has a name already");
        self.number = Some(number);
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
        if self.over || self.failed.is_some() {
            let failed = self.failed.clone().map(StepError::Error);
            let unknown = || {
                let session = self.number.unwrap_or(0);
                StepError::Error(Aborted::UnknownSession { session }.into())
            };
            let fault = failed.or_else(|| self.ended_by.clone()).unwrap_or_else(unknown);
            return waiter.into_iter().for_each(|waiter| tell(waiter, Err(fault.clone())));
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
        self.failed = None;
        if self.number.is_none() {
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
        let Some(session) = self.number.filter(|_| !self.over) else { return };
        if !self.began && self.sent == 0 && self.next == 0 && !self.steps.is_empty() {
            out.push(ClientRequest::Begin { session });
        }
        while let Some(step) = self.steps.get(self.sent)
            && (self.sent == 0 || self.may_go_ahead(&step.what))
        {
            out.push(self.request(session, self.sent, step));
            self.sent += 1;
        }
    }

    /// May this be sent after what was, which has at least one step? The first waits for no turn, and takes no room.
    fn may_go_ahead(&self, what: &StepKind) -> bool {
        let waiting = self.steps.iter().take(self.sent).skip(1);
        let bytes: usize = waiting.map(|step| step.what.bytes()).sum();
        self.sent < STEPS_AHEAD_MAX
            && what.goes_ahead()
            && bytes + what.bytes() <= AHEAD_BYTES_MAX
            && self.answers_ahead() <= ANSWERS_BYTES_MAX
    }

    /// About how many bytes the answers to what was sent will have.
    fn answers_ahead(&self) -> usize {
        let reads = self.steps.iter().take(self.sent).filter(|step| step.what.reads()).count();
        reads * self.longest.unwrap_or(ANSWER_BYTES_FIRST)
    }

    /// All that may not have been heard, once more.
    pub(super) fn send_again(&mut self, out: &mut Vec<ClientRequest>) {
        let Some(session) = self.number.filter(|_| !self.over) else { return };
        if !self.began {
            out.push(ClientRequest::Begin { session });
        }
        let steps = self.steps.iter().take(self.sent).enumerate();
        out.extend(steps.map(|(at, step)| self.request(session, at, step)));
    }

    /// Asks for a step, so many after the first that is not answered.
    fn request(&self, session: u64, at: usize, step: &SentStep) -> ClientRequest {
        let ahead = u32::try_from(at).ok();
        let number = ahead.and_then(|ahead| self.next.checked_add(ahead));
        let (serial, number) = (self.serial, number.expect("a transaction has fewer steps"));
        match &step.what {
            StepKind::Operation(operation) => {
                ClientRequest::Operation { session, serial, number, operation: operation.clone() }
            }
            StepKind::End(ending) => {
                ClientRequest::End { session, serial, number, ending: *ending }
            }
        }
    }

    /// A reply to its beginning.
    pub(super) fn began(&mut self, result: Result<u64>) -> AfterReply {
        match result {
            Ok(serial) => {
                self.began |= self.is_of(Some(serial));
                AfterReply::Open
            }
            // Another one could not begin, which a late copy asked for.
            Err(_) if self.began || self.next > 0 => AfterReply::Open,
            Err(error) => {
                self.finish(&StepError::Error(error));
                AfterReply::Over
            }
        }
    }

    /// Is a reply with this serial one of this transaction? The first that has any tells its own.
    fn is_of(&mut self, serial: Option<u64>) -> bool {
        serial.is_none_or(|serial| *self.serial.get_or_insert(serial) == serial)
    }

    /// A reply to step `number`.
    pub(super) fn done(
        &mut self,
        serial: Option<u64>,
        number: u32,
        result: Result<OperationResult>,
    ) -> AfterReply {
        if number < self.next || !self.is_of(serial) {
            return AfterReply::Open;
        }
        if (number - self.next) as usize >= self.sent {
            return AfterReply::Nonsense;
        }
        if let Err(error @ Error::Aborted(Aborted::UnknownSession { .. })) = &result {
            // Whichever step asked: what is not known there has done none of them.
            let has_begun = self.began || self.next > 0;
            if !has_begun && !self.is_given_up() && self.restarts < RESTARTS_MAX {
                return AfterReply::Anew;
            }
            let fault = StepError::Error(error.clone());
            self.finish(&fault);
            return AfterReply::Over;
        }
        if number != self.next {
            return AfterReply::Nonsense;
        }
        if result.as_ref().is_ok_and(|answer| !self.steps[0].what.fits(answer)) {
            return AfterReply::Nonsense;
        }
        self.began = true;
        if self.steps[0].what.reads()
            && let Ok(answer) = &result
        {
            self.longest = self.longest.max(Some(answer.bytes()));
        }
        self.next += 1;
        self.sent -= 1;
        let step = self.steps.pop_front().expect("it was sent");
        let is_end = matches!(step.what, StepKind::End(_));
        let is_over = is_end || matches!(result, Err(Error::Aborted(_) | Error::Unknown(_)));
        match (step.waiter, result) {
            (Some(waiter), result) => {
                let fault = result.clone().err().map(StepError::Error);
                tell(waiter, result.map_err(StepError::Error));
                if let Some(fault) = fault.filter(|_| is_over) {
                    self.finish(&fault);
                }
            }
            (None, Err(error)) => {
                self.fail(error, is_over);
            }
            (None, Ok(_)) => {}
        }
        self.over |= is_over;
        if self.over { AfterReply::Over } else { AfterReply::Open }
    }

    /// A step has failed for which no task waits: those after it must not count.
    fn fail(&mut self, error: Error, is_over: bool) {
        let fault = StepError::Error(error.clone());
        self.failed = Some(error);
        if is_over {
            return self.finish(&fault);
        }
        let unsent = self.steps.split_off(self.sent);
        let under_way = self.steps.iter_mut().filter_map(|step| step.waiter.take());
        let waiters: Vec<_> = under_way.collect();
        let waiters = waiters.into_iter().chain(unsent.into_iter().filter_map(|step| step.waiter));
        waiters.for_each(|waiter| tell(waiter, Err(fault.clone())));
    }

    /// It has not begun: from the first step, under a name that is yet to be given.
    pub(super) fn restart(&mut self) {
        assert!(!self.began && self.next == 0, "{self:?} had begun");
        (self.number, self.serial) = (None, None);
        self.restarts += 1;
        self.sent = 0;
    }

    /// Its connection is gone.
    pub(super) fn lose(&mut self, cause: Cause) {
        let fault = match self.number.filter(|_| self.is_committing()) {
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

    /// May it be sent while steps before it are not answered?
    fn goes_ahead(&self) -> bool {
        match self {
            StepKind::Operation(_) | StepKind::End(SessionEnd::Rollback) => true,
            StepKind::End(SessionEnd::Commit | SessionEnd::Confirm) => false,
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
