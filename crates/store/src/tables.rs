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
    /// `None` where the table was dropped before it was opened.
    index: Option<Index>,
    dropped: AtomicBool,
}

/// Tables with successive ids, each empty until it is opened.
type Page = Box<[OnceLock<OpenTable>]>;

/// The tables that were ever opened, by id.
pub(crate) struct Tables {
    pages: Box<[OnceLock<Page>]>,
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
            Some(OpenTable { index: Some(index), dropped }) if !dropped.load(Ordering::Acquire) => {
                Ok(index)
            }
            Some(_) => Err(Rejected::TableDropped { table }.into()),
            None => Err(Rejected::UnknownTable { table }.into()),
        }
    }

    /// The index of a table that is open, or was dropped.
    #[inline]
    pub(crate) fn any(&self, table: TableId) -> Option<&Index> {
        self.get(table)?.index.as_ref()
    }

    pub(crate) fn indexes(&self) -> impl Iterator<Item = &Index> {
        let slots = self.pages.iter().filter_map(OnceLock::get).flat_map(|page| page.iter());
        slots.filter_map(OnceLock::get).filter_map(|open| open.index.as_ref())
    }

    /// The ids of the tables that are open.
    pub(crate) fn open_ids(&self) -> impl Iterator<Item = TableId> {
        (0..self.next().0).map(TableId).filter(|table| self.live(*table).is_ok())
    }

    /// The first id above those of all tables that were opened.
    pub(crate) fn next(&self) -> TableId {
        TableId(self.end.load(Ordering::Acquire))
    }

    /// Opens a table with the index that `make` makes, unless it is open, or was dropped.
    pub(crate) fn open(&self, table: TableId, make: impl FnOnce() -> Index) -> Result<()> {
        let Some(slot) = self.slot(table) else {
            return Err(Rejected::TooManyTableIds { max: TABLE_IDS_MAX }.into());
        };
        slot.get_or_init(|| OpenTable { index: Some(make()), dropped: AtomicBool::new(false) });
        self.end.fetch_max(table.0 + 1, Ordering::AcqRel);
        Ok(())
    }

    /// Drops a table. Returns false where it was dropped before, or never open; also for an id that no table has.
    pub(crate) fn drop(&self, table: TableId) -> bool {
        let Some(slot) = self.slot(table) else { return false };
        let open = slot.get_or_init(|| OpenTable { index: None, dropped: AtomicBool::new(true) });
        let is_news = !open.dropped.swap(true, Ordering::SeqCst);
        if is_news {
            self.drops.fetch_add(1, Ordering::SeqCst);
        }
        is_news
    }

    /// The place of a table, also of one that was never opened.
    fn slot(&self, table: TableId) -> Option<&OnceLock<OpenTable>> {
        let place = table.0 as usize;
        let page = self.pages.get(place / PAGE)?;
        Some(&page.get_or_init(|| (0..PAGE).map(|_| OnceLock::new()).collect())[place % PAGE])
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
