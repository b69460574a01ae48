//! The forms of the words that everybody shares, but for those that keep something to themselves.

use super::{BytesMut, Coded, Input, Malformed, Short};
use crate::{
    Ballot, Clock, Epoch, NodeId, RequestId, ShardId, TableId, Time, WorkerId, coded_newtype,
    coded_struct,
};

coded_newtype!(
    TableId(u32),
    ShardId(u32),
    NodeId(u32),
    WorkerId(u32),
    Epoch(u32),
    Clock(u64),
    Time(u64),
);

/// Has no short form: half of it is as good as random.
impl Coded for RequestId {
    const BYTES_MIN: usize = 16;

    fn put(&self, out: &mut BytesMut) {
        self.0.put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<RequestId, Malformed> {
        u128::take(input).map(RequestId)
    }
}

coded_struct!(Ballot { epoch: Epoch, node: NodeId });

impl Short for Ballot {
    const SHORT_BYTES_MIN: usize = 2;

    #[inline]
    fn put_short(&self, out: &mut BytesMut) {
        self.epoch.put_short(out);
        self.node.put_short(out);
    }

    #[inline]
    fn take_short(input: &mut Input<'_>) -> Result<Ballot, Malformed> {
        Ok(Ballot { epoch: Short::take_short(input)?, node: Short::take_short(input)? })
    }
}
