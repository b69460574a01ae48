//! Every form of this crate returns; what breaks a rule is refused, by name.

use super::check::{returns, withstands};
use super::*;
use crate::error::{Aborted, Conflict, Error, KeyExcerpt, Rejected, Unknown};
use crate::stamp::tests::{kept, watermark};
use crate::wait::{Awaited, Cause, Wait};
use crate::{
    Ballot, CallSession, Clock, ClusterId, Epoch, NodeId, RemoteClock, RequestId, ShardId, Stamp,
    TableId, Time, VectorWatermark, WorkerId,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Numbers of all lengths.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64_u32).prop_map(|(number, less)| number >> less)
}

fn key() -> impl Strategy<Value = KeyExcerpt> {
    prop::collection::vec(any::<u8>(), 0..60).prop_map(|key| KeyExcerpt::new(&key))
}

fn conflict() -> impl Strategy<Value = Conflict> {
    (0..9, any::<u32>(), any::<u32>(), key()).prop_map(|(variant, one, two, key)| {
        let (table, shard, epoch) = (TableId(one), ShardId(one), Epoch(two));
        match variant {
            0 => Conflict::ReadChanged { table, key },
            1 => Conflict::Locked { table, key },
            2 => Conflict::OtherEpoch { shard, epoch },
            3 => Conflict::Recovering { shard },
            4 => Conflict::EpochNotOpen { epoch },
            5 => Conflict::Overtaken { shard },
            6 => Conflict::TableNotKnown { table },
            7 => Conflict::TableDropped { table },
            _ => Conflict::RangeChanged { table },
        }
    })
}

fn wait() -> impl Strategy<Value = Wait> {
    let awaited = [
        Awaited::Connection,
        Awaited::Operation,
        Awaited::Commit,
        Awaited::Call,
        Awaited::CallSession,
        Awaited::TableChange,
    ];
    let causes = [
        Cause::Silent,
        Cause::Unreachable,
        Cause::Refused,
        Cause::Disconnected,
        Cause::Malformed,
        Cause::NotServing,
        Cause::Unsettled(ShardId(7)),
        Cause::FoundedAgain,
        Cause::NoMajority,
        Cause::NotListening,
        Cause::UnknownHost,
        Cause::BadAddress,
        Cause::OtherVersion,
    ];
    let parts = (any::<Option<u32>>(), 0..awaited.len(), 0..causes.len(), number());
    parts.prop_map(move |(node, what, why, waited)| Wait {
        node: node.map(NodeId),
        awaited: awaited[what],
        cause: causes[why],
        waited: Duration::from_nanos(waited),
    })
}

fn aborted() -> impl Strategy<Value = Aborted> {
    let names = prop::sample::select(crate::error::wire::limit_name::NAMES.to_vec());
    let parts = (0..11, number(), any::<u32>(), names, conflict(), (wait(), request()));
    parts.prop_map(|(variant, number, small, limit, last, (wait, request))| {
        let size = usize::try_from(number).expect("sizes have 64 bits");
        match variant {
            0 => Aborted::Conflict(last),
            1 => Aborted::RetriesExhausted { attempts: small, last },
            2 => Aborted::Overloaded { open: size, limit, max: small as usize },
            3 => Aborted::Idle { idle: Duration::from_nanos(number) },
            4 => Aborted::OpenTooLong { open: Duration::new(number, small % 1_000_000_000) },
            5 => Aborted::NotServing { node: NodeId(small) },
            6 => Aborted::RolledBack { epoch: Epoch(small) },
            7 => Aborted::UnknownSession { session: number },
            8 => Aborted::Unanswered(wait),
            9 => Aborted::Moved { owner: NodeId(small) },
            _ => Aborted::CallSessionOver { request },
        }
    })
}

