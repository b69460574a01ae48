//! The messages between nodes, in every version that this build uses, keeps its form (`tests/conversations/`). Frames between
//! nodes also say what is between managers: `server/src/envelope.rs` and `raft/src/code/` hold those forms.

use super::cluster::Cluster;
use super::engines::{Mako, Tiga, TracedEngine, TwoPhaseCommit, Zeus};
use super::messages::{show_worker_message, to_manager_text, to_node_text};
use super::run_command;
use shoal_cluster::manager::{ToManager, ToNode};
use shoal_golden::{RecordedMessage, Words, check_conversations};
use shoal_node::WorkerMessage;
use shoal_types::NodeId;
use shoal_types::wire::{Malformed, PEER_MESSAGES, decode, encode};
use std::collections::BTreeSet;
use std::path::Path;

/// Transactions of every kind, and one that is refused.
const TRANSACTIONS: &str = "
    run t1 0 put b 1
    settle
    run t2 0 get b, get c, put a 1, put b 2, delete c
    settle
    run t3 0 scan b, insert b2 3
    settle
    run t4 1 put b 1, put c 1
    run t5 0 put b 3, put c2 3, put a 2
    settle
    run t6 2 get a, get b
    settle
    run t9 0 get a, put b 9
    settle
";

/// A transaction whose coordinator leads nothing.
const COORDINATED_ANYWHERE: &str = "
    run t10 3 put a 9, put b 9
    settle
";

/// A granule moves to a node that has no copy of it.
const MOVED: &str = "
    run t12 0 put a 1, put a2 2, put a3 3
    settle
    run t13 5 get a, get a2, put a3 4
    settle
";

/// A follower does not receive a transaction, and has it from its leader's log.
const NOT_VOTED_FOR: &str = "
    run t11 5 put a 7
    drop kind=Submit to=3 count=1
    settle
    wait 20
";

/// A leader fails, comes back without its memory, and gets a copy of the shard.
const FAILURE: &str = "
    cut 0 nodes
    run t7 0 put a 3
    wait 20
    heal
    wait 40
    crash 0
    wait 200
    restart 0 empty
    wait 300
    run t8 1 put a 4, put b 4
    wait 40
";

/// A conversation of each kind of message, the first four of each.
fn record<E: TracedEngine>(cluster: &str, script: &[&str]) -> Vec<RecordedMessage> {
    let mut cluster = Cluster::<E>::new(&Words::of(cluster));
    let lines = script.iter().flat_map(|part| part.lines()).map(str::trim);
    lines.filter(|line| !line.is_empty()).for_each(|line| run_command(&mut cluster, line));
    let mut count = std::collections::BTreeMap::<String, usize>::new();
    let mut is_new = |message: &RecordedMessage| {
        let counted = kinds_of(&message.text).map(|kind| {
            let seen = count.entry(kind.to_owned()).or_default();
            *seen += 1;
            *seen
        });
        counted.min().is_some_and(|seen| seen <= 4)
    };
    cluster.said.into_iter().filter(|message| is_new(message)).collect()
}

/// The first word of each message behind the names of the two ends: `zeus` packs several into one, and says of which epoch each is
/// but for the first one.
fn kinds_of(text: &str) -> impl Iterator<Item = &str> {
    let is_epoch = |word: &&str| word.strip_prefix('e').is_some_and(|it| it.parse::<u32>().is_ok());
    let messages = text.splitn(4, ' ').nth(3).unwrap_or_default().split("; ");
    messages.map(move |message| message.split(' ').find(|word| !is_epoch(word)).unwrap_or_default())
}

/// Reads a message and writes it again.
fn again<E: TracedEngine>(kept: &RecordedMessage) -> Result<RecordedMessage, Malformed> {
    let bytes = kept.bytes.clone().into();
    let ends: Vec<&str> = kept.text.split(' ').take(3).collect();
    let node = |name: &str| NodeId(name[1..].parse().expect("a node"));
    let (text, bytes) = match ends[..] {
        ["manager", _, to] => {
            let message: ToNode = decode(&bytes)?;
            (to_node_text(node(to), &message), encode(&message))
        }
        [from, _, "manager"] => {
            let message: ToManager = decode(&bytes)?;
            (to_manager_text(node(from), &message), encode(&message))
        }
        _ => {
            let message: WorkerMessage<E::Message> = decode(&bytes)?;
            let text = show_worker_message::<E>(&message);
            (format!("{} {text}", ends.join(" ")), encode(&message))
        }
    };
    Ok(RecordedMessage { text, bytes: bytes.to_vec() })
}

