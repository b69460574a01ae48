//! A loader: it loads some parts of the data, one after the other.

use super::place::Work;
use crate::workload::Workload;
use shoal_types::{Database, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

/// The progress of all loaders.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// Rows that were loaded so far.
    pub(super) rows: AtomicU64,
    /// Whether a loader has failed: then the others stop.
    pub(super) failed: AtomicBool,
}

/// One of the clients that load a workload's data.
pub(super) struct Loader<W> {
    pub(super) workload: Arc<W>,
    pub(super) seed: u64,
    /// The parts of the data that this loader loads.
    pub(super) parts: Vec<usize>,
    pub(super) loaded: Arc<Loaded>,
    /// Where it reports how it ended.
    pub(super) ended: Sender<Result<()>>,
}

impl<W: Workload + 'static> Work for Loader<W> {
    async fn run<D: Database>(self, db: D) {
        let result = self.load(&db).await;
        self.loaded.failed.fetch_or(result.is_err(), Ordering::Relaxed);
        // Without a runner it is not needed.
        let _ = self.ended.send(result);
    }
}

impl<W: Workload> Loader<W> {
    async fn load<D: Database>(&self, db: &D) -> Result<()> {
        let mut count = |more| {
            self.loaded.rows.fetch_add(more, Ordering::Relaxed);
        };
        for part in self.parts.iter().copied() {
            if self.loaded.failed.load(Ordering::Relaxed) {
                break;
            }
            self.workload.load(db, part, self.seed, &mut count).await?;
        }
        Ok(())
    }
}
