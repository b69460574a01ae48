//! What workers let be seen, in traces.

use super::engines::{MakoObservation, TwoPhaseCommitObservation};
use super::messages::{show_clock, show_stamp, show_transaction, show_watermark};
use shoal_cluster::manager::Applied;
use shoal_mako::epoch_ends::watermark_of;
use shoal_types::{Clock, ShardId};

/// What `mako` lets be seen.
pub fn show_mako(observation: &MakoObservation, replay: bool) -> Option<String> {
    let line = match observation {
        MakoObservation::Read { .. }
        | MakoObservation::Locked { .. }
        | MakoObservation::Acted { .. }
        | MakoObservation::Appended { .. }
        | MakoObservation::Given { .. }
        | MakoObservation::Resolved { installed: true, .. } => return None,
        MakoObservation::Drawn { transaction, shard, clock } => {
            format!("draws {shard}:{clock} for {}", show_transaction(*transaction))
        }
        MakoObservation::Resolved { transaction, shard, clock, installed: false } => {
            format!("gives up {shard}:{clock} of {}", show_transaction(*transaction))
        }
        MakoObservation::Certified { transaction, own, stamp, writes } => {
            let drawn = |(shard, clock): &(ShardId, Clock)| format!(" {shard}:{clock}");
            let writes = match writes.is_empty() {
                true => String::new(),
                false => format!(", wrote{}", writes.iter().map(drawn).collect::<String>()),
            };
            let of = show_transaction(*transaction);
            format!("certifies {of} as {own} {}{writes}", show_stamp(stamp))
        }
        MakoObservation::Installed { shard, stamp, key, value, .. } => {
            let (key, stamp) = (key.escape_ascii(), show_stamp(stamp));
            match value {
                Some(value) => {
                    format!("installs {shard} {key}={} at {stamp}", value.escape_ascii())
                }
                None => format!("installs {shard} {key} deleted at {stamp}"),
            }
        }
        MakoObservation::Led { shard, ballot, length } => {
            format!("leads {shard} as {ballot}, inherits {length} entries")
        }
        MakoObservation::Serves { shard, .. } => format!("serves {shard}"),
        MakoObservation::Watermark { shard, clock } => {
            format!("knows {shard} durable up to {}", show_clock(*clock))
        }
        MakoObservation::Reported { shard, epoch, watermark } => {
            format!("reports the end of {epoch} on {shard}: {}", show_clock(*watermark))
        }
        MakoObservation::Settled { watermark } => format!("settles {}", show_watermark(watermark)),
        MakoObservation::Opened { epoch } => format!("opens {epoch}"),
        MakoObservation::Swept { shard, stamp } => {
            format!("drops a tombstone of {shard} at {}", show_stamp(stamp))
        }
        MakoObservation::HeldUp { shard, epoch } => {
            format!("asks for the end of {epoch}: {shard} is held up")
        }
        MakoObservation::RolledBack { transaction, settled } => {
            let settled = if *settled { "" } else { " before its epoch is settled" };
            format!("rolls back {}{settled}", show_transaction(*transaction))
        }
        MakoObservation::Acknowledged { transaction, stamp, .. } => {
            format!("reveals {} {}", show_transaction(*transaction), show_stamp(stamp))
        }
        MakoObservation::Restored { shard } => format!("begins {shard} behind a snapshot"),
        MakoObservation::Copied { shard, cut } => format!("has a copy of {shard} up to {cut}"),
        MakoObservation::Inherited { shard, stamp, key, .. } => {
            let (key, stamp) = (key.escape_ascii(), show_stamp(stamp));
            format!("keeps {shard} {key} at {stamp} as undecided")
        }
        MakoObservation::Applied { shard, stamp, key, won, .. } if replay => {
            let older = if *won { "" } else { ", older than what is there" };
            format!("applies {shard} {} at {}{older}", key.escape_ascii(), show_stamp(stamp))
        }
        MakoObservation::Applied { .. } => return None,
    };
    Some(line)
}

