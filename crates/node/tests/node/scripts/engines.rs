//! What scripts use of the engines, all in one place; and what traces have to know of one.

pub use shoal_engine::client::Relay;
pub use shoal_engine::engine::Setup;
pub use shoal_engine::operation::{Operation, OperationResult};
pub use shoal_engine::{Engine, LocalDatabase, Procedures, TransactionId};
pub use shoal_mako::message::{MakoReply, MakoRequest};
pub use shoal_mako::{Mako, MakoMessage, MakoObservation, MakoOptions, StampForm};
pub use shoal_tiga::{Tiga, TigaEngineMessage, TigaEngineOptions, TigaObservation};
pub use shoal_two_phase_commit::message::{TwoPhaseCommitReply, TwoPhaseCommitRequest};
pub use shoal_two_phase_commit::{
    TwoPhaseCommit, TwoPhaseCommitMessage, TwoPhaseCommitObservation, TwoPhaseCommitOptions,
};
pub use shoal_zeus::{Zeus, ZeusEngineMessage, ZeusEngineOptions, ZeusObservation};

use shoal_golden::Words;
use shoal_types::{Epoch, ShardId};

/// An engine whose messages a script can distinguish and show.
pub trait TracedEngine: Engine {
    /// How it behaves in scripts: nothing waits for a pause between two messages.
    fn options(words: &Words<'_>) -> Self::Options;

    /// A message in one line, which begins with its kind.
    fn show(message: &Self::Message) -> String;

    /// What is worth a line of what a worker lets be seen. The trace says in other lines what was read, what was appended,
    /// and what others receive; `replay` adds what followers apply.
    fn observe(seen: &Self::Observation, replay: bool) -> Option<String>;

    /// The shard that a message is about.
    fn shard(message: &Self::Message) -> Option<ShardId>;

    /// Of a message that is sent again and again, whether there is anything new or not: the epoch that it is about.
    fn repeats(message: &Self::Message) -> Option<Epoch>;
}
