//! The forms of errors. Names that are part of the code go as their places in a table.

use super::{Aborted, Conflict, Error, KeyExcerpt, Rejected, Unknown};
use crate::coded_enum;
use crate::wire::{Coded, Input, Malformed, Short};
use bytes::BytesMut;

coded_enum!(Error {
    0 => Aborted(why),
    1 => Rejected(why),
    2 => Unknown(why),
});

coded_enum!(Aborted {
    0 => Conflict(conflict),
    1 => RetriesExhausted { attempts as short, last },
    2 => Overloaded { open as short, limit as limit_name, max as short },
    3 => Idle { idle },
    4 => OpenTooLong { open },
    5 => NotServing { node as short },
    6 => RolledBack { epoch as short },
    7 => UnknownSession { session as short },
    8 => Unanswered(wait),
    9 => ShardOut { shard as short },
    10 => CallSessionOver { request },
});

coded_enum!(Conflict {
    0 => ReadChanged { table as short, key },
    1 => Locked { table as short, key },
    2 => OtherEpoch { shard as short, epoch as short },
    3 => Recovering { shard as short },
    4 => EpochNotOpen { epoch as short },
    5 => Overtaken { shard as short },
    6 => RangeChanged { table as short },
    7 => NoAnswer { shard as short },
    8 => NoMajority { shard as short },
    9 => Undecided { shard as short, epoch as short },
});

coded_enum!(Rejected {
    0 => KeyEmpty { table as short },
    1 => KeyTooLong { table as short, key, bytes as short, max as short },
    2 => ValueTooLong { table as short, key, bytes as short, max as short },
    3 => TransactionBytes { bytes as short, max as short },
    4 => TransactionWrites { max as short },
    5 => TransactionReads { max as short },
    6 => TooManyTransactions { max as short },
    7 => MemoryFull { bytes as short, max as short },
    8 => TooManyTables { max as short },
    9 => TableName { bytes as short, max as short },
    10 => UnknownTable { table as short },
    11 => UnknownTableName { name as short },
    12 => UnknownProcedure { name as short },
    13 => OtherWorker { worker as short },
    14 => KeyExists { table as short, key },
    15 => WrongValue {
        table as short, key, operation as operation_name, bytes as short, expected as short
    },
    16 => Procedure { reason as short },
    17 => CallTooLong { bytes as short, max as short },
    18 => AnswerTooLong { bytes as short, max as short },
    19 => TransactionsMax { asked as short, max as short },
    20 => FoundedAgain { known, found },
});

coded_enum!(Unknown {
    0 => NoAnswer { request },
    1 => Unsettled { request, shard as short },
    2 => Forgotten { request },
    3 => Participant { shard as short },
    5 => Session { session as short },
    6 => Commit { session as short, wait },
    7 => Call { request, wait },
    8 => NotDurable { shard as short },
    9 => FoundedAgain { request, known, found },
    10 => Lost { request },
});

/// The length of the whole key, and as much of it as is kept.
impl Coded for KeyExcerpt {
    const BYTES_MIN: usize = 1;

    fn put(&self, out: &mut BytesMut) {
        self.length.put_short(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(input: &mut Input<'_>) -> Result<KeyExcerpt, Malformed> {
        let length = u16::take_short(input)?;
        let kept = input.slice(usize::from(length).min(KeyExcerpt::BYTES_MAX))?;
        Ok(KeyExcerpt { length, ..KeyExcerpt::new(kept) })
    }
}

/// The form of names in a table. The first is what others read where our own table lacks a name, which
/// it does not: tests and simulations panic then. A new name is added at the end; none goes.
macro_rules! names {
    ($($table:ident: $what:literal [$($name:literal),* $(,)?])*) => {$(
        pub(crate) mod $table {
            use super::{BytesMut, Coded, Input, Malformed};

            pub(crate) const NAMES: &[&str] = &[$($name),*];

            pub(crate) fn put(name: &&'static str, out: &mut BytesMut) {
                let place = NAMES.iter().position(|known| known == name);
                debug_assert!(place.is_some(), "add {name:?} to the table of {}", $what);
                (place.unwrap_or(0) as u8).put(out);
            }

            pub(crate) fn take(input: &mut Input<'_>) -> Result<&'static str, Malformed> {
                let name = NAMES.get(usize::from(input.byte()?)).copied();
                name.ok_or_else(|| input.wrong(concat!("no name of ", $what)))
            }
        }
    )*};
}

names! {
    limit_name: "limits" ["a limit of that node", "open_max", "queue_max", "sessions_max"]
    operation_name: "operations" ["that operation", "add"]
}
