//! The branches of a transaction on shards that this node leads.
//!
//! Most transactions have one, which is kept in place. Each is begun when it is first needed, and then stays where it is:
//! what was read through it is borrowed from it.

use super::session_pool::StoreBranch;
use shoal_types::Result;
use std::cell::{Cell, OnceCell};

/// A branch on a shard of this node.
pub(super) struct OwnBranch {
    /// The place of the shard in [`WorkerContext::own`](super::worker_context::WorkerContext::own).
    pub(super) at: usize,
    pub(super) branch: StoreBranch,
    /// How many of its reads the engine has noted, since they were to be shown.
    pub(super) noted: Cell<usize>,
}

/// The branches on shards that this node leads, each once.
#[derive(Default)]
pub struct OwnBranches {
    first: OnceCell<OwnBranch>,
    /// By the place of the shard.
    others: OnceCell<Box<[OnceCell<OwnBranch>]>>,
}

impl OwnBranches {
    /// The branch on the shard at this place, which is begun if there is none; a node has so many places.
    ///
    /// # Errors
    /// Those of `begin`.
    #[inline]
    pub(super) fn get_or_begin(
        &self,
        at: usize,
        places: usize,
        begin: impl FnOnce() -> Result<StoreBranch>,
    ) -> Result<&StoreBranch> {
        match self.first.get() {
            Some(first) if first.at == at => Ok(&first.branch),
            first => self.begin(at, first.map(|_| places), begin),
        }
    }

    /// `places` is none where the branch is the first.
    fn begin(
        &self,
        at: usize,
        places: Option<usize>,
        begin: impl FnOnce() -> Result<StoreBranch>,
    ) -> Result<&StoreBranch> {
        let cell = match places {
            None => &self.first,
            Some(places) => {
                &self.others.get_or_init(|| (0..places).map(|_| OnceCell::new()).collect())[at]
            }
        };
        if cell.get().is_none() {
            // It cannot be begun elsewhere meanwhile: it belongs to one worker.
            let _ = cell.set(OwnBranch { at, branch: begin()?, noted: Cell::default() });
        }
        Ok(&cell.get().expect("begun above").branch)
    }

    /// The branches, the first that was begun before the others.
    pub(super) fn iter(&self) -> impl Iterator<Item = &OwnBranch> {
        let others = self.others.get().into_iter().flatten();
        self.first.get().into_iter().chain(others.filter_map(OnceCell::get))
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.first.get().is_none()
    }

    /// The one branch, if there is one and no other.
    pub(super) fn only(&self) -> Option<&StoreBranch> {
        let first = self.first.get().filter(|_| self.others.get().is_none());
        first.map(|own| &own.branch)
    }

    /// How many keys they write.
    pub fn writes(&self) -> usize {
        self.iter().map(|own| own.branch.size().writes).sum()
    }

    /// The one branch, if there is one and no other, and the place of its shard.
    ///
    /// # Errors
    /// All of them, where there is not one.
    pub fn into_only(self) -> std::result::Result<(usize, StoreBranch), OwnBranches> {
        match self {
            OwnBranches { first, others } if others.get().is_none() => match first.into_inner() {
                Some(OwnBranch { at, branch, .. }) => Ok((at, branch)),
                None => Err(OwnBranches::default()),
            },
            branches => Err(branches),
        }
    }

    /// The branches, each with the place of its shard, in the order of these.
    pub fn into_sorted(self) -> Vec<(usize, StoreBranch)> {
        let others = self.others.into_inner().into_iter().flatten();
        let others = others.filter_map(OnceCell::into_inner);
        let own = self.first.into_inner().into_iter().chain(others);
        let mut branches: Vec<(usize, StoreBranch)> =
            own.map(|OwnBranch { at, branch, .. }| (at, branch)).collect();
        branches.sort_unstable_by_key(|(at, _)| *at);
        branches
    }
}
