//! Tokens that move between slots, and are counted: deletes, inserts and scans on few keys, so that
//! transactions often read tombstones and meet phantoms.
//!
//! A slot's key is its number as two big-endian bytes, its value the token in it. A move takes a token
//! out of one slot and puts it into another, if that is empty.
//!
//! Invariant: every count finds every token once.

use shoal_types::{Database, Error, Random, Result, Scan, TableId, Transaction};
use shoal_workloads::workload::{Check, Done, Workload};

/// Clients that move tokens between slots; their number must not change.
#[derive(Debug)]
pub struct Tokens {
    table: TableId,
    tokens: u16,
    slots: u16,
}

/// One client, which moves tokens of its own and of others.
#[derive(Debug)]
pub struct TokensClient {
    random: Random,
}

impl Tokens {
    /// Clients that move `tokens` tokens between `slots` slots.
    ///
    /// # Errors
    /// Those of opening the table.
    ///
    /// # Panics
    /// If there are more tokens than slots.
    pub fn new<D: Database>(db: &D, tokens: u16, slots: u16) -> Result<Tokens> {
        assert!(tokens <= slots, "{tokens} tokens in {slots} slots");
        Ok(Tokens { table: db.table("tokens")?, tokens, slots })
    }

    fn slot(&self, random: &mut Random) -> [u8; 2] {
        (random.below(self.slots.into()) as u16).to_be_bytes()
    }

    async fn shift<D: Database>(&self, db: &D, random: &mut Random) -> Result<u32> {
        let (from, to) = (self.slot(random), self.slot(random));
        let mut runs = 0;
        db.transact(async |tx| {
            runs += 1;
            let Some(token) = tx.get_for_update(self.table, &from).await? else { return Ok(()) };
            if tx.get(self.table, &to).await?.is_none() {
                tx.delete(self.table, &from)?;
                tx.put(self.table, &to, token)?;
            }
            Ok(())
        })
        .await?;
        Ok(runs)
    }

    /// Reads all tokens, in one transaction: returns them sorted, and how often the transaction ran.
    async fn count<D: Database>(&self, db: &D, reverse: bool) -> Result<(Vec<u16>, u32)> {
        let mut runs = 0;
        let mut tokens = db
            .transact(async |tx| {
                runs += 1;
                let scan = if reverse { Scan::all().reverse() } else { Scan::all() };
                let rows = tx.scan(self.table, scan).await?;
                let token = |value: &[u8]| value.try_into().map(u16::from_le_bytes).ok();
                Ok(rows.iter().filter_map(|(_, value)| token(value)).collect::<Vec<u16>>())
            })
            .await?;
        tokens.sort_unstable();
        Ok((tokens, runs))
    }

    fn judge(&self, found: &[u16]) -> std::result::Result<(), String> {
        if found.iter().copied().eq(0..self.tokens) {
            return Ok(());
        }
        Err(format!("a count of {} tokens found {found:?}", self.tokens))
    }
}

impl Workload for Tokens {
    type Client = TokensClient;

    fn name(&self) -> &'static str {
        "tokens"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        vec![("tokens", self.tokens.to_string()), ("slots", self.slots.to_string())]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["move", "count"]
    }

    fn load_parts(&self) -> usize {
        1
    }

    async fn load<D: Database>(
        &self,
        db: &D,
        _part: usize,
        _seed: u64,
        loaded: &mut dyn FnMut(u64),
    ) -> Result<()> {
        db.transact(async |tx| {
            for token in 0..self.tokens {
                tx.insert(self.table, &token.to_be_bytes(), &token.to_le_bytes()).await?;
            }
            Ok(())
        })
        .await?;
        loaded(self.tokens.into());
        Ok(())
    }

    fn rows(&self) -> u64 {
        self.tokens.into()
    }

    fn client(&self, number: usize, seed: u64) -> TokensClient {
        TokensClient { random: Random::new(seed).fork(number as u64) }
    }

    async fn next<D: Database>(&self, db: &D, client: &mut TokensClient) -> Result<Done> {
        let random = &mut client.random;
        if random.chance(3, 4) {
            let runs = self.shift(db, random).await?;
            return Ok(Done { kind: 0, retries: runs - 1, rolled_back: false });
        }
        let (found, runs) = self.count(db, random.chance(1, 2)).await?;
        // The count has committed, so it read a state that existed.
        self.judge(&found).map_err(Error::reject)?;
        Ok(Done { kind: 1, retries: runs - 1, rolled_back: false })
    }

    async fn check<D: Database>(&self, db: &D) -> Result<Vec<Check>> {
        let (found, _) = self.count(db, false).await?;
        let name = "tokens: each is there once".into();
        Ok(vec![Check { name, verdict: self.judge(&found) }])
    }
}
