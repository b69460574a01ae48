//! Bugs planted in what decides about the logs of a node.

use shoal_types::planted;

planted! {
    /// Bugs planted on purpose: each must be caught by a check.
    pub struct ServerPlantedBugs {
        /// What was not flushed at `async` counts though the machine was started anew since.
        pub trust_other_boots: bool,
    }
}
