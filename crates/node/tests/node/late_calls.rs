//! Copies of calls, and of steps of interactive transactions, that come late, when much has happened since.

use bytes::Bytes;
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::client::{
    COMMITTED, ClientId, ClientReply, ClientRequest, REQUESTS_TABLE, ReplyToClient,
    RequestFromClient, SessionEnd, requests_table,
};
use shoal_engine::engine::Setup;
use shoal_engine::execution::Limits;
use shoal_engine::operation::{Operation, OperationResult};
use shoal_engine::{Engine, ProcedureTransaction, Procedures};
use shoal_mako::Mako;
use shoal_node::{Worker, WorkerEffect, WorkerEffects, WorkerEvent, WorkerOrigin};
use shoal_two_phase_commit::TwoPhaseCommit;
use shoal_types::{
    Aborted, CallSession, Conflict, Error, NodeId, RequestId, Result, ShardId, TableId, Time,
    Transaction, Unknown, WorkerId,
};
use std::sync::Arc;
use std::time::Duration;

const S0: ShardId = ShardId(0);

/// The only worker of a cluster of one node.
struct Alone<E: Engine> {
    worker: Worker<E>,
    shared: Arc<E::Shared>,
    topology: Arc<Topology>,
    now: Time,
}

/// Takes one from a stock, and gives up where there is none.
async fn take(tx: &ProcedureTransaction<'_>, stock: &[u8]) -> Result<Bytes> {
    let left = tx.add(TableId(0), stock, -1).await?;
    if left < 0 {
        return Err(Error::reject("nothing is left"));
    }
    Ok(Bytes::copy_from_slice(&left.to_le_bytes()))
}

/// Puts ten into a stock.
async fn fill(tx: &ProcedureTransaction<'_>, stock: &[u8]) -> Result<Bytes> {
    let left = tx.add(TableId(0), stock, 10).await?;
    Ok(Bytes::copy_from_slice(&left.to_le_bytes()))
}

fn left(stock: i64) -> Result<Bytes> {
    Ok(Bytes::copy_from_slice(&stock.to_le_bytes()))
}

impl<E: Engine> Alone<E> {
    fn new(options: E::Options) -> Alone<E> {
        let hash = Partitioning::Hash { prefix_bytes: 0 };
        let tables = [("stocks", hash), requests_table(1)];
        let topology = Topology::symmetric(1, 1, 1, 0, 1).with_tables(tables).expect("valid");
        let setup = Setup {
            topology: Arc::new(topology),
            procedures: Arc::new(Procedures::new().with("take", take).with("fill", fill)),
            streams: shoal_log::StreamOptions::default(),
            options,
        };
        let shared = E::share(&setup, NodeId(0));
        let origin = WorkerOrigin::fixed(&setup.topology, 1);
        let worker = Worker::new(WorkerId(0), NodeId(0), &setup, Arc::clone(&shared), origin);
        let topology = Arc::clone(&setup.topology);
        let mut alone = Alone { worker, shared, topology, now: Time(1000) };
        alone.step(WorkerEvent::Start);
        alone
    }

    fn step(&mut self, event: WorkerEvent<E::Message>) -> Option<ClientReply> {
        let mut effects = WorkerEffects::new();
        self.worker.step(self.now, event, &mut effects);
        effects.effects.into_iter().find_map(|effect| match effect {
            WorkerEffect::Reply(ReplyToClient { reply, .. }) => Some(reply),
            WorkerEffect::Send { .. }
            | WorkerEffect::Timer { .. }
            | WorkerEffect::Nudge { .. }
            | WorkerEffect::Tell { .. }
            | WorkerEffect::Write { .. }
            | WorkerEffect::Checkpoint(_)
            | WorkerEffect::Superseded => None,
        })
    }

    fn ask(&mut self, request: ClientRequest) -> ClientReply {
        self.ask_as(ClientId(1), request)
    }

    fn ask_as(&mut self, from: ClientId, request: ClientRequest) -> ClientReply {
        let mut reply = self.step(WorkerEvent::Client(RequestFromClient { from, request }));
        for _ in 0..10_000 {
            if let Some(reply) = reply {
                return reply;
            }
            self.now = self.now + Duration::from_micros(10);
            reply = self.step(WorkerEvent::Timer);
        }
        panic!("not answered");
    }

    fn open(&mut self) -> CallSession {
        match self.ask(ClientRequest::OpenCalls { token: 7, home: S0 }) {
            ClientReply::CallsOpened { token: 7, result } => result.expect("it serves"),
            other => panic!("{other:?}"),
        }
    }

