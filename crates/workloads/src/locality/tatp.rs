//! TATP: what a home location register of a mobile network does (IBM, "Telecom Application Transaction Processing", 1.0).
//!
//! | type | share | does |
//! |---|---|---|
//! | get subscriber data | 35 % | reads the subscriber |
//! | get new destination | 10 % | reads a special facility and its call forwardings; finds one in 24 % |
//! | get access data | 35 % | reads an access row; finds one in 62.5 % |
//! | update subscriber data | 2 % | writes the subscriber and a special facility; succeeds in 62.5 % |
//! | update location | 14 % | writes the subscriber |
//! | insert call forwarding | 2 % | reads a special facility, inserts a call forwarding unless it is there |
//! | delete call forwarding | 2 % | deletes a call forwarding if it is there |
//!
//! Subscribers are drawn uniformly of the client's home; a remote write is of a subscriber of another one. The numbers of
//! subscribers are those of their telephones: no index leads from one to the other.
//!
//! Invariants: a call forwarding has its special facility, and there are as many as were loaded and inserted and not deleted.

use super::homes::{HomeClient, Homes, draw_kind, number, row};
use crate::rows;
use crate::tally::Tally;
use crate::workload::{Check, Done, Workload};
use shoal_types::bulk_load::LoadRow;
use shoal_types::{Database, Random, Result, TableId, Transaction};

const KINDS: [&str; 7] = [
    "get subscriber data",
    "get new destination",
    "get access data",
    "update subscriber data",
    "update location",
    "insert call forwarding",
    "delete call forwarding",
];
const SHARES: [u32; 7] = [35, 10, 35, 2, 14, 2, 2];
const GET_SUBSCRIBER: usize = 0;
const GET_DESTINATION: usize = 1;
const GET_ACCESS: usize = 2;
const UPDATE_SUBSCRIBER: usize = 3;
const UPDATE_LOCATION: usize = 4;
const INSERT_FORWARDING: usize = 5;

/// Access rows and special facilities of a subscriber: 1 to so many.
const TYPES: u64 = 4;

/// Call forwardings of a special facility: at most so many, from 0, 8 and 16 o'clock.
const STARTS: u64 = 3;

/// The length of a row, of which the beginning is a number.
const ROW_BYTES: usize = 40;

/// The benchmark's parameters and tables.
#[derive(Debug)]
pub struct Tatp {
    subscribers: TableId,
    access: TableId,
    facilities: TableId,
    forwardings: TableId,
    homes: Homes,
    /// Call forwardings that were loaded or inserted, less those that were deleted, modulo 2^64.
    kept: Tally,
}

/// A transaction that was drawn.
#[derive(Debug, Clone, Copy)]
struct Order {
    kind: usize,
    subscriber: u32,
    of_type: u64,
    start: u64,
    value: i64,
}

/// What a transaction did.
struct Outcome {
    has_found: bool,
    /// Call forwardings that it has inserted, less those that it has deleted.
    kept: i64,
}

fn subscriber_key(subscriber: u32) -> [u8; 4] {
    subscriber.to_be_bytes()
}

/// The key of an access row or a special facility.
fn typed_key(subscriber: u32, of_type: u64) -> [u8; 5] {
    let [a, b, c, d] = subscriber.to_be_bytes();
    [a, b, c, d, of_type as u8]
}

fn forwarding_key(subscriber: u32, of_type: u64, start: u64) -> [u8; 6] {
    let [a, b, c, d] = subscriber.to_be_bytes();
    [a, b, c, d, of_type as u8, start as u8]
}

/// What a subscriber is loaded with: how many access rows, how many special facilities, and for each of those, how many call
/// forwardings.
struct Loaded {
    access: u64,
    facilities: u64,
    forwardings: [u64; TYPES as usize],
}

