//! Versions of messages: the two ends of a connection use the newest one that both know.
//!
//! A version stands for the forms of all messages that ends of one kind send each other: nodes to nodes, or clients and
//! nodes. A change of any of these forms makes another version. So that nodes can be upgraded one after the other, a build
//! uses a range of versions, and two builds go together if their ranges meet.

use std::fmt;

/// The versions of what nodes say to nodes: workers, streams, members and managers. A change of the form of any of these
/// messages makes a new version; `crates/node/tests/conversations/` keeps a conversation of each.
pub const PEER_MESSAGES: MessageVersions = MessageVersions::new(1, 1);

/// The versions of what clients and nodes say to each other; `crates/client/tests/conversations/` keeps a conversation of
/// each.
pub const CLIENT_MESSAGES: MessageVersions = MessageVersions::new(1, 1);

/// One version of messages. The first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageVersion(pub u16);

impl fmt::Display for MessageVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The versions of messages that a build uses: all from the oldest to the newest.
///
/// Invariant: the oldest is 1 or more, and not above the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageVersions {
    oldest: MessageVersion,
    newest: MessageVersion,
}

impl MessageVersions {
    /// A range.
    ///
    /// # Panics
    /// If it is none.
    pub const fn new(oldest: u16, newest: u16) -> MessageVersions {
        assert!(oldest > 0 && oldest <= newest, "a range of versions has a first and a last one");
        MessageVersions { oldest: MessageVersion(oldest), newest: MessageVersion(newest) }
    }

    /// The range that another end declares, if it is one.
    pub fn said(oldest: u16, newest: u16) -> Option<MessageVersions> {
        (oldest > 0 && oldest <= newest).then(|| MessageVersions::new(oldest, newest))
    }

    /// The least version of the range.
    pub fn oldest(self) -> MessageVersion {
        self.oldest
    }

    /// The greatest version of the range.
    pub fn newest(self) -> MessageVersion {
        self.newest
    }

    /// The newest version of both ranges: what two ends with these ranges use. Both find the same.
    pub fn common(self, other: MessageVersions) -> Option<MessageVersion> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }

    /// The versions of the range, ascending.
    pub fn iter(self) -> impl Iterator<Item = MessageVersion> {
        (self.oldest.0..=self.newest.0).map(MessageVersion)
    }
}

impl fmt::Display for MessageVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.oldest == self.newest {
            true => write!(f, "version {}", self.newest),
            false => write!(f, "versions {} to {}", self.oldest, self.newest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_find_the_newest_version_that_both_speak() {
        let all = || (1..6).flat_map(|oldest| (oldest..6).map(move |newest| (oldest, newest)));
        for (ours, theirs) in all().flat_map(|ours| all().map(move |theirs| (ours, theirs))) {
            let range = |(oldest, newest)| MessageVersions::new(oldest, newest);
            let speaks = |of: (u16, u16), version| of.0 <= version && version <= of.1;
            let expected = (1..6).rev().find(|it| speaks(ours, *it) && speaks(theirs, *it));
            assert_eq!(range(ours).common(range(theirs)), expected.map(MessageVersion));
            assert_eq!(range(theirs).common(range(ours)), expected.map(MessageVersion));
        }
    }

    #[test]
    fn what_is_no_range_is_not_taken_for_one() {
        assert_eq!(MessageVersions::said(0, 3), None);
        assert_eq!(MessageVersions::said(3, 2), None);
        let range = MessageVersions::said(2, 3).expect("a range");
        assert_eq!((range.to_string(), range.iter().count()), ("versions 2 to 3".to_owned(), 2));
        assert_eq!(MessageVersions::new(1, 1).to_string(), "version 1");
    }
}
