//! How a connection is registered with a worker that passes over what it is asked.

use super::super::cluster_identity::ClusterIdentity;
use super::super::environment::MessageCarrier;
use super::super::sockets::Sockets;
use super::*;
use crate::Access;
use bytes::Bytes;
use shoal_cluster::topology::Topology;
use shoal_engine::client::{ClientRouting, Directory};
use shoal_engine::operation::Operation;
use shoal_types::{TableId, WorkerId};

const REGISTRATION: u64 = 40;

/// What was sent over a connection.
#[derive(Debug, Clone, Default)]
struct SentMessages(Arc<Mutex<Vec<FromClient>>>);

impl MessageCarrier for SentMessages {
    fn start(self: Box<Self>, _: Arc<dyn Incoming>) -> Box<dyn Outgoing> {
        self
    }
}

impl Outgoing for SentMessages {
    fn send(&self, what: FromClient) {
        lock(&self.0).push(what);
    }
}

/// A connection, and what is sent over it.
struct Ends {
    link: Arc<NodeConnection>,
    sent: SentMessages,
    client_shared: Arc<ClientShared>,
}

impl Ends {
    fn new() -> Ends {
        let topology = Arc::new(Topology::compact(1, 1, 1, 0, 1));
        let directory =
            Directory { topology, configuration: None, routing: ClientRouting::Leaders };
        let world = Arc::new(Sockets::new(Access::open("reef"), None));
        let client_shared =
            Arc::new(ClientShared::new(world, directory, ClusterIdentity::of(None)));
        let sent = SentMessages::default();
        let connection = EnvironmentConnection {
            node: NodeId(0),
            worker: WorkerId(0),
            identity: None,
            carrier: Box::new(sent.clone()),
        };
        Ends { link: NodeConnection::start(connection, &client_shared), sent, client_shared }
    }

    /// A session that wants to read.
    fn reads(&self) -> SharedSession {
        let session: SharedSession = Arc::new(Mutex::new(ClientSession::new(1 << 20)));
        let read = Operation::Get { table: TableId(0), key: Bytes::from_static(b"a") };
        // The session knows of the read, whether or not a task waits for it.
        drop(self.link.with(&session, |session| session.perform(read)));
        session
    }

    fn roll_back(&self, session: &SharedSession) {
        self.link.with(session, ClientSession::roll_back);
    }

    /// The requests since the last look: to register, and with steps.
    fn sent(&self) -> (usize, usize) {
        let sent = std::mem::take(&mut *lock(&self.sent.0));
        let count = |wanted: fn(&ClientRequest) -> bool| {
            let fits = |what: &&FromClient| matches!(what, FromClient::Request(it) if wanted(it));
            sent.iter().filter(fits).count()
        };
        let steps = count(|request| matches!(request, ClientRequest::Steps { .. }));
        (count(|request| *request == ClientRequest::Register), steps)
    }

    fn registered(&self) {
        let reply = ClientReply::Registered { registration: REGISTRATION };
        let taken = self.link.on_message(ToClient::Reply(reply), &self.client_shared);
        taken.expect("well-formed");
    }

    fn without_id(&self) -> usize {
        lock(&self.link.open).without_id.len()
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_that_wait_together_are_registered_for_once() {
    let ends = Ends::new();
    let waiting: Vec<SharedSession> = (0..3).map(|_| ends.reads()).collect();
    assert_eq!((ends.sent(), ends.without_id()), ((1, 0), waiting.len()));
    ends.registered();
    assert_eq!((ends.sent(), ends.without_id()), ((0, 3), 0));
}

/// None of the transactions lives until it would ask again.
#[tokio::test(start_paused = true)]
async fn a_session_after_one_that_was_rolled_back_without_an_id_repeats_the_request_for_the_registration()
 {
    let ends = Ends::new();
    for _ in 0..3 {
        let session = ends.reads();
        assert_eq!(ends.sent(), (1, 0), "the worker has passed over all that came before");
        ends.roll_back(&session);
        ends.roll_back(&session);
        assert_eq!(ends.without_id(), 0, "it is forgotten");
    }
    ends.reads();
    assert_eq!(ends.sent(), (1, 0));
    ends.registered();
    assert_eq!(ends.sent(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_still_waits_asks_again_though_another_was_rolled_back() {
    let ends = Ends::new();
    let (gone, waiting) = (ends.reads(), ends.reads());
    assert_eq!(ends.sent(), (1, 0));
    ends.roll_back(&gone);
    for _ in 0..2 {
        ends.link.send_again(&waiting, &ends.client_shared);
        assert_eq!(ends.sent(), (1, 0));
    }
    // The worker may have answered before it is asked again.
    ends.roll_back(&ends.reads());
    ends.registered();
    assert_eq!((ends.sent(), ends.without_id()), ((0, 1), 0));
    ends.reads();
    assert_eq!(ends.sent(), (0, 1));
}
