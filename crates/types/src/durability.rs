//! When a cluster acknowledges what it stores.

use crate::wire::Coded;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// When a replica acknowledges what it has stored, and what is left of that when its process begins again. One for each cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Coded)]
pub enum Durability {
    /// When it is in memory. A process that begins has nothing.
    #[default]
    #[coded(tag = 0)]
    Memory,
    /// When it is written to the kernel. What was acknowledged is lost if the machine fails, and not if the process does.
    #[coded(tag = 1)]
    Async,
    /// When it is flushed to the disk.
    #[coded(tag = 2)]
    Fsync,
}

impl Durability {
    /// All levels, the weakest first.
    pub const ALL: [Durability; 3] = [Durability::Memory, Durability::Async, Durability::Fsync];

    /// The name in files and commands.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Durability::Memory => "memory",
            Durability::Async => "async",
            Durability::Fsync => "fsync",
        }
    }

    /// Whether nodes keep logs on disk.
    #[must_use]
    pub fn is_on_disk(self) -> bool {
        self != Durability::Memory
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No level has this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no durability; there are memory, async and fsync")]
pub struct UnknownDurability(pub String);

impl FromStr for Durability {
    type Err = UnknownDurability;

    fn from_str(text: &str) -> Result<Durability, UnknownDurability> {
        let level = Durability::ALL.into_iter().find(|level| level.name() == text);
        level.ok_or_else(|| UnknownDurability(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for level in Durability::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        let error = "disk".parse::<Durability>().unwrap_err();
        assert_eq!(error.to_string(), "`disk` is no durability; there are memory, async and fsync");
    }
}
