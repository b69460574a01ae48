//! What scripts use of the engines, all in one place; and what traces have to know of one.

pub use shoal_engines::client::Relay;
pub use shoal_engines::engine::Setup;
pub use shoal_engines::mako::message::{MakoReply, MakoRequest};
pub use shoal_engines::mako::{Mako, MakoMessage, MakoOptions, StampForm};
pub use shoal_engines::operation::{Operation, OperationResult};
pub use shoal_engines::two_phase_commit::message::{TwoPhaseCommitReply, TwoPhaseCommitRequest};
pub use shoal_engines::two_phase_commit::{
    TwoPhaseCommit, TwoPhaseCommitMessage, TwoPhaseCommitOptions,
};
pub use shoal_engines::{Engine, LocalDatabase, Observation, Procedures, TransactionId};

use shoal_golden::Words;
use shoal_types::{Epoch, ShardId};

/// An engine whose messages a script can tell apart and show.
pub trait TracedEngine: Engine {
    /// How it behaves in scripts: nothing waits for a pause between two messages.
    fn options(words: &Words<'_>) -> Self::Options;

    /// A message in one line, which begins with its kind.
    fn show(message: &Self::Message) -> String;

    /// The shard that a message is about.
    fn shard(message: &Self::Message) -> Option<ShardId>;

    /// Of a message that is told again and again, whether there is anything new or not: the epoch that it is about.
    fn repeats(message: &Self::Message) -> Option<Epoch>;
}
