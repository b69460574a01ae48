//! On an engine: what works on the embedded database works here.

use crate::block_on;
use crate::served::{FAR, Reef, options};
use bytes::Bytes;
use shoal_client::{
    Aborted, Cluster, ClusterOptions, ClusterTransaction, Conflict, ConnectError, Error, Rejected,
    Scan, ShardId, TableId, limits,
};
use shoal_engine::{ProcedureTransaction, Procedures};
use shoal_types::{Random, Result, Transaction};
use shoal_workloads::micro::Micro;
use shoal_workloads::procedures;
use shoal_workloads::workload::Workload;
use std::sync::Arc;

/// Adds to a counter of the first table, and returns its value.
async fn increment(tx: &ProcedureTransaction<'_>, counter: &[u8]) -> Result<Bytes> {
    let sum = tx.add(TableId(1), counter, 1).await?;
    Ok(Bytes::copy_from_slice(&sum.to_le_bytes()))
}

async fn refuse(_: &ProcedureTransaction<'_>, reason: &[u8]) -> Result<Bytes> {
    Err(Error::reject(String::from_utf8_lossy(reason)))
}

fn counting() -> Procedures {
    Procedures::new().with("increment", increment).with("refuse", refuse)
}

fn reef(nodes: u32, workers: u16) -> Reef {
    Reef::start(nodes, workers, &["counters", "people"], counting())
}

#[test]
fn a_transaction_reads_what_it_wrote_and_others_what_it_committed() {
    let reef = reef(1, 1);
    block_on(async {
        let db = reef.connect().await;
        let people = db.table("people").expect("a table");
        let tx = db.begin().expect("room");
        tx.put(people, b"ada", b"1815").expect("put");
        tx.put(people, b"alan", b"1").expect("put");
        tx.put(people, b"alan", b"1912").expect("put");
        tx.put(people, b"eve", b"").expect("put");
        tx.delete(people, b"eve").expect("deleted");
        assert_eq!(tx.get(people, b"alan").await, Ok(Some(&b"1912"[..])));
        assert_eq!(tx.get(people, b"eve").await, Ok(None));
        tx.insert(people, b"barbara", b"1928").await.expect("new");
        let again = tx.insert(people, b"ada", b"0").await;
        assert!(matches!(again, Err(Error::Rejected(Rejected::KeyExists { .. }))), "{again:?}");
        let rows = tx.scan(people, Scan::prefix(b"a").reverse()).await.expect("rows");
        assert_eq!(rows, [(&b"alan"[..], &b"1912"[..]), (b"ada", b"1815")]);
        let other = db.begin().expect("room");
        assert_eq!(other.get(people, b"ada").await, Ok(None), "not committed");
        tx.commit().await.expect("committed");
        drop(other);
        let found = db.transact(async |tx| Ok(tx.scan(people, Scan::all()).await?.len())).await;
        assert_eq!(found, Ok(3));
    });
}

#[test]
fn conflicts_are_told_to_who_began_and_retried_for_who_transacts() {
    let reef = reef(3, 1);
    block_on(async {
        let db = reef.connect().await;
        let people = db.table("people").expect("a table");
        let tx = db.begin().expect("room");
        assert_eq!(tx.get(people, b"ada").await, Ok(None));
        db.transact(async |tx| tx.put(people, b"ada", b"1")).await.expect("committed");
        tx.put(people, b"eve", b"1").expect("put");
        let outcome = tx.commit().await;
        assert!(
            matches!(
                outcome,
                Err(Error::Aborted(Aborted::Conflict(Conflict::RangeChanged { .. })))
            ),
            "{outcome:?}"
        );
        let mut runs = 0;
        let sum = db
            .transact(async |tx| {
                let sum = tx.add(people, b"sum", 1).await?;
                runs += 1;
                if runs == 1 {
                    db.transact(async |other| other.add(people, b"sum", 10).await).await?;
                }
                Ok(sum)
            })
            .await;
        assert_eq!((sum, runs), (Ok(11), 2));
        let once = ClusterOptions { attempts_max: 1, ..options() };
        let once = Cluster::connect_with(&reef.addresses(), once).await.expect("a cluster");
        let exhausted = once
            .transact(async |tx| {
                let sum = tx.add(people, b"sum", 1).await?;
                db.transact(async |other| other.add(people, b"sum", 10).await).await?;
                Ok(sum)
            })
            .await;
        let expected =
            matches!(exhausted, Err(Error::Aborted(Aborted::RetriesExhausted { attempts: 1, .. })));
        assert!(expected, "{exhausted:?}");
    });
}

