//! A look at the data from the shell: `get`, `put`, `delete`, `scan`, `tables`, `call`.
//!
//! Each is a [`DataCommand`](session::DataCommand), which runs on a [`Session`](session::Session). Keys and values are
//! [literals](crate::literal).

mod call;
mod delete;
mod get;
mod put;
mod rows;
mod scan;
mod session;
mod tables;

pub use call::CallProcedure;
pub use delete::Delete;
pub use get::Get;
pub use put::Put;
pub use scan::ScanTable;
pub use session::{DataCommand, OnCluster, Session};
pub use tables::Tables;

/// The help below the options of commands that take keys.
const LITERALS: &str = "
Keys and values:
  (\"users\", 42)   the key of a tuple
  x'00ff'         bytes
  \"two\\nlines\"    text with escapes
  i64(-30)        a number that programs add to
  alice           anything else: the bytes of this text
What is printed can be typed. The shell takes quotes away: put '…' around it.";
