//! The rows of the [table of requests](crate::request_table): what they show of a call, and until when they are kept.
//!
//! Rows of sessions that are over are kept for a while, for clients that received no answer: for
//! [`call_rows_kept`](super::Limits::call_rows_kept) at least and about twice that at most, but of each worker and shard
//! not many more than [`call_sessions_max`](super::Limits::call_sessions_max). A row that is dropped leaves the mark, in the
//! same transaction: an absent row at or before the mark shows nothing, one behind it shows that the call never
//! committed.

use super::call_sessions::OverdueRows;
use super::local_database::LocalDatabase;
use super::transaction::CoordinatorTransaction;
use super::transaction_trace::TransactionTrace;
use super::worker_context::WorkerContext;
use crate::planted_bugs::PlantedBug;
use crate::request_table::{
    COMMITTED, NEVER_COMMITS, PREFIX_BYTES, REQUESTS_TABLE, SPLIT_RESULT, is_dropped, key_prefix,
    mark_key, read_request_row, request_key, request_row, returned, returned_row,
};
use bytes::Bytes;
use shoal_types::{
    Aborted, CallSession, Database, Error, RequestId, Result, Scan, Transaction as _, Unknown,
};
use std::rc::Rc;

/// Rows that one transaction counts, or drops.
const ROWS_AT_ONCE: usize = 256;

/// What the row of a call shows.
enum RequestRow {
    Returned(Bytes),
    /// The call has not committed.
    Nothing,
    /// The row was dropped, or has the result of a later call.
    Gone,
    /// The row may have been lost with a majority of the shard.
    Lost,
}

/// What became of a call that does not run, and will not: read from its row.
///
/// # Errors
/// [`Aborted::CallSessionOver`] where it has not committed; [`Unknown::Forgotten`] where its row is gone;
/// [`Unknown::Lost`] where it may have been lost with a majority of the shard; [`Unknown::Unsettled`] where it could not
/// be read.
pub(super) async fn look_up(
    worker_context: &Rc<WorkerContext>,
    id: RequestId,
    trace: &mut TransactionTrace,
) -> Result<Bytes> {
    let local = LocalDatabase::new(worker_context);
    let found = local.run(trace, async |tx| {
        let row = read_row(worker_context, tx, id).await?;
        let ignores = worker_context.limits.faults.has(PlantedBug::IgnoreRequestRows);
        Ok(if ignores { RequestRow::Nothing } else { row })
    });
    told(id, found.await)
}

/// What became of a commit, or of a call that any node may have coordinated: read from its row, which is written where there is none, so
/// that the transaction never commits afterwards.
///
/// # Errors
/// As for [`look_up`].
pub(super) async fn resolve(
    worker_context: &Rc<WorkerContext>,
    id: RequestId,
    trace: &mut TransactionTrace,
) -> Result<Bytes> {
    if worker_context.limits.faults.has(PlantedBug::ResolveWithoutRow) {
        return told(id, Ok(RequestRow::Nothing));
    }
    let local = LocalDatabase::new(worker_context);
    let requests = local.table(REQUESTS_TABLE)?;
    let found = local.run(trace, async |tx| {
        let row = read_row(worker_context, tx, id).await?;
        Ok(match row {
            RequestRow::Nothing => {
                let row = request_row(id.number, NEVER_COMMITS);
                tx.put(requests, &request_key(&id.session), &row)?;
                RequestRow::Nothing
            }
            RequestRow::Returned(kept) if kept == NEVER_COMMITS => RequestRow::Nothing,
            RequestRow::Returned(kept) => {
                let result = returned(&kept).map(Bytes::copy_from_slice);
                RequestRow::Returned(result.unwrap_or(kept))
            }
            RequestRow::Gone | RequestRow::Lost => row,
        })
    });
    told(id, found.await)
}