#[test]
fn a_body_that_gives_up_leaves_nothing_and_is_believed_only_if_it_read_what_was() {
    let reef = reef(1, 1);
    block_on(async {
        let db = reef.connect().await;
        let people = db.table("people").expect("a table");
        let mut runs = 0;
        let given_up: Result<()> = db
            .transact(async |tx| {
                tx.put(people, b"eve", b"1")?;
                tx.get(people, b"ada").await?;
                runs += 1;
                if runs == 1 {
                    db.transact(async |other| other.put(people, b"ada", b"1")).await?;
                }
                Err(Error::reject("no"))
            })
            .await;
        assert_eq!((given_up, runs), (Err(Error::reject("no")), 2));
        let eve = db.transact(async |tx| Ok(tx.get(people, b"eve").await?.is_some())).await;
        assert_eq!(eve, Ok(false));
    });
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    let reef = reef(1, 1);
    block_on(async {
        let db = reef.connect().await;
        let people = db.table("people").expect("a table");
        assert_eq!(db.table("places"), Err(Rejected::TablesFixed.into()));
        let tx = db.begin().expect("room");
        let unknown = Err(Rejected::UnknownTable { table: TableId(9) }.into());
        assert_eq!(tx.put(TableId(9), b"k", b""), unknown);
        assert_eq!(db.home(TableId(9), b"k").map(drop), unknown);
        assert_eq!(tx.put(people, b"", b""), Err(Rejected::KeyEmpty { table: people }.into()));
        let long = vec![0; limits::KEY_BYTES_MAX + 1];
        let too_long = |error| matches!(error, Err(Error::Rejected(Rejected::KeyTooLong { .. })));
        assert!(too_long(tx.get(people, &long).await.map(drop)));
        assert!(too_long(tx.scan(people, Scan::prefix(&long)).await.map(drop)));
        let value = vec![0; limits::VALUE_BYTES_MAX + 1];
        let put = tx.put(people, b"k", &value);
        assert!(matches!(put, Err(Error::Rejected(Rejected::ValueTooLong { .. }))));
        let largest = vec![1; limits::VALUE_BYTES_MAX];
        tx.put(people, b"k", &largest).expect("put");
        assert_eq!(tx.get(people, b"k").await, Ok(Some(&largest[..])));
        tx.commit().await.expect("committed");
        let tx = db.begin().expect("room");
        writes_more_than_fits(&tx, people);
    });
}

fn writes_more_than_fits(tx: &ClusterTransaction, people: TableId) {
    let largest = vec![1; limits::VALUE_BYTES_MAX];
    for key in 0..7_u8 {
        tx.put(people, &[key], &largest).expect("put");
        tx.put(people, &[key], &largest).expect("put in its place");
    }
    let ninth = (7..9).try_for_each(|key| tx.put(people, &[key], &largest));
    assert!(matches!(ninth, Err(Error::Rejected(Rejected::TransactionBytes { .. }))), "{ninth:?}");
}

