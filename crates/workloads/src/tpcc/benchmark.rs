//! TPC-C as a [`Workload`].

use super::client::{Client, Kind};
use super::profile::{self, Profile};
use super::scale::Scale;
use super::schema::Tables;
use super::{
    consistency, delivery, keys, new_order, order_status, payment, population, stock_level,
};
use crate::arguments::decode;
use crate::workload::{Check, Done, Workload, way};
use shoal_types::{Call, Database, Error, Rejected, Result};
use std::hint::black_box;

/// The benchmark on one database: its scale and its tables.
#[derive(Debug, Clone, Copy)]
pub struct TpcC {
    scale: Scale,
    tables: Tables,
    /// The one kind of transaction there is, if there is no mix.
    only: Option<Kind>,
    /// Transactions are calls of procedures.
    calls: bool,
    /// Those of them that are of several shots are run step by step all the same.
    interactive_multi_shot: bool,
    /// The home warehouse of each transaction is drawn, instead of the client's own.
    any_home: bool,
}

impl TpcC {
    /// The benchmark of this scale on `db`, whose tables it opens or makes.
    ///
    /// # Errors
    /// Those of the database and of [`Scale::validate`].
    pub fn new<D: Database>(db: &D, scale: Scale) -> Result<TpcC> {
        let (scale, tables) = (scale.validate()?, Tables::open(db)?);
        Ok(TpcC {
            scale,
            tables,
            only: None,
            calls: false,
            interactive_multi_shot: false,
            any_home: false,
        })
    }

    /// The same, but that all transactions are of this kind: for experiments that look at one. It is
    /// not TPC-C any more.
    #[must_use]
    pub fn of_kind(self, kind: Kind) -> TpcC {
        TpcC { only: Some(kind), ..self }
    }

    /// The same, with transactions that are calls of procedures: the database has to know them.
    #[must_use]
    pub fn calling(self) -> TpcC {
        TpcC { calls: true, ..self }
    }

    /// The same, but that payments by name and order-statuses are no calls: the client runs them step by step, as in the
    /// evaluation of Tiga (SOSP'25, §5.1).
    #[must_use]
    pub fn with_interactive_multi_shot(self) -> TpcC {
        TpcC { interactive_multi_shot: true, ..self }
    }

    /// The same, but that each transaction is at home in a warehouse that is drawn, with equal chances: so few clients use
    /// as much data as many do, each of which has its own warehouse.
    #[must_use]
    pub fn at_any_home(self) -> TpcC {
        TpcC { any_home: true, ..self }
    }

    /// The number of warehouses, and of rows in each.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// The numbers of the tables in the database.
    pub fn tables(&self) -> Tables {
        self.tables
    }

    /// Runs a transaction to its end; returns how often its body ran, and with which result.
    async fn transact<D: Database, P: Profile>(
        &self,
        db: &D,
        profile: &P,
        output: &mut P::Output,
    ) -> (u32, Result<()>) {
        if self.calls && !(self.interactive_multi_shot && profile.is_multi_shot()) {
            return (1, self.call(db, profile, output).await);
        }
        let mut runs = 0;
        let result = db
            .transact(async |tx| {
                runs += 1;
                profile.run(tx, &self.tables, output).await
            })
            .await;
        // The output is not looked at; it must be made all the same.
        black_box(output);
        (runs, result)
    }

    /// Calls a transaction at its warehouse.
    async fn call<D: Database, P: Profile>(
        &self,
        db: &D,
        profile: &P,
        output: &mut P::Output,
    ) -> Result<()> {
        let arguments = profile::arguments(&self.tables, profile);
        let warehouse = keys::warehouse(profile.warehouse());
        let call = Call::new(P::NAME, &arguments).near(self.tables.warehouse, &warehouse);
        *output = decode(&db.call(&call).await?)?;
        Ok(())
    }