fn rejected() -> impl Strategy<Value = Rejected> {
    let text = ".{0,20}".prop_map(Box::<str>::from);
    let names = prop::sample::select(crate::error::wire::operation_name::NAMES.to_vec());
    let sizes = (0..1_usize << 40, 0..1_usize << 20);
    let parts = (0..36, any::<u32>(), key(), sizes, text, names);
    parts.prop_map(|(variant, number, key, (bytes, max), text, operation)| {
        let table = TableId(number);
        let cluster = |number: usize| ClusterId::new(number as u64 + 1).expect("not 0");
        match variant {
            0 => Rejected::KeyEmpty { table },
            1 => Rejected::KeyTooLong { table, key, bytes, max },
            2 => Rejected::ValueTooLong { table, key, bytes, max },
            3 => Rejected::TransactionBytes { bytes, max },
            4 => Rejected::TransactionWrites { max },
            5 => Rejected::TransactionReads { max },
            6 => Rejected::TooManyTransactions { max },
            7 => Rejected::MemoryFull { bytes, max },
            8 => Rejected::TooManyTables { max },
            9 => Rejected::TableName { bytes, max },
            10 => Rejected::UnknownTable { table },
            11 => Rejected::UnknownTableName { name: text },
            12 => Rejected::UnknownProcedure { name: text },
            13 => Rejected::OtherWorker { worker: WorkerId(number) },
            14 => Rejected::KeyExists { table, key },
            15 => Rejected::WrongValue { table, key, operation, bytes, expected: max },
            16 => Rejected::Procedure { reason: text },
            17 => Rejected::CallTooLong { bytes, max },
            18 => Rejected::AnswerTooLong { bytes, max },
            19 => Rejected::FoundedAgain { known: cluster(bytes), found: cluster(max) },
            20 => Rejected::TableDropped { table },
            21 => Rejected::TableExists { name: text },
            22 => Rejected::TooManyTableIds { max },
            23 => Rejected::TablesFixed,
            24 => Rejected::TableReserved { name: text },
            25 => Rejected::TablePartitioning { reason: text },
            26 => Rejected::TableMoving { table },
            27 => Rejected::ScanTooWide { table, prefix_bytes: max },
            28 => Rejected::GranuleFull { table, key, max },
            29 => Rejected::DataLost { table, key },
            30 => Rejected::TableEverywhere { table },
            31 => Rejected::NotOpen { reason: text },
            32 => Rejected::DiskFull { segment_bytes: bytes as u64 },
            33 => Rejected::TableFamily { table },
            34 => Rejected::Undeclared { table, key },
            _ => Rejected::TransactionsMax { asked: bytes, max },
        }
    })
}

fn request() -> impl Strategy<Value = RequestId> {
    (any::<[u32; 4]>(), number(), number()).prop_map(|(parts, serial, number)| {
        let [home, since, incarnation, worker] = parts;
        let (home, since, worker) = (ShardId(home), Epoch(since), WorkerId(worker));
        RequestId { session: CallSession { home, since, incarnation, worker, serial }, number }
    })
}

fn unknown() -> impl Strategy<Value = Unknown> {
    (0..12, request(), any::<u32>(), number(), wait()).prop_map(
        |(variant, request, number, session, wait)| match variant {
            0 => Unknown::NoAnswer { request },
            1 => Unknown::Unsettled { request, shard: ShardId(number) },
            2 => Unknown::Forgotten { request },
            3 => Unknown::Participant { shard: ShardId(number) },
            4 => Unknown::Session { session },
            5 => Unknown::Commit { session, wait },
            6 => Unknown::Call { request, wait },
            7 => Unknown::NotDurable { shard: ShardId(number) },
            8 => Unknown::Lost { request },
            9 => Unknown::Table { wait },
            10 => Unknown::LogFailed,
            _ => {
                let cluster = ClusterId::new(session | 1).expect("not 0");
                Unknown::FoundedAgain { request, known: cluster, found: cluster }
            }
        },
    )
}

fn error() -> impl Strategy<Value = Error> {
    prop_oneof![
        aborted().prop_map(Error::from),
        rejected().prop_map(Error::from),
        unknown().prop_map(Error::from),
    ]
}

/// Numbers in their short form.
#[derive(Debug, PartialEq, Coded)]
struct Shorts(
    #[coded(short)] u16,
    #[coded(short)] u32,
    #[coded(short)] u64,
    #[coded(short)] usize,
    #[coded(short)] Option<u64>,
);

