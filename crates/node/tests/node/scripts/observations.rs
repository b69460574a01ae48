//! What workers let be seen, in traces.

use super::engines::Observation;
use super::messages::{show_clock, show_stamp, show_transaction, show_watermark};
use shoal_cluster::manager::Applied;
use shoal_types::{Clock, ShardId};

/// What is worth a line. The trace says in other lines what was read, what was appended, and what others are told; `replay`
/// adds what followers apply.
pub fn show_observation(observation: &Observation, replay: bool) -> Option<String> {
    let line = match observation {
        Observation::Read { .. }
        | Observation::Locked { .. }
        | Observation::Acted { .. }
        | Observation::Appended { .. }
        | Observation::Given { .. }
        | Observation::Resolved { installed: true, .. } => return None,
        Observation::Drawn { transaction, shard, clock } => {
            format!("draws {shard}:{clock} for {}", show_transaction(*transaction))
        }
        Observation::Resolved { transaction, shard, clock, installed: false } => {
            format!("gives up {shard}:{clock} of {}", show_transaction(*transaction))
        }
        Observation::Certified { transaction, own, stamp, writes } => {
            let drawn = |(shard, clock): &(ShardId, Clock)| format!(" {shard}:{clock}");
            let writes = match writes.is_empty() {
                true => String::new(),
                false => format!(", wrote{}", writes.iter().map(drawn).collect::<String>()),
            };
            let of = show_transaction(*transaction);
            format!("certifies {of} as {own} {}{writes}", show_stamp(stamp))
        }
        Observation::Installed { shard, stamp, key, value, .. } => {
            let (key, stamp) = (key.escape_ascii(), show_stamp(stamp));
            match value {
                Some(value) => {
                    format!("installs {shard} {key}={} at {stamp}", value.escape_ascii())
                }
                None => format!("installs {shard} {key} deleted at {stamp}"),
            }
        }
        Observation::Led { shard, ballot, length } => {
            format!("leads {shard} as {ballot}, inherits {length} entries")
        }
        Observation::Serves { shard, .. } => format!("serves {shard}"),
        Observation::Watermark { shard, clock } => {
            format!("knows {shard} durable up to {}", show_clock(*clock))
        }
        Observation::Reported { shard, epoch, watermark } => {
            format!("reports the end of {epoch} on {shard}: {}", show_clock(*watermark))
        }
        Observation::Settled { watermark } => format!("settles {}", show_watermark(watermark)),
        Observation::Opened { epoch } => format!("opens {epoch}"),
        Observation::Swept { shard, stamp } => {
            format!("drops a tombstone of {shard} at {}", show_stamp(stamp))
        }
        Observation::HeldUp { shard, epoch } => {
            format!("asks for the end of {epoch}: {shard} is held up")
        }
        Observation::RolledBack { transaction, settled } => {
            let settled = if *settled { "" } else { " before its epoch is settled" };
            format!("rolls back {}{settled}", show_transaction(*transaction))
        }
        Observation::Told { transaction, stamp, .. } => {
            format!("reveals {} {}", show_transaction(*transaction), show_stamp(stamp))
        }
        Observation::Restored { shard } => format!("begins {shard} behind a snapshot"),
        Observation::Copied { shard, cut } => format!("has a copy of {shard} up to {cut}"),
        Observation::Inherited { shard, stamp, key, .. } => {
            let (key, stamp) = (key.escape_ascii(), show_stamp(stamp));
            format!("keeps {shard} {key} at {stamp} as undecided")
        }
        Observation::Applied { shard, stamp, key, won, .. } if replay => {
            let older = if *won { "" } else { ", older than what is there" };
            format!("applies {shard} {} at {}{older}", key.escape_ascii(), show_stamp(stamp))
        }
        Observation::Applied { .. } => return None,
    };
    Some(line)
}

/// What the manager has done, if it is about a failure.
pub fn show_applied(applied: &Applied) -> Option<String> {
    let line = match applied {
        Applied::Died(node) => format!("{node} is dead"),
        Applied::Revived(node) => format!("{node} is heard again"),
        Applied::Joined { node, incarnation, .. } => {
            format!("{node} joins, incarnation {incarnation}")
        }
        Applied::Raised(epoch) => format!("{epoch} begins"),
        Applied::Appointed { shard, ballot } => format!("appoints {ballot} for {shard}"),
        Applied::Out { shard, since: Some(epoch), .. } => format!("{shard} is out since {epoch}"),
        Applied::Out { shard, since: None, .. } => format!("{shard} is in again"),
        Applied::Final(watermark) => format!("FVW {} is final", show_watermark(watermark)),
        Applied::CaughtUp { shard, replica, .. } => format!("{replica} votes for {shard} again"),
        Applied::Founded(_)
        | Applied::Took(_)
        | Applied::Changed(_)
        | Applied::Answered { .. }
        | Applied::Loss { .. }
        | Applied::Reported { .. }
        | Applied::Ended { .. } => return None,
    };
    Some(line)
}
