//! Bugs planted in what uses a folder: each disables one rule of the log or of checkpoints.

use shoal_types::planted;

planted! {
    /// Bugs planted on purpose: each must be caught by a check. A [folder](crate::Folder) says which ones are planted in what
    /// uses it.
    pub struct DiskPlantedBugs {
        /// A flush is answered before it is done, and never done.
        pub skip_flush: bool,
        /// Disks report flushes that they have not done: a loss of power takes them back to an earlier state.
        pub lie_about_flushes: bool,
        /// A flush that failed is tried again.
        pub retry_failed_flush: bool,
        /// What recovery has read is not flushed.
        pub trust_unflushed: bool,
        /// Damage in front of what was flushed is cut like a torn end.
        pub cut_damage: bool,
        /// Checksums of groups, records and blocks are not compared.
        pub skip_checksums: bool,
        /// What an earlier segment left in a file is read as groups of the segment that it has now.
        pub accept_former_use: bool,
        /// What follows a record that is not whole is read.
        pub read_past_gap: bool,
        /// A checkpoint gets its name before it is flushed.
        pub rename_unflushed: bool,
        /// Segments are freed before the checkpoint is durable that stands for them.
        pub truncate_early: bool,
    }
}
