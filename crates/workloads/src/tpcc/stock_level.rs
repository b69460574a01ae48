//! The stock-level transaction (clause 2.8): how many of the items in a district's last twenty
//! orders are low in stock. It only reads.

use super::keys;
use super::profile::Profile;
use super::random::uniform_u8;
use super::schema::{District, OrderLine, Stock, Tables, as_row, read};
use shoal_types::procedure::Access;
use shoal_types::wire::Coded;
use shoal_types::{Footprint, Random, Result, Scan, Transaction};

/// The number of last orders whose items are examined.
const ORDERS: u32 = 20;

/// The number of items that are prefetched at a time.
const BATCH: usize = 16;

/// Where, and what counts as low.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Input {
    /// W_ID.
    pub warehouse: u16,
    /// D_ID: the same for all of a client's questions.
    pub district: u8,
    /// Fewer than this are low.
    pub threshold: u8,
}

impl Input {
    /// A question about the district, as clause 2.8.1 draws it.
    pub fn draw(random: &mut Random, warehouse: u16, district: u8) -> Input {
        Input { warehouse, district, threshold: uniform_u8(random, 10..=20) }
    }
}

/// What the terminal shows (clause 2.8.3.3), beside what was asked for.
#[derive(Debug, Clone, Default, Coded)]
pub struct Output {
    /// The number of distinct items below the threshold.
    pub low: u32,
    /// The different items looked at, in order. It keeps its room from one question to the next.
    pub items: Vec<u32>,
}

impl Profile for Input {
    const NAME: &'static str = "tpcc.stock_level";
    type Output = Output;

    fn warehouse(&self) -> u16 {
        self.warehouse
    }

    /// Which orders and which stock is known only once the district is read.
    fn footprint(&self, tables: &Tables) -> Footprint {
        let (w, d) = (self.warehouse, self.district);
        let (warehouse, district) = (keys::warehouse(w), keys::district(w, d));
        let mut footprint = Footprint::whole();
        footprint.read(tables.district, &district);
        footprint.range(tables.order_line, &Scan::prefix(&district), Access::Read);
        footprint.range(tables.stock, &Scan::prefix(&warehouse), Access::Read);
        footprint
    }

    async fn run<X: Transaction>(
        &self,
        tx: &X,
        tables: &Tables,
        output: &mut Output,
    ) -> Result<()> {
        let (w, d) = (self.warehouse, self.district);
        let district: &District = read(tx, tables.district, &keys::district(w, d)).await?;
        let next = district.next_order.get();
        let first = keys::order(w, d, next.saturating_sub(ORDERS));
        let end = keys::order(w, d, next);
        let scan = Scan::range(first.as_slice()..end.as_slice());
        output.items.clear();
        for (key, row) in tx.scan(tables.order_line, scan).await? {
            let line: &OrderLine = as_row(Some(row), tables.order_line, key)?;
            output.items.push(line.item.get());
        }
        output.items.sort_unstable();
        output.items.dedup();

        output.low = 0;
        for items in output.items.chunks(BATCH) {
            prefetch(tx, tables, w, items);
            for item in items {
                let stock: &Stock = read(tx, tables.stock, &keys::stock(w, *item)).await?;
                output.low += u32::from(stock.quantity.get() < i16::from(self.threshold));
            }
        }
        Ok(())
    }
}

/// Brings the stock of these items near, at most [`BATCH`] of them.
fn prefetch<X: Transaction>(tx: &X, tables: &Tables, w: u16, items: &[u32]) {
    let mut keys = [keys::stock(0, 0); BATCH];
    for (key, item) in keys.iter_mut().zip(items) {
        *key = keys::stock(w, *item);
    }
    tx.prefetch(&keys.each_ref().map(|key| (tables.stock, &key[..]))[..items.len()]);
}
