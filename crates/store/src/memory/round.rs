//! A round of joining free blocks: what it has gathered, and how far it is.

use super::blocks::class_bytes;
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// A round, if one is under way. The arena's lock around it lets one session at a time work on it.
#[derive(Default)]
pub(super) struct JoiningRound {
    /// The class whose lists are gathered next; `None` where all are, or no round is under way.
    pub(super) gathers: Option<usize>,
    /// The blocks that were gathered and are not joined yet, by chunk.
    pub(super) chunks: BTreeMap<usize, Vec<Block>>,
    pub(super) gathered_bytes: usize,
    pub(super) joined_bytes: usize,
    /// The size of all regions when the last round joined too little.
    pub(super) vain_at_bytes: usize,
}

impl JoiningRound {
    pub(super) fn is_under_way(&self) -> bool {
        self.gathers.is_some() || !self.chunks.is_empty()
    }
}

/// A free block that was taken out of its list.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) start: NonNull<u8>,
    pub(super) class: usize,
}

// SAFETY: free blocks are memory that nothing else points to.
unsafe impl Send for Block {}

impl Block {
    pub(super) fn address(self) -> usize {
        self.start.addr().get()
    }

    pub(super) fn end(self) -> usize {
        self.address() + class_bytes(self.class)
    }
}
