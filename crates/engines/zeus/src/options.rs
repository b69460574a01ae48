//! What can be set, and what a step leaves to be done.

use crate::message::ZeusMessage;
use crate::planted_bugs::ZeusPlantedBug;
use shoal_engine::planted_bugs::PlantedBugs;
use shoal_types::{Backoff, NodeId};
use std::time::Duration;

/// The configuration of a node's protocol; the default fits nodes of one datacenter.
#[derive(Debug, Clone, Copy)]
pub struct ZeusOptions {
    /// For how long an owner keeps a granule for an older transaction of its own, from the arrival of the `Inv`. Less moves
    /// granules sooner; with less than a move takes, which is one round trip and a half, nodes that swap granules may never both
    /// hold what they need (seed 26066944). 1 ms.
    pub hold: Duration,
    /// After which time without a `Val` an arbiter sends the `Inv` again; each further wait is longer. 5 ms.
    pub replay_after: Duration,
    /// After which time without an answer a request, an `R-INV` or `Replayed` is sent again. Waits of a request and of an
    /// `R-INV` grow. 5 ms.
    pub repeat_after: Duration,
    /// The first wait after a request was refused; it doubles, with jitter. 200 µs.
    pub backoff_least: Duration,
    /// The longest such wait. 2 ms.
    pub backoff_most: Duration,
    /// For how long a driver refuses younger requesters of a granule after it has refused an older one, which has to come
    /// back within that time. 5 ms.
    pub favour: Duration,
    /// So many slots of a pipeline may be pending; then what belongs into it waits. 4,096.
    pub slots_pending_max: usize,
    /// So many records are in one part of a copy of a directory. 1,024.
    pub copied_records_max: usize,
    /// Rows of a granule that moves travel in parts of so many bytes at most, or of one row: nothing else on the connection
    /// waits behind more. 64 KiB.
    pub part_bytes: usize,
    /// Bugs that are planted. None.
    pub bugs: PlantedBugs<ZeusPlantedBug>,
}

/// The longest wait before a message is sent again, in units of the first one.
const LONGEST_WAIT: u32 = 8;

/// A granule without an owner is left to transactions for so many turns of [`ZeusOptions::repeat_after`].
const ADOPTED_AFTER: u32 = 20;

/// Acknowledgements are kept for so many of the longest waits of an arbiter.
const COLLECTED_KEPT: u32 = 8;

impl ZeusOptions {
    /// How long granules without an owner are left to transactions.
    pub(crate) fn adopt_after(&self) -> Duration {
        self.repeat_after * ADOPTED_AFTER
    }

    /// How long acknowledgements are kept to which none is added: several times as long as an arbiter waits before it sends an `Inv`
    /// again.
    pub(crate) fn collected_kept(&self) -> Duration {
        self.replay_after * LONGEST_WAIT * COLLECTED_KEPT
    }

    /// The waits of an arbiter before it sends an `Inv` again. They grow: in a congested network, what is sent again delays the
    /// answers that it is to bring.
    pub(crate) fn replays(&self) -> Backoff {
        Backoff::new(self.replay_after, self.replay_after * LONGEST_WAIT)
    }

    /// The waits before a request or an `R-INV` is sent again.
    pub(crate) fn repeats(&self) -> Backoff {
        Backoff::new(self.repeat_after, self.repeat_after * LONGEST_WAIT)
    }

    /// The options for nodes whose messages take this long there and back, if that is more than the default fits.
    #[must_use]
    pub fn over(self, round_trip: Duration) -> ZeusOptions {
        let backoff_most = self.backoff_most.max(round_trip);
        ZeusOptions {
            // A move takes one round trip and a half: less would move what an older transaction has before the rest comes.
            hold: self.hold.max(2 * round_trip),
            replay_after: self.replay_after.max(2 * round_trip),
            repeat_after: self.repeat_after.max(2 * round_trip),
            backoff_least: self.backoff_least.max(round_trip / 4),
            backoff_most,
            favour: self.favour.max(2 * backoff_most + 2 * round_trip),
            ..self
        }
    }

    /// The default, as a constant.
    pub const DEFAULT: ZeusOptions = ZeusOptions {
        hold: Duration::from_millis(1),
        replay_after: Duration::from_millis(5),
        repeat_after: Duration::from_millis(5),
        backoff_least: Duration::from_micros(200),
        backoff_most: Duration::from_millis(2),
        favour: Duration::from_millis(5),
        slots_pending_max: 4096,
        copied_records_max: 1024,
        part_bytes: 64 << 10,
        bugs: PlantedBugs::NONE,
    };
}

impl Default for ZeusOptions {
    fn default() -> ZeusOptions {
        ZeusOptions::DEFAULT
    }
}

// A refused requester comes back while it is favoured.
const _: () = {
    let ZeusOptions { backoff_most, favour, .. } = ZeusOptions::DEFAULT;
    assert!(2 * backoff_most.as_nanos() < favour.as_nanos());
};

/// What a step wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send this to another node. It may be lost.
    Send {
        /// The receiver; never the sender itself.
        to: NodeId,
        /// What to send, with the epoch of this node.
        message: ZeusMessage,
    },
}
