//! The manager's commands, and what is in them. A new variant gets a new number; numbers are never
//! given away again, since logs keep them.

use super::{Coded, Input, Malformed};
use consensus::manager::{
    Action, Ask, Change, Claim, Command, Heard, Incarnation, Life, Revision, Term,
};
use consensus::topology::Partitioning;
use types::{Ballot, Clock, Epoch, NodeId, ShardId, TableId, Time};

macro_rules! coded_newtype {
    ($($name:ident($inner:ty)),* $(,)?) => {$(
        impl Coded for $name {
            const BYTES_MIN: usize = <$inner>::BYTES_MIN;

            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            fn take(input: &mut Input<'_>) -> Result<$name, Malformed> {
                Ok($name(<$inner>::take(input)?))
            }
        }
    )*};
}

coded_newtype!(
    Term(u64),
    Life(u64),
    Incarnation(u32),
    Ask(u64),
    Revision(u64),
    Time(u64),
    NodeId(u32),
    ShardId(u32),
    TableId(u32),
    Epoch(u32),
    Clock(u64),
);

/// Field by field, in the order given.
macro_rules! coded_struct {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        impl Coded for $name {
            const BYTES_MIN: usize = 0 $(+ <$type>::BYTES_MIN)*;

            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(input: &mut Input<'_>) -> Result<$name, Malformed> {
                Ok($name { $($field: <$type>::take(input)?),* })
            }
        }
    };
}

/// A byte that says which, then field by field.
macro_rules! coded_enum {
    ($name:ident { $($number:literal => $variant:ident { $($field:ident),* }),* $(,)? }) => {
        impl Coded for $name {
            const BYTES_MIN: usize = 1;

            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$variant { $($field),* } => {
                        out.push($number);
                        $($field.put(out);)*
                    })*
                }
            }

            fn take(input: &mut Input<'_>) -> Result<$name, Malformed> {
                match u8::take(input)? {
                    $($number => Ok($name::$variant { $($field: Coded::take(input)?),* }),)*
                    _ => Err(input.wrong(concat!("no such ", stringify!($name)))),
                }
            }
        }
    };
}

coded_struct!(Command { term: Term, at: Time, action: Action });
coded_struct!(Ballot { epoch: Epoch, node: NodeId });
coded_struct!(Claim { node: NodeId, incarnation: Incarnation, shard: ShardId, ballot: Ballot });
coded_struct!(Heard {
    node: NodeId,
    incarnation: Incarnation,
    round: u64,
    granted: u64,
    known: Revision,
});

coded_enum!(Action {
    0 => Take {},
    1 => Tick { heard },
    2 => Join { node, life, after, lost },
    3 => Report { claim, epoch, watermark },
    4 => CaughtUp { claim, replica, incarnation },
    5 => Change { ask, change },
    6 => Close { claim, epoch },
});

coded_enum!(Change {
    0 => ReplaceReplica { shard, outgoing, incoming },
    1 => KeepReplicas { shard },
    2 => CreateTable { name, partitioning },
    3 => BeginMove { table, partitioning },
    4 => EndMove { table },
    5 => CancelMove { table },
});

coded_enum!(Partitioning {
    0 => Hash { prefix_bytes },
    1 => Range { splits },
    2 => Everywhere {},
});

/// Only counts of bytes of a key have this type in commands.
impl Coded for usize {
    const BYTES_MIN: usize = 8;

    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64).put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<usize, Malformed> {
        usize::try_from(u64::take(input)?).map_err(|_| input.wrong("a count beyond all memory"))
    }
}
