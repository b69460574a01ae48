//! What a client waited for in vain: for errors that name the cause and the node.

use crate::id::{NodeId, ShardId};
use crate::wire::Coded;
use std::fmt;
use std::time::Duration;

/// A wait that was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub struct Wait {
    /// The node that was asked last; `None` where none could be reached.
    pub node: Option<NodeId>,
    /// The message that did not arrive.
    pub awaited: Awaited,
    /// What stood in the way last.
    pub cause: Cause,
    /// The time from the first request to the end of the wait.
    pub waited: Duration,
}

/// What a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub enum Awaited {
    /// The answer to a handshake.
    #[coded(tag = 0)]
    Connection,
    /// What an operation of an interactive transaction brings.
    #[coded(tag = 1)]
    Operation,
    /// Whether an interactive transaction has committed.
    #[coded(tag = 2)]
    Commit,
    /// The result of a procedure's call.
    #[coded(tag = 3)]
    Call,
    /// A session under which procedures are called.
    #[coded(tag = 4)]
    CallSession,
    /// A table to be created, or dropped.
    #[coded(tag = 5)]
    TableChange,
}

/// Why an answer did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Coded)]
pub enum Cause {
    /// The node was asked and says nothing.
    #[coded(tag = 0)]
    Silent,
    /// There is no way to its host, or its address is not known.
    #[coded(tag = 1)]
    Unreachable,
    /// The node lets in no client that does not know a secret, or is of another cluster.
    #[coded(tag = 2)]
    Refused,
    /// The connection was established, and ended before the answer.
    #[coded(tag = 3)]
    Disconnected,
    /// The messages of the node are malformed.
    #[coded(tag = 4)]
    Malformed,
    /// The node leads no shard at the moment, or another leads this one.
    #[coded(tag = 5)]
    NotServing,
    /// Whether the request took effect before could not be looked up, for want of this shard.
    #[coded(tag = 6)]
    Unsettled(#[coded(short)] ShardId),
    /// The node belongs to a cluster that was founded in the place of the client's.
    #[coded(tag = 7)]
    FoundedAgain,
    /// The node knows that the shard has no majority of its replicas.
    #[coded(tag = 8)]
    NoMajority,
    /// The host refuses connections: nothing listens at its port.
    #[coded(tag = 9)]
    NotListening,
    /// The name of its host cannot be resolved.
    #[coded(tag = 10)]
    UnknownHost,
    /// The address is not `HOST:PORT`.
    #[coded(tag = 11)]
    BadAddress,
    /// The node uses no version of messages that the client uses.
    #[coded(tag = 12)]
    OtherVersion,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wait { node, awaited, cause, waited } = self;
        write!(f, "waited {waited:.1?} for {awaited}: ")?;
        match node {
            Some(node) => write!(f, "{node} {cause}"),
            None => write!(f, "every node {cause}"),
        }
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Awaited::Connection => "a connection",
            Awaited::Operation => "what an operation brings",
            Awaited::Commit => "the outcome of a commit",
            Awaited::Call => "the outcome of a call",
            Awaited::CallSession => "a session for calls",
            Awaited::TableChange => "a change of tables",
        })
    }
}

/// To be read after the name of a node.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Unsettled(shard) => {
                return write!(f, "could not look what became of it yet, for want of {shard}");
            }
            Cause::Silent => "says nothing",
            Cause::Unreachable => "cannot be reached",
            Cause::Refused => "refuses us",
            Cause::Disconnected => "ended the connection",
            Cause::Malformed => "sent malformed bytes",
            Cause::NotServing => "does not lead what was asked for",
            Cause::FoundedAgain => "belongs to a cluster that was founded in the place of ours",
            Cause::NotListening => "refuses connections: nothing listens at its port",
            Cause::UnknownHost => "is on a host whose name cannot be resolved (DNS)",
            Cause::BadAddress => "has an address that is not HOST:PORT",
            Cause::OtherVersion => "is of a release that speaks no version of messages of ours",
            Cause::NoMajority => "cannot serve, since too few replicas of the shard are left",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Aborted, Error};

    #[test]
    fn an_error_says_who_was_waited_for_how_long_and_why() {
        let wait = Wait {
            node: Some(NodeId(2)),
            awaited: Awaited::Operation,
            cause: Cause::Silent,
            waited: Duration::from_secs(10),
        };
        assert_eq!(
            Error::from(Aborted::Unanswered(wait)).to_string(),
            "aborted: waited 10.0s for what an operation brings: n2 says nothing; run it again"
        );
        let any_node = Wait { node: None, awaited: Awaited::Connection, ..wait };
        assert_eq!(any_node.to_string(), "waited 10.0s for a connection: every node says nothing");
    }
}
