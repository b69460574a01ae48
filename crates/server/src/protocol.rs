//! The names of the commit protocols. `engines.rs` has what is known of each.

use serde::Deserialize;

/// A commit protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Certify first, replicate in the background.
    #[default]
    Mako,
    /// The classic one, to compare with.
    TwoPhaseCommit,
}
