//! What a new leader inherits and cannot decide: pieces of former epochs that depend on shards which have not said how
//! these ended there (rule M12).
//!
//! A follower keeps such a piece in `followed.rs` until it is decided. A leader has to serve before that: another shard
//! may be lost for good. So it installs these pieces as what they are, versions with their stamps: a transaction that reads one meets
//! a version of a former epoch that is not covered, and aborts with an error that names the lost shard
//! (`../dependencies.rs`); a blind write goes on top. Once the shard has said how the epoch ended, the version is
//! committed or rolled back like any other that a leader has certified.
//!
//! ```text
//! worker 0   all inherited decided, own ends durable, covered pieces replayed ── leaves the rest ─┐
//! worker 1   …                                                                ── leaves the rest ─┤
//!                                              the last: installs all, in the order of their stamps ─► serves
//! ```
//! Versions of a key stand in the order of their stamps, and replay takes what is in the store for committed. So all
//! workers replay what is covered first, and then the last of them installs what is not. What is decided
//! meanwhile, and replayed, is newer than what is there or the same: that does no harm.

use super::piece::Piece;
use super::{Effects, Mako};
use crate::execution::sessions::Sessions;
use crate::observation::Observation;
use crate::replication::codec::Write;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use types::{Epoch, Result, Stamp, StampRef};

/// Other workers hold locks for as long as a piece takes to be replayed.
const TRIES: u32 = 1_000_000;

/// What the workers of a node leave to the last of them, with the epoch in which the reign began: what is left of a
/// former one may be decided since.
#[derive(Debug, Default)]
pub(super) struct Inheritance {
    pieces: Mutex<Vec<(Epoch, Piece)>>,
}

impl Inheritance {
    fn add(&self, since: Epoch, pieces: impl Iterator<Item = Piece>) {
        let mut all = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(pieces.map(|piece| (since, piece)));
    }

    /// All that was left in this reign, in the order of stamps.
    fn take(&self, since: Epoch) -> Vec<Piece> {
        let mut all = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let left = std::mem::take(&mut *all).into_iter().filter(|(of, _)| *of == since);
        let mut pieces: Vec<Piece> = left.map(|(_, piece)| piece).collect();
        pieces.sort_by_key(|piece| (piece.stamp.epoch, piece.stamp.clock));
        pieces
    }
}

impl Mako {
    /// This worker has replayed what is covered of the shard at this place: leaves what is undecided to the last one.
    pub(super) fn bequeath(&self, at: usize) {
        let office = self.led[at].office.as_ref().expect("it leads");
        let (shard, watermarks) = (self.led[at].lead.shard, self.desk.hub.watermarks.borrow());
        let undecided = self.followed[at].undecided(office.since);
        let undecided = undecided.filter(|piece| !watermarks.rejects(shard, piece.stamp.as_ref()));
        self.shared.inheritances[at].add(office.since, undecided.cloned());
    }

    /// All workers have: installs it.
    pub(super) fn install_undecided(&self, at: usize, effects: &mut Effects) {
        let office = self.led[at].office.as_ref().expect("it leads");
        let (shard, watermarks) = (self.led[at].lead.shard, self.desk.hub.watermarks.borrow());
        let sessions = &self.desk.hub.own[at].sessions;
        let committed = |stamp: StampRef<'_>| watermarks.covers(shard, stamp);
        // How an epoch ended may be known since a piece was left. Passes that roll it back are over then, and would not
        // meet a version that is installed behind them; of other epochs this worker begins a pass when it hears of the end.
        let left = self.shared.inheritances[at].take(office.since).into_iter();
        let undecided = left.filter(|piece| !watermarks.rejects(shard, piece.stamp.as_ref()));
        for Piece { stamp, writes } in undecided {
            for write in &writes {
                let tried = (0..TRIES).find_map(|_| {
                    let installed = install(sessions, &stamp, write, &committed);
                    installed.inspect_err(|_| std::hint::spin_loop()).ok()
                });
                let installed = tried.unwrap_or_else(|| panic!("{shard} cannot be recovered"));
                if installed {
                    effects.observe(|| {
                        let (stamp, table) = (stamp.clone(), write.table);
                        Observation::Inherited { shard, stamp, table, key: write.key.to_vec() }
                    });
                }
            }
        }
    }
}

/// Puts a version on top of its key's, unless there is one as new. Says whether it did.
///
/// # Errors
/// Where another worker changes the key at the same time.
fn install(
    sessions: &Rc<Sessions>,
    stamp: &Stamp,
    write: &Write,
    committed: &dyn Fn(StampRef<'_>) -> bool,
) -> Result<bool> {
    let transaction = store::Transaction::on(sessions.take()?);
    transaction.get(write.table, &write.key)?;
    let (mut newest, order) = (None, (stamp.epoch, stamp.clock));
    transaction.versions_read(0, usize::MAX, |version| {
        newest = newest.max(Some((version.stamp.epoch, version.stamp.clock)));
    });
    if newest >= Some(order) {
        return Ok(false);
    }
    transaction.replicate(write.table, &write.key, write.value.as_deref())?;
    let locked = transaction.lock()?;
    locked.validate()?;
    locked.install(stamp.as_ref(), committed);
    Ok(true)
}
