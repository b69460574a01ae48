//! The log of a node on a disk that flushes late: what is written and not flushed may be lost, and what follows from it waits.

use bytes::Bytes;
use shoal_types::{Random, Time};
use shoal_zeus::{Effect, GranuleId, ZeusNode};
use std::collections::VecDeque;

/// A node's log and its last checkpoint.
#[derive(Debug, Default)]
pub struct NodeDisk {
    checkpoint: Vec<Bytes>,
    /// Records behind the checkpoint's mark that are flushed.
    flushed: Vec<Bytes>,
    written: Vec<Bytes>,
    /// What is to be sent, with the record that it follows from.
    waiting: VecDeque<(u64, Effect)>,
    taking: Option<Taking>,
}

/// A checkpoint that is being taken.
#[derive(Debug)]
struct Taking {
    parts: Vec<Bytes>,
    after: Option<GranuleId>,
    is_over: bool,
    /// So many of the records are before its mark.
    mark: usize,
}

impl NodeDisk {
    /// Takes what a step has left. Returns what may be sent.
    pub fn take(&mut self, node: &mut ZeusNode) -> Vec<Effect> {
        self.written.extend(node.take_redo());
        let (made, durable) = node.records();
        self.waiting.extend(node.take_effects().into_iter().map(|effect| (made, effect)));
        let are_due = self.waiting.partition_point(|(follows, _)| *follows <= durable);
        self.waiting.drain(..are_due).map(|(_, effect)| effect).collect()
    }

    /// All that is written is flushed. Returns how many records that are.
    pub fn flush(&mut self) -> u64 {
        let records = self.written.len() as u64;
        self.flushed.append(&mut self.written);
        records
    }

    /// Begins a checkpoint, goes on with it, or ends it.
    pub fn advance_checkpoint(&mut self, node: &mut ZeusNode) {
        let Some(taking) = &mut self.taking else {
            // The mark of the log comes before records that are made and not written.
            let mark = self.flushed.len();
            let parts = vec![node.checkpoint_head()];
            self.written.extend(node.take_redo());
            self.taking = Some(Taking { parts, after: None, is_over: false, mark });
            return;
        };
        if !taking.is_over {
            let (part, last) = node.checkpoint_part(taking.after.as_ref());
            taking.parts.push(part);
            (taking.is_over, taking.after) = (last.is_none(), last);
        } else if self.written.is_empty() {
            self.flushed.drain(..taking.mark);
            self.checkpoint = std::mem::take(&mut taking.parts);
            self.taking = None;
        }
    }

    /// The process ends: some of what was written is not on the disk.
    pub fn crash(&mut self, random: &mut Random) {
        let kept = random.below(self.written.len() as u64 + 1) as usize;
        self.flushed.extend(self.written.drain(..).take(kept));
        self.waiting.clear();
        self.taking = None;
    }

    /// Has a process of the node begin with what there is.
    pub fn restore(&self, node: &mut ZeusNode, now: Time) {
        self.checkpoint.iter().for_each(|part| node.restore_checkpoint(now, part));
        self.flushed.iter().for_each(|record| node.restore(now, record));
        node.end_restore(now);
    }
}