    /// Draws the input of a transaction of this kind and runs it.
    async fn run<D: Database>(&self, db: &D, client: &mut Client, kind: Kind) -> (u32, Result<()>) {
        let (scale, date) = (self.scale, client.next_date());
        let home = match self.any_home {
            true => client.random.range_inclusive(1, u64::from(scale.warehouses)) as u16,
            false => client.warehouse,
        };
        let Client { district, random, counts, outputs, .. } = client;
        match kind {
            Kind::NewOrder => {
                let input = new_order::Input::draw(random, scale, home, date);
                counts.lines += input.lines().len() as u64;
                counts.remote_lines += input.remote_lines() as u64;
                self.transact(db, &input, &mut outputs.new_order).await
            }
            Kind::Payment => {
                let input = payment::Input::draw(random, scale, home, date);
                counts.remote_payments += u64::from(input.is_remote());
                counts.by_name += u64::from(input.customer.is_by_name());
                self.transact(db, &input, &mut outputs.payment).await
            }
            Kind::OrderStatus => {
                let input = order_status::Input::draw(random, scale, home);
                counts.by_name += u64::from(input.customer.is_by_name());
                self.transact(db, &input, &mut outputs.order_status).await
            }
            Kind::Delivery => {
                let input = delivery::Input::draw(random, home, date);
                let ran = self.transact(db, &input, &mut outputs.delivery).await;
                counts.skipped_districts += outputs.delivery.skipped() as u64;
                ran
            }
            Kind::StockLevel => {
                let input = stock_level::Input::draw(random, home, *district);
                self.transact(db, &input, &mut outputs.stock_level).await
            }
        }
    }
}

impl Workload for TpcC {
    type Client = Client;

    fn name(&self) -> &'static str {
        "tpcc"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let Scale { warehouses, items, customers, undelivered } = self.scale;
        let mut parameters =
            vec![("warehouses", warehouses.to_string()), ("transactions", way(self.calls))];
        if self.scale != Scale::specification(warehouses) {
            parameters.push(("items", items.to_string()));
            parameters.push(("customers per district", customers.to_string()));
            parameters.push(("undelivered orders per district", undelivered.to_string()));
        }
        if self.calls && self.interactive_multi_shot {
            let kinds = "payments by name and order-statuses".to_owned();
            parameters.push(("interactive all the same", kinds));
        }
        if self.any_home {
            parameters.push(("home warehouse", "any".to_owned()));
        }
        if let Some(kind) = self.only {
            parameters.push(("transactions, all of them", Kind::NAMES[kind as usize].to_owned()));
        }
        parameters
    }

    fn kinds(&self) -> &'static [&'static str] {
        &Kind::NAMES
    }

    fn load_parts(&self) -> usize {
        population::Part::count(self.scale)
    }

    async fn load<D: Database>(
        &self,
        db: &D,
        part: usize,
        seed: u64,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        population::load(db, self.tables, self.scale, part, seed, loaded).await
    }

    fn rows(&self) -> u64 {
        population::rows(self.scale)
    }

    fn client(&self, number: usize, seed: u64) -> Client {
        Client::new(self.scale, number, seed)
    }

    async fn next<D: Database>(&self, db: &D, client: &mut Client) -> Result<Done> {
        let kind = self.only.unwrap_or_else(|| client.deal());
        client.counts.kinds[kind as usize] += 1;
        let (runs, result) = self.run(db, client, kind).await;
        let rolled_back = match result {
            Ok(()) => false,
            Err(Error::Rejected(Rejected::Procedure { reason }))
                if &*reason == new_order::UNUSED_ITEM =>
            {
                true
            }
            Err(error) => return Err(error),
        };
        client.counts.rolled_back += u64::from(rolled_back);
        Ok(Done { kind: kind as usize, retries: runs.saturating_sub(1), rolled_back })
    }

    async fn check<D: Database>(&self, db: &D) -> Result<Vec<Check>> {
        consistency::check(db, self.tables, self.scale).await
    }
}
