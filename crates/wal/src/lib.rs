//! The write-ahead log of a worker, and checkpoints, as bytes on disk. This crate turns records into bytes and back, and says
//! which writes and flushes it wants. It opens no file: files are a trait of a few methods ([`Folder`]), which real disks
//! and the virtual ones of simulations implement. `docs/log-format.md` is the format.
//!
//! ```text
//! segment 7                                             segment 8
//! ┌────────┬──────────────┬────────────────────┬─────┐  ┌────────┬─────────────┬──────────────────────
//! │ header │ group        │ group              │ ... │  │ header │ group       │ zeros, or remains
//! │ twice  │ r0 r1 r2     │ r3 r4(first part)  │     │  │ twice  │ r4(last) r5 │ of a former use
//! └────────┴──────────────┴────────────────────┴─────┘  └────────┴─────────────┴──────────────────────
//!            flushed to: -   flushed to: r2               previous segment ends here: r4(first part)
//! ```
//! The **writer** ([`LogWriter`]) has one group under way: it is written, then flushed. Records that arrive meanwhile make the
//! next group. A record counts as persisted once the flush of the group with its last part is done. The next segment is
//! made, or taken from those that truncation has freed, before it is needed.
//!
//! The **reader** ([`recover`]) goes through the segments in the order of their serial numbers, and stops at the first record
//! that is not whole. Whether that is a torn end or damage is decided by what later groups and segments say was flushed.
//!
//! # Why it is safe
//!
//! 1. *What is persisted is found.* A group is written where nothing else was: groups begin at sectors of their own, and no
//!    sector of a flushed group is written again while its segment is in use; zeros behind a group are where no group of this
//!    segment is yet. So a write that is torn spoils no earlier
//!    record. The header of a segment is flushed before its first group is written.
//! 2. *What is found was appended, in this order and without a gap.* Checksums cover the volume and the segment's serial
//!    number, so remains of a former use, and segments of other disks, are no records. A serial number is not used
//!    again once anything of a group may be on the disk, since the header was flushed before. Reading ends at the first
//!    gap; a part of a record counts only if all its parts are there.
//! 3. *What recovery did not find never comes back.* Each incarnation begins a segment, whose header says where the
//!    previous one ends, and is flushed before a record of this incarnation is. Nothing behind that end is read again.
//! 4. *What recovery found stays.* Recovery flushes the segments that it has read, since the former process may not have.
//! 5. *Damage is not mistaken for a torn end*, where anything later proves it: a group says how far the log was flushed
//!    before it was written, and a segment where its predecessor ends. Behind the last group nothing proves anything;
//!    [`LogWriter::seal`] writes an empty one at the end of a process.
//!
//! Read in this order: `format.rs`, `folder.rs`, `writer.rs`, `segment.rs`, `recovery.rs`, `checkpoint.rs`,
//! `virtual_disk.rs`, `planted.rs`.

mod checkpoint;
mod folder;
mod format;
mod planted;
mod recovery;
mod segment;
pub mod virtual_disk;
mod writer;

pub use checkpoint::{
    BlockVisitor, CheckpointHead, CheckpointRule, CheckpointWriter, ExaminedCheckpoint,
    checkpoint_name, checkpoints, examine_checkpoints, keep_older, read_checkpoint,
    remove_unfinished,
};
pub use folder::{Folder, FolderError, LogEffect, LogEvent, SegmentFile, perform};
pub use format::{FORMAT_VERSION, HEADER_BYTES, LogIdentity, Position, SECTOR};
pub use planted::DiskPlantedBugs;
pub use recovery::{LogError, RecordRef, Recovered, SegmentSummary, Torn, recover};
pub use writer::{LogWriter, Record, WriterOptions};