/// Writes the row of a commit, in its transaction.
///
/// # Errors
/// [`Aborted::CallSessionOver`] where the row says that it never commits, or may have said so and is gone;
/// [`Unknown::Session`] where it says that a copy of it has committed; those of the transaction.
pub(super) async fn write_committed(
    worker_context: &Rc<WorkerContext>,
    tx: &CoordinatorTransaction<'_>,
    id: RequestId,
    session: u64,
) -> Result<()> {
    match write_row(worker_context, tx, id, &request_row(id.number, COMMITTED)).await? {
        None => Ok(()),
        Some(kept) if kept == COMMITTED => Err(Unknown::Session { session }.into()),
        Some(_) => Err(Aborted::CallSessionOver { request: id }.into()),
    }
}

/// Writes the row of a call, in its transaction.
///
/// # Errors
/// [`Aborted::CallSessionOver`] where the row says that it never commits, or may have said so and is gone; those of the
/// transaction.
pub(super) async fn write_result(
    worker_context: &Rc<WorkerContext>,
    tx: &CoordinatorTransaction<'_>,
    id: RequestId,
    result: &[u8],
) -> Result<()> {
    match write_row(worker_context, tx, id, &returned_row(id.number, result)).await? {
        None => Ok(()),
        Some(_) => Err(Aborted::CallSessionOver { request: id }.into()),
    }
}

/// Writes the row of a request, in its transaction, unless it has an outcome: then returns what the row holds.
///
/// # Errors
/// [`Aborted::CallSessionOver`] where the row may have held something and is gone; those of the transaction.
async fn write_row(
    worker_context: &Rc<WorkerContext>,
    tx: &CoordinatorTransaction<'_>,
    id: RequestId,
    row: &[u8],
) -> Result<Option<Bytes>> {
    match read_row(worker_context, tx, id).await? {
        RequestRow::Nothing => {
            let requests = worker_context.table(REQUESTS_TABLE)?;
            tx.put(requests, &request_key(&id.session), row).map(|()| None)
        }
        RequestRow::Returned(kept) => Ok(Some(kept)),
        RequestRow::Gone | RequestRow::Lost => Err(Aborted::CallSessionOver { request: id }.into()),
    }
}

/// What a client learns of a row.
fn told(id: RequestId, found: Result<RequestRow>) -> Result<Bytes> {
    match found {
        Ok(RequestRow::Returned(result)) => Ok(result),
        Ok(RequestRow::Nothing) => Err(Aborted::CallSessionOver { request: id }.into()),
        Ok(RequestRow::Gone) => Err(Unknown::Forgotten { request: id }.into()),
        Ok(RequestRow::Lost) => Err(Unknown::Lost { request: id }.into()),
        Err(error @ Error::Rejected(_)) => Err(error),
        Err(error @ (Error::Aborted(_) | Error::Unknown(_))) => Err(unsettled(id, &error)),
    }
}

/// The fate of a call could not be looked up, for this reason.
pub(super) fn unsettled(id: RequestId, reason: &Error) -> Error {
    let shard = reason.shard().unwrap_or(id.session.home);
    Unknown::Unsettled { request: id, shard }.into()
}

/// Reads the row of a request.
async fn read_row(
    worker_context: &Rc<WorkerContext>,
    tx: &CoordinatorTransaction<'_>,
    id: RequestId,
) -> Result<RequestRow> {
    let requests = worker_context.table(REQUESTS_TABLE)?;
    let key = request_key(&id.session);
    let is_lost = worker_context.leaderships.are_calls_lost(&id.session);
    if let Some(row) = tx.get(requests, &key).await?
        && let Some((number, result)) = read_request_row(&key, row)?
    {
        return Ok(match number {
            same if same == id.number && result == SPLIT_RESULT => RequestRow::Gone,
            same if same == id.number => RequestRow::Returned(Bytes::copy_from_slice(result)),
            later if later > id.number => RequestRow::Gone,
            _ if is_lost => RequestRow::Lost,
            _ => RequestRow::Nothing,
        });
    }
    if is_lost {
        return Ok(RequestRow::Lost);
    }
    let mark = tx.get(requests, &mark_key(id.session.home, id.session.worker)).await?;
    let dropped = mark.is_some_and(|mark| is_dropped(&key, mark));
    Ok(if dropped { RequestRow::Gone } else { RequestRow::Nothing })
}