#[test]
fn transactions_are_limited_in_number() {
    let reef = reef(1, 1);
    block_on(async {
        let two = ClusterOptions { transactions_max: 2, ..options() };
        let db = Cluster::connect_with(&reef.addresses(), two).await.expect("a cluster");
        let people = db.table("people").expect("a table");
        let (one, other) = (db.begin().expect("room"), db.begin().expect("room"));
        let full = Error::from(Rejected::TooManyTransactions { max: 2 });
        assert_eq!(db.begin().err(), Some(full.clone()));
        assert_eq!(db.transact(async |_| Ok(())).await, Err(full.clone()));
        assert_eq!(db.call(ShardId(0), "increment", "k").await, Err(full));
        one.get(people, b"k").await.expect("read");
        drop(one);
        db.call(ShardId(0), "increment", "k").await.expect("room again");
        drop(other);
    });
}

#[test]
fn many_writes_and_reads_travel_together() {
    const KEYS: u32 = 500;
    let reef = reef(3, 2);
    block_on(async {
        let db = reef.connect().await;
        let people = db.table("people").expect("a table");
        let write = async |tx: &mut ClusterTransaction| {
            (0..KEYS).try_for_each(|key| tx.put(people, &key.to_be_bytes(), &key.to_le_bytes()))
        };
        db.transact(write).await.expect("committed");
        let tx = Arc::new(db.begin().expect("room"));
        let reads = (0..KEYS).map(|key| {
            let tx = Arc::clone(&tx);
            tokio::spawn(async move {
                let read = tx.get(people, &key.to_be_bytes()).await;
                assert_eq!(read, Ok(Some(&key.to_le_bytes()[..])));
            })
        });
        for read in reads.collect::<Vec<_>>() {
            read.await.expect("read");
        }
        Arc::into_inner(tx).expect("the only owner").commit().await.expect("committed");
    });
}

#[test]
fn calls_take_effect_once_each_wherever_they_are_made() {
    const CALLERS: u32 = 6;
    const CALLS: usize = 30;
    let reef = reef(3, 2);
    block_on(async {
        let db = reef.connect().await;
        assert_eq!(db.table("counters"), Ok(TableId(1)));
        let callers = (0..CALLERS).map(|caller| {
            let db = db.clone();
            tokio::spawn(async move {
                let mut told = Vec::new();
                for _ in 0..CALLS {
                    // Most are at home elsewhere than what they touch.
                    let sum = db.call(ShardId(caller % 3), "increment", "k").await.expect("called");
                    told.push(i64::from_le_bytes(sum[..].try_into().expect("a number")));
                }
                told
            })
        });
        let mut told = Vec::new();
        for caller in callers.collect::<Vec<_>>() {
            told.extend(caller.await.expect("called"));
        }
        told.sort_unstable();
        assert_eq!(told, (1..=i64::from(CALLERS) * CALLS as i64).collect::<Vec<_>>());
    });
}

#[test]
fn a_procedure_that_refuses_and_one_that_there_is_not() {
    let reef = reef(3, 1);
    block_on(async {
        let db = reef.connect().await;
        for home in (0..3).map(ShardId) {
            let refused = db.call(home, "refuse", "not today").await;
            assert_eq!(refused, Err(Error::reject("not today")));
        }
        let unknown = Rejected::UnknownProcedure { name: "sing".into() };
        assert_eq!(db.call(ShardId(0), "sing", "").await, Err(unknown.into()));
        let nowhere = db.call(ShardId(7), "refuse", "").await;
        assert!(matches!(nowhere, Err(Error::Rejected(_))), "{nowhere:?}");
        let most = options().access.limits.frame_bytes_max;
        let long = db.call(ShardId(0), "refuse", vec![0; most]).await;
        assert!(matches!(long, Err(Error::Rejected(Rejected::CallTooLong { .. }))), "{long:?}");
    });
}

/// A workload runs as it does on the embedded database, on tasks that move between threads.
#[test]
fn a_workload_runs_unchanged() {
    play_micro(|micro| micro);
}

/// The transactions are calls that take effect once.
#[test]
fn a_workload_that_calls_runs_unchanged() {
    play_micro(Micro::calling);
}

