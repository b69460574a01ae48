//! Order-preserving tuple encoding.
