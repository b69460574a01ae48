//! Sessions against a model of the worker, on one connection: frames keep their order, and some are lost.

use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use shoal_engine::client::ClientReply;
use shoal_types::{Random, Rejected, TableId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const TABLE: TableId = TableId(0);

const FRAME_BYTES_MAX: usize = 1 << 20;

/// A session at the worker, which executes one step at a time and keeps those that arrive early.
#[derive(Debug, Default)]
struct WorkerSession {
    next: u32,
    /// The step in progress, and whether it is answered in any case.
    busy: Option<(StepKind, bool)>,
    ahead: BTreeMap<u32, (StepKind, bool)>,
    over: bool,
    said: BTreeMap<u32, ClientReply>,
    /// The executed operations, in order.
    done: Vec<Operation>,
    ended: Option<SessionEnd>,
}

#[derive(Debug)]
struct World {
    random: Random,
    there: BTreeMap<u64, WorkerSession>,
    here: Vec<ClientSession>,
    /// The numbers that each session has had.
    numbers: Vec<Vec<u64>>,
    /// Sessions that never begin, or not again.
    refused: BTreeSet<u64>,
    /// Sessions that were over when the worker dropped them.
    forgotten: BTreeMap<u64, WorkerSession>,
    asks: VecDeque<ClientRequest>,
    replies: VecDeque<ClientReply>,
    last_number: u64,
    lossy: bool,
}

impl World {
    fn new(seed: u64, sessions: usize) -> World {
        World {
            random: Random::new(seed),
            there: BTreeMap::new(),
            here: (0..sessions).map(|_| session()).collect(),
            numbers: vec![Vec::new(); sessions],
            refused: BTreeSet::new(),
            forgotten: BTreeMap::new(),
            asks: VecDeque::new(),
            replies: VecDeque::new(),
            last_number: 0,
            lossy: true,
        }
    }

    /// Assigns ids and sends, as a connection does after each change of a session.
    fn flush(&mut self, at: usize, mut out: Vec<ClientRequest>) {
        let session = &mut self.here[at];
        if session.needs_id() {
            self.last_number += 1;
            session.assign_id(id(self.last_number));
            self.numbers[at].push(self.last_number);
        }
        session.send(&mut out);
        self.asks.extend(out);
    }

    fn act<T>(&mut self, at: usize, act: impl FnOnce(&mut ClientSession) -> T) -> T {
        let result = act(&mut self.here[at]);
        self.flush(at, Vec::new());
        result
    }

    fn ask_again(&mut self, at: usize) {
        let mut out = Vec::new();
        self.here[at].send_again(&mut out);
        self.flush(at, out);
    }

    /// The worker receives a request.
    fn receive(&mut self) {
        let Some(ask) = self.asks.pop_front() else { return };
        if self.lossy && self.random.chance(1, 6) {
            return;
        }
        let ClientRequest::Steps { registration, session, number, operations, ending } = ask else {
            unreachable!("a session asks for steps only: {ask:?}");
        };
        assert_eq!(registration, id(session).registration);
        let over = |there: &WorkerSession| there.over && there.busy.is_none();
        if self.lossy && self.there.get(&session).is_some_and(over) && self.random.chance(1, 4) {
            let there = self.there.remove(&session).expect("it is over");
            self.forgotten.insert(session, there);
            self.refused.insert(session);
        }
        if !self.there.contains_key(&session) {
            // As if the connection were forgotten.
            if self.lossy && self.random.chance(1, 10) {
                self.refused.insert(session);
            }
            if self.refused.contains(&session) {
                let result = Err(match ending {
                    Some(SessionEnd::Commit) => Unknown::Session { session }.into(),
                    _ => Aborted::UnknownSession { session }.into(),
                });
                self.replies.push_back(ClientReply::Done { session, number, result });
                return;
            }
            if number > 0 {
                return;
            }
        }
        let there = self.there.entry(session).or_default();
        let (count, has_end) = (operations.len(), ending.is_some());
        let operations = operations
            .into_iter()
            .zip(1..)
            .map(|(operation, at)| (StepKind::Operation(operation), at == count && !has_end));
        let ending = ending.map(|ending| (StepKind::End(ending), true));
        for (number, (what, answered)) in (number..).zip(operations.chain(ending)) {
            let done = ClientReply::Done { session, number, result: Ok(OperationResult::Done) };
            if number < there.next {
                let said = there.said.get(&number).cloned();
                self.replies.extend(said.or(answered.then_some(done)));
            } else if !there.over {
                there.ahead.entry(number).or_insert((what, answered));
            }
        }
        there.turn();
    }

    /// The worker executes a step.
    fn work(&mut self) -> bool {
        let busy = self.there.iter().filter(|(_, there)| there.busy.is_some());
        let busy: Vec<u64> = busy.map(|(number, _)| *number).collect();
        let Some(session) = self.random.pick(&busy).copied() else { return false };
        let there = self.there.get_mut(&session).expect("listed");
        let (what, answered) = there.busy.take().expect("busy");
        let wants_answer = what.wants_answer();
        let result = match what {
            StepKind::Operation(operation) => {
                there.done.push(operation.clone());
                answer(&operation)
            }
            StepKind::End(ending) => {
                (there.over, there.ended) = (true, Some(ending));
                Ok(OperationResult::Done)
            }
        };
        there.over |= match &result {
            Ok(_) => false,
            Err(error) => !wants_answer || matches!(error, Error::Aborted(_)),
        };
        if answered || wants_answer || result.is_err() {
            let reply = ClientReply::Done { session, number: there.next, result };
            there.said.insert(there.next, reply.clone());
            self.replies.push_back(reply);
        }
        there.next += 1;
        there.turn();
        true
    }

    /// A reply comes back.
    fn take(&mut self) -> bool {
        let Some(reply) = self.replies.pop_front() else { return false };
        let ClientReply::Done { session, number, result } = reply else {
            unreachable!("a session asks for steps only: {reply:?}");
        };
        let named = |here: &ClientSession| here.number() == Some(session) && !here.is_over();
        let Some(at) = self.here.iter().position(named) else { return true };
        let next = self.here[at].on_reply(number, result);
        assert_ne!(next, AfterReply::Malformed, "{:?}", self.here[at]);
        if next == AfterReply::NotBegun {
            self.here[at].restart();
        }
        self.flush(at, Vec::new());
        true
    }

    /// Runs until no message is outstanding.
    fn settle(&mut self) {
        self.lossy = false;
        for _ in 0..100_000 {
            if !self.asks.is_empty() {
                self.receive();
            } else if !self.take() && !self.work() {
                let waiting = (0..self.here.len())
                    .find(|at| !self.here[*at].is_over() && self.here[*at].sent > 0);
                match waiting {
                    Some(at) => self.ask_again(at),
                    None => return,
                }
            }
        }
        panic!("it never settles: {self:?}");
    }

    /// The session at the worker, under its last number.
    fn done(&self, at: usize) -> &WorkerSession {
        let number = self.numbers[at].last().expect("it has an id");
        &self.there[number]
    }
}

impl WorkerSession {
    /// The next step is done, if it is there and none is under way.
    fn turn(&mut self) {
        if self.busy.is_none() && !self.over {
            self.busy = self.ahead.remove(&self.next);
        }
    }
}

fn session() -> ClientSession {
    ClientSession::new(FRAME_BYTES_MAX)
}

/// The id with that number.
fn id(number: u64) -> SessionId {
    SessionId { registration: 7, number }
}

/// The only message in `out`: the number of its first step, how many operations it has, and its end.
fn message(out: &[ClientRequest]) -> (u32, usize, Option<SessionEnd>) {
    let [ClientRequest::Steps { number, operations, ending, .. }] = out else {
        panic!("not one message: {out:?}");
    };
    (*number, operations.len(), ending.clone())
}

fn key(number: u64) -> Bytes {
    Bytes::from(number.to_string())
}

fn get(number: u64) -> Operation {
    Operation::Get { table: TABLE, key: key(number) }
}

fn put(number: u64) -> Operation {
    Operation::Put { table: TABLE, key: key(number), value: Some(key(number)) }
}

/// A get brings its key; a put of "full" is refused, and an insert of "clash" aborted.
fn answer(operation: &Operation) -> Result<OperationResult> {
    match operation {
        Operation::Get { key, .. } => Ok(OperationResult::Value(Some(key.clone()))),
        Operation::Put { key, .. } if **key == *b"full" => {
            Err(Rejected::MemoryFull { bytes: 1, max: 1 }.into())
        }
        Operation::Insert { key, .. } if **key == *b"clash" => {
            Err(Aborted::RolledBack { epoch: shoal_types::Epoch(1) }.into())
        }
        Operation::Put { .. } | Operation::Insert { .. } => Ok(OperationResult::Done),
        Operation::Scan { .. } => Ok(OperationResult::Rows(Vec::new())),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// With any losses, every step is done once, in order, and every waiting task receives its own result.
    #[test]
    fn steps_are_done_once_and_in_order(seed: u64, sessions in 1..4_usize, moves in 10..300_u32) {
        let mut world = World::new(seed, sessions);
        let mut pushed = vec![Vec::new(); sessions];
        let mut waiting = Vec::new();
        for number in 0..u64::from(moves) {
            let at = world.random.below(sessions as u64) as usize;
            match world.random.below(8) {
                0 => {
                    pushed[at].push(get(number));
                    waiting.push((number, world.act(at, |session| session.perform(get(number)))));
                }
                1 => {
                    // It travels with what comes next.
                    pushed[at].push(put(number));
                    world.here[at].write(put(number));
                }
                2 | 3 => world.receive(),
                4 | 5 => drop(world.take()),
                6 => drop(world.work()),
                _ => world.ask_again(at),
            }
        }
        let mut ends = Vec::new();
        for at in (0..sessions).filter(|at| !pushed[*at].is_empty()) {
            ends.push(world.act(at, |session| session.end(SessionEnd::Commit)));
        }
        world.settle();
        for (number, mut reply) in waiting {
            prop_assert_eq!(reply.try_recv(), Ok(Ok(OperationResult::Value(Some(key(number))))));
        }
        for mut end in ends {
            prop_assert_eq!(end.try_recv(), Ok(Ok(OperationResult::Done)));
        }
        for at in (0..sessions).filter(|at| !pushed[*at].is_empty()) {
            prop_assert_eq!(&world.done(at).done, &pushed[at]);
            prop_assert_eq!(&world.done(at).ended, &Some(SessionEnd::Commit));
            prop_assert!(world.here[at].is_over());
        }
    }

    /// The reported outcome is the true one, with any messages lost, sent again and forgotten.
    #[test]
    fn a_reported_outcome_is_true(seed: u64, sessions in 1..4_usize, moves in 10..300_u32) {
        let mut world = World::new(seed, sessions);
        let mut ends: Vec<Option<oneshot::Receiver<StepReply>>> = (0..sessions).map(|_| None).collect();
        for number in 0..u64::from(moves) {
            let at = world.random.below(sessions as u64) as usize;
            match world.random.below(8) {
                0 if ends[at].is_none() => drop(world.act(at, |session| session.perform(get(number)))),
                1 if ends[at].is_none() => world.here[at].write(put(number)),
                2 if ends[at].is_none() => {
                    ends[at] = Some(world.act(at, |session| session.end(SessionEnd::Commit)));
                }
                0..=3 => world.receive(),
                4 | 5 => drop(world.take()),
                6 => drop(world.work()),
                _ => world.ask_again(at),
            }
        }
        world.settle();
        for (at, end) in ends.iter_mut().enumerate() {
            let Some(end) = end else { continue };
            let known = |number| world.there.get(number).or_else(|| world.forgotten.get(number));
            let commits = world.numbers[at].iter().filter_map(known);
            let commits = commits.filter(|there| there.ended == Some(SessionEnd::Commit)).count();
            match end.try_recv().expect("it has ended") {
                Ok(_) => prop_assert_eq!(commits, 1),
                Err(StepError::Error(Error::Unknown(_))) => prop_assert!(commits <= 1),
                Err(_) => prop_assert_eq!(commits, 0),
            }
        }
    }
}

#[test]
fn a_transaction_that_only_writes_is_one_message() {
    let mut world = World::new(1, 1);
    (0..3).for_each(|number| world.here[0].write(put(number)));
    let mut end = world.act(0, |session| session.end(SessionEnd::Commit));
    let asks: Vec<ClientRequest> = world.asks.iter().cloned().collect();
    assert_eq!(message(&asks), (0, 3, Some(SessionEnd::Commit)));
    assert!(world.here[0].is_committing());
    world.settle();
    assert_eq!(end.try_recv(), Ok(Ok(OperationResult::Done)));
    assert_eq!(world.done(0).said.len(), 1, "one reply");
}

#[test]
fn a_commit_travels_with_writes_and_not_before_what_is_read_is_answered() {
    let mut session = session();
    session.assign_id(id(1));
    let (mut read, mut out) = (session.perform(get(1)), Vec::new());
    session.write(put(2));
    let mut end = session.end(SessionEnd::Commit);
    session.send(&mut out);
    assert_eq!(message(&out), (0, 2, None), "the read and the write");
    assert!(!session.is_committing());
    out.clear();
    assert_eq!(session.on_reply(0, Ok(OperationResult::Value(None))), AfterReply::Open);
    session.send(&mut out);
    assert_eq!(message(&out), (2, 0, Some(SessionEnd::Commit)), "the write is not answered");
    assert_eq!(session.on_reply(1, Ok(OperationResult::Done)), AfterReply::Open);
    assert_eq!(session.on_reply(2, Ok(OperationResult::Done)), AfterReply::Over);
    assert!(matches!(read.try_recv(), Ok(Ok(_))) && matches!(end.try_recv(), Ok(Ok(_))));

    let mut session = self::session();
    session.assign_id(id(1));
    drop(session.perform(Operation::Insert { table: TABLE, key: key(1), value: key(1) }));
    drop(session.end(SessionEnd::Commit));
    session.send(&mut Vec::new());
    assert!(!session.is_committing(), "an insert may fail, and the transaction goes on");
}

#[test]
fn messages_fit_frames_and_the_window() {
    let large = |number| {
        let value = Some(Bytes::from(vec![0; MESSAGE_BYTES_MAX / 2]));
        Operation::Put { table: TABLE, key: key(number), value }
    };
    let mut session = session();
    session.assign_id(id(1));
    (0..5).for_each(|number| session.write(large(number)));
    let writes = 3 * STEPS_AHEAD_MAX as u64 + 8;
    (5..writes).for_each(|number| session.write(put(number)));
    let (mut end, mut out) = (session.end(SessionEnd::Commit), Vec::new());
    session.send(&mut out);
    let lengths = out.iter().map(|message| match message {
        ClientRequest::Steps { operations, .. } => operations.len(),
        _ => 0,
    });
    let lengths: Vec<usize> = lengths.collect();
    assert_eq!(lengths[..4], [1; 4], "two do not fit one message: {lengths:?}");
    assert_eq!((lengths.iter().sum(), session.is_committing()), (STEPS_AHEAD_MAX, false));
    // Every message is answered, so that the next can follow.
    let mut number = STEPS_AHEAD_MAX as u32 - 1;
    for count in [STEPS_AHEAD_MAX, STEPS_AHEAD_MAX, 9] {
        assert_eq!(session.on_reply(number, Ok(OperationResult::Done)), AfterReply::Open);
        out.clear();
        session.send(&mut out);
        let (first, operations, ending) = message(&out);
        assert_eq!((first, operations + usize::from(ending.is_some())), (number + 1, count));
        number += count as u32;
    }
    assert_eq!(session.on_reply(number, Ok(OperationResult::Done)), AfterReply::Over);
    assert_eq!(end.try_recv(), Ok(Ok(OperationResult::Done)));

    let mut session = ClientSession::new(1000);
    session.assign_id(id(1));
    (0..30).for_each(|number| session.write(put(number)));
    out.clear();
    session.send(&mut out);
    assert!(out.len() > 1, "frames are short: {out:?}");
}

#[test]
fn nothing_commits_behind_a_write_that_failed() {
    let mut world = World::new(1, 1);
    let full = Operation::Put { table: TABLE, key: "full".into(), value: Some("".into()) };
    world.here[0].write(put(1));
    world.here[0].write(full.clone());
    let mut read = world.here[0].perform(get(2));
    let mut end = world.act(0, |session| session.end(SessionEnd::Commit));
    world.settle();
    let refused = Err(StepError::Error(Rejected::MemoryFull { bytes: 1, max: 1 }.into()));
    assert_eq!(read.try_recv(), Ok(refused.clone()));
    assert_eq!(end.try_recv(), Ok(refused.clone()));
    assert!(world.here[0].is_over());
    let mut late = world.act(0, |session| session.perform(get(3)));
    assert_eq!(late.try_recv(), Ok(refused.clone()), "and all that comes after");
    assert_eq!(world.done(0).ended, None);

    let mut world = World::new(1, 1);
    world.here[0].write(full);
    world.here[0].write(put(1));
    let mut end = world.act(0, |session| session.end(SessionEnd::Commit));
    assert!(world.here[0].is_committing(), "all of it travels together");
    world.settle();
    assert_eq!((end.try_recv(), &world.done(0).ended), (Ok(refused), &None));
    assert_eq!(world.done(0).done.len(), 1, "what follows is not done");
}

#[test]
fn a_commit_that_was_sent_twice_and_is_not_known_is_unknown() {
    let unknown_there = Error::from(Aborted::UnknownSession { session: 1 });
    let unknown = Error::from(shoal_types::Unknown::Session { session: 1 });
    // What the other side says to a message without a commit, and to one with it.
    for said in [unknown_there, unknown.clone()] {
        let mut session = session();
        session.assign_id(id(1));
        session.write(put(1));
        let mut end = session.end(SessionEnd::Commit);
        session.send(&mut Vec::new());
        session.send_again(&mut Vec::new());
        assert_eq!(session.on_reply(0, Err(said)), AfterReply::Over);
        assert_eq!(end.try_recv(), Ok(Err(StepError::Error(unknown.clone()))));
    }
}

#[test]
fn a_commit_that_was_sent_once_and_is_not_known_has_not_happened() {
    let unknown = || Err(shoal_types::Unknown::Session { session: 1 }.into());
    let mut session = session();
    session.assign_id(id(1));
    session.write(put(1));
    let (mut end, mut out) = (session.end(SessionEnd::Commit), Vec::new());
    session.send(&mut out);
    assert_eq!(session.on_reply(0, unknown()), AfterReply::NotBegun, "nothing of it was answered");
    session.restart();
    session.assign_id(id(2));
    out.clear();
    session.send(&mut out);
    assert_eq!(message(&out), (0, 1, Some(SessionEnd::Commit)), "all of it, under another name");
    assert_eq!(session.on_reply(1, Ok(OperationResult::Done)), AfterReply::Over);
    assert_eq!(end.try_recv(), Ok(Ok(OperationResult::Done)));

    let mut session = self::session();
    session.assign_id(id(1));
    drop(session.perform(get(1)));
    session.send(&mut Vec::new());
    assert_eq!(session.on_reply(0, Ok(OperationResult::Value(None))), AfterReply::Open);
    let mut end = session.end(SessionEnd::Commit);
    session.send(&mut Vec::new());
    assert_eq!(session.on_reply(1, unknown()), AfterReply::Over);
    let aborted = Aborted::UnknownSession { session: 1 };
    assert_eq!(end.try_recv(), Ok(Err(StepError::Error(aborted.into()))), "what it read is gone");
}

#[test]
fn what_ends_it_there_ends_it_for_all_who_wait() {
    let mut world = World::new(1, 1);
    let clash = Operation::Insert { table: TABLE, key: "clash".into(), value: "".into() };
    let mut first = world.act(0, |session| session.perform(clash));
    let mut second = world.act(0, |session| session.perform(get(2)));
    world.settle();
    let ended = Err(StepError::Error(Aborted::RolledBack { epoch: shoal_types::Epoch(1) }.into()));
    assert_eq!(first.try_recv(), Ok(ended.clone()));
    assert_eq!(second.try_recv(), Ok(ended));
    assert!(world.here[0].is_over());
}

#[test]
fn a_commit_that_waits_does_not_keep_it_from_beginning_anew() {
    let mut session = session();
    drop(session.perform(get(1)));
    let mut end = session.end(SessionEnd::Commit);
    session.assign_id(id(1));
    session.send(&mut Vec::new());
    let refused = Err(Aborted::UnknownSession { session: 1 }.into());
    assert_eq!(session.on_reply(0, refused), AfterReply::NotBegun);
    session.restart();
    session.assign_id(id(2));
    session.send(&mut Vec::new());
    assert_eq!(session.on_reply(0, Ok(OperationResult::Value(None))), AfterReply::Open);
    session.send(&mut Vec::new());
    assert_eq!(session.on_reply(1, Ok(OperationResult::Done)), AfterReply::Over);
    assert_eq!(end.try_recv(), Ok(Ok(OperationResult::Done)));
}

#[test]
fn giving_up_leaves_out_what_was_not_sent() {
    let mut world = World::new(1, 1);
    world.here[0].write(put(1));
    world.act(0, ClientSession::roll_back);
    assert!(world.here[0].is_over() && world.asks.is_empty(), "no request was sent");

    let mut world = World::new(1, 1);
    let mut end = {
        let _read = world.act(0, |session| session.perform(get(1)));
        world.act(0, |session| session.end(SessionEnd::Commit))
    };
    assert!(!world.here[0].is_committing(), "not before the read is answered");
    world.act(0, ClientSession::roll_back);
    assert!(end.try_recv().is_err(), "no outcome comes");
    world.settle();
    assert_eq!(world.done(0).ended, Some(SessionEnd::Rollback));
}

#[test]
fn a_connection_that_is_lost_leaves_only_commits_unknown() {
    let mut world = World::new(1, 1);
    let mut read = world.act(0, |session| session.perform(get(1)));
    world.here[0].on_disconnect(Cause::Disconnected);
    assert_eq!(read.try_recv(), Ok(Err(StepError::Disconnected(Cause::Disconnected))));
    let mut late = world.act(0, |session| session.perform(get(2)));
    assert_eq!(
        late.try_recv(),
        Ok(Err(StepError::Disconnected(Cause::Disconnected))),
        "and why it stays so"
    );

    let mut world = World::new(1, 1);
    let read = world.act(0, |session| session.perform(get(1)));
    world.settle();
    drop(read);
    let mut end = world.act(0, |session| session.end(SessionEnd::Commit));
    assert!(world.here[0].is_committing());
    world.here[0].on_disconnect(Cause::Disconnected);
    assert_eq!(end.try_recv(), Ok(Err(StepError::CommitUnknown(1))));
    assert!(world.here[0].is_over());
}

#[test]
fn replies_that_make_no_sense_are_found_out() {
    let nothing = || Ok(OperationResult::Value(None));
    let mut session = session();
    let done = || Ok(OperationResult::Done);
    assert_eq!(session.on_reply(0, done()), AfterReply::Malformed, "nothing was asked");
    let _reads = [session.perform(get(1)), session.perform(get(2))];
    session.assign_id(id(1));
    session.send(&mut Vec::new());
    assert_eq!(session.on_reply(2, nothing()), AfterReply::Malformed, "not asked yet");
    assert_eq!(session.on_reply(1, nothing()), AfterReply::Malformed, "the first is not answered");
    let rows = Ok(OperationResult::Rows(Vec::new()));
    assert_eq!(session.on_reply(0, rows), AfterReply::Malformed, "of a get");
    assert_eq!(session.on_reply(0, nothing()), AfterReply::Open);
    assert_eq!(session.on_reply(0, nothing()), AfterReply::Open, "a repetition");
}

/// All that a node that errs or lies may reply.
fn any_result() -> impl Strategy<Value = Result<OperationResult>> {
    let error = |error: Error| Just(Err(error));
    prop_oneof![
        Just(Ok(OperationResult::Done)),
        Just(Ok(OperationResult::Value(None))),
        Just(Ok(OperationResult::Rows(Vec::new()))),
        error(Aborted::UnknownSession { session: 1 }.into()),
        error(Aborted::NotServing { node: shoal_types::NodeId(0) }.into()),
        error(Rejected::MemoryFull { bytes: 1, max: 1 }.into()),
        error(shoal_types::Unknown::Session { session: 1 }.into()),
    ]
}

proptest! {
    /// No reply, however mad, makes a session panic, and in the end no task waits.
    #[test]
    fn mad_replies_are_withstood(
        moves in prop::collection::vec((0..9_u8, 0..6_u32, any_result()), 1..120)
    ) {
        let (mut session, mut numbers, mut out) = (session(), 0, Vec::new());
        let mut waiting = Vec::new();
        for (number, (what, step, result)) in (0..).zip(moves) {
            let next = match what {
                0 => {
                    waiting.push(session.perform(get(number)));
                    AfterReply::Open
                }
                1 => {
                    session.write(put(number));
                    AfterReply::Open
                }
                2 if step == 0 && !session.is_ending() => {
                    waiting.push(session.end(SessionEnd::Commit));
                    AfterReply::Open
                }
                3 if step == 0 && !session.is_committing() => {
                    session.roll_back();
                    AfterReply::Open
                }
                _ => {
                    let number = session.next.saturating_add(step).saturating_sub(1);
                    session.on_reply(number, result)
                },
            };
            match next {
                AfterReply::Open => {}
                AfterReply::NotBegun => session.restart(),
                // Its connection ends.
                AfterReply::Malformed => session.on_disconnect(Cause::Malformed),
                AfterReply::Over => prop_assert!(session.is_over()),
            }
            if session.needs_id() {
                numbers += 1;
                session.assign_id(id(numbers));
            }
            session.send(&mut out);
            session.send_again(&mut out);
        }
        session.on_disconnect(Cause::Disconnected);
        for mut reply in waiting {
            let pending = oneshot::error::TryRecvError::Empty;
            prop_assert_ne!(reply.try_recv().err(), Some(pending));
        }
    }
}

#[test]
fn who_never_knows_a_session_is_not_asked_for_ever() {
    let mut session = session();
    let mut read = session.perform(get(1));
    let refused = || Err(Aborted::UnknownSession { session: 9 }.into());
    for number in 1..=u64::from(RESTARTS_MAX) {
        session.assign_id(id(number));
        session.send(&mut Vec::new());
        assert_eq!(session.on_reply(0, refused()), AfterReply::NotBegun);
        session.restart();
    }
    session.assign_id(id(100));
    session.send(&mut Vec::new());
    assert_eq!(session.on_reply(0, refused()), AfterReply::Over);
    assert!(matches!(read.try_recv(), Ok(Err(StepError::Error(_)))));

    let mut session = self::session();
    drop(session.perform(get(1)));
    session.assign_id(id(1));
    session.send(&mut Vec::new());
    session.roll_back();
    let after = session.on_reply(0, refused());
    assert_eq!(after, AfterReply::Over, "a session that rolls back need not begin");
}