impl Loaded {
    fn of(subscriber: u32, seed: u64) -> Loaded {
        let mut random = Random::new(seed).fork(subscriber.into());
        let access = random.range_inclusive(1, TYPES);
        let facilities = random.range_inclusive(1, TYPES);
        let forwardings = std::array::from_fn(|_| random.range_inclusive(0, STARTS));
        Loaded { access, facilities, forwardings }
    }

    /// The call forwardings of each special facility.
    fn forwardings(&self) -> &[u64] {
        &self.forwardings[..self.facilities as usize]
    }
}

impl Tatp {
    /// The benchmark over subscribers that are divided so.
    ///
    /// # Errors
    /// Those of making the tables.
    ///
    /// # Panics
    /// If there is no home or no subscriber, or the share is more than all.
    pub fn new<D: Database>(db: &D, homes: Homes) -> Result<Tatp> {
        homes.check();
        Ok(Tatp {
            subscribers: db.table("tatp.subscribers")?,
            access: db.table("tatp.access")?,
            facilities: db.table("tatp.facilities")?,
            forwardings: db.table("tatp.forwardings")?,
            homes,
            kept: Tally::new(),
        })
    }

    fn draw(&self, client: &mut HomeClient) -> Order {
        let random = &mut client.random;
        let kind = draw_kind(random, &SHARES);
        let home = match kind {
            GET_SUBSCRIBER | GET_DESTINATION | GET_ACCESS => client.home,
            _ => self.homes.other_home(random, client.home),
        };
        Order {
            kind,
            subscriber: self.homes.object(random, home),
            of_type: random.below(TYPES),
            start: random.below(STARTS),
            value: random.below(1 << 32) as i64,
        }
    }

    async fn run<X: Transaction>(&self, tx: &X, order: Order) -> Result<Outcome> {
        let Order { kind, subscriber, of_type, start, value } = order;
        let (subscriber_key, typed) = (subscriber_key(subscriber), typed_key(subscriber, of_type));
        let forwarding = forwarding_key(subscriber, of_type, start);
        let outcome = |has_found, kept| Ok(Outcome { has_found, kept });
        match kind {
            GET_SUBSCRIBER => {
                number(tx.get(self.subscribers, &subscriber_key).await?)?;
                outcome(true, 0)
            }
            GET_DESTINATION => {
                let mut has_found = false;
                if tx.get(self.facilities, &typed).await?.is_some() {
                    for start in 0..=start {
                        let key = forwarding_key(subscriber, of_type, start);
                        has_found |= tx.get(self.forwardings, &key).await?.is_some();
                    }
                }
                outcome(has_found, 0)
            }
            GET_ACCESS => outcome(tx.get(self.access, &typed).await?.is_some(), 0),
            UPDATE_SUBSCRIBER => {
                number(tx.get_for_update(self.subscribers, &subscriber_key).await?)?;
                let has_found = tx.get_for_update(self.facilities, &typed).await?.is_some();
                if has_found {
                    tx.put(self.subscribers, &subscriber_key, &row::<ROW_BYTES>(value))?;
                    tx.put(self.facilities, &typed, &row::<ROW_BYTES>(value))?;
                }
                outcome(has_found, 0)
            }
            UPDATE_LOCATION => {
                number(tx.get_for_update(self.subscribers, &subscriber_key).await?)?;
                tx.put(self.subscribers, &subscriber_key, &row::<ROW_BYTES>(value))?;
                outcome(true, 0)
            }
            INSERT_FORWARDING => {
                let has_facility = tx.get(self.facilities, &typed).await?.is_some();
                let is_there = tx.get_for_update(self.forwardings, &forwarding).await?.is_some();
                let inserts = has_facility && !is_there;
                if inserts {
                    tx.put(self.forwardings, &forwarding, &row::<ROW_BYTES>(value))?;
                }
                outcome(inserts, inserts.into())
            }
            _ => {
                let is_there = tx.get_for_update(self.forwardings, &forwarding).await?.is_some();
                if is_there {
                    tx.delete(self.forwardings, &forwarding)?;
                }
                outcome(is_there, -i64::from(is_there))
            }
        }
    }

