//! Sessions against a model of the other side, on one connection: frames keep their order, and some are
//! lost.

use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use shoal_engine::client::ClientReply;
use shoal_types::{Random, Rejected, TableId};
use std::collections::{BTreeMap, VecDeque};

const TABLE: TableId = TableId(0);

/// What the other side knows of a session: it does one step at a time, and keeps those that come early.
#[derive(Debug, Default)]
struct There {
    next: u32,
    busy: Option<StepKind>,
    ahead: BTreeMap<u32, StepKind>,
    admitted: bool,
    over: bool,
    said: Vec<ClientReply>,
    /// What was done, in order.
    done: Vec<Operation>,
    ended: Option<SessionEnd>,
}

#[derive(Debug)]
struct World {
    random: Random,
    there: BTreeMap<u64, There>,
    here: Vec<ClientSession>,
    /// The names that each has had.
    names: Vec<Vec<u64>>,
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
            here: (0..sessions).map(|_| ClientSession::default()).collect(),
            names: vec![Vec::new(); sessions],
            asks: VecDeque::new(),
            replies: VecDeque::new(),
            last_number: 0,
            lossy: true,
        }
    }

    /// As a link does after it has done something with a session.
    fn flush(&mut self, at: usize, mut out: Vec<ClientRequest>) {
        let session = &mut self.here[at];
        if session.wants_number() {
            self.last_number += 1;
            session.name(self.last_number);
            self.names[at].push(self.last_number);
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

    /// The other side hears something.
    fn hear(&mut self) {
        let Some(ask) = self.asks.pop_front() else { return };
        if self.lossy && self.random.chance(1, 6) {
            return;
        }
        let (number, step, what) = match ask {
            ClientRequest::Begin { session } => return self.begin(session),
            ClientRequest::Operation { session, serial: _, number, operation } => {
                (session, number, StepKind::Operation(operation))
            }
            ClientRequest::End { session, serial: _, number, ending } => {
                (session, number, StepKind::End(ending))
            }
            ClientRequest::OpenCalls { .. } | ClientRequest::Call { .. } => {
                unreachable!("a session calls nothing")
            }
        };
        let unknown = |error| {
            let reply = ClientReply::Done {
                session: number,
                serial: None,
                number: step,
                result: Err(error),
            };
            Some(reply)
        };
        let not_here = match what {
            StepKind::End(SessionEnd::Commit) => {
                Error::Unknown(shoal_types::Unknown::Session { session: number })
            }
            _ => Aborted::UnknownSession { session: number }.into(),
        };
        let reply = match self.there.get_mut(&number) {
            None => unknown(not_here),
            Some(there) if step < there.next => there.said.get(step as usize).cloned(),
            Some(there) if there.over => unknown(not_here).filter(|_| step == there.next),
            Some(there) => {
                there.ahead.entry(step).or_insert(what);
                there.turn();
                None
            }
        };
        self.replies.extend(reply);
    }

    fn begin(&mut self, number: u64) {
        if let Some(there) = self.there.get(&number) {
            if there.next == 0 && there.admitted {
                self.replies.push_back(ClientReply::Began { session: number, result: Ok(number) });
            }
        } else if self.there.range(number..).next().is_none() {
            self.there.insert(number, There::default());
        }
    }

    /// The other side does something it has been asked for.
    fn work(&mut self) -> bool {
        let busy: Vec<u64> = self
            .there
            .iter()
            .filter(|(_, there)| there.wants_work())
            .map(|(number, _)| *number)
            .collect();
        let Some(number) = self.random.pick(&busy).copied() else { return false };
        let there = self.there.get_mut(&number).expect("listed");
        if !there.admitted {
            there.admitted = true;
            self.replies.push_back(ClientReply::Began { session: number, result: Ok(number) });
            return true;
        }
        let result = match there.busy.take().expect("busy") {
            StepKind::Operation(operation) => {
                there.done.push(operation.clone());
                answer(&operation)
            }
            StepKind::End(ending) => {
                (there.over, there.ended) = (true, Some(ending));
                Ok(OperationResult::Done)
            }
        };
        there.over |= matches!(result, Err(Error::Aborted(_)));
        let reply =
            ClientReply::Done { session: number, serial: Some(number), number: there.next, result };
        there.next += 1;
        there.said.push(reply.clone());
        there.turn();
        self.replies.push_back(reply);
        true
    }

    /// A reply comes back.
    fn take(&mut self) -> bool {
        let Some(reply) = self.replies.pop_front() else { return false };
        let (ClientReply::Began { session, .. } | ClientReply::Done { session, .. }) = reply else {
            unreachable!("nobody calls");
        };
        let named = |here: &ClientSession| here.number() == Some(session) && !here.is_over();
        let Some(at) = self.here.iter().position(named) else { return true };
        let next = match reply {
            ClientReply::Began { result, .. } => self.here[at].began(result),
            ClientReply::Done { serial, number, result, .. } => {
                self.here[at].done(serial, number, result)
            }
            ClientReply::CallsOpened { .. } | ClientReply::Called { .. } => {
                unreachable!("a session calls nothing")
            }
        };
        assert_ne!(next, AfterReply::Nonsense, "{:?}", self.here[at]);
        if next == AfterReply::Anew {
            self.here[at].restart();
        }
        self.flush(at, Vec::new());
        true
    }

    /// Until no side has anything more to say.
    fn settle(&mut self) {
        self.lossy = false;
        for _ in 0..100_000 {
            if !self.asks.is_empty() {
                self.hear();
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

    /// What was done of a session under its last name.
    fn done(&self, at: usize) -> &There {
        let number = self.names[at].last().expect("it was named");
        &self.there[number]
    }
}

impl There {
    /// The next step is done, if it is there and none is under way.
    fn turn(&mut self) {
        if self.busy.is_none() && !self.over {
            self.busy = self.ahead.remove(&self.next);
        }
    }

    fn wants_work(&self) -> bool {
        !self.over && (!self.admitted || self.busy.is_some())
    }
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

    /// With any losses, every step is done once, in order, and every waiting task is told of its own.
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
                2 | 3 => world.hear(),
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
        for (number, mut told) in waiting {
            prop_assert_eq!(told.try_recv(), Ok(Ok(OperationResult::Value(Some(key(number))))));
        }
        for mut end in ends {
            prop_assert_eq!(end.try_recv(), Ok(Ok(OperationResult::Done)));
        }
        for at in (0..sessions).filter(|at| !pushed[*at].is_empty()) {
            prop_assert_eq!(&world.done(at).done, &pushed[at]);
            prop_assert_eq!(world.done(at).ended, Some(SessionEnd::Commit));
            prop_assert!(world.here[at].is_over());
        }
    }
}

#[test]
fn nothing_commits_behind_a_write_that_failed() {
    let mut world = World::new(1, 1);
    let full = Operation::Put { table: TABLE, key: "full".into(), value: Some("".into()) };
    world.here[0].write(put(1));
    world.here[0].write(full);
    let mut read = world.here[0].perform(get(2));
    let mut end = world.act(0, |session| session.end(SessionEnd::Commit));
    assert_eq!(world.asks.len(), 4, "all but the commit is sent ahead: {:?}", world.asks);
    world.settle();
    let refused = Err(StepError::Error(Rejected::MemoryFull { bytes: 1, max: 1 }.into()));
    assert_eq!(read.try_recv(), Ok(refused.clone()));
    assert_eq!(end.try_recv(), Ok(refused.clone()));
    assert!(world.here[0].failed().is_some() && !world.here[0].is_over());
    let mut late = world.act(0, |session| session.perform(get(3)));
    assert_eq!(late.try_recv(), Ok(refused), "and all that comes after");
    world.act(0, ClientSession::give_up);
    world.settle();
    assert_eq!(world.done(0).ended, Some(SessionEnd::Rollback));
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
    let mut session = ClientSession::default();
    drop(session.perform(get(1)));
    let mut end = session.end(SessionEnd::Commit);
    session.name(1);
    session.send(&mut Vec::new());
    let refused = Err(Aborted::UnknownSession { session: 1 }.into());
    assert_eq!(session.done(None, 0, refused), AfterReply::Anew);
    session.restart();
    session.name(2);
    session.send(&mut Vec::new());
    assert_eq!(session.done(None, 0, Ok(OperationResult::Value(None))), AfterReply::Open);
    session.send(&mut Vec::new());
    assert_eq!(session.done(None, 1, Ok(OperationResult::Done)), AfterReply::Over);
    assert_eq!(end.try_recv(), Ok(Ok(OperationResult::Done)));
}

#[test]
fn giving_up_leaves_out_what_was_not_sent() {
    let mut world = World::new(1, 1);
    world.here[0].write(put(1));
    world.act(0, ClientSession::give_up);
    assert!(world.here[0].is_over() && world.asks.is_empty(), "nobody there knows of it");

    let mut world = World::new(1, 1);
    let mut end = {
        let _read = world.act(0, |session| session.perform(get(1)));
        world.act(0, |session| session.end(SessionEnd::Commit))
    };
    assert!(!world.here[0].is_committing(), "not before the read is answered");
    world.act(0, ClientSession::give_up);
    assert!(end.try_recv().is_err(), "nobody will tell");
    world.settle();
    assert_eq!(world.done(0).ended, Some(SessionEnd::Rollback));
}

#[test]
fn a_connection_that_is_lost_leaves_only_commits_unknown() {
    let mut world = World::new(1, 1);
    let mut read = world.act(0, |session| session.perform(get(1)));
    world.here[0].lose(Cause::Disconnected);
    assert_eq!(read.try_recv(), Ok(Err(StepError::Lost(Cause::Disconnected))));
    let mut late = world.act(0, |session| session.perform(get(2)));
    assert_eq!(
        late.try_recv(),
        Ok(Err(StepError::Lost(Cause::Disconnected))),
        "and why it stays so"
    );

    let mut world = World::new(1, 1);
    let read = world.act(0, |session| session.perform(get(1)));
    world.settle();
    drop(read);
    let mut end = world.act(0, |session| session.end(SessionEnd::Commit));
    assert!(world.here[0].is_committing());
    world.here[0].lose(Cause::Disconnected);
    assert_eq!(end.try_recv(), Ok(Err(StepError::CommitLost(1))));
    assert!(world.here[0].is_over());
}

#[test]
fn replies_that_nobody_would_give_are_nonsense() {
    let mut session = ClientSession::default();
    assert_eq!(
        session.done(None, 0, Ok(OperationResult::Done)),
        AfterReply::Nonsense,
        "nothing was asked"
    );
    let _read = session.perform(get(1));
    session.name(1);
    session.send(&mut Vec::new());
    assert_eq!(
        session.done(None, 1, Ok(OperationResult::Value(None))),
        AfterReply::Nonsense,
        "not asked yet"
    );
    assert_eq!(
        session.done(None, 0, Ok(OperationResult::Rows(Vec::new()))),
        AfterReply::Nonsense,
        "of a get"
    );
    assert_eq!(session.done(None, 0, Ok(OperationResult::Value(None))), AfterReply::Open);
    assert_eq!(
        session.done(None, 0, Ok(OperationResult::Value(None))),
        AfterReply::Open,
        "a repetition"
    );
}

#[test]
fn answers_of_another_transaction_are_none() {
    let (mut session, mut out) = (ClientSession::default(), Vec::new());
    let mut read = session.perform(get(1));
    session.name(1);
    session.send(&mut out);
    let asks = [ClientRequest::Begin { session: 1 }, session.request(1, 0, &session.steps[0])];
    assert_eq!(out, asks, "with no serial, since none was told");
    assert_eq!(session.began(Ok(7)), AfterReply::Open);
    // The other side had forgotten this one, and a copy of its beginning began another.
    let value = |value: &'static str| Ok(OperationResult::Value(Some(value.into())));
    assert_eq!(session.began(Ok(8)), AfterReply::Open);
    assert_eq!(session.done(Some(8), 0, value("of another")), AfterReply::Open);
    assert!(read.try_recv().is_err());
    assert_eq!(session.done(Some(7), 0, value("its own")), AfterReply::Open);
    assert_eq!(read.try_recv(), Ok(Ok(OperationResult::Value(Some("its own".into())))));
    let not_begun = Err(Aborted::NotServing { node: shoal_types::NodeId(0) }.into());
    assert_eq!(session.began(not_begun), AfterReply::Open, "the other could not begin");
    let mut end = session.end(SessionEnd::Commit);
    out.clear();
    session.send(&mut out);
    let ending = SessionEnd::Commit;
    assert_eq!(out, [ClientRequest::End { session: 1, serial: Some(7), number: 1, ending }]);
    assert_eq!(
        session.done(Some(8), 1, Ok(OperationResult::Done)),
        AfterReply::Open,
        "of the other"
    );
    let unknown = Error::from(shoal_types::Unknown::Session { session: 1 });
    assert_eq!(session.done(Some(7), 1, Err(unknown.clone())), AfterReply::Over);
    assert_eq!(end.try_recv(), Ok(Err(StepError::Error(unknown))));
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
        let (mut session, mut numbers, mut out) = (ClientSession::default(), 0, Vec::new());
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
                    session.give_up();
                    AfterReply::Open
                }
                4 => session.began(result.map(|_| u64::from(step))),
                _ => {
                    let number = session.next.saturating_add(step).saturating_sub(1);
                    let serial = (what > 5).then_some(u64::from(what));
                    session.done(serial, number, result)
                },
            };
            match next {
                AfterReply::Open => {}
                AfterReply::Anew => session.restart(),
                // Its connection ends.
                AfterReply::Nonsense => session.lose(Cause::Malformed),
                AfterReply::Over => prop_assert!(session.is_over()),
            }
            if session.wants_number() {
                numbers += 1;
                session.name(numbers);
            }
            session.send(&mut out);
            session.send_again(&mut out);
        }
        session.lose(Cause::Disconnected);
        for mut told in waiting {
            let pending = oneshot::error::TryRecvError::Empty;
            prop_assert_ne!(told.try_recv().err(), Some(pending));
        }
    }
}

#[test]
fn who_never_knows_a_session_is_not_asked_for_ever() {
    let mut session = ClientSession::default();
    let mut read = session.perform(get(1));
    let refused = || Err(Aborted::UnknownSession { session: 9 }.into());
    for number in 1..=u64::from(RESTARTS_MAX) {
        session.name(number);
        session.send(&mut Vec::new());
        assert_eq!(session.done(None, 0, refused()), AfterReply::Anew);
        session.restart();
    }
    session.name(100);
    session.send(&mut Vec::new());
    assert_eq!(session.done(None, 0, refused()), AfterReply::Over);
    assert!(matches!(read.try_recv(), Ok(Err(StepError::Error(_)))));

    let mut session = ClientSession::default();
    drop(session.perform(get(1)));
    session.name(1);
    session.send(&mut Vec::new());
    session.give_up();
    assert_eq!(
        session.done(None, 0, refused()),
        AfterReply::Over,
        "what is given up need not begin"
    );
}
