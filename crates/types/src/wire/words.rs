//! The forms of the words that all crates share, but for those that keep something to themselves.

use super::{BytesMut, Input, Malformed, Short};
use crate::{
    Ballot, CallSession, Clock, DatacenterId, Distance, Epoch, NodeId, RequestId, ShardId, TableId,
    Time, Way, WorkerId, coded_newtype, coded_struct,
};
use std::time::Duration;

coded_newtype!(
    TableId(u32),
    ShardId(u32),
    NodeId(u32),
    WorkerId(u32),
    DatacenterId(u32),
    Epoch(u32),
    Clock(u64),
    Time(u64),
);

coded_struct!(CallSession {
    home: ShardId as short,
    since: Epoch as short,
    incarnation: u32 as short,
    worker: WorkerId as short,
    serial: u64 as short,
});

coded_struct!(RequestId { session: CallSession, number: u64 as short });

coded_struct!(Distance { delay: Duration, jitter: Duration });

coded_struct!(Way { from: DatacenterId, to: DatacenterId, distance: Distance });

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
