//! Explorers: models of commit protocols, searched for states that break their rules.
//!
//! ```text
//!            actions                    apply
//!   state ─────────────► deliver m3 ─────────────► state ──► check
//!                        crash n2                    │
//!                        …                           └──► no action left: check_end
//! ```
//! A model says which actions are possible in a state and which state each of them leads to. A search visits states until
//! one breaks a rule, and gives the actions that led there. [`exhaustive()`] visits every state within the model's bounds,
//! the near ones first, so that what it finds is a shortest counterexample. [`random_walk()`] follows random actions from a
//! seed, for bounds that are too large to be searched.
//!
//! A model is not an engine. It has no time, no rows and no sizes, and keeps of a protocol only what its rules concern, so
//! that every order of messages, losses and crashes can be tried. Each rule of a model can be switched off: a rule without
//! which nothing goes wrong is not needed, or not checked.
//!
//! | file | holds |
//! |---|---|
//! | `model.rs` | what a model is, and what a search finds |
//! | `exhaustive.rs` | breadth-first search of all states |
//! | `random_walk.rs` | random walks |
//! | `protocol.rs`, `registry.rs` | what is explored of a protocol; the explored protocols, by name |
//! | `tiga/` | Tiga |
//! | `zeus/` | Zeus |

pub mod exhaustive;
pub mod model;
pub mod protocol;
pub mod random_walk;
pub mod registry;
pub mod tiga;
pub mod zeus;

pub use exhaustive::{SearchBounds, exhaustive};
pub use model::{Counterexample, Model, SearchResult, Violation};
pub use protocol::{
    Exploration, FoundBy, Protocol, ScenarioInfo, ScenarioSize, SearchMethod, SearchProgress,
    Switch, search,
};
pub use random_walk::{WalkBounds, random_walk};
pub use registry::PROTOCOLS;
