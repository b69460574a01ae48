//! The tables of a store, by their ids: which are open, and which were dropped.
//!
//! ```text
//!   never opened ── open ──► open ── drop ──► dropped, for ever
//! ```
//! An id is used for one table only. A table that was dropped keeps its index, which frees its nodes as its rows go: other
//! threads may be on their way through it.
//!
//! Invariants: a table that was dropped is never open again; and no transaction takes its locks, or validates what it read,
//! after a table was dropped that it has read or written ([`Tables::drops`]).

use crate::index::Index;
use shoal_types::limits::TABLE_IDS_MAX;
use shoal_types::{Rejected, Result, TableId};
use std::sync::OnceLock;
// Not those of the permutation tester: its models drop no table.
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Tables of a page: most stores need one.
const PAGE: usize = 1 << 10;

// The last page is whole.
const _: () = assert!(TABLE_IDS_MAX.is_multiple_of(PAGE));

struct OpenTable {
    index: Index,
    dropped: AtomicBool,
}

/// The tables that were ever opened, by id.
pub(crate) struct Tables {
    pages: Box<[OnceLock<Box<[OnceLock<OpenTable>]>>]>,
    /// Above the ids of all tables that were opened.
    end: AtomicU32,
    drops: AtomicU32,
}

impl Default for Tables {
    fn default() -> Tables {
        let pages = (0..TABLE_IDS_MAX / PAGE).map(|_| OnceLock::new()).collect();
        Tables { pages, end: AtomicU32::new(0), drops: AtomicU32::new(0) }
    }
}

impl Tables {
    #[inline]
    fn get(&self, table: TableId) -> Option<&OpenTable> {
        let place = table.0 as usize;
        self.pages.get(place / PAGE)?.get()?[place % PAGE].get()
    }

    /// The index of a table that is open.
    ///
    /// # Errors
    /// [`Rejected::UnknownTable`], [`Rejected::TableDropped`].
    #[inline]
    pub(crate) fn live(&self, table: TableId) -> Result<&Index> {
        match self.get(table) {
            Some(open) if !open.dropped.load(Ordering::Acquire) => Ok(&open.index),
            Some(_) => Err(Rejected::TableDropped { table }.into()),
            None => Err(Rejected::UnknownTable { table }.into()),
        }
    }

    /// The index of a table that is open, or was dropped.
    #[inline]
    pub(crate) fn any(&self, table: TableId) -> Option<&Index> {
        self.get(table).map(|open| &open.index)
    }

    pub(crate) fn indexes(&self) -> impl Iterator<Item = &Index> {
        let slots = self.pages.iter().filter_map(OnceLock::get).flat_map(|page| page.iter());
        slots.filter_map(OnceLock::get).map(|open| &open.index)
    }

    /// The first id above those of all tables that were opened.
    pub(crate) fn next(&self) -> TableId {
        TableId(self.end.load(Ordering::Acquire))
    }

    /// Opens a table with the index that `make` makes, unless it is open, or was dropped.
    pub(crate) fn open(&self, table: TableId, make: impl FnOnce() -> Index) -> Result<()> {
        let place = table.0 as usize;
        let Some(page) = self.pages.get(place / PAGE) else {
            return Err(Rejected::TooManyTableIds { max: TABLE_IDS_MAX }.into());
        };
        let page = page.get_or_init(|| (0..PAGE).map(|_| OnceLock::new()).collect());
        page[place % PAGE]
            .get_or_init(|| OpenTable { index: make(), dropped: AtomicBool::new(false) });
        self.end.fetch_max(table.0 + 1, Ordering::AcqRel);
        Ok(())
    }

    /// Drops a table that is open. Returns false where it was dropped before.
    pub(crate) fn drop(&self, table: TableId) -> bool {
        let is_news =
            self.get(table).is_some_and(|open| !open.dropped.swap(true, Ordering::SeqCst));
        if is_news {
            self.drops.fetch_add(1, Ordering::SeqCst);
        }
        is_news
    }

    #[inline]
    pub(crate) fn is_dropped(&self, table: TableId) -> bool {
        self.get(table).is_some_and(|open| open.dropped.load(Ordering::Acquire))
    }

    /// How many tables were dropped. A transaction notes it at its beginning: where it is another one later, the
    /// transaction looks whether it has touched one of them.
    #[inline]
    pub(crate) fn drops(&self) -> u32 {
        self.drops.load(Ordering::SeqCst)
    }
}
