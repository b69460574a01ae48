//! A call that is the only step of an interactive transaction: the node that receives it coordinates.

use super::local_database::LocalDatabase;
use super::procedure_run::{Executed, ProcedureRun};
use super::request_rows::write_result;
use super::transaction_trace::TransactionTrace;
use super::worker_context::{DeclaredRow, WorkerContext};
use crate::request_table::{REQUESTS_TABLE, mark_key, request_key};
use bytes::Bytes;
use shoal_types::{Database, RequestId, Result};
use std::rc::Rc;

/// Runs a procedure for a client that calls it under a registration, at any node: its name begins once there, and the row of its
/// session decides whether it may commit, as for a commit with an id.
pub(super) async fn run(
    worker_context: &Rc<WorkerContext>,
    id: RequestId,
    procedure: &str,
    arguments: &[u8],
    trace: &mut TransactionTrace,
) -> Result<Bytes> {
    let procedure = ProcedureRun::new(worker_context, procedure, arguments)?;
    let local = LocalDatabase::new(worker_context);
    let table = local.table(REQUESTS_TABLE)?;
    let session = id.session;
    local
        .run(trace, async |tx| {
            tx.let_move();
            let key = Bytes::from(request_key(&session));
            let mark = Some(Bytes::from(mark_key(session.home, session.worker)));
            let request = DeclaredRow { id, table, key, mark };
            let result = match procedure.attempt(tx, Some(request)).await? {
                Executed::ByEngine { result, .. } => return Ok(result),
                Executed::Here(result) => result,
            };
            write_result(worker_context, tx, id, &result).await?;
            Ok(result)
        })
        .await
}