/// Drops rows of sessions that are over: of those that have been for long all, of the others the oldest where there are
/// too many.
///
/// # Errors
/// Where it could not. Some rows may be gone then.
pub(super) async fn drop_rows(
    worker_context: &Rc<WorkerContext>,
    overdue: &OverdueRows,
) -> Result<()> {
    let OverdueRows { shard, leadership, over, long_over } = *overdue;
    let worker = worker_context.place.worker;
    let serial = |serial| {
        let (since, incarnation) = (leadership.since, leadership.incarnation.0);
        request_key(&CallSession { home: shard, since, incarnation, worker, serial })
    };
    let (mut first, over) = (key_prefix(shard, worker), serial(over));
    let long_over = long_over.map(serial);
    let rows = count(worker_context, &first, &over).await?;
    let mut excess = rows.saturating_sub(worker_context.limits.call_sessions_max);
    loop {
        let goes = |at: usize, key: &[u8]| {
            at < excess || long_over.as_ref().is_some_and(|end| key < &end[..])
        };
        match drop_some(worker_context, overdue, &first, &over, goes).await? {
            (ROWS_AT_ONCE, Some(last)) => first = [&last[..], &[0]].concat(),
            _ => return Ok(()),
        }
        excess = excess.saturating_sub(ROWS_AT_ONCE);
    }
}

/// How many rows there are from `first` on and before `over`.
async fn count(worker_context: &Rc<WorkerContext>, first: &[u8], over: &[u8]) -> Result<usize> {
    let local = LocalDatabase::new(worker_context);
    let requests = local.table(REQUESTS_TABLE)?;
    let (mut count, mut first) = (0, first.to_vec());
    loop {
        let (rows, last) = local
            .run(&mut TransactionTrace::default(), async |tx| {
                let range = Scan::range(&first[..]..over).limit(ROWS_AT_ONCE);
                let rows = tx.scan(requests, range).await?;
                Ok((rows.len(), rows.last().map(|(key, _)| key.to_vec())))
            })
            .await?;
        count += rows;
        match last {
            Some(last) if rows == ROWS_AT_ONCE => first = [&last[..], &[0]].concat(),
            Some(_) | None => return Ok(count),
        }
    }
}

/// Drops the first rows in a range, as long as `goes` names them by their place and key, and leaves the mark. Says how
/// many it dropped, and which last.
async fn drop_some(
    worker_context: &Rc<WorkerContext>,
    overdue: &OverdueRows,
    first: &[u8],
    over: &[u8],
    goes: impl Fn(usize, &[u8]) -> bool,
) -> Result<(usize, Option<Vec<u8>>)> {
    let local = LocalDatabase::new(worker_context);
    let requests = local.table(REQUESTS_TABLE)?;
    let mark = mark_key(overdue.shard, worker_context.place.worker);
    local
        .run(&mut TransactionTrace::default(), async |tx| {
            worker_context.check_leadership(overdue.shard, overdue.leadership)?;
            let rows = tx.scan(requests, Scan::range(first..over).limit(ROWS_AT_ONCE)).await?;
            let dropped = rows.iter().enumerate().take_while(|(at, (key, _))| goes(*at, key));
            let dropped: Vec<&[u8]> = dropped.map(|(_, (key, _))| *key).collect();
            dropped.iter().try_for_each(|key| tx.delete(requests, key))?;
            if let Some(last) = dropped.last() {
                // A call whose session is over may have left its row late, behind the mark.
                let before = tx.get(requests, &mark).await?.unwrap_or_default();
                tx.put(requests, &mark, before.max(&last[PREFIX_BYTES..]))?;
            }
            worker_context.check_leadership(overdue.shard, overdue.leadership)?;
            Ok((dropped.len(), dropped.last().map(|key| key.to_vec())))
        })
        .await
}
