//! Clients that create, use and drop tables while everything fails.
//!
//! ```text
//!   open "made-1" ──► id ──► put rows that name the id ──► scan: only such rows ──► drop ──► the id is refused
//! ```
//! They use few names, so that they meet. Rules, of what a client was answered:
//!
//! - An id belongs to one name, for ever.
//! - A name has one id until a client asks for that to be dropped.
//! - Once a drop is answered, the id is not given for an opening that begins, and no transaction that begins finds or writes
//!   anything under it.
//! - A table has the rows only that were written under its id.
//!
//! They also use the id that is given next, before the answer has it: a node that does not know the table must not serve it.

use super::outside::OutsideClient;
use super::scenario_clients::{ClientContext, ClientPolicy, ScenarioClients, task};
use shoal_client::{Cluster, Partitioning};
use shoal_engine::engine::Task;
use shoal_types::{Error, Random, Rejected, Result, Scan, TableId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Name of this group of clients.
const NAME: &str = "tables";

/// How many names there are.
const NAMES: u64 = 3;

/// How the tables are divided that clients create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreatedTables {
    /// Each key is hashed.
    Hashed,
    /// All keys are one range, for engines that scan no more than a granule.
    OneRange,
}

/// Clients that create, use and drop tables.
#[derive(Debug)]
pub struct Tables {
    partitioning: Partitioning,
    lives: RefCell<Lives>,
}

/// The tables, as far as clients know.
#[derive(Debug, Default)]
struct Lives {
    /// The name of each id.
    names: BTreeMap<TableId, String>,
    /// The last id of each name, until a client asks for it to be dropped.
    current: BTreeMap<String, TableId>,
    /// The ids of tables whose drop is answered.
    gone: BTreeSet<TableId>,
    /// How many drops were asked for, and of each name how many are not answered: those of unknown outcome never are.
    drops: u64,
    dropping: BTreeMap<String, u64>,
}

/// What was known when an opening began.
#[derive(Debug)]
struct Opening {
    /// How many drops were asked for.
    drops: u64,
    /// Whether a drop of its name was asked for and not answered: it may come before that drop, though its answer comes after.
    is_dropping: bool,
    /// The tables whose drop was answered.
    gone: BTreeSet<TableId>,
}

impl Lives {
    /// What is known when an opening begins.
    fn opening(&self, name: &str) -> Opening {
        Opening { drops: self.drops, is_dropping: self.is_dropping(name), gone: self.gone.clone() }
    }

    /// Whether a drop of the name is asked for and not answered.
    fn is_dropping(&self, name: &str) -> bool {
        self.dropping.get(name).is_some_and(|open| *open > 0)
    }

    /// A client was given this id for a name.
    fn opened(
        &mut self,
        name: &str,
        table: TableId,
        began: &Opening,
    ) -> std::result::Result<(), String> {
        let known = self.names.entry(table).or_insert_with(|| name.to_owned());
        if known != name {
            return Err(format!("{table} is {known:?} and {name:?}"));
        }
        if began.gone.contains(&table) {
            return Err(format!("{name:?} is {table}, which was dropped before it was opened"));
        }
        if self.drops > began.drops || began.is_dropping || self.is_dropping(name) {
            return Ok(()); // It may have been dropped meanwhile, and others of its name.
        }
        match self.current.insert(name.to_owned(), table) {
            Some(before) if before != table => {
                Err(format!("{name:?} was created as {before} and as {table}"))
            }
            _ => Ok(()),
        }
    }

    /// A client asks for a table to be dropped.
    fn drops(&mut self, name: &str) {
        self.drops += 1;
        self.current.remove(name);
        *self.dropping.entry(name.to_owned()).or_default() += 1;
    }

    /// The request is answered: the table is dropped, or nothing was.
    fn dropped(&mut self, name: &str, table: Option<TableId>) {
        self.gone.extend(table);
        *self.dropping.get_mut(name).expect("it was asked for") -= 1;
    }
}

impl Tables {
    /// Clients whose tables are divided so.
    #[must_use]
    pub fn new(created: CreatedTables) -> Tables {
        let partitioning = match created {
            CreatedTables::Hashed => Partitioning::Hash { prefix_bytes: 0 },
            CreatedTables::OneRange => Partitioning::ranges([Vec::new()]),
        };
        Tables { partitioning, lives: RefCell::default() }
    }

    async fn open(&self, db: &Cluster, name: &str) -> Result<TableId> {
        let began = self.lives.borrow().opening(name);
        // Not `open_table`, which believes what the client has learned, also of a table that was dropped a moment ago.
        let table = db.create_table(name, self.partitioning.clone()).await?;
        let verdict = self.lives.borrow_mut().opened(name, table, &began);
        verdict.map_err(wrong)?;
        Ok(table)
    }