    /// The rows that a subscriber is loaded with.
    fn rows_of(&self, subscriber: u32, loaded: &Loaded) -> Vec<LoadRow> {
        let empty: [u8; ROW_BYTES] = row(0);
        let made = |table, key: &[u8]| LoadRow::new(table, key, &empty);
        let mut rows = vec![made(self.subscribers, &subscriber_key(subscriber))];
        for of_type in 0..loaded.access {
            rows.push(made(self.access, &typed_key(subscriber, of_type)));
        }
        for (of_type, forwardings) in (0..).zip(loaded.forwardings()) {
            rows.push(made(self.facilities, &typed_key(subscriber, of_type)));
            for start in 0..*forwardings {
                let key = forwarding_key(subscriber, of_type, start);
                rows.push(made(self.forwardings, &key));
            }
        }
        rows
    }
}

impl Workload for Tatp {
    type Client = HomeClient;

    fn name(&self) -> &'static str {
        "tatp"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        self.homes.parameters("subscribers")
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn load_parts(&self) -> usize {
        self.homes.parts()
    }

    async fn load<D: Database>(
        &self,
        db: &D,
        part: usize,
        seed: u64,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut kept = 0;
        let rows = self.homes.part(part).flat_map(|subscriber| {
            let subscriber = subscriber as u32;
            let loaded = Loaded::of(subscriber, seed);
            kept += loaded.forwardings().iter().sum::<u64>();
            self.rows_of(subscriber, &loaded)
        });
        db.load(rows, loaded).await?;
        self.kept.add(part, kept);
        Ok(())
    }

    fn rows(&self) -> u64 {
        // On average: itself, 2.5 access rows, 2.5 special facilities, and 1.5 call forwardings for each of those.
        self.homes.all() * 39 / 4
    }

    fn client(&self, number: usize, seed: u64) -> HomeClient {
        self.homes.client(number, seed)
    }

    async fn next<D: Database>(&self, db: &D, client: &mut HomeClient) -> Result<Done> {
        let order = self.draw(client);
        let mut runs = 0;
        let outcome = db.transact(async |tx| {
            runs += 1;
            self.run(tx, order).await
        });
        let Outcome { has_found, kept } = outcome.await?;
        self.kept.add(client.number, kept as u64);
        Ok(Done { kind: order.kind, retries: runs - 1, rolled_back: !has_found })
    }

    async fn check<D: Database>(&self, db: &D) -> Result<Vec<Check>> {
        let (mut subscribers, mut alone, mut kept) = (0, 0, 0);
        let all = self.homes.all();
        rows::visit_rows(
            db,
            self.subscribers,
            0..all,
            |at| subscriber_key(at as u32),
            |_, row| {
                subscribers += u64::from(row.is_some());
            },
        )
        .await?;
        let mut has_facility = vec![false; (all * TYPES) as usize];
        let typed = |at: u64| typed_key((at / TYPES) as u32, at % TYPES);
        rows::visit_rows(db, self.facilities, 0..all * TYPES, typed, |at, row| {
            has_facility[at as usize] = row.is_some();
        })
        .await?;
        let key = |at: u64| {
            let of = at / STARTS;
            forwarding_key((of / TYPES) as u32, of % TYPES, at % STARTS)
        };
        rows::visit_rows(db, self.forwardings, 0..all * TYPES * STARTS, key, |at, row| {
            if row.is_some() {
                kept += 1;
                alone += u64::from(!has_facility[(at / STARTS) as usize]);
            }
        })
        .await?;
        Ok(vec![
            Check::equal("tatp: subscribers = loaded", subscribers, all),
            Check::equal("tatp: call forwardings without special facility = 0", alone, 0),
            Check::equal(
                "tatp: call forwardings = loaded + inserted - deleted",
                kept,
                self.kept.sum(),
            ),
        ])
    }
}