    fn call(&mut self, session: CallSession, number: u64, procedure: &str) -> Result<Bytes> {
        let id = RequestId { session, number };
        let call = ClientRequest::Call { id, procedure: procedure.into(), arguments: "s".into() };
        match self.ask(call) {
            ClientReply::Called { id: called, result } if called == id => result,
            other => panic!("{other:?}"),
        }
    }

    fn resolve(&mut self, session: CallSession, number: u64) -> Result<Bytes> {
        let id = RequestId { session, number };
        match self.ask(ClientRequest::Resolve { id }) {
            ClientReply::Called { id: resolved, result } if resolved == id => result,
            other => panic!("{other:?}"),
        }
    }

    /// Registers a client.
    fn register(&mut self, from: ClientId) -> u64 {
        match self.ask_as(from, ClientRequest::Register) {
            ClientReply::Registered { registration } => registration,
            other => panic!("{other:?}"),
        }
    }

    /// The first answer to steps of a transaction, if there is one.
    fn take(&mut self, from: ClientId, steps: ClientRequest) -> (u32, Result<OperationResult>) {
        match self.ask_as(from, steps) {
            ClientReply::Done { session: _, number, result } => (number, result),
            other => panic!("{other:?}"),
        }
    }

    /// What another client reads of the stock, in a transaction of its own.
    fn stock(&mut self, reader: ClientId, registration: u64, session: u64) -> Option<Bytes> {
        let read = steps(registration, session, 0, vec![get()], None);
        let (_, result) = self.take(reader, read);
        let end = steps(registration, session, 1, Vec::new(), Some(SessionEnd::Commit));
        assert_eq!(self.take(reader, end), (1, Ok(OperationResult::Done)));
        match result {
            Ok(OperationResult::Value(value)) => value,
            other => panic!("{other:?}"),
        }
    }

    /// Time passes.
    fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
        for _ in 0..100 {
            self.now = self.now + Duration::from_millis(1);
            self.step(WorkerEvent::Timer);
        }
    }

    /// Rows of the table of requests.
    fn rows(&self) -> usize {
        let store = E::store(&self.shared, S0).expect("a replica");
        crate::common::rows(store, &self.topology, &["stocks", REQUESTS_TABLE]).len() - 1
    }
}

fn over(session: CallSession, number: u64) -> Result<Bytes> {
    Err(Aborted::CallSessionOver { request: RequestId { session, number } }.into())
}

fn a_call_that_failed_never_runs<E: Engine>() {
    let mut alone = Alone::<E>::new(E::Options::default());
    let nothing_is_left = Err(Error::reject("nothing is left"));
    let late = alone.open();
    assert_eq!(alone.call(late, 1, "take"), nothing_is_left);
    for _ in 0..33_000 {
        let other = alone.open();
        assert_eq!(alone.call(other, 1, "take"), nothing_is_left);
    }
    let other = alone.open();
    assert_eq!(alone.call(other, 1, "fill"), left(10));
    // The client was answered that nothing has happened; and nothing will.
    assert_eq!(alone.call(late, 1, "take"), over(late, 1));
    assert_eq!(alone.call(late, 2, "take"), over(late, 2));
    assert_eq!(alone.call(other, 2, "take"), left(9));
}

/// A worker that keeps few sessions, one answer, and rows for a minute.
fn forgetful() -> Limits {
    let call_rows_kept = Duration::from_secs(60);
    Limits { call_sessions_max: 2, answers_remembered: 1, call_rows_kept, ..Limits::default() }
}

fn rows_are_kept_for_a_while_and_few_of_them<E: Engine>(options: E::Options) {
    let mut alone = Alone::<E>::new(options);
    let sessions: Vec<CallSession> = (0..3).map(|_| alone.open()).collect();
    let [first, second, third] = sessions[..] else { panic!("{sessions:?}") };
    assert_eq!(alone.call(first, 1, "fill"), over(first, 1), "there are two others");
    assert_eq!(alone.call(second, 1, "fill"), left(10));
    assert_eq!(alone.call(third, 4, "take"), left(9));
    let fourth = alone.open();
    // What is over is not run; what has taken effect has its row.
    assert_eq!(alone.call(second, 1, "fill"), left(10));
    assert_eq!(alone.call(second, 2, "fill"), over(second, 2));
    assert_eq!(alone.call(fourth, 1, "take"), left(8));
    assert_eq!(alone.rows(), 3);
    alone.wait(Duration::from_secs(61));
    alone.wait(Duration::from_secs(61));
    // Nothing shows any more what became of it. It will not run, though.
    let request = RequestId { session: second, number: 1 };
    assert_eq!(alone.call(second, 1, "fill"), Err(Unknown::Forgotten { request }.into()));
    assert_eq!(alone.call(third, 4, "take"), left(9), "it is not over");
    assert_eq!(alone.call(fourth, 2, "take"), left(7));
    // Many come and go within that time.
    let mut most = 0;
    for _ in 0..50 {
        let session = alone.open();
        alone.call(session, 1, "fill").expect("filled");
        alone.wait(Duration::from_millis(1));
        most = most.max(alone.rows());
    }
    assert!(most <= 8, "{most} rows");
}

