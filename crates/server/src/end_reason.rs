//! Why a node ends by itself.

use std::sync::{Arc, OnceLock};

/// What has ended a node that another process has to follow: its supervisor learns of it. Shared by its threads; the first one counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndReason(Arc<OnceLock<String>>);

impl EndReason {
    /// The node ends, for this reason.
    pub(crate) fn set(&self, reason: String) {
        let _ = self.0.set(reason);
    }

    pub(crate) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}
