//! A warehouse: orders of several items, each delivered as a whole or not at all.
//!
//! Shows keys that are tuples, reading ahead, scans, errors to act on, and an order of which no client
//! knows whether it was placed: it has a number, and is looked for first.
//!
//! `cargo run -p shoal --example inventory`, or with an address: `… -- 127.0.0.1:7000`

use shoal::{Db, Error, Rejected, Result, Scan, TableId, Transaction, tuple};

/// A database, and tables of what there is of each item, and of what was ordered.
struct Warehouse<'d>(&'d Db, TableId, TableId);

impl Warehouse<'_> {
    /// Places an order under a number that the customer chose.
    async fn order(&self, customer: &str, number: u32, items: &[(&str, i64)]) -> Result<()> {
        let &Warehouse(db, stock, orders) = self;
        let order = tuple::encode((customer, number));
        let place = async |tx: &mut Transaction<'_>| {
            let keys: Vec<_> = items.iter().map(|(item, _)| (stock, item.as_bytes())).collect();
            tx.prefetch(&keys);
            if tx.get(orders, &order).await?.is_some() {
                return Ok(()); // It must not be made twice.
            }
            for (item, count) in items {
                let left = tx.add(stock, item.as_bytes(), -count).await?;
                if left < 0 {
                    return Err(Error::reject(format!("there are only {} {item}", left + count)));
                }
            }
            tx.put(orders, &order, format!("{items:?}").as_bytes())
        };
        loop {
            match db.transact(place).await {
                Err(Error::Unknown(_)) => {} // If it was placed, it is found now.
                known => return known,
            }
        }
    }

    /// The numbers of a customer's last three orders, latest first.
    async fn last(&self, customer: &str) -> Result<Vec<u32>> {
        let &Warehouse(db, _, orders) = self;
        let all = tuple::encode((customer,));
        let look = async |tx: &mut Transaction<'_>| {
            let last = tx.scan(orders, Scan::prefix(&all).reverse().limit(3)).await?;
            let number = |key| tuple::decode::<(String, u32)>(key).expect("our key").1;
            Ok(last.iter().map(|(key, _)| number(key)).collect())
        };
        db.transact(look).await
    }
}

/// Two customers, and an order too many.
pub async fn run(db: &Db) -> Result<()> {
    let (stock, orders) = (db.table("inventory.stock")?, db.table("inventory.orders")?);
    let shop = Warehouse(db, stock, orders);
    let open = async |tx: &mut Transaction<'_>| {
        let old = tx.scan(orders, Scan::all()).await?;
        old.iter().try_for_each(|(order, _)| tx.delete(orders, order))?;
        let fill = |(item, n): (&str, i64)| tx.put(stock, item.as_bytes(), &n.to_le_bytes());
        [("bolts", 40), ("nuts", 50), ("screws", 12)].into_iter().try_for_each(fill)
    };
    db.transact(open).await?;
    tokio::try_join!(shop.order("alice", 1, &[("nuts", 5)]), shop.order("bob", 7, &[("nuts", 5)]))?;
    match shop.order("alice", 2, &[("nuts", 9), ("screws", 13)]).await {
        Err(Error::Rejected(Rejected::Procedure { reason })) => println!("not sold: {reason}"),
        other => other?,
    }
    println!("alice's last orders: {:?}", shop.last("alice").await?);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let db = match std::env::args().nth(1) {
        Some(address) => Db::connect(&[address]).await?,
        None => Db::memory(),
    };
    Ok(run(&db).await?)
}
