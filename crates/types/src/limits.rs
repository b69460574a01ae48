//! The limits of keys, values and transactions. Each is enforced with an error that names it.

use crate::error::{KeyExcerpt, Rejected, Result};
use crate::id::TableId;

/// Longest key, in bytes. A key has at least one byte.
pub const KEY_BYTES_MAX: usize = 4 << 10;

/// Longest value, in bytes. A value may be empty.
pub const VALUE_BYTES_MAX: usize = 8 << 20;

/// Bytes of keys and values that one transaction may write.
pub const TRANSACTION_BYTES_MAX: usize = 64 << 20;

/// Bytes of a transaction with an engine whose messages have it whole: of what it writes (`zeus`), and also of the keys that it
/// reads, of a call's arguments and of its result (`tiga`). A longer frame than the network takes
/// (`NetworkLimits::frame_bytes_max`, 32 MiB) never arrives, however often it is sent; half of that leaves room for all else that
/// is in it.
pub const TRANSACTION_MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Keys that one transaction may write.
pub const TRANSACTION_WRITES_MAX: usize = 1 << 20;

/// Rows, gaps and leaves that one transaction may read; each costs up to 64 bytes until its end, which
/// count as memory of the database.
pub const TRANSACTION_READS_MAX: usize = 1 << 24;

/// Transactions that one database may be allowed to have open at once; each may cost 128 bytes before
/// any is open.
pub const TRANSACTIONS_OPEN_MAX: usize = 1 << 20;

/// Tables of one database, whether a topology names them or a client creates them.
pub const TABLES_MAX: usize = 1024;

/// Ids of tables that one database gives, counting those of tables that were dropped: an id is never given twice.
pub const TABLE_IDS_MAX: usize = 1 << 16;

/// Names of tables that begin so belong to the cluster itself.
pub const RESERVED_TABLES: &str = "shoal.";

// All tables of a full database can be dropped and made anew a few times at least.
const _: () = assert!(TABLE_IDS_MAX >= 16 * TABLES_MAX);

/// Longest table name, in bytes. A name has at least one byte.
pub const TABLE_NAME_BYTES_MAX: usize = 128;

// A transaction that writes one value of the greatest size under the longest key must fit.
const _: () = assert!(KEY_BYTES_MAX + VALUE_BYTES_MAX <= TRANSACTION_BYTES_MAX);

/// Checks the length of a key.
///
/// # Errors
/// [`Rejected::KeyEmpty`] and [`Rejected::KeyTooLong`].
#[inline]
pub fn check_key(table: TableId, key: &[u8]) -> Result<()> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) { Ok(()) } else { reject_key(table, key) }
}

#[cold]
fn reject_key(table: TableId, key: &[u8]) -> Result<()> {
    if key.is_empty() {
        Err(Rejected::KeyEmpty { table })?;
    }
    let (excerpt, max) = (KeyExcerpt::new(key), KEY_BYTES_MAX);
    Err(Rejected::KeyTooLong { table, key: excerpt, bytes: key.len(), max }.into())
}

/// Checks the length of a value.
///
/// # Errors
/// [`Rejected::ValueTooLong`].
#[inline]
pub fn check_value(table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX {
        let (key, max) = (KeyExcerpt::new(key), VALUE_BYTES_MAX);
        Err(Rejected::ValueTooLong { table, key, bytes: value.len(), max })?;
    }
    Ok(())
}
