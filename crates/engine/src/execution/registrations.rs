//! Which interactive transactions may begin: those of connections that this worker has registered, each once, as in *Raft*
//! (dissertation, §6.3), but kept in the coordinator's memory alone.
//!
//! ```text
//!   session   0 … │ 40      41      42     43   │ 44 …
//!      begun, or  │ begun  skipped  begun  begun │ may begin
//!    never begins │        may begin             └─ next
//! ```
//! A worker registers a connection under a serial number that it counts. Steps name their transaction by the
//! registration and the session, a number that the client counts over the connection. The step with number 0 begins it,
//! wherever it comes from: a client that writes only asks for all steps and the commit in one message, so a copy of
//! this message must find that it was there.
//!
//! **Why no transaction commits twice.** A session begins only under a registration that this worker knows for the
//! connection it comes over, and only while its number is [`Registration::next`] or greater, or among those that were
//! skipped. From then on it is neither: `next` only grows, and what was skipped is taken out. So it begins once, as
//! long as the registration is known. A registration that was forgotten stays unknown: the serials of a worker are
//! counted, and begin with a number of 62 bits that is drawn when the process starts, so that neither it nor a process
//! after it grants one again. A session that is over does not go on: its steps are answered from memory, or refused. So
//! a copy of a message may be late by any time, and runs nothing for a second time.
//!
//! **Why what a client has read and what it commits are one transaction.** Registration and session name one transaction
//! at most. Its steps are done in their order, each once.
//!
//! **Why a client that was answered *aborted* has changed nothing.** A client begins another session when this worker
//! answers that it does not know the session, which will not begin any more then. If the client has sent no commit, no
//! copy can commit. If it has sent one, once, that message arrived before this answer, and was refused, or arrives after
//! it, and is refused. If it has sent the commit twice, the first copy may have committed and the session been dropped:
//! then the outcome is *unknown*. All other answers come from the transaction itself.
//!
//! **Why a put that failed is not left out of a commit.** A client sends a commit with puts that are not answered. A
//! put or a delete that fails ends the transaction, with its error for an answer, and a commit that waits behind it is
//! dropped (`interactive.rs` asserts that). Reads and inserts that fail with an error of their own leave the
//! transaction open; a client sends no commit before they are answered.
//!
//! **Why memory is bounded.** Open transactions are bounded by admission, the connections without one by
//! [`answers_remembered`](super::Limits::answers_remembered), what is skipped by [`SKIPPED_MAX`].

use crate::client::ClientId;
use crate::planted_bugs::{PlantedBug, PlantedBugs};
use std::collections::{BTreeMap, BTreeSet};

/// Sessions that a connection may skip and begin later. A node without a lease ignores requests, and the client repeats
/// them; if more are skipped, the oldest never begin.
const SKIPPED_MAX: u64 = 64;

/// The connections that a worker has registered.
#[derive(Debug)]
pub(super) struct Registrations {
    /// The serial of the connection that registers next.
    next_serial: u64,
    known: BTreeMap<ClientId, Registration>,
    /// The connections without an open transaction, in the order in which their last one ended.
    idle: BTreeMap<u64, ClientId>,
    next_idle: u64,
    /// As in [`Limits`](super::Limits).
    idle_max: usize,
    faults: PlantedBugs,
}

#[derive(Debug)]
struct Registration {
    serial: u64,
    /// Sessions with a lower number have begun or never will, but for those that were skipped.
    next: u64,
    skipped: BTreeSet<u64>,
    /// Transactions that are not over.
    open: usize,
    /// The place in [`Registrations::idle`], if none is open.
    idle: Option<u64>,
}

impl Registrations {
    /// No registrations; the first will have the serial `first`.
    pub(super) fn new(first: u64, idle_max: usize, faults: PlantedBugs) -> Registrations {
        let (known, idle) = (BTreeMap::new(), BTreeMap::new());
        Registrations { next_serial: first, known, idle, next_idle: 0, idle_max, faults }
    }

    /// The number of registered connections.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// The serial of a connection, which is registered if it was not.
    pub(super) fn register(&mut self, client: ClientId) -> u64 {
        if let Some(registration) = self.known.get(&client) {
            return registration.serial;
        }
        let serial = self.next_serial;
        self.next_serial += u64::from(!self.faults.has(PlantedBug::ReuseSerials));
        let skipped = BTreeSet::new();
        let registration = Registration { serial, next: 0, skipped, open: 0, idle: None };
        self.known.insert(client, registration);
        self.rest(client);
        serial
    }

    /// Whether a session may begin.
    pub(super) fn may_begin(&self, client: ClientId, serial: u64, session: u64) -> bool {
        let Some(registration) = self.known.get(&client) else { return false };
        let is_new = registration.may_begin(session) || self.faults.has(PlantedBug::BeginAgain);
        registration.serial == serial && is_new
    }

