//! The verdict of a rule about an observation.

/// The result of judging an observation; the error describes the violation.
pub(super) type RuleVerdict = Result<(), String>;