fn play_micro(how: impl Fn(Micro) -> Micro) {
    const CLIENTS: usize = 8;
    let reef = Reef::start(3, 2, &["micro"], procedures::register(Procedures::new()));
    block_on(async {
        let db = reef.connect().await;
        let micro = how(Micro::new(&db, 64).expect("a workload"));
        for part in 0..micro.load_parts() {
            micro.load(&db, part, 7, &mut |_| {}).await.expect("loaded");
        }
        let play = async |number| {
            let mut client = micro.client(number, 7);
            for _ in 0..50 {
                micro.next(&db, &mut client).await.expect("done");
            }
        };
        let (a, b, c, d) = (play(0), play(1), play(2), play(3));
        tokio::join!(a, b, c, d);
        let (a, b, c, d) = (play(4), play(5), play(6), play(CLIENTS - 1));
        tokio::join!(a, b, c, d);
        for check in micro.check(&db).await.expect("checked") {
            assert_eq!(check.verdict, Ok(()), "{}", check.name);
        }
    });
}

#[test]
fn transactions_can_be_spawned() {
    let reef = reef(3, 1);
    block_on(async {
        let db = reef.connect().await;
        let people = db.table("people").expect("a table");
        let mut random = Random::new(3);
        let tasks = (0..20).map(|_| {
            let (db, from, to) = (db.clone(), random.below(5) as u8, random.below(5) as u8);
            tokio::spawn(async move {
                db.transact(async move |tx: &mut ClusterTransaction| {
                    tx.add(people, &[from], -1).await?;
                    tx.add(people, &[to], 1).await
                })
                .await
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("spawned").expect("committed");
        }
        let sum = db
            .transact(async |tx| {
                let rows = tx.scan(people, Scan::all()).await?;
                let values = rows.iter().map(|(_, value)| (*value).try_into().expect("8 bytes"));
                Ok(values.map(i64::from_le_bytes).sum::<i64>())
            })
            .await;
        assert_eq!(sum, Ok(0));
    });
}

#[test]
fn one_address_that_answers_is_enough() {
    let reef = reef(3, 1);
    let silent = shoal_net::listen("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    block_on(async {
        let addresses = [address.clone(), reef.addresses()[1].clone()];
        let db = Cluster::connect_with(&addresses, options()).await.expect("a cluster");
        let people = db.table("people").expect("a table");
        db.transact(async |tx| tx.put(people, b"ada", b"1")).await.expect("committed");
        let mut wrong = options();
        wrong.access.cluster = "atoll".into();
        let refused = Cluster::connect_with(&addresses[1..], wrong).await;
        let what = refused.expect_err("another cluster").to_string();
        assert!(what.contains("wrong_cluster") && what.contains(&addresses[1]), "{what}");
        let none: [&str; 0] = [];
        let without_addresses =
            Cluster::connect_with(&none, options()).await.expect_err("no address");
        assert_eq!(without_addresses, ConnectError::Unreached { tried: Vec::new() });
    });
}

#[test]
fn a_client_in_a_region_is_as_far_from_the_nodes_as_the_topology_says() {
    let reef = reef(3, 1);
    let from = |region: &str| ClusterOptions { region: Some(region.to_owned()), ..options() };
    block_on(async {
        let unknown = Cluster::connect_with(&reef.addresses(), from("mars")).await;
        let ConnectError::Unreached { tried } = unknown.expect_err("no such region") else {
            panic!("the options are valid")
        };
        let why = "the cluster has no region 'mars'; its regions are here, far";
        assert!(tried.len() == 3 && tried.iter().all(|(_, what)| what == why), "{tried:?}");

        let db = Cluster::connect_with(&reef.addresses(), from("far")).await.expect("connected");
        let counters = db.table("counters").expect("a table");
        for key in [b"a", b"b", b"c", b"d"] {
            let began = tokio::time::Instant::now();
            let count = db.transact(async |tx| tx.add(counters, key, 1).await).await;
            assert_eq!(count, Ok(1));
            // An operation and the commit.
            assert!(began.elapsed() >= 4 * FAR, "{:?}", began.elapsed());
        }
    });
}
