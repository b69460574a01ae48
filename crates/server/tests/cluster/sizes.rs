//! Transactions at the limits of every size, on real sockets: all that is legal is committed, and replicated.

use crate::cluster::Cluster;
use bytes::Bytes;
use shoal_server::{NodeStatus, Protocol};
use shoal_types::limits::{KEY_BYTES_MAX, TRANSACTION_BYTES_MAX, VALUE_BYTES_MAX};
use shoal_types::{Error, NodeId, ProcedureTransaction, Result, ShardId, TableId, Transaction};

/// What a transaction writes: so many keys of these sizes.
#[derive(Debug, Clone, Copy)]
struct Size {
    keys: usize,
    key_bytes: usize,
    value_bytes: usize,
}

impl Size {
    fn encode(self) -> Vec<u8> {
        let numbers = [self.keys, self.key_bytes, self.value_bytes];
        numbers.iter().flat_map(|number| (*number as u64).to_le_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Size {
        let number = |at: usize| {
            let eight = bytes[8 * at..8 * at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(eight) as usize
        };
        Size { keys: number(0), key_bytes: number(1), value_bytes: number(2) }
    }

    fn key(self, number: usize) -> Vec<u8> {
        let mut key = vec![0; self.key_bytes];
        key[..4].copy_from_slice(&(number as u32).to_be_bytes());
        key
    }
}

/// Writes as much as it is asked to.
pub async fn fill(tx: &ProcedureTransaction<'_>, arguments: &[u8]) -> Result<Bytes> {
    let size = Size::decode(arguments);
    let value = vec![7; size.value_bytes];
    for number in 0..size.keys {
        tx.put(TableId(0), &size.key(number), &value)?;
        // Where it reads, it lets others have their turn.
        tx.get(TableId(0), &size.key(number)).await?;
    }
    Ok(Bytes::new())
}

/// How often each is tried where a node loses its lease.
const TRIES: usize = 5;

/// Runs them one after the other: each is answered, and then every node has it.
///
/// That no node loses a lease by it is shown in virtual time (`sim/tests/sim/sizes.rs`): here a busy machine can take one
/// from any node.
async fn run(shards: u32, protocol: Protocol, sizes: &[Size]) {
    let cluster = Cluster::start(shards, 1, protocol);
    let mut client = cluster.client(1);
    for size in sizes {
        for home in 0..shards {
            let mut tries = 0;
            while let Err(error) =
                client.call(NodeId(0), ShardId(home), "fill", &size.encode()).await
            {
                tries += 1;
                let lost = matches!(error, Error::Aborted(_));
                assert!(lost && tries < TRIES, "{size:?}: {error}");
            }
        }
    }
    let decided = |status: &NodeStatus| status.streams[0].decided;
    for node in cluster.running() {
        let first = NodeId(node.0 / 3 * 3);
        let wanted = decided(&cluster.status_of(first).await);
        cluster.until("it has all", node, |status| decided(status) >= wanted).await;
    }
}

/// The longest values, as many as a transaction may write.
const LONG_VALUES: Size = Size {
    keys: TRANSACTION_BYTES_MAX / VALUE_BYTES_MAX - 1,
    key_bytes: 8,
    value_bytes: VALUE_BYTES_MAX,
};

/// The longest keys, as many as a transaction may write.
const LONG_KEYS: Size = Size {
    // One less than would fit: the call's own row counts as well.
    keys: TRANSACTION_BYTES_MAX / (KEY_BYTES_MAX + 24) - 1,
    key_bytes: KEY_BYTES_MAX,
    value_bytes: 0,
};

/// Many values of a usual length.
const MANY_WRITES: Size = Size { keys: 20_000, key_bytes: 24, value_bytes: 1000 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_transactions_pass() {
    run(1, Protocol::Mako, &[LONG_VALUES, LONG_KEYS, MANY_WRITES, LONG_VALUES]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_transactions_pass_between_shards() {
    run(2, Protocol::Mako, &[LONG_VALUES]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_transactions_pass_two_phase_commit() {
    run(1, Protocol::TwoPhaseCommit, &[LONG_VALUES, LONG_KEYS]).await;
}
