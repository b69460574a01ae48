//! The commit protocols. `engines.rs` has the server's registry of them.

use serde::Deserialize;

/// A commit protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Certify first, replicate in the background.
    #[default]
    Mako,
    /// Prepare, decide and commit with locks held: the classic protocol, for comparison.
    TwoPhaseCommit,
    /// Move rows to the node that uses them, commit there, replicate in the background.
    Zeus,
}
