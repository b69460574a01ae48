//! Why connections were closed and frames dropped: nothing ends without a reason that is counted.

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

            /// Its name in logs and metrics.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }

            /// The reason of this number, as it is told to the other end.
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
    /// Why a connection ended, or never began. New ones go to the end: their numbers are told to others.
    CloseReason {
        /// The other end closed it, between frames.
        Left = "left",
        /// The other end reset it, or fell silent and the kernel gave up on it.
        Vanished = "vanished",
        /// It ended in the middle of a frame.
        Truncated = "truncated",
        /// What came is no frame, or no message of the handshake.
        Malformed = "malformed",
        /// A frame was announced that is longer than allowed.
        TooLong = "too_long",
        /// A frame of a kind that has no place here.
        Unexpected = "unexpected",
        /// The handshake took too long.
        SlowHandshake = "slow_handshake",
        /// The first bytes are not ours: some other protocol.
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
        /// A worker that there is not, or not for this one.
        WrongWorker = "wrong_worker",
        /// A proof without the secret: a stranger, a replay, or a reflection.
        WrongSecret = "wrong_secret",
        /// A former process of a node that is connected in a later one.
        StaleLife = "stale_life",
        /// Too many strangers at the listener; this one had stood there longest.
        Crowded = "crowded",
        /// Too many clients.
        TooManyClients = "too_many_clients",
        /// The same peer connected anew.
        Superseded = "superseded",
        /// A client that does not read what it asked for.
        FellBehind = "fell_behind",
        /// The core asked for it.
        Asked = "asked",
        /// The other end refused us.
        Refused = "refused",
        /// There is no way to that host, or it did not answer.
        Unreachable = "unreachable",
        /// The peer is one no more, or somewhere else.
        Removed = "removed",
        /// A node or client of the same cluster by name, that was founded apart from ours.
        OtherFounding = "other_founding",
        /// The handshake was made before this node knew which cluster it belongs to: it is to be made again.
        Identified = "identified",
        /// The host refused the connection: nothing listens at this port.
        NotListening = "not_listening",
        /// The name of the host could not be resolved.
        UnknownHost = "unknown_host",
        /// The address is not `HOST:PORT`.
        BadAddress = "bad_address",
        /// The two ends speak no version of messages in common.
        NoCommonVersion = "no_common_version",
    }
}

reasons! {
    /// Why a frame was not delivered.
    DropReason {
        /// There is no connection to that peer now.
        NotConnected = "not_connected",
        /// More is on its way to that peer than allowed.
        QueueFull = "queue_full",
        /// No such peer.
        UnknownPeer = "unknown_peer",
        /// No such client, or it left.
        UnknownClient = "unknown_client",
        /// Longer than a frame may be.
        TooLong = "too_long",
        /// The way to that peer, or from it, is cut.
        Cut = "cut",
        /// It was queued or held when its connection ended.
        Lost = "lost",
        /// Its connection was made before this node knew which cluster it belongs to.
        Unidentified = "unidentified",
        /// Too much waits for the other worker of this node that it is for.
        MailboxFull = "mailbox_full",
        /// It is for a worker that this node does not have.
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
