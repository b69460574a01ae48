//! SmallBank: accounts with a savings and a checking balance (Alomari et al., ICDE'08; the mix of H-Store).
//!
//! | type | share | accounts | does |
//! |---|---|---|---|
//! | balance | 15 % | 1 | reads both balances |
//! | deposit checking | 15 % | 1 | adds to checking |
//! | transact savings | 15 % | 1 | adds to or takes from savings; rolled back where that would be less than nothing |
//! | amalgamate | 15 % | 2 | moves all of one account to the other's checking |
//! | write check | 15 % | 1 | takes from checking, and one more where both balances do not cover it |
//! | send payment | 25 % | 2 | moves between checking balances; rolled back where that does not cover it |
//!
//! Invariant: all balances add up to what was loaded and what committed transactions brought and took.

use super::homes::{HomeClient, Homes, draw_kind, key, number, visit_numbers};
use crate::rows;
use crate::tally::Tally;
use crate::workload::{Check, Done, Workload};
use shoal_types::{Database, Result, TableId, Transaction};

const KINDS: [&str; 6] = [
    "balance",
    "deposit checking",
    "transact savings",
    "amalgamate",
    "write check",
    "send payment",
];
const SHARES: [u32; 6] = [15, 15, 15, 15, 15, 25];
const BALANCE: usize = 0;
const DEPOSIT_CHECKING: usize = 1;
const TRANSACT_SAVINGS: usize = 2;
const AMALGAMATE: usize = 3;
const WRITE_CHECK: usize = 4;
const SEND_PAYMENT: usize = 5;

/// What each balance begins with.
const OPENING: i64 = 10_000;

/// The most that one transaction brings or takes.
const AMOUNT_MAX: u64 = 100;

/// The benchmark's parameters and tables.
#[derive(Debug)]
pub struct SmallBank {
    savings: TableId,
    checking: TableId,
    homes: Homes,
    /// What committed transactions brought, less what they took, modulo 2^64.
    brought: Tally,
}

/// A transaction that was drawn.
#[derive(Debug, Clone, Copy)]
struct Order {
    kind: usize,
    account: u32,
    other: u32,
    amount: i64,
}

impl SmallBank {
    /// The benchmark over accounts that are divided so.
    ///
    /// # Errors
    /// Those of making the tables.
    ///
    /// # Panics
    /// If there is no home or no account, or the share is more than all.
    pub fn new<D: Database>(db: &D, homes: Homes) -> Result<SmallBank> {
        homes.check();
        let (savings, checking) =
            (db.table("small_bank.savings")?, db.table("small_bank.checking")?);
        Ok(SmallBank { savings, checking, homes, brought: Tally::new() })
    }

    fn draw(&self, client: &mut HomeClient) -> Order {
        let random = &mut client.random;
        let kind = draw_kind(random, &SHARES);
        let mut home = client.home;
        if !matches!(kind, BALANCE | AMALGAMATE | SEND_PAYMENT) {
            home = self.homes.other_home(random, home);
        }
        let account = self.homes.object(random, home);
        let other_home = self.homes.other_home(random, home);
        let mut other = self.homes.object(random, other_home);
        if other == account {
            // The next one; alone in all homes it stays the same, and nothing moves.
            other = ((u64::from(account) + 1) % self.homes.all()) as u32;
        }
        Order { kind, account, other, amount: 1 + random.below(AMOUNT_MAX) as i64 }
    }

