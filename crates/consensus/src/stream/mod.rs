//! One replicated sequence of entries.
