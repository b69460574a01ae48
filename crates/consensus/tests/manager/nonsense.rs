//! Messages that no correct node sends.
