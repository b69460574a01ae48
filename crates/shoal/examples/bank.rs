//! A bank: tellers move money between accounts, and an auditor sees that none is made or lost.
//!
//! Shows operations side by side, `add`, errors, scans, and what to do when it is not known whether a
//! transaction has committed: run it again. If its receipt is there already, it had happened.
//!
//! `cargo run -p shoal --example bank`, or with the address of a node: `… -- 127.0.0.1:7000`

use shoal::{Db, Error, Rejected, Result, Scan, TableId, Transaction};

const OWNERS: [&[u8]; 4] = [b"alice", b"bob", b"carol", b"dave"];
const CENTS: i64 = 10_000;

/// Accounts and receipts of a database.
struct Bank<'d>(&'d Db, TableId, TableId);

impl Bank<'_> {
    /// Moves money, once for each receipt, however often it is asked for.
    async fn transfer(&self, receipt: &str, from: &[u8], to: &[u8], cents: i64) -> Result<()> {
        let &Bank(db, accounts, receipts) = self;
        let transfer = async |tx: &mut Transaction<'_>| {
            let (left, ..) = tokio::try_join!(
                tx.add(accounts, from, -cents),
                tx.add(accounts, to, cents),
                tx.insert(receipts, receipt.as_bytes(), from),
            )?;
            if left < 0 { Err(Error::reject("insufficient funds")) } else { Ok(()) }
        };
        loop {
            match db.transact(transfer).await {
                Err(Error::Unknown(_)) => {} // The receipt shows it.
                Err(Error::Rejected(Rejected::KeyExists { .. })) => return Ok(()),
                known => return known,
            }
        }
    }

    /// Makes transfers of its own, and returns how many were refused.
    async fn teller(&self, name: &str) -> Result<u32> {
        let mut refused = 0;
        for round in 0..100 {
            let (from, to) = (OWNERS[round % 4], OWNERS[(round * round + 1) % 4]);
            match self.transfer(&format!("{name} {round}"), from, to, 3_000).await {
                Err(Error::Rejected(Rejected::Procedure { .. })) => refused += 1,
                other => other?,
            }
        }
        Ok(refused)
    }
}

/// Two tellers and an auditor.
pub async fn run(db: &Db) -> Result<()> {
    let bank = Bank(db, db.table("bank.accounts")?, db.table("bank.receipts")?);
    let Bank(_, accounts, receipts) = bank;
    let open = async |tx: &mut Transaction<'_>| {
        let old = tx.scan(receipts, Scan::all()).await?;
        old.iter().try_for_each(|(receipt, _)| tx.delete(receipts, receipt))?;
        OWNERS.iter().try_for_each(|it| tx.put(accounts, it, &CENTS.to_le_bytes()))
    };
    let sum = async |tx: &mut Transaction<'_>| {
        let rows = tx.scan(accounts, Scan::all()).await?;
        Ok(rows.iter().map(|row| i64::from_le_bytes(row.1.try_into().unwrap())).sum())
    };
    // What a body has seen is so only once it has committed: judge what it returns.
    let audit = async || db.transact(sum).await.map(|all: i64| assert_eq!(all, CENTS * 4));
    db.transact(open).await?;
    let refused = tokio::try_join!(bank.teller("erin"), bank.teller("frank"), audit())?;
    audit().await?;
    println!("200 transfers, {} of them refused; nothing was made or lost", refused.0 + refused.1);
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