/// What `two_phase_commit` lets be seen.
pub fn show_two_phase_commit(seen: &TwoPhaseCommitObservation, replay: bool) -> Option<String> {
    let line = match seen {
        TwoPhaseCommitObservation::Read { .. }
        | TwoPhaseCommitObservation::Acted { .. }
        | TwoPhaseCommitObservation::Appended { .. }
        | TwoPhaseCommitObservation::GaveUp { .. }
        | TwoPhaseCommitObservation::Resolved { installed: true, .. } => return None,
        TwoPhaseCommitObservation::Drawn { transaction, shard, clock } => {
            format!("draws {shard}:{clock} for {}", show_transaction(*transaction))
        }
        TwoPhaseCommitObservation::Recovered { transaction, shard, clock } => {
            format!("finds {} in doubt at {shard}:{clock}", show_transaction(*transaction))
        }
        TwoPhaseCommitObservation::Resolved { transaction, shard, clock, installed: false } => {
            format!("gives up {shard}:{clock} of {}", show_transaction(*transaction))
        }
        TwoPhaseCommitObservation::Certified { transaction, writes, .. } => {
            let drawn = |(shard, clock): &(ShardId, Clock)| format!(" {shard}:{clock}");
            let writes: String = writes.iter().map(drawn).collect();
            format!("decides to commit {}:{writes}", show_transaction(*transaction))
        }
        TwoPhaseCommitObservation::Installed { shard, stamp, key, value, .. } => {
            let (key, stamp) = (key.escape_ascii(), show_stamp(stamp));
            match value {
                Some(value) => {
                    format!("installs {shard} {key}={} at {stamp}", value.escape_ascii())
                }
                None => format!("installs {shard} {key} deleted at {stamp}"),
            }
        }
        TwoPhaseCommitObservation::Led { shard, ballot, length } => {
            format!("leads {shard} as {ballot}, inherits {length} entries")
        }
        TwoPhaseCommitObservation::Serves { shard, .. } => format!("serves {shard}"),
        TwoPhaseCommitObservation::Acknowledged { transaction, .. } => {
            format!("reveals {}", show_transaction(*transaction))
        }
        TwoPhaseCommitObservation::Applied { shard, stamp, key, won, .. } if replay => {
            let older = if *won { "" } else { ", older than what is there" };
            format!("applies {shard} {} at {}{older}", key.escape_ascii(), show_stamp(stamp))
        }
        TwoPhaseCommitObservation::Restored { shard } => {
            format!("begins {shard} behind a snapshot")
        }
        TwoPhaseCommitObservation::Copied { .. } | TwoPhaseCommitObservation::Applied { .. } => {
            return None;
        }
    };
    Some(line)
}

/// What the manager has done, if it is about a failure.
pub fn show_applied(applied: &Applied) -> Option<String> {
    let line = match applied {
        Applied::Died(node) => format!("{node} is dead"),
        Applied::Revived(node) => format!("{node} is alive again"),
        Applied::Joined { node, incarnation, .. } => {
            format!("{node} joins, incarnation {incarnation}")
        }
        Applied::Raised(epoch) => format!("{epoch} begins"),
        Applied::Appointed { shard, ballot } => format!("appoints {ballot} for {shard}"),
        Applied::Out { shard, since: Some(epoch), .. } => format!("{shard} is out since {epoch}"),
        Applied::Out { shard, since: None, .. } => format!("{shard} is in again"),
        Applied::Final(last) => format!("FVW {} is final", show_watermark(&watermark_of(last))),
        Applied::CaughtUp { shard, replica, .. } => format!("{replica} votes for {shard} again"),
        Applied::Founded(_)
        | Applied::Took(_)
        | Applied::Changed(_)
        | Applied::Answered { .. }
        | Applied::TableCreated { .. }
        | Applied::TableDropped { .. }
        | Applied::NodeAdded { .. }
        | Applied::NodeRemoved { .. }
        | Applied::Loss { .. }
        | Applied::Reported { .. }
        | Applied::Ended { .. } => return None,
    };
    Some(line)
}