fn steps(
    registration: u64,
    session: u64,
    number: u32,
    operations: Vec<Operation>,
    ending: Option<SessionEnd>,
) -> ClientRequest {
    ClientRequest::Steps { registration, session, number, operations, ending }
}

fn get() -> Operation {
    Operation::Get { table: TableId(0), key: Bytes::from_static(b"s") }
}

fn put(value: &'static str) -> Operation {
    let (key, value) = (Bytes::from_static(b"s"), Some(Bytes::from(value)));
    Operation::Put { table: TableId(0), key, value }
}

/// A transaction that is begun and committed by one message, of which copies come: at once, after the client's next one, and
/// after the connection was forgotten and registered anew.
fn a_message_that_commits_takes_effect_once<E: Engine>(options: E::Options) {
    let mut alone = Alone::<E>::new(options);
    let (client, other) = (ClientId(1), ClientId(2));
    let registration = alone.register(client);
    assert_eq!(alone.register(client), registration, "asked for again");
    let write = |registration, session, value| {
        steps(registration, session, 0, vec![put(value)], Some(SessionEnd::Commit))
    };
    let committed = (1, Ok(OperationResult::Done));
    let unknown = |session| (0, Err(Unknown::Session { session }.into()));
    assert_eq!(alone.take(client, write(registration, 1, "1")), committed);
    assert_eq!(alone.take(client, write(registration, 1, "1")), committed, "a copy");
    assert_eq!(alone.take(client, write(registration, 2, "2")), committed);
    assert_eq!(alone.take(client, write(registration, 1, "1")), unknown(1), "it was forgotten");

    let reader = alone.register(other);
    assert_eq!(alone.stock(other, reader, 1), Some("2".into()));
    // That was one connection too many.
    for session in [1, 2, 3] {
        assert_eq!(alone.take(client, write(registration, session, "1")), unknown(session));
    }
    let anew = alone.register(client);
    assert_ne!(anew, registration);
    let late = alone.take(client, write(registration, 3, "1"));
    assert_eq!(late, unknown(3), "under the name that was forgotten");
    assert_eq!(alone.take(client, write(anew, 4, "4")), committed);
    let other_anew = alone.register(other);
    assert_eq!(alone.stock(other, other_anew, 2), Some("4".into()));
}

/// A transaction is given up and forgotten; then copies of its messages arrive.
fn what_was_given_up_does_not_begin_again<E: Engine>(options: E::Options) {
    let mut alone = Alone::<E>::new(options);
    let (client, other) = (ClientId(1), ClientId(2));
    let registration = alone.register(client);
    let nothing = (0, Ok(OperationResult::Value(None)));
    assert_eq!(alone.take(client, steps(registration, 1, 0, vec![get()], None)), nothing);
    alone.wait(Duration::from_secs(11));
    let commit = || steps(registration, 1, 1, vec![put("1")], Some(SessionEnd::Commit));
    let (1, Err(Error::Aborted(Aborted::Idle { .. }))) = alone.take(client, commit()) else {
        panic!("it was given up");
    };
    let reader = alone.register(other);
    assert_eq!(alone.stock(other, reader, 1), None);
    let aborted = (0, Err(Aborted::UnknownSession { session: 1 }.into()));
    assert_eq!(alone.take(client, steps(registration, 1, 0, vec![get()], None)), aborted);
    let unknown = (1, Err(Unknown::Session { session: 1 }.into()));
    assert_eq!(alone.take(client, commit()), unknown);
}

/// A write that fails leaves nothing of what came with it.
fn a_write_that_fails_fails_the_commit_behind_it<E: Engine>(options: E::Options) {
    let mut alone = Alone::<E>::new(options);
    let client = ClientId(1);
    let registration = alone.register(client);
    let wrong = Operation::Put { table: TableId(9), key: "k".into(), value: Some("1".into()) };
    let operations = vec![put("1"), wrong, put("2")];
    let message = steps(registration, 1, 0, operations, Some(SessionEnd::Commit));
    let not_known = Conflict::TableNotKnown { table: TableId(9) };
    let refused = (1, Err(Aborted::from(not_known).into()));
    assert_eq!(alone.take(client, message.clone()), refused);
    assert_eq!(alone.take(client, message), refused, "asked for again");
    assert_eq!(alone.stock(client, registration, 2), None);
}

