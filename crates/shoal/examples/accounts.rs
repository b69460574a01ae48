//! The programs of the README, on a database in memory or on the cluster at an address.
//!
//! `cargo run -p shoal --example accounts`, or with the address of a node: `… -- 127.0.0.1:7000`

use shoal::{ClusterOptions, Db, Error};

/// Opens two accounts, moves an amount between them, and returns what is left on the first.
pub fn open_and_move(db: &Db) -> Result<i64, Error> {
    let accounts = db.table("accounts")?; // created if it is not there
    db.transact_blocking(|tx| tx.put(accounts, b"alice", &100_i64.to_le_bytes()))?;
    db.transact_blocking(|tx| {
        let left = tx.add(accounts, b"alice", -10)?;
        if left < 0 {
            return Err(Error::reject("insufficient funds"));
        }
        tx.add(accounts, b"bob", 10)?;
        Ok(left)
    })
}

/// Pays the amount back.
pub async fn pay_back(db: &Db) -> Result<i64, Error> {
    let accounts = db.open_table("accounts").await?;
    db.transact(async |tx| {
        tx.add(accounts, b"bob", -10).await?;
        tx.add(accounts, b"alice", 10).await
    })
    .await
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = match std::env::args().nth(1) {
        None => Db::memory(),
        Some(address) => Db::connect_blocking(&[address], ClusterOptions::default())?,
    };
    println!("alice has {}", open_and_move(&db)?);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    println!("alice has {} again", runtime.block_on(pay_back(&db))?);
    Ok(())
}
