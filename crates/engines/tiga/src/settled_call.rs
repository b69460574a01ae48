//! Calls that have an outcome: the row of their session decides, at the leader of its shard (rule T10).
//!
//! ```text
//!   a client calls, by way of any node ──► T: reads and writes the row, with the number of the call
//!   it lost the answer, and asks      ──► R: reads the row, and writes that the call never commits, if it has no outcome
//! ```
//! Both are ordered by the row. If R is first, T must not take effect on any shard: its home is not ready for it, and refuses it. The
//! other participants wait for that `Ready`, or for votes of that leader. What is behind the mark of the rows that were dropped is
//! refused, too: a row that is gone may have said so.

use crate::planted_bugs::TigaPlantedBug;
use crate::queue::Origin;
use crate::record::Refusal;
use crate::replica::Replica;
use crate::stamp::Stamp;
use crate::step::Step;
use crate::transaction::{Body, ProcedureCall, RequestRow, Work};
use bytes::Bytes;
use shoal_engine::request_table::{is_dropped, read_request_row};
use shoal_types::TableId;

impl Replica {
    /// Refuses the transaction at the head of its queue if it is a call that has an outcome. Says whether it was.
    pub(crate) fn refuse_settled_call(&mut self, step: &mut Step<'_>, stamp: Stamp) -> bool {
        let Some((_, waiting)) = self.queue.get(stamp.id) else { return false };
        let is_agreed = matches!(waiting.origin, Origin::Imported(_));
        let ignores = step.options.bugs.has(TigaPlantedBug::DuplicateExecutes);
        if is_agreed || ignores || !self.is_settled_call(&waiting.work) {
            return false;
        }
        let times = waiting.times;
        let oldest = waiting.work.transaction.oldest;
        let refusal = Refusal { id: stamp.id, oldest, t: stamp.t };
        self.queue.remove(stamp.id);
        self.refuse(step, refusal, None, times);
        true
    }

    fn is_settled_call(&self, work: &Work) -> bool {
        let (Body::Pieces { call } | Body::Whole { call }) = &work.transaction.body else {
            return false;
        };
        let ProcedureCall { request: Some(request), .. } = call else { return false };
        let RequestRow { home, table, ref key, number, mark: Some(ref mark) } = *request else {
            return false;
        };
        let has_outcome = |row: &Bytes| {
            let row = read_request_row(key, row);
            row.is_ok_and(|row| row.is_some_and(|(known, _)| known >= number))
        };
        home == self.shard
            && (self.row(table, key).is_some_and(has_outcome)
                || self.row(table, mark).is_some_and(|mark| is_dropped(key, mark)))
    }

    fn row(&self, table: TableId, key: &Bytes) -> Option<&Bytes> {
        self.ledger.rows.get(table, key)?.value.as_ref()
    }
}