/// A client asks what became of its commits, after them and before them.
fn a_commit_that_is_asked_for_has_one_outcome<E: Engine>(_: E::Options) {
    let mut alone = Alone::<E>::new(E::Options::default());
    let client = ClientId(1);
    let registration = alone.register(client);
    let session = alone.open();
    let commit = |transaction, number| {
        let id = RequestId { session, number };
        let value = ["0", "1", "2", "3", "4"][number as usize];
        let ending = Some(SessionEnd::CommitAs(id));
        steps(registration, transaction, 0, vec![put(value)], ending)
    };
    let committed = Ok(Bytes::from_static(COMMITTED));
    let done = (1, Ok(OperationResult::Done));
    assert_eq!(alone.take(client, commit(1, 1)), done);
    assert_eq!(alone.resolve(session, 1), committed);
    assert_eq!(alone.resolve(session, 1), committed, "asked for again");
    assert_eq!(alone.resolve(session, 2), over(session, 2));
    let request = RequestId { session, number: 2 };
    let late = (1, Err(Aborted::CallSessionOver { request }.into()));
    assert_eq!(alone.take(client, commit(2, 2)), late, "its client was told that it never commits");
    assert_eq!(alone.resolve(session, 2), over(session, 2));
    assert_eq!(alone.stock(client, registration, 3), Some("1".into()));
    assert_eq!(alone.take(client, commit(4, 3)), done);
    assert_eq!(alone.resolve(session, 2), Err(Unknown::Forgotten { request }.into()));
    assert_eq!(alone.stock(client, registration, 5), Some("3".into()));
}

/// The row of a session that is over is dropped; then a commit under it arrives.
fn a_commit_whose_row_was_dropped_is_refused<E: Engine>(options: E::Options) {
    let mut alone = Alone::<E>::new(options);
    let client = ClientId(1);
    let registration = alone.register(client);
    let session = alone.open();
    let commit = |transaction, number| {
        let ending = Some(SessionEnd::CommitAs(RequestId { session, number }));
        steps(registration, transaction, 0, vec![put("1")], ending)
    };
    assert_eq!(alone.take(client, commit(1, 1)), (1, Ok(OperationResult::Done)));
    (0..3).for_each(|_| {
        alone.open();
    });
    alone.wait(Duration::from_secs(61));
    alone.wait(Duration::from_secs(61));
    assert_eq!(alone.rows(), 1, "the mark");
    let request = RequestId { session, number: 2 };
    let refused = (1, Err(Aborted::CallSessionOver { request }.into()));
    assert_eq!(
        alone.take(client, commit(2, 2)),
        refused,
        "the row may have said that it never commits"
    );
}

/// Every test for every engine.
macro_rules! engines {
    ($($name:ident: $engine:ty, $options:expr,)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn a_call_that_failed_never_runs() {
                super::a_call_that_failed_never_runs::<$engine>();
            }

            #[test]
            fn rows_are_kept_for_a_while_and_few_of_them() {
                super::rows_are_kept_for_a_while_and_few_of_them::<$engine>($options);
            }

            #[test]
            fn a_message_that_commits_takes_effect_once() {
                super::a_message_that_commits_takes_effect_once::<$engine>($options);
            }

            #[test]
            fn what_was_given_up_does_not_begin_again() {
                super::what_was_given_up_does_not_begin_again::<$engine>($options);
            }

            #[test]
            fn a_commit_that_is_asked_for_has_one_outcome() {
                super::a_commit_that_is_asked_for_has_one_outcome::<$engine>($options);
            }

            #[test]
            fn a_commit_whose_row_was_dropped_is_refused() {
                super::a_commit_whose_row_was_dropped_is_refused::<$engine>($options);
            }

            #[test]
            fn a_write_that_fails_fails_the_commit_behind_it() {
                super::a_write_that_fails_fails_the_commit_behind_it::<$engine>($options);
            }
        }
    )* };
}

engines! {
    with_mako: Mako, shoal_mako::MakoOptions { limits: forgetful(), ..shoal_mako::MakoOptions::default() },
    with_two_phase_commit: TwoPhaseCommit,
        shoal_two_phase_commit::TwoPhaseCommitOptions { limits: forgetful(), ..shoal_two_phase_commit::TwoPhaseCommitOptions::default() },
}