proptest! {
    #[test]
    fn what_the_library_has_returns(
        numbers in any::<(u8, u16, u32, u64, u128)>(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        text in ".{0,20}",
        pairs in prop::collection::btree_map(any::<u32>(), any::<bool>(), 0..5),
    ) {
        let (n8, n16, n32, n64, n128) = numbers;
        returns(&((n8, n16), (n32, (n64, n128))));
        returns(&(n64 as usize));
        returns(&(Some(n32), None::<u64>));
        returns(&vec![(n8, n16), (n8, n16)]);
        returns(&pairs);
        returns(&(text.clone(), Box::<str>::from(text)));
        returns(&(Bytes::from(bytes.clone()), Box::<[u8]>::from(bytes)));
        returns(&vec![Ok::<(), u8>(()), Err(n8)]);
        returns(&vec![Bound::Included(n16), Bound::Excluded(n16), Bound::Unbounded]);
        returns(&Arc::new(Duration::new(n64, n32 % 1_000_000_000)));
    }

    #[test]
    fn short_numbers_return(a in any::<u16>(), b in any::<u32>(), c in number(), d in number()) {
        returns(&Shorts(a, b, c, d as usize, Some(d)));
        returns(&Shorts(a % 128, b % 128, c, 0, None));
    }

    #[test]
    fn words_return(ids in any::<[u32; 6]>(), clock in number(), request in request()) {
        let [table, shard, node, worker, epoch, _] = ids;
        returns(&((TableId(table), ShardId(shard)), (NodeId(node), WorkerId(worker))));
        returns(&(Ballot { epoch: Epoch(epoch), node: NodeId(node) }, request));
        returns(&(Clock(clock), Time(clock)));
    }

    #[test]
    fn errors_return(error in error()) {
        returns(&error);
    }

    #[test]
    fn stamps_return(kept in kept(), watermark in watermark(), clock in number()) {
        let mut stamp = kept.stamp;
        returns(&stamp);
        stamp.clock = Clock(clock);
        stamp.push(ShardId(99), ShardId(300), Clock(clock));
        returns(&stamp);
        stamp.level(clock.saturating_add(1) / 2 + 1);
        returns(&stamp);
        returns(&watermark);
    }

    #[test]
    fn any_bytes_are_withstood(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let bytes = Bytes::from(bytes);
        withstands::<Error>(&bytes);
        withstands::<Stamp>(&bytes);
        withstands::<VectorWatermark>(&bytes);
        withstands::<Shorts>(&bytes);
        withstands::<(String, Vec<Bytes>)>(&bytes);
        withstands::<Vec<(Box<[u8]>, Result<Duration, usize>)>>(&bytes);
        withstands::<BTreeMap<u8, Bound<bool>>>(&bytes);
    }
}

#[track_caller]
fn is_malformed<T: Coded + Debug>(bytes: &[u8], what: &str) {
    let error = decode::<T>(&Bytes::copy_from_slice(bytes)).expect_err(what);
    assert_eq!(error.what, what, "{error}");
}

#[test]
fn numbers_have_one_short_form() {
    for (number, form) in [
        (0, &[0][..]),
        (127, &[0x7f]),
        (128, &[0x80, 1]),
        (300, &[0xac, 2]),
        (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
    ] {
        let mut out = BytesMut::new();
        number.put_short(&mut out);
        assert_eq!(out, form);
    }
    let take = |bytes: &'static [u8]| u64::take_short(&mut Input::borrowed(bytes));
    let what = |bytes| take(bytes).expect_err("no number").what;
    assert_eq!(what(&[0x80, 0]), "a number longer than it needs to be");
    assert_eq!(what(&[0xff; 9]), "the end");
    assert_eq!(what(&[0xff; 10]), "a number too great");
    assert_eq!(
        what(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2]),
        "a number too great"
    );
    let past = u32::take_short(&mut Input::borrowed(&[0xff, 0xff, 0xff, 0xff, 0x1f]));
    assert_eq!(past.expect_err("more than 32 bits").what, "a number too great");
}

#[test]
fn lengths_beyond_the_bytes_allocate_nothing() {
    is_malformed::<Vec<u64>>(&u32::MAX.to_le_bytes(), "a length");
    is_malformed::<String>(&[9, 0, 0, 0, b'a'], "a length");
    is_malformed::<BTreeMap<u8, u8>>(&[2, 0, 0, 0, 1, 1, 2], "a length");
    is_malformed::<Bytes>(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1], "a length");
    is_malformed::<VectorWatermark>(&[1, 3, 0, 0], "a length");
    is_malformed::<KeyExcerpt>(&[3, 0, 0], "the end");
}

#[test]
fn no_more_is_made_room_for_than_there_are_bytes() {
    assert_eq!(ahead(1_000_000, 1_000_000, 100), 10_000);
    assert_eq!(ahead(5, 1000, 100), 5);
    assert_eq!(ahead(50, 0, 100), 4);
    assert_eq!(ahead(3, 0, 0), 3);
}

