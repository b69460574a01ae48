//! Copies of calls, and of beginnings, that come late, when much has happened since.

use bytes::Bytes;
use shoal_cluster::topology::{Partitioning, Topology};
use shoal_engine::client::{
    ClientId, ClientReply, ClientRequest, REQUESTS_TABLE, SessionEnd, requests_table,
};
use shoal_engine::engine::Setup;
use shoal_engine::execution::Limits;
use shoal_engine::operation::{Operation, OperationResult};
use shoal_engine::{Engine, ProcedureTransaction, Procedures};
use shoal_mako::Mako;
use shoal_node::{Worker, WorkerEffect, WorkerEffects, WorkerEvent, WorkerOrigin};
use shoal_two_phase_commit::TwoPhaseCommit;
use shoal_types::{
    Aborted, CallSession, Error, NodeId, RequestId, Result, ShardId, TableId, Time, Transaction,
    Unknown, WorkerId,
};
use std::sync::Arc;
use std::time::Duration;

const S0: ShardId = ShardId(0);

/// The only worker of a cluster of one node.
struct Alone<E: Engine> {
    worker: Worker<E>,
    shared: Arc<E::Shared>,
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
        let mut alone = Alone { worker, shared, now: Time(1000) };
        alone.step(WorkerEvent::Start);
        alone
    }

    fn step(&mut self, event: WorkerEvent<E::Message>) -> Option<ClientReply> {
        let mut effects = WorkerEffects::new();
        self.worker.step(self.now, event, &mut effects);
        effects.effects.into_iter().find_map(|effect| match effect {
            WorkerEffect::Reply { reply, .. } => Some(reply),
            WorkerEffect::Send { .. }
            | WorkerEffect::Timer { .. }
            | WorkerEffect::Nudge { .. }
            | WorkerEffect::Tell { .. }
            | WorkerEffect::Superseded => None,
        })
    }

    fn ask(&mut self, request: ClientRequest) -> ClientReply {
        self.ask_as(ClientId(1), request)
    }

    fn ask_as(&mut self, from: ClientId, request: ClientRequest) -> ClientReply {
        let mut reply = self.step(WorkerEvent::Client { from, request });
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

    /// Begins the first interactive transaction of a client: its serial.
    fn begin(&mut self, from: ClientId) -> u64 {
        match self.ask_as(from, ClientRequest::Begin { session: 1 }) {
            ClientReply::Began { session: 1, result } => result.expect("it serves"),
            other => panic!("{other:?}"),
        }
    }

    /// The answer to a step of it, and the serial that this names.
    fn done(
        &mut self,
        from: ClientId,
        request: ClientRequest,
    ) -> (Option<u64>, Result<OperationResult>) {
        match self.ask_as(from, request) {
            ClientReply::Done { session: 1, serial, result, .. } => (serial, result),
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
        crate::common::rows(store, &["stocks", REQUESTS_TABLE]).len() - 1
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
    // The client was told that nothing has happened; and nothing will.
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
    // Nothing tells any more what became of it. It will not run, though.
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

/// The transaction is given up and forgotten; then a copy of its beginning arrives, before the answer has reached its client.
fn what_began_once_more_is_another_transaction<E: Engine>(options: E::Options) {
    let mut alone = Alone::<E>::new(options);
    let (client, other) = (ClientId(1), ClientId(2));
    let (session, key) = (1, Bytes::from_static(b"s"));
    let get = Operation::Get { table: TableId(0), key: key.clone() };
    let read =
        |serial| ClientRequest::Operation { session, serial, number: 0, operation: get.clone() };
    let put = Operation::Put { table: TableId(0), key, value: Some("1".into()) };
    let write =
        |serial| ClientRequest::Operation { session, serial, number: 1, operation: put.clone() };
    let end =
        |serial, number| ClientRequest::End { session, serial, number, ending: SessionEnd::Commit };
    let first = alone.begin(client);
    let nothing = Ok(OperationResult::Value(None));
    assert_eq!(alone.done(client, read(None)), (Some(first), nothing.clone()));
    alone.wait(Duration::from_secs(11));
    alone.begin(other);
    assert_eq!(alone.done(other, end(None, 0)).1, Ok(OperationResult::Done));

    let second = alone.begin(client);
    assert_ne!(first, second);
    assert_eq!(alone.done(client, read(None)), (Some(second), nothing));
    // What was read by the first is not written by the second.
    let unknown = Err(Aborted::UnknownSession { session }.into());
    assert_eq!(alone.done(client, write(Some(first))), (Some(first), unknown));
    let unknown = Err(Unknown::Session { session }.into());
    assert_eq!(alone.done(client, end(Some(first), 1)), (Some(first), unknown));
    assert_eq!(alone.done(client, write(Some(second))), (Some(second), Ok(OperationResult::Done)));
    assert_eq!(alone.done(client, end(Some(second), 2)), (Some(second), Ok(OperationResult::Done)));
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
            fn what_began_once_more_is_another_transaction() {
                super::what_began_once_more_is_another_transaction::<$engine>($options);
            }
        }
    )* };
}

engines! {
    with_mako: Mako, shoal_mako::MakoOptions { limits: forgetful(), ..shoal_mako::MakoOptions::default() },
    with_two_phase_commit: TwoPhaseCommit,
        shoal_two_phase_commit::TwoPhaseCommitOptions { limits: forgetful(), ..shoal_two_phase_commit::TwoPhaseCommitOptions::default() },
}
