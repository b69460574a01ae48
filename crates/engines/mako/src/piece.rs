//! What `mako` writes into its streams.
//!
//! ```text
//! entry  = safe u64 | pieces u32 | ends u8 | finals u8 | piece* | end* | final*
//! end    = epoch u32 | clock u64
//! final  = epoch u32 | shards u32 | clock u64*
//! piece  = epoch u32 | clock u64 | remotes u8 | (shard u32 | clock u64)* | writes
//! ```
//! Little-endian; writes as in `replication/codec.rs`. A **piece** is what one transaction
//! writes on one shard, with its stamp as that shard keeps it. An entry without pieces is a heartbeat:
//! it only carries a safe clock. An **end** says that no piece of that epoch or of one before follows in
//! this stream, which has all of the epoch up to that clock. A **final** is the FVW of a settled epoch, for
//! replicas that learn it from no configuration. Not derived: writes are encoded one by one from the write set, with no
//! value of the whole piece, and counts are put in front afterwards.

use bytes::{BufMut, Bytes, BytesMut};
use shoal_replication::codec::{
    EncodedWrites, EntryReader, MalformedEntry, WriteRef, put_writes, spaced, take_entry,
};
use shoal_types::{Clock, Epoch, RemoteClock, ShardId, Stamp, StampRef, VectorWatermark};
use std::fmt;

/// More shards are nonsense.
const SHARDS_MAX: u32 = 1 << 16;

const HEADER_BYTES: usize = 8 + 4 + 1 + 1;

/// Most ends, and most finals, in an entry.
pub(super) const ENDS_MAX: usize = 100;

/// An entry under construction.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    bytes: BytesMut,
    pieces: u32,
}

/// An entry, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StreamEntry {
    /// Everything that this worker certified up to this clock is in the stream up to here.
    pub(crate) safe: Clock,
    /// Epochs that have ended here, ascending, and how far the stream has all of theirs.
    pub(crate) ends: Vec<(Epoch, Clock)>,
    /// FVWs, ascending.
    pub(crate) finals: Vec<VectorWatermark>,
    pub(crate) pieces: Vec<Piece>,
}

/// What one transaction writes on one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// As the shard keeps it.
    pub(crate) stamp: Stamp,
    pub(crate) writes: EncodedWrites,
}

impl Default for OpenBatch {
    fn default() -> OpenBatch {
        OpenBatch { bytes: BytesMut::zeroed(HEADER_BYTES), pieces: 0 }
    }
}