#[test]
fn what_breaks_a_rule_is_refused() {
    is_malformed::<String>(&[1, 0, 0, 0, 0xff], "text that is no UTF-8");
    is_malformed::<Option<u8>>(&[2, 0], "neither yes nor no");
    is_malformed::<Error>(&[3], "no such Error");
    is_malformed::<BTreeMap<u8, ()>>(&[2, 0, 0, 0, 7, 7], "keys in disorder");
    is_malformed::<Duration>(&encode(&(1_u64, 1_000_000_000_u32)), "a second too much");
    is_malformed::<Aborted>(&[2, 1, 4, 1], "no name of limits");
    is_malformed::<u8>(&[1, 2], "bytes after the end");
    for entries in [
        &[(3, 1), (2, 1)][..],
        &[(2, 1), (2, 2)],
        &[(2, 0)],
        &[(1, 0), (u32::MAX, 0)],
        &[(2, 5), (u32::MAX, 5)],
    ] {
        let entry = |(shard, clock): &(u32, u64)| RemoteClock {
            shard: ShardId(*shard),
            clock: Clock(*clock),
        };
        let mut out = BytesMut::from(&[1, 7][..]);
        entries.iter().map(entry).collect::<Vec<_>>().put_short(&mut out);
        is_malformed::<Stamp>(&out, "no stamp");
    }
}

#[test]
fn bytes_stay_in_their_frame() {
    let frame = encode(&(Bytes::from_static(b"alice"), Bytes::from_static(b"bob")));
    let (alice, bob) = decode::<(Bytes, Bytes)>(&frame).expect("two names");
    assert_eq!((&alice[..], &bob[..]), (&b"alice"[..], &b"bob"[..]));
    assert_eq!(alice.as_ptr(), frame[1..].as_ptr());
    let mut input = Input::borrowed(&frame);
    let copied = Bytes::take(&mut input).expect("a name");
    assert_eq!(copied, alice);
    assert_ne!(copied.as_ptr(), alice.as_ptr());
    assert_eq!((input.left(), input.end().is_err()), (4, true));
}

/// A form that changes is another language: a change of one of these gives it a new number.
#[test]
fn forms_stay_as_they_are() {
    let key = KeyExcerpt::new(b"ab");
    let conflict = Conflict::Locked { table: TableId(3), key };
    assert_eq!(&encode(&Error::from(Aborted::from(conflict)))[..], [0, 0, 1, 3, 2, b'a', b'b']);
    let overloaded = Aborted::Overloaded { open: 300, limit: "open_max", max: 299 };
    assert_eq!(&encode(&Error::from(overloaded))[..], [0, 2, 0xac, 2, 1, 0xab, 2]);
    assert_eq!(&encode(&Error::reject("no"))[..], [1, 16, 2, b'n', b'o']);
    let forgotten = Unknown::Session { session: 9 };
    assert_eq!(&encode(&Error::from(forgotten))[..], [2, 5, 9]);
    let (awaited, cause) = (Awaited::Call, Cause::Unreachable);
    let wait = Wait { node: Some(NodeId(2)), awaited, cause, waited: Duration::from_nanos(5) };
    let form = [1, 2, 0, 0, 0, 3, 1];
    let unanswered = encode(&Error::from(Aborted::Unanswered(wait)));
    assert_eq!(unanswered[..9], [&[0, 8][..], &form].concat());
    let commit = encode(&Error::from(Unknown::Commit { session: 9, wait }));
    assert_eq!(commit[..10], [&[2, 6, 9][..], &form].concat());
    let mut stamp = Stamp::local(Epoch(1), Clock(300));
    stamp.push(ShardId(0), ShardId(2), Clock(4));
    assert_eq!(&encode(&stamp)[..], [1, 0xac, 2, 1, 2, 4]);
    let mut levelled = Stamp::local(Epoch(1), Clock::ZERO);
    levelled.level(1);
    assert_eq!(&encode(&levelled)[..], [1, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]);
    returns(&levelled);
    let mut watermark = VectorWatermark::new(Epoch(1), 2);
    watermark.raise(ShardId(1), Clock(128));
    assert_eq!(&encode(&watermark)[..], [1, 2, 0, 0x80, 1]);
    let ballot = Ballot { epoch: Epoch(2), node: NodeId(1) };
    assert_eq!(&encode(&ballot)[..], [2, 0, 0, 0, 1, 0, 0, 0]);
}
