//! The limits every part enforces with an error that names them (design §4). None is silent.

/// Longest key, in bytes. A key has at least one byte.
pub const KEY_BYTES_MAX: usize = 4 << 10;

/// Longest value, in bytes. A value may be empty.
pub const VALUE_BYTES_MAX: usize = 8 << 20;

/// Bytes of keys and values that one transaction may write.
pub const TRANSACTION_BYTES_MAX: usize = 64 << 20;

/// Keys that one transaction may write.
pub const TRANSACTION_WRITES_MAX: usize = 1 << 20;

/// Rows, gaps and leaves that one transaction may read; each costs 16 bytes until its end.
pub const TRANSACTION_READS_MAX: usize = 1 << 24;

/// Tables of one database.
pub const TABLES_MAX: usize = 1024;

/// Longest table name, in bytes. A name has at least one byte.
pub const TABLE_NAME_BYTES_MAX: usize = 128;

// A transaction that writes one value of the greatest size under the longest key must fit.
const _: () = assert!(KEY_BYTES_MAX + VALUE_BYTES_MAX <= TRANSACTION_BYTES_MAX);
