//! The embedded database, tried from outside: against a model, against its limits, against planted
//! bugs. What needs real threads and the history checker is in the tests of the crate `shoal`.
//!
//! | module | shows |
//! |---|---|
//! | `model` | the model: ordered maps, and operations that both understand |
//! | `serial` | one transaction after the other: the database is a set of ordered maps |
//! | `interleaved` | several open at once: the committed ones are a serial execution in commit order |
//! | `stepped` | the same with the steps of a commit interleaved too, on the store |
//! | `slices` | what was read stays as it was until the transaction ends |
//! | `input` | bad input and limits |
//! | `ending` | panics, errors, dropped futures: nothing is left behind |
//! | `sending` | tasks and threads |
//! | `churn` | memory returns to a steady state |

mod churn;
mod ending;
mod input;
mod interleaved;
mod model;
mod sending;
mod serial;
mod slices;
mod stepped;
