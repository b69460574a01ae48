//! A node with a procedure of its own, and a client that calls it.
//!
//! ```text
//! cargo run -p shoal --example procedures -- serve node.toml
//! cargo run -p shoal --example procedures -- call 127.0.0.1:7000 deposit 'alice 100'
//! cargo run -p shoal --example procedures -- call 127.0.0.1:7000 transfer 'alice bob 30'
//! ```
//! `shoal serve --help` has an example of the files of a node.

use shoal::server::{ConfigError, ServerBuilder};
use shoal::traits::Transaction;
use shoal::{Bytes, Db, Error, ProcedureTransaction, Procedures, Result};
use std::path::Path;

/// Puts money on an account: `alice 100`. Returns what is on it then.
async fn deposit(tx: &ProcedureTransaction<'_>, arguments: &[u8]) -> Result<Bytes> {
    let [account, amount] = words(arguments)?;
    let balance = tx.add(tx.table("accounts")?, account.as_bytes(), number(amount)?).await?;
    Ok(balance.to_string().into())
}

/// Moves money from an account to another: `alice bob 30`. Returns what is left on the first.
async fn transfer(tx: &ProcedureTransaction<'_>, arguments: &[u8]) -> Result<Bytes> {
    let [from, to, amount] = words(arguments)?;
    let (accounts, amount) = (tx.table("accounts")?, number(amount)?);
    let left = tx.add(accounts, from.as_bytes(), -amount).await?;
    if left < 0 {
        return Err(Error::reject("insufficient funds"));
    }
    tx.add(accounts, to.as_bytes(), amount).await?;
    Ok(left.to_string().into())
}

/// Both, for an embedded database.
pub fn known() -> Procedures {
    Procedures::new().with("deposit", deposit).with("transfer", transfer)
}

/// The node of this configuration, which knows both.
pub fn node(config: &Path) -> std::result::Result<ServerBuilder, ConfigError> {
    let builder = ServerBuilder::from_file(config)?;
    Ok(builder.procedure("deposit", deposit).procedure("transfer", transfer))
}

/// Calls one of them, in a cluster near the first account that it names.
pub async fn call(db: &Db, procedure: &str, arguments: &str) -> Result<String> {
    let account = arguments.split(' ').next().unwrap_or_default().as_bytes();
    let accounts = db.table("accounts")?;
    let result = db.call_near(accounts, account, procedure, arguments.as_bytes()).await?;
    Ok(String::from_utf8_lossy(&result).into_owned())
}

fn words<const N: usize>(arguments: &[u8]) -> Result<[&str; N]> {
    let text = str::from_utf8(arguments).unwrap_or_default();
    let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    words.try_into().map_err(|_| Error::reject(format!("{N} words are expected: '{text}'")))
}

fn number(word: &str) -> Result<i64> {
    let number = word.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or_else(|| Error::reject(format!("a number up to 1000000 is expected: '{word}'")))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", config] => Ok(node(Path::new(config))?.start()?.join()?),
        ["call", address, procedure, arguments] => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let db = Db::connect(&[address]).await?;
                println!("{}", call(&db, procedure, arguments).await?);
                Ok(())
            })
        }
        _ => Err("serve CONFIG, or call ADDRESS PROCEDURE ARGUMENTS".into()),
    }
}