    /// Writes a row, and finds the rows of the table only.
    async fn work(&self, db: &Cluster, table: TableId, random: &mut Random) -> Result<()> {
        let was_gone = self.lives.borrow().gone.contains(&table);
        let (key, value) = ([random.below(16) as u8], table.0.to_le_bytes());
        let found = db
            .transact(async |tx| {
                tx.put(table, &key, &value)?;
                let rows = tx.scan(table, Scan::all()).await?;
                Ok(rows.into_iter().map(|(_, value)| value.to_vec()).collect::<Vec<_>>())
            })
            .await?;
        if was_gone {
            return Err(wrong(format!("{table} was dropped, and is written: {found:?}")));
        }
        match found.iter().find(|row| row[..] != value) {
            Some(row) => Err(wrong(format!("a row of another table in {table}: {row:?}"))),
            None => Ok(()),
        }
    }

    async fn drop(&self, db: &Cluster, name: &str) -> Result<()> {
        self.lives.borrow_mut().drops(name);
        let dropped = db.drop_table(name).await;
        if !matches!(dropped, Err(Error::Unknown(_))) {
            self.lives.borrow_mut().dropped(name, dropped.as_ref().ok().copied());
        }
        dropped.map(drop)
    }

    /// Tries a table that is gone.
    async fn revisit(&self, db: &Cluster, random: &mut Random) -> Result<()> {
        let gone: Vec<TableId> = self.lives.borrow().gone.iter().copied().collect();
        let Some(table) = random.pick(&gone).copied() else { return Ok(()) };
        match self.work(db, table, random).await {
            Err(Error::Rejected(Rejected::TableDropped { .. } | Rejected::UnknownTable { .. })) => {
                Ok(())
            }
            done => done,
        }
    }

    /// Tries the id that is given next: some nodes may know the table already.
    async fn anticipate(&self, db: &Cluster, random: &mut Random) -> Result<()> {
        let last = self.lives.borrow().names.last_key_value().map(|(table, _)| *table);
        let Some(last) = last else { return Ok(()) };
        match self.work(db, TableId(last.0 + 1), random).await {
            Err(Error::Aborted(_) | Error::Rejected(Rejected::UnknownTable { .. })) => Ok(()),
            done => done,
        }
    }

    async fn act(&self, db: &Cluster, random: &mut Random, known: &mut Vec<TableId>) -> Result<()> {
        let name = format!("made-{}", random.below(NAMES));
        match random.below(8) {
            0 => self.drop(db, &name).await,
            1 => {
                self.revisit(db, random).await?;
                self.anticipate(db, random).await
            }
            // By an id of before, which another client may have dropped.
            2 | 3 if !known.is_empty() => {
                let table = *random.pick(known).expect("there is one");
                self.work(db, table, random).await
            }
            _ => {
                let table = self.open(db, &name).await?;
                known.push(table);
                self.work(db, table, random).await
            }
        }
    }

    async fn perform(
        self: Rc<Self>,
        db: OutsideClient,
        number: usize,
        seed: u64,
        context: ClientContext,
    ) {
        let mut random = Random::new(seed).fork(number as u64);
        let mut pauses = ClientPolicy::new(seed, number, &context);
        let mut known = Vec::new();
        while pauses.next(&db).await {
            let began = context.time.get();
            match self.act(db.cluster(), &mut random, &mut known).await {
                Ok(()) => context.ledger.done((NAME, 0), began, context.time.get(), false),
                Err(Error::Rejected(Rejected::Procedure { reason })) => {
                    context.ledger.report_error(context.time.get(), format!("{NAME}: {reason}"));
                }
                // Another client has dropped it, there is none to drop, or it is being moved.
                Err(Error::Rejected(
                    Rejected::TableDropped { .. }
                    | Rejected::UnknownTable { .. }
                    | Rejected::UnknownTableName { .. }
                    | Rejected::TableMoving { .. },
                )) => context.ledger.done((NAME, 1), began, context.time.get(), true),
                Err(error) => context.ledger.failed(NAME, context.time.get(), &error),
            }
        }
    }
}

/// A rule is broken.
fn wrong(what: String) -> Error {
    Error::reject(what)
}

/// Only clients outside create tables.
impl ScenarioClients for Tables {
    fn name(&self) -> &'static str {
        NAME
    }

    fn outside(
        self: Rc<Self>,
        db: OutsideClient,
        number: usize,
        seed: u64,
        context: ClientContext,
    ) -> Task {
        task(&context.clone(), NAME, self.perform(db, number, seed, context))
    }
}
