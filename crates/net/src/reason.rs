//! Why connections were closed and frames dropped. Every end and every loss has a reason, which is counted.

/// An enum of reasons with their names, as logs and metrics say them.
macro_rules! reasons {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// Every reason there is, in order.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// The name in logs and metrics.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }

            /// The reason of this number, which the other end receives.
            pub fn from_code(code: u8) -> Option<$name> {
                $name::ALL.get(usize::from(code)).copied()
            }

            /// The number that stands for the reason in the last frame of a connection.
            pub fn code(self) -> u8 {
                self as u8
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

reasons! {
    /// Why a connection ended, or was not established. New reasons go to the end: their numbers are sent to
    /// other nodes.
    CloseReason {
        /// The other end closed it, between frames.
        Left = "left",
        /// The other end reset it, or the kernel's timeout has passed without an answer.
        Vanished = "vanished",
        /// The connection ended in the middle of a frame.
        Truncated = "truncated",
        /// Malformed bytes: no frame, or no message of the handshake.
        Malformed = "malformed",
        /// A header announced a longer frame than allowed.
        TooLong = "too_long",
        /// A frame of a kind that is not legal at this point.
        Unexpected = "unexpected",
        /// The handshake took too long.
        SlowHandshake = "slow_handshake",
        /// The first bytes are those of another protocol.
        WrongMagic = "wrong_magic",
        /// Another version of frames and of the handshake.
        WrongVersion = "wrong_version",
        /// One end wants TLS and the other does not.
        WrongTls = "wrong_tls",
        /// TLS was not agreed on: a certificate of another, or none.
        TlsFailed = "tls_failed",
        /// A node of another cluster.
        WrongCluster = "wrong_cluster",
        /// Not the node that was dialed.
        WrongNode = "wrong_node",
        /// A node that is not a peer.
        UnknownNode = "unknown_node",
        /// The worker does not exist, or another one was wanted.
        WrongWorker = "wrong_worker",
        /// A wrong proof: the other end does not know the secret, or replays or reflects a proof.
        WrongSecret = "wrong_secret",
        /// A former process of a node of which a later one is connected.
        FormerProcess = "former_process",
        /// Too many unauthenticated connections; this was the oldest.
        TooManyUnauthenticated = "too_many_unauthenticated",
        /// The worker has as many clients as the limit allows.
        TooManyClients = "too_many_clients",
        /// The same peer connected again.
        Superseded = "superseded",
        /// The client does not read its replies.
        FellBehind = "fell_behind",
        /// The core closed it.
        Asked = "asked",
        /// The other end refused.
        Refused = "refused",
        /// The host is unreachable, or did not answer.
        Unreachable = "unreachable",
        /// The peer was removed, or its address has changed.
        Removed = "removed",
        /// A node or client of another cluster with the same name: one that was founded again.
        OtherFounding = "other_founding",
        /// The handshake was made before this node knew the identity of its cluster, and has to be repeated.
        Identified = "identified",
        /// The host refused the connection: nothing listens at this port.
        NotListening = "not_listening",
        /// The name of the host could not be resolved.
        UnknownHost = "unknown_host",
        /// The address is not `HOST:PORT`.
        BadAddress = "bad_address",
        /// The two ends have no version of messages in common.
        NoCommonVersion = "no_common_version",
        /// A node that was removed from the cluster.
        RemovedNode = "removed_node",
        /// A node with another engine, or with other options where the engine's have to be the same on all nodes.
        OtherEngine = "other_engine",
    }
}

reasons! {
    /// Why a frame was not delivered.
    DropReason {
        /// There is no connection to that peer now.
        NotConnected = "not_connected",
        /// The queue of that peer is full.
        QueueFull = "queue_full",
        /// No such peer.
        UnknownPeer = "unknown_peer",
        /// No such client, or it has disconnected.
        UnknownClient = "unknown_client",
        /// Longer than a frame may be.
        TooLong = "too_long",
        /// The link to that peer, or from it, is cut.
        Cut = "cut",
        /// The frame was queued or delayed when its connection ended.
        Lost = "lost",
        /// The connection was made before this node knew the identity of its cluster.
        Unidentified = "unidentified",
        /// The queue of the worker of this node that it is for is full.
        MailboxFull = "mailbox_full",
        /// The frame is for a worker that this node does not have.
        UnknownWorker = "unknown_worker",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn reasons_have_distinct_names_and_come_back_from_their_numbers() {
        let names: BTreeSet<_> = CloseReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), CloseReason::ALL.len());
        for reason in CloseReason::ALL {
            assert_eq!(CloseReason::from_code(reason.code()), Some(*reason));
        }
        assert_eq!(CloseReason::from_code(255), None);
        assert_eq!(DropReason::Cut.to_string(), "cut");
    }
}