impl OpenBatch {
    pub(crate) fn len(&self) -> usize {
        self.pieces as usize
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a piece; `writes` calls its argument for each write of it.
    pub(crate) fn push(
        &mut self,
        stamp: StampRef<'_>,
        writes: impl FnOnce(&mut dyn FnMut(WriteRef<'_>)),
    ) {
        let bytes = &mut self.bytes;
        bytes.put_u32_le(stamp.epoch.0);
        bytes.put_u64_le(stamp.clock.0);
        bytes
            .put_u8(u8::try_from(stamp.remote.len()).expect("a version counts them in seven bits"));
        for entry in stamp.remote {
            bytes.put_u32_le(entry.shard.0);
            bytes.put_u64_le(entry.clock.0);
        }
        put_writes(bytes, writes);
        self.pieces += 1;
    }

    /// Takes the entry and begins another.
    pub(crate) fn close(
        &mut self,
        safe: Clock,
        ends: &[(Epoch, Clock)],
        finals: &[VectorWatermark],
    ) -> Bytes {
        let OpenBatch { bytes, pieces } = self;
        let count = |items: usize| u8::try_from(items).expect("at most ENDS_MAX");
        let mut header = &mut bytes[..HEADER_BYTES];
        header.put_u64_le(safe.0);
        header.put_u32_le(std::mem::take(pieces));
        header.put_u8(count(ends.len()));
        header.put_u8(count(finals.len()));
        for (epoch, clock) in ends {
            bytes.put_u32_le(epoch.0);
            bytes.put_u64_le(clock.0);
        }
        for last in finals {
            bytes.put_u32_le(last.epoch().0);
            bytes.put_u32_le(last.shards() as u32);
            (0..last.shards() as u32).for_each(|s| bytes.put_u64_le(last.of(ShardId(s)).0));
        }
        take_entry(bytes, HEADER_BYTES)
    }
}

fn read_piece(reader: &mut EntryReader, own: ShardId) -> Result<Piece, MalformedEntry> {
    let mut stamp = Stamp::local(Epoch(reader.u32()?), Clock(reader.u64()?));
    for _ in 0..reader.u8()? {
        let entry = RemoteClock { shard: ShardId(reader.u32()?), clock: Clock(reader.u64()?) };
        stamp.push(own, entry.shard, entry.clock);
    }
    Ok(Piece { stamp, writes: reader.encoded_writes()? })
}

fn read_final(reader: &mut EntryReader) -> Result<VectorWatermark, MalformedEntry> {
    let (epoch, shards) = (Epoch(reader.u32()?), reader.u32()?);
    if shards > SHARDS_MAX {
        return Err(reader.malformed());
    }
    let mut last = VectorWatermark::new(epoch, shards as usize);
    for shard in 0..shards {
        last.raise(ShardId(shard), Clock(reader.u64()?));
    }
    Ok(last)
}

impl StreamEntry {
    /// Takes apart an entry of a stream of `shard`. Keys and values stay where they are.
    pub(crate) fn decode(shard: ShardId, entry: Bytes) -> Result<StreamEntry, MalformedEntry> {
        let mut reader = EntryReader::new(entry);
        let (safe, count) = (Clock(reader.u64()?), reader.u32()?);
        let (ends, finals) = (reader.u8()?, reader.u8()?);
        let pieces =
            (0..count).map(|_| read_piece(&mut reader, shard)).collect::<Result<_, _>>()?;
        let end = |reader: &mut EntryReader| Ok((Epoch(reader.u32()?), Clock(reader.u64()?)));
        let ends = (0..ends).map(|_| end(&mut reader)).collect::<Result<_, _>>()?;
        let finals = (0..finals).map(|_| read_final(&mut reader)).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(StreamEntry { safe, ends, finals, pieces })
    }
}

impl fmt::Display for StreamEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |clock: Clock| match clock {
            Clock::MAX => "inf".to_owned(),
            clock => clock.to_string(),
        };
        let ends = self.ends.iter().map(|(epoch, end)| format!("end of {epoch}: {}", clock(*end)));
        let finals = self.finals.iter().map(|last| {
            let shards = (0..last.shards() as u32).map(|shard| clock(last.of(ShardId(shard))));
            format!("FVW({}): {}", last.epoch(), shards.collect::<Vec<_>>().join(" "))
        });
        let pieces = self.pieces.iter().map(Piece::to_string);
        let items = pieces.chain(ends).chain(finals).collect::<Vec<_>>();
        write!(f, "[{}] safe={}", items.join(", "), self.safe)
    }
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stamp { epoch, clock, .. } = self.stamp;
        let writes: Vec<_> = self.writes.shared().collect();
        write!(f, "{} at {epoch}:{clock}", spaced(&writes))?;
        let remote = self.stamp.as_ref().remote;
        remote.iter().try_for_each(|entry| match entry.shard {
            ShardId::EVERY => write!(f, " +all:{}", entry.clock),
            shard => write!(f, " +{shard}:{}", entry.clock),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_store::{Change, Delta};
    use shoal_types::TableId;

    fn batch() -> OpenBatch {
        let mut batch = OpenBatch::default();
        let mut stamp = Stamp::local(Epoch(3), Clock(17));
        stamp.push(ShardId(0), ShardId(2), Clock(4));
        batch.push(stamp.as_ref(), |write| {
            let mut put =
                |table, key, change| write(WriteRef { table: TableId(table), key, change });
            put(1, b"alice", Change::Row(b"10"));
            put(2, b"bob", Change::Delete);
            put(2, b"carol", Change::Row(b""));
            let (base, patch) = ((Epoch(2), Clock(5)), &b"\x01\0\x01\0x"[..]);
            put(2, b"dave", Change::Delta(Delta { base, length: 2, patch }));
        });
        batch.push(Stamp::local(Epoch(3), Clock(18)).as_ref(), |_| {});
        batch
    }

    #[test]
    fn an_entry_comes_back_as_it_was() {
        let ends = [(Epoch(1), Clock(9)), (Epoch(2), Clock::MAX)];
        let entry = batch().close(Clock(16), &ends, &[VectorWatermark::whole(Epoch(1), 3)]);
        let back = StreamEntry::decode(ShardId(0), entry).expect("well formed");
        assert_eq!((back.safe, &back.ends[..]), (Clock(16), &ends[..]));
        assert_eq!(back.finals, [VectorWatermark::whole(Epoch(1), 3)]);
        assert_eq!((back.pieces[0].stamp.epoch, back.pieces[0].stamp.clock), (Epoch(3), Clock(17)));
        assert_eq!(back.pieces[0].stamp.as_ref().entry(ShardId(0), ShardId(2)), Clock(4));
        let changes: Vec<_> = back.pieces[0].writes.iter().map(|write| write.change).collect();
        let (base, patch) = ((Epoch(2), Clock(5)), &b"\x01\0\x01\0x"[..]);
        let delta = Change::Delta(Delta { base, length: 2, patch });
        assert_eq!(changes, [Change::Row(&b"10"[..]), Change::Delete, Change::Row(b""), delta]);
        assert!(back.pieces[1].writes.is_empty());
        assert_eq!(
            back.to_string(),
            "[alice=10 bob deleted carol= dave of e2:5 patched by \\x01\\x00\\x01\\x00x at e3:17 +s2:4,  at e3:18, end of e1: 9, end of e2: inf, \
             FVW(e1): inf inf inf] safe=16"
        );
    }

    #[test]
    fn a_cut_entry_is_malformed() {
        let finals = [VectorWatermark::whole(Epoch(1), 2)];
        let entry = batch().close(Clock(16), &[(Epoch(1), Clock(9))], &finals);
        for cut in 0..entry.len() {
            assert!(StreamEntry::decode(ShardId(0), entry.slice(..cut)).is_err(), "cut at {cut}");
        }
        let long = Bytes::from([&entry[..], b"x"].concat());
        assert!(StreamEntry::decode(ShardId(0), long).is_err());
    }
}
