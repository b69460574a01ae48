//! What the five transaction profiles have in common: an input that is drawn once, a body that may run
//! more than once, an output that is what a terminal would show. Each is a procedure as well.

use super::schema::Tables;
use crate::arguments::decode;
use bytes::Bytes;
use shoal_types::wire::{Coded, encode};
use shoal_types::{Footprint, Procedure, ProcedureTransaction, Result, Transaction};
use std::future::Future;
use std::marker::PhantomData;

/// A transaction with its input, ready to run (the specification's *transaction profile*).
pub trait Profile: Coded {
    /// The profile's name as a procedure.
    const NAME: &'static str;

    /// What a terminal shows of it. Passed in, so that a client can use the same one again and
    /// again; what it holds is meaningful only once the transaction committed.
    type Output: Coded + Default;

    /// W_ID: the warehouse at which it is asked for.
    fn warehouse(&self) -> u16;

    /// Whether what it reads decides which keys it reads next, so that a client which runs it step by step waits for
    /// several answers one after the other.
    fn is_multi_shot(&self) -> bool {
        false
    }

    /// The keys that the transaction will touch.
    fn footprint(&self, tables: &Tables) -> Footprint;

    /// Runs the body in `tx`. Every run does the same, independent of what an earlier one left in `output`.
    ///
    /// # Errors
    /// Those of the database, and a rejection if the data is not a TPC-C population.
    fn run<X: Transaction>(
        &self,
        tx: &X,
        tables: &Tables,
        output: &mut Self::Output,
    ) -> impl Future<Output = Result<()>>;
}

/// A profile as a procedure. It is called with the tables and the input, and returns the output.
#[derive(Debug)]
pub struct Called<P>(PhantomData<fn() -> P>);

impl<P> Called<P> {
    /// The procedure, to be registered under its name.
    #[allow(clippy::new_without_default, reason = "there is nothing to it but its type")]
    pub fn new() -> Called<P> {
        Called(PhantomData)
    }
}

/// Encodes what [`Called`] is called with: the tables, then the input.
pub(super) fn arguments<P: Profile>(tables: &Tables, input: &P) -> Bytes {
    let mut out = shoal_types::wire::BytesMut::new();
    tables.put(&mut out);
    input.put(&mut out);
    out.freeze()
}

impl<P: Profile> Procedure for Called<P> {
    async fn run(&self, tx: &ProcedureTransaction<'_>, arguments: &[u8]) -> Result<Bytes> {
        let (tables, input): (Tables, P) = decode(arguments)?;
        let mut output = P::Output::default();
        input.run(tx, &tables, &mut output).await?;
        Ok(encode(&output))
    }

    fn footprint(&self, arguments: &[u8]) -> Result<Footprint> {
        let (tables, input): (Tables, P) = decode(arguments)?;
        Ok(input.footprint(&tables))
    }
}