    /// Begins a session that may begin.
    pub(super) fn begin(&mut self, client: ClientId, session: u64) {
        let forgets = self.faults.has(PlantedBug::BeginAgain);
        let registration = self.known.get_mut(&client).expect("a session begins where it may");
        assert!(
            registration.may_begin(session) || forgets,
            "session {session} of {client:?} begins a second time: {registration:?}"
        );
        registration.take(session);
        assert!(!registration.may_begin(session), "{session} may begin again: {registration:?}");
        registration.open += 1;
        if let Some(idle) = registration.idle.take() {
            self.idle.remove(&idle);
        }
    }

    /// Ends a session.
    pub(super) fn end(&mut self, client: ClientId) {
        let registration = self.known.get_mut(&client).expect("it has an open transaction");
        registration.open -= 1;
        if registration.open == 0 {
            self.rest(client);
        }
    }

    /// Notes that a connection has no open transaction.
    fn rest(&mut self, client: ClientId) {
        let registration = self.known.get_mut(&client).expect("it is registered");
        registration.idle = Some(self.next_idle);
        self.idle.insert(self.next_idle, client);
        self.next_idle += 1;
    }

    /// Forgets the connection that is without an open transaction for longest, if there are too many; to be called
    /// until there are not.
    pub(super) fn forget_one(&mut self) -> Option<ClientId> {
        if self.idle.len() <= self.idle_max {
            return None;
        }
        let (_, client) = self.idle.pop_first()?;
        let registration = self.known.remove(&client).expect("it is registered");
        assert!(registration.open == 0, "{client:?} has open transactions: {registration:?}");
        Some(client)
    }
}

impl Registration {
    fn may_begin(&self, session: u64) -> bool {
        // The last number never begins: no greater one could mark it as begun.
        (session >= self.next && session < u64::MAX) || self.skipped.contains(&session)
    }

    /// Removes a number from those that may begin.
    fn take(&mut self, session: u64) {
        if session < self.next {
            self.skipped.remove(&session);
            return;
        }
        let first = self.next.max(session.saturating_sub(SKIPPED_MAX));
        self.skipped.extend(first..session);
        while self.skipped.len() as u64 > SKIPPED_MAX {
            self.skipped.pop_first();
        }
        self.next = session + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLIENT: ClientId = ClientId(7);

    fn registrations(idle_max: usize) -> Registrations {
        Registrations::new(40, idle_max, PlantedBugs::NONE)
    }

    fn begins(all: &mut Registrations, client: ClientId, serial: u64, session: u64) -> bool {
        let may = all.may_begin(client, serial, session);
        if may {
            all.begin(client, session);
        }
        may
    }

    #[test]
    fn a_session_begins_once_and_what_was_skipped_may_come_later() {
        let mut all = registrations(1);
        let serial = all.register(CLIENT);
        assert_eq!(all.register(CLIENT), serial, "asked for again");
        let mut begins = |serial, session| begins(&mut all, CLIENT, serial, session);
        assert!(!begins(serial + 1, 0) && begins(serial, 0) && !begins(serial, 0));
        assert!(begins(serial, 3) && begins(serial, 1) && !begins(serial, 1));
        assert!(!begins(serial, u64::MAX) && begins(serial, u64::MAX - 1));
        assert!(!begins(serial, 2), "it was skipped too long ago");
        assert!(begins(serial, u64::MAX - 2) && !begins(serial, u64::MAX - 1));
        let far = u64::MAX - 1 - SKIPPED_MAX;
        assert!(begins(serial, far) && !begins(serial, far - 1));
    }

    #[test]
    fn a_connection_that_was_forgotten_gets_another_serial() {
        let mut all = registrations(1);
        let first = all.register(CLIENT);
        assert!(begins(&mut all, CLIENT, first, 0));
        let other = all.register(ClientId(8));
        let last = all.register(ClientId(9));
        assert_eq!(all.forget_one(), Some(ClientId(8)), "the first has an open transaction");
        assert_eq!(all.forget_one(), None);
        assert!(!begins(&mut all, ClientId(8), other, 0) && begins(&mut all, CLIENT, first, 1));
        all.end(CLIENT);
        assert_eq!(all.forget_one(), None, "one is open");
        all.end(CLIENT);
        assert_eq!((all.forget_one(), all.forget_one()), (Some(ClientId(9)), None));
        assert!(!begins(&mut all, ClientId(9), last, 0));
        let again = all.register(ClientId(9));
        assert!(again > last && !begins(&mut all, ClientId(9), last, 0));
        assert!(begins(&mut all, ClientId(9), again, 0));
        assert_eq!(all.len(), 2);
    }

    proptest! {
        /// Of any numbers none begins twice, and what is kept is bounded.
        #[test]
        fn no_number_begins_twice(numbers in prop::collection::vec(0..400_u64, 0..300)) {
            let mut all = registrations(1);
            let serial = all.register(CLIENT);
            let mut begun = BTreeSet::new();
            for number in numbers {
                if begins(&mut all, CLIENT, serial, number) {
                    prop_assert!(begun.insert(number), "{} began twice", number);
                }
                prop_assert!(all.known[&CLIENT].skipped.len() as u64 <= SKIPPED_MAX);
            }
        }
    }
}
