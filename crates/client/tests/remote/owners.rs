//! Where granules move to the node that uses them, their transactions go to the owner.

use crate::block_on;
use crate::scripted::{Asked, Do, Scripted};
use shoal_client::{Aborted, Cluster, Error, NodeId};
use shoal_engine::client::{ClientReply, ClientRequest, ClientRouting};
use shoal_types::{Call, Database, TableId};

const OWNER: NodeId = NodeId(2);

/// A cluster whose other nodes say that OWNER owns everything.
fn owned() -> Scripted {
    let cluster = Scripted::start(3, |asked| {
        let moved = || Error::from(Aborted::Moved { owner: OWNER });
        match asked.what {
            _ if asked.node == OWNER => Do::Naturally,
            ClientRequest::Steps { session, number, .. } => {
                Do::Reply(ClientReply::Done { session, number, result: Err(moved()) })
            }
            ClientRequest::Call { id, .. } => {
                Do::Reply(ClientReply::Called { id, result: Err(moved()) })
            }
            _ => Do::Naturally,
        }
    });
    cluster.route(ClientRouting::Owners);
    cluster
}

fn nodes(asked: &[Asked]) -> Vec<NodeId> {
    asked.iter().map(|asked| asked.node).collect()
}

/// Does something with each of some keys, twice. It takes so many messages at the owner, and is sent elsewhere once at most.
fn twice_with_each_key(messages: usize, acts: &impl AsyncFn(&Cluster, TableId, [u8; 2])) {
    let cluster = owned();
    block_on(async {
        let db = cluster.connect().await;
        let people = db.table("people").expect("a table");
        for number in 0..9 {
            let key = [b'k', number];
            for attempt in 0..2 {
                let before = cluster.asked().len();
                acts(&db, people, key).await;
                let asked = nodes(&cluster.asked()[before..]);
                assert_eq!(asked.last(), Some(&OWNER));
                let refused = asked.iter().filter(|node| **node != OWNER).count();
                assert!(asked.len() <= refused + messages, "{key:?} was sent to {asked:?}");
                assert!(refused <= usize::from(attempt == 0), "{key:?} was sent to {asked:?}");
            }
        }
    });
    let asked = nodes(&cluster.asked());
    assert!(asked.iter().any(|node| *node != OWNER), "names select all nodes");
}

#[test]
fn a_transaction_goes_to_the_owner_that_a_node_has_named() {
    twice_with_each_key(2, &async |db, people, key| {
        let read = db.transact(async |tx| {
            tx.get(people, &key).await?;
            tx.put(people, &key, b"1")
        });
        read.await.expect("the owner commits it");
    });
}

#[test]
fn a_call_is_executed_at_the_owner_that_a_node_has_named() {
    twice_with_each_key(1, &async |db, people, key| {
        let call = Call::new("p", b"x").near(people, &key);
        assert_eq!(Database::call(db, &call).await, Ok("done".into()));
    });
}
