//! Tests of the bytes of what engines have in common, and the values that tests of engines draw for it.

#[cfg(any(test, feature = "strategies"))]
pub mod strategies;
#[cfg(test)]
mod tests;
