//! One transaction after the other: the database is a set of ordered maps, whichever way a
//! transaction ends and by whichever interface it came.

use crate::model::{Model, Op, Range, Subject, TABLES, Value};
use futures_executor::block_on;
use proptest::prelude::*;
use shoal_client::{Db, Error, TableId};
use std::ops::Bound;

/// How a transaction ends, and by which interface it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Transact,
    TransactBlocking,
    TransactError,
    BlockingError,
    Commit,
    CommitBlocking,
    RollBack,
    RollBackBlocking,
    Drop,
}

fn ways() -> impl Strategy<Value = Way> {
    prop_oneof![
        3 => Just(Way::Transact),
        2 => Just(Way::TransactBlocking),
        1 => Just(Way::TransactError),
        1 => Just(Way::BlockingError),
        2 => Just(Way::Commit),
        1 => Just(Way::CommitBlocking),
        1 => Just(Way::RollBack),
        1 => Just(Way::RollBackBlocking),
        1 => Just(Way::Drop),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // Few keys of many, so that they are met again; enough of them that leaves split and merge.
    let key = || prop_oneof![3 => 0..16u8, 1 => any::<u8>()];
    let place = || (0..TABLES, key());
    let value = || {
        prop_oneof![
            4 => any::<i64>().prop_map(Value::Number),
            2 => (any::<u8>(), 0..40u16).prop_map(|(byte, length)| Value::Bytes(byte, length)),
            1 => (any::<u8>(), 0..10_000u16).prop_map(|(byte, length)| Value::Bytes(byte, length)),
        ]
    };
    let bound = || {
        prop_oneof![
            2 => key().prop_map(Bound::Included),
            2 => key().prop_map(Bound::Excluded),
            1 => Just(Bound::Unbounded),
        ]
    };
    let range = prop_oneof![
        1 => Just(Range::All),
        2 => key().prop_map(Range::Prefix),
        4 => (bound(), bound()).prop_map(|(low, high)| Range::Between(low, high)),
    ];
    let limit = prop::option::of(0..40usize);
    let op = prop_oneof![
        3 => (place(), value()).prop_map(|((table, key), value)| Op::Put(table, key, value)),
        3 => (place(), value()).prop_map(|((table, key), value)| Op::Insert(table, key, value)),
        3 => place().prop_map(|(table, key)| Op::Delete(table, key)),
        2 => (place(), any::<i64>()).prop_map(|((table, key), delta)| Op::Add(table, key, delta)),
        2 => place().prop_map(|(table, key)| Op::Get(table, key)),
        1 => place().prop_map(|(table, key)| Op::GetForUpdate(table, key)),
        4 => (0..TABLES, range, any::<bool>(), limit)
            .prop_map(|(table, range, reverse, limit)| Op::Scan { table, range, reverse, limit }),
    ];
    prop::collection::vec(op, 1..40)
}

/// Does `ops` in `tx` and in the model, and compares.
fn apply(
    tx: &impl Subject,
    tables: &[TableId],
    ops: &[Op],
    model: &mut Model,
) -> Result<(), Error> {
    for op in ops {
        assert_eq!(tx.apply(tables, op)?, model.apply(op), "{op:?}");
    }
    Ok(())
}

/// Runs one transaction; the model keeps what it wrote if it takes effect.
fn run(db: &Db, tables: &[TableId], way: Way, ops: &[Op], model: &mut Model) -> Result<(), Error> {
    let mut trial = model.clone();
    let gives_up = || Err(Error::reject("on purpose"));
    let ended = match way {
        Way::Transact => block_on(db.transact(async |tx| apply(tx, tables, ops, &mut trial))),
        Way::TransactError => block_on(db.transact(async |tx| {
            apply(tx, tables, ops, &mut trial)?;
            gives_up()
        })),
        Way::TransactBlocking => db.transact_blocking(|tx| apply(tx, tables, ops, &mut trial)),
        Way::BlockingError => db.transact_blocking(|tx| {
            apply(tx, tables, ops, &mut trial)?;
            gives_up()
        }),
        Way::Commit | Way::RollBack | Way::Drop => {
            let tx = db.begin()?;
            apply(&tx, tables, ops, &mut trial)?;
            match way {
                Way::Commit => block_on(tx.commit())?,
                Way::RollBack => tx.rollback(),
                _ => drop(tx),
            }
            Ok(())
        }
        Way::CommitBlocking | Way::RollBackBlocking => {
            let tx = db.begin_blocking()?;
            apply(&tx, tables, ops, &mut trial)?;
            match way {
                Way::CommitBlocking => tx.commit()?,
                _ => tx.rollback(),
            }
            Ok(())
        }
    };
    match way {
        Way::TransactError | Way::BlockingError => assert_eq!(ended, gives_up()),
        _ => ended?,
    }
    if matches!(way, Way::Transact | Way::TransactBlocking | Way::Commit | Way::CommitBlocking) {
        *model = trial;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn transactions_agree_with_ordered_maps(
        transactions in prop::collection::vec((ways(), ops()), 1..24),
    ) {
        let db = Db::memory();
        let tables: Vec<TableId> =
            (0..TABLES).map(|number| db.table(&format!("t{number}")).unwrap()).collect();
        let mut model = Model::default();
        for (way, ops) in &transactions {
            run(&db, &tables, *way, ops, &mut model).unwrap();
        }
        let all = |table| Op::Scan { table, range: Range::All, reverse: false, limit: None };
        let tx = db.begin().unwrap();
        apply(&tx, &tables, &[all(0), all(1), all(2)], &mut model).unwrap();
    }
}
