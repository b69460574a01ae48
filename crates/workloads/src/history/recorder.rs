//! Records what one client does, attempt by attempt. Time comes from the caller.

use super::format::{Attempt, Operation, Outcome, Seen};

/// One client's part of a history. Each client has its own, so recording needs no lock;
/// [`History::merge`](super::History::merge) joins them.
///
/// ```
/// use shoal_workloads::history::{History, Recorder, Seen, check};
///
/// let mut recorder = Recorder::new(1);
/// recorder.begin(10);
/// recorder.append("x", 7);
/// recorder.read("x", Seen::List(vec![7]));
/// recorder.committed(20);
/// let history = History::merge([recorder])?;
/// assert!(check(&history).is_clean());
/// # Ok::<(), shoal_workloads::history::HistoryError>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    client: u64,
    attempts: Vec<Attempt>,
    /// Whether the last of `attempts` is still running.
    open: bool,
}

impl Recorder {
    /// A recorder for this client.
    pub fn new(client: u64) -> Recorder {
        Recorder { client, attempts: Vec::new(), open: false }
    }

    /// A transaction attempt starts. One that is still open keeps its unknown outcome.
    pub fn begin(&mut self, start_ns: u64) {
        self.attempts.push(Attempt {
            client: self.client,
            start_ns,
            end_ns: None,
            outcome: Outcome::Unknown,
            operations: Vec::new(),
        });
        self.open = true;
    }

    /// The open attempt appends `value` to the list `key`. Record it before it is tried: what
    /// fails half-way may still have happened.
    ///
    /// # Panics
    /// As all that follow, if no attempt is open.
    pub fn append(&mut self, key: impl Into<String>, value: u64) {
        self.push(Operation::Append(key.into(), value));
    }

    /// The open attempt writes `value` to the register `key`. Record it before it is tried.
    pub fn write(&mut self, key: impl Into<String>, value: u64) {
        self.push(Operation::Write(key.into(), value));
    }

    /// The open attempt has read `key` and `seen` this.
    pub fn read(&mut self, key: impl Into<String>, seen: Seen) {
        self.push(Operation::Read(key.into(), seen));
    }

    /// The open attempt committed; the client knew at `end_ns`.
    pub fn committed(&mut self, end_ns: u64) {
        self.end(Outcome::Ok, Some(end_ns));
    }

    /// The open attempt had no effect; the client knew at `end_ns`.
    pub fn aborted(&mut self, end_ns: u64) {
        self.end(Outcome::Aborted, Some(end_ns));
    }

    /// The client will not learn the outcome of the open attempt.
    pub fn unknown(&mut self) {
        self.end(Outcome::Unknown, None);
    }

    /// The attempts in the order in which they began; one that is open has no known outcome.
    pub fn into_attempts(self) -> Vec<Attempt> {
        self.attempts
    }

    fn push(&mut self, operation: Operation) {
        self.open_attempt().operations.push(operation);
    }

    fn end(&mut self, outcome: Outcome, end_ns: Option<u64>) {
        let attempt = self.open_attempt();
        attempt.outcome = outcome;
        attempt.end_ns = end_ns;
        self.open = false;
    }

    fn open_attempt(&mut self) -> &mut Attempt {
        assert!(self.open, "client {} records outside an attempt: call begin first", self.client);
        self.attempts.last_mut().expect("an open attempt has been pushed")
    }
}
