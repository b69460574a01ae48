//! Final ends and the revisions that tell of them, encoded as two lists of the same length.

use crate::manager::epoch_end::FinalEnds;
use crate::manager::ids::Revision;
use bytes::BytesMut;
use shoal_types::wire::{Coded, Input, Malformed};

pub(super) fn put(finals: &[(Revision, FinalEnds)], out: &mut BytesMut) {
    let (told, finals): (Vec<_>, Vec<_>) = finals.iter().cloned().unzip();
    told.put(out);
    finals.put(out);
}

pub(super) fn take(input: &mut Input<'_>) -> Result<Vec<(Revision, FinalEnds)>, Malformed> {
    let (told, finals): (Vec<_>, Vec<_>) = (Coded::take(input)?, Coded::take(input)?);
    if told.len() != finals.len() {
        return Err(input.wrong("final watermarks that are told in no revision"));
    }
    Ok(told.into_iter().zip(finals).collect())
}