    /// Runs a transaction. Returns what it brought, less what it took; `None` if it is to be rolled back.
    async fn run<X: Transaction>(&self, tx: &X, order: Order) -> Result<Option<i64>> {
        let Order { kind, account, other, amount } = order;
        let (account, other) = (account.to_be_bytes(), other.to_be_bytes());
        let (savings, checking) = (self.savings, self.checking);
        match kind {
            BALANCE => {
                tx.prefetch(&[(savings, &account[..]), (checking, &account[..])]);
                number(tx.get(savings, &account).await?)?;
                number(tx.get(checking, &account).await?)?;
                Ok(Some(0))
            }
            DEPOSIT_CHECKING => {
                tx.add(checking, &account, amount).await?;
                Ok(Some(amount))
            }
            TRANSACT_SAVINGS => {
                let amount = if amount % 2 == 0 { amount } else { -amount };
                let left = number(tx.get_for_update(savings, &account).await?)? + amount;
                if left < 0 {
                    return Ok(None);
                }
                tx.put(savings, &account, &left.to_le_bytes())?;
                Ok(Some(amount))
            }
            AMALGAMATE => {
                if account == other {
                    return Ok(None);
                }
                tx.prefetch(&[
                    (savings, &account[..]),
                    (checking, &account[..]),
                    (checking, &other[..]),
                ]);
                let all = number(tx.get_for_update(savings, &account).await?)?
                    + number(tx.get_for_update(checking, &account).await?)?;
                tx.put(savings, &account, &0_i64.to_le_bytes())?;
                tx.put(checking, &account, &0_i64.to_le_bytes())?;
                tx.add(checking, &other, all).await?;
                Ok(Some(0))
            }
            WRITE_CHECK => {
                tx.prefetch(&[(savings, &account[..]), (checking, &account[..])]);
                let saved = number(tx.get(savings, &account).await?)?;
                let left = number(tx.get_for_update(checking, &account).await?)?;
                let penalty = i64::from(saved + left < amount);
                tx.put(checking, &account, &(left - amount - penalty).to_le_bytes())?;
                Ok(Some(-amount - penalty))
            }
            _ => {
                tx.prefetch(&[(checking, &account[..]), (checking, &other[..])]);
                let left = number(tx.get_for_update(checking, &account).await?)?;
                if left < amount || account == other {
                    return Ok(None);
                }
                tx.put(checking, &account, &(left - amount).to_le_bytes())?;
                tx.add(checking, &other, amount).await?;
                Ok(Some(0))
            }
        }
    }
}

impl Workload for SmallBank {
    type Client = HomeClient;

    fn name(&self) -> &'static str {
        "small-bank"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        self.homes.parameters("accounts")
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
        _seed: u64,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let row = |account| (key(account), OPENING.to_le_bytes());
        for table in [self.savings, self.checking] {
            rows::load(db, table, self.homes.part(part), row, loaded).await?;
        }
        Ok(())
    }

    fn rows(&self) -> u64 {
        2 * self.homes.all()
    }

    fn client(&self, number: usize, seed: u64) -> HomeClient {
        self.homes.client(number, seed)
    }

    async fn next<D: Database>(&self, db: &D, client: &mut HomeClient) -> Result<Done> {
        let order = self.draw(client);
        let mut runs = 0;
        let brought = db.transact(async |tx| {
            runs += 1;
            self.run(tx, order).await
        });
        let brought = brought.await?;
        self.brought.add(client.number, brought.unwrap_or_default() as u64);
        Ok(Done { kind: order.kind, retries: runs - 1, rolled_back: brought.is_none() })
    }

    async fn check<D: Database>(&self, db: &D) -> Result<Vec<Check>> {
        let (mut sum, mut missing, mut overdrawn) = (0_i64, 0, 0);
        for table in [self.savings, self.checking] {
            missing += visit_numbers(db, table, self.homes.all(), |_, balance| {
                sum += balance;
                overdrawn += u64::from(table == self.savings && balance < 0);
            })
            .await?;
        }
        let loaded = OPENING.wrapping_mul(self.rows() as i64) as u64;
        let expected = loaded.wrapping_add(self.brought.sum());
        Ok(vec![
            Check::equal("small-bank: balances that are missing = 0", missing, 0),
            Check::equal("small-bank: savings below zero = 0", overdrawn, 0),
            Check::equal("small-bank: money = loaded + brought - taken", sum as u64, expected),
        ])
    }
}