fn check<E: TracedEngine>(name: &str, cluster: &str, script: &[&str], kinds: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conversations");
    let versions = PEER_MESSAGES.oldest().0..=PEER_MESSAGES.newest().0;
    let record = || record::<E>(cluster, script);
    check_conversations(&folder, name, versions, record, |kept| {
        again::<E>(kept).map_err(|malformed| malformed.to_string())
    });
    // What is not said in it, it cannot hold.
    let now = record();
    let said: BTreeSet<&str> = now.iter().flat_map(|message| kinds_of(&message.text)).collect();
    let missing: Vec<_> = kinds.iter().filter(|kind| !said.contains(*kind)).collect();
    assert!(missing.is_empty(), "the conversation lacks {missing:?}: {said:?}");
}

/// What replicas of a stream say to each other.
const STREAM: [&str; 5] = ["Prepare", "Promise", "Append", "Accepted", "Decide"];

#[test]
fn the_conversation_of_mako_keeps_its_form() {
    let own = [
        "Execute",
        "Executed",
        "Lock",
        "Locked",
        "Validate",
        "Validated",
        "Commit",
        "Certified",
        "Install",
        "Resolved",
        "Abort",
        "Refused",
        "Gossip",
        "Chunk",
        "ChunkTaken",
        "Snapshot",
        "Join",
        "Heartbeat",
        "Report",
        "CaughtUp",
        "Welcome",
        "Granted",
        "Configured",
        "Reported",
    ];
    let kinds = [&own[..], &STREAM].concat();
    let cluster = "cluster shards=3 managed trim=1";
    check::<Mako>("mako", cluster, &[TRANSACTIONS, FAILURE], &kinds);
}

#[test]
fn the_conversation_of_two_phase_commit_keeps_its_form() {
    let own = [
        "Execute",
        "Executed",
        "Lock",
        "Locked",
        "Prepare",
        "Validate",
        "Validated",
        "OnePhase",
        "DecideLast",
        "Acknowledgement",
        "Committed",
        "Commit",
        "Resolved",
        "Abort",
        "Refused",
    ];
    let kinds = [&own[..], &STREAM].concat();
    let script = [TRANSACTIONS, COORDINATED_ANYWHERE];
    check::<TwoPhaseCommit>("two_phase_commit", "cluster shards=3", &script, &kinds);
}

#[test]
fn the_conversation_of_zeus_keeps_its_form() {
    let own = [
        "Request",
        "Inv",
        "Ack",
        "Nack",
        "Val",
        "ReplicationInv",
        "ReplicationAck",
        "ReplicationVal",
        "Replayed",
        "ReplayedHeard",
        "CopyRequest",
        "Copy",
        "PartRequest",
        "Part",
        "CopyQuery",
        "CopyDone",
    ];
    let cluster = "cluster shards=3 managed coordinators=1 part=1";
    let script = [TRANSACTIONS, COORDINATED_ANYWHERE, MOVED, FAILURE];
    check::<Zeus>("zeus", cluster, &script, &own);
}

#[test]
fn the_conversation_of_tiga_keeps_its_form() {
    let own = [
        "Submit",
        "Vote",
        "Propose",
        "Ready",
        "Settled",
        "Synced",
        "ListWanted",
        "List",
        "Query",
        "Answer",
        "Reads",
        "ReadsDone",
        "SnapshotPart",
        "SnapshotPartTaken",
    ];
    let kinds = [&own[..], &STREAM].concat();
    let cluster = "cluster shards=3 managed coordinators=1 trim=1";
    let script = [TRANSACTIONS, COORDINATED_ANYWHERE, NOT_VOTED_FOR, FAILURE];
    check::<Tiga>("tiga", cluster, &script, &kinds);
}
