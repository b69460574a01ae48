//! The registry of commit engines. The table below is the only list of them: servers, the simulator and the command line
//! derive from it what they offer.
//!
//! ```text
//!   name ──► Protocol ──► EngineInfo     what it supports, for code that needs no type
//!               │
//!               ▼
//!         EngineOptions ──► EngineVisitor::visit::<E>     for code that is generic over the engine
//! ```
//! An engine is added by one entry here, and in the simulator by one line (`sim/src/engines/mod.rs`) and by a module that draws its
//! options.

use serde::{Deserialize, Deserializer, de};
use shoal_engine::engine::Engine;
use shoal_engine::execution::Limits;
use std::borrow::Cow;

/// The properties of an engine that do not depend on its types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineInfo {
    /// The name in files, on the command line and in results.
    pub name: &'static str,
    /// The name in headings and texts.
    pub title: &'static str,
    /// A description, for the help of the command.
    pub about: &'static str,
    /// Whether an operator may accept the loss of a shard's majority.
    pub accepts_losses: bool,
    /// Whether each replica of a shard has all its rows in one store. Otherwise rows have replicas of their own.
    pub replicates_shards: bool,
}

/// An engine of the registry.
pub trait RegisteredEngine: Engine<Options: Send + Sync> + 'static {
    /// The entry of the engine.
    const PROTOCOL: Protocol;

    /// The part of the options that all engines have.
    fn limits(options: &mut Self::Options) -> &mut Limits;
}

/// Code that is generic over the engine: it runs for the one that is chosen at run time.
pub trait EngineVisitor {
    /// The result, alike for all engines.
    type Output;

    /// Runs for the engine `E` with these options.
    fn visit<E: RegisteredEngine>(self, options: E::Options) -> Self::Output;
}

/// Makes the types of the registry from its table. The first entry is the default.
macro_rules! engines {
    (
        $first:ident { engine: $first_engine:ty, $($first_info:tt)* }
        $($other:ident { engine: $other_engine:ty, $($other_info:tt)* })*
    ) => {
        /// A commit engine, by its entry in the registry.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[allow(missing_docs)] // `Protocol::info` describes each.
        pub enum Protocol {
            #[default]
            $first,
            $($other,)*
        }

        impl Protocol {
            /// All engines, in the order of the registry.
            pub const ALL: &'static [Protocol] = &[Protocol::$first, $(Protocol::$other),*];

            const NAMES: &'static [&'static str] =
                &[Protocol::$first.name(), $(Protocol::$other.name()),*];

            /// The properties of the engine.
            pub const fn info(self) -> &'static EngineInfo {
                match self {
                    Protocol::$first => &EngineInfo { $($first_info)* },
                    $(Protocol::$other => &EngineInfo { $($other_info)* },)*
                }
            }

            /// The default options of the engine.
            pub fn options(self) -> EngineOptions {
                match self {
                    Protocol::$first => EngineOptions::$first(Default::default()),
                    $(Protocol::$other => EngineOptions::$other(Default::default()),)*
                }
            }
        }

        /// The options of one engine, which is chosen at run time.
        #[derive(Debug, Clone)]
        #[allow(missing_docs)] // `Protocol::info` describes each.
        pub enum EngineOptions {
            $first(<$first_engine as Engine>::Options),
            $($other(<$other_engine as Engine>::Options),)*
        }

        impl EngineOptions {
            /// The engine whose options these are.
            pub const fn protocol(&self) -> Protocol {
                match self {
                    EngineOptions::$first(_) => Protocol::$first,
                    $(EngineOptions::$other(_) => Protocol::$other,)*
                }
            }

            /// Runs `visitor` for the engine.
            pub fn visit<V: EngineVisitor>(self, visitor: V) -> V::Output {
                match self {
                    EngineOptions::$first(options) => visitor.visit::<$first_engine>(options),
                    $(EngineOptions::$other(options) => visitor.visit::<$other_engine>(options),)*
                }
            }
        }

        engines!(@impl $first $first_engine);
        $(engines!(@impl $other $other_engine);)*
    };
    (@impl $variant:ident $engine:ty) => {
        impl RegisteredEngine for $engine {
            const PROTOCOL: Protocol = Protocol::$variant;

            fn limits(options: &mut Self::Options) -> &mut Limits {
                &mut options.limits
            }
        }
    };
}

engines! {
    Mako {
        engine: shoal_mako::Mako,
        name: "mako",
        title: "Mako",
        about: "Certify first, replicate in the background",
        accepts_losses: true,
        replicates_shards: true,
    }
    TwoPhaseCommit {
        engine: shoal_two_phase_commit::TwoPhaseCommit,
        name: "two-phase-commit",
        title: "Two-phase commit",
        about: "The classic one, to compare with",
        accepts_losses: false,
        replicates_shards: true,
    }
    Zeus {
        engine: shoal_zeus::Zeus,
        name: "zeus",
        title: "Zeus",
        about: "Move rows to the node that uses them, commit there",
        accepts_losses: false,
        replicates_shards: false,
    }
    Tiga {
        engine: shoal_tiga::Tiga,
        name: "tiga",
        title: "Tiga",
        about: "Order by synchronized clocks, commit in one wide-area round trip",
        accepts_losses: false,
        replicates_shards: false,
    }
}

impl Protocol {
    /// The name in files, on the command line and in results.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// The engine of this name.
    pub fn named(name: &str) -> Option<Protocol> {
        Protocol::ALL.iter().copied().find(|protocol| protocol.name() == name)
    }
}

/// By name.
impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Protocol, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        let unknown = || de::Error::unknown_variant(&name, Protocol::NAMES);
        Protocol::named(&name).ok_or_else(unknown)
    }
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        Protocol::default().options()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_has_a_name_that_files_know_and_options() {
        for &protocol in Protocol::ALL {
            let name = protocol.name();
            assert_eq!(Protocol::named(name), Some(protocol));
            let text = format!("\"{name}\"");
            assert_eq!(serde_json::from_str::<Protocol>(&text).expect("a known name"), protocol);
            assert_eq!(protocol.options().protocol(), protocol);
        }
        assert_eq!(Protocol::named("raft"), None);
        let error = serde_json::from_str::<Protocol>("\"raft\"").expect_err("an unknown name");
        assert!(error.to_string().contains("expected one of `mako`, "), "{error}");
    }

    #[test]
    fn a_visitor_is_called_for_the_engine_of_the_options() {
        struct NameOf;
        impl EngineVisitor for NameOf {
            type Output = &'static str;

            fn visit<E: RegisteredEngine>(self, mut options: E::Options) -> &'static str {
                assert!(E::limits(&mut options).open_max > 0);
                E::PROTOCOL.name()
            }
        }
        for protocol in Protocol::ALL {
            assert_eq!(protocol.options().visit(NameOf), protocol.name());
        }
    }
}
