//! Final ends and the revisions that contain them, encoded as two lists of the same length. Not derived: stored images of
//! the state machine have this form, and a list of pairs has another.

use crate::manager::epoch_end::FinalEnds;
use crate::manager::ids::Revision;
use bytes::BytesMut;
use shoal_types::wire::{Coded, Input, Malformed};

pub(super) fn put(finals: &[(Revision, FinalEnds)], out: &mut BytesMut) {
    let (revisions, finals): (Vec<_>, Vec<_>) = finals.iter().cloned().unzip();
    revisions.put(out);
    finals.put(out);
}

pub(super) fn take(input: &mut Input<'_>) -> Result<Vec<(Revision, FinalEnds)>, Malformed> {
    let (revisions, finals): (Vec<_>, Vec<_>) = (Coded::take(input)?, Coded::take(input)?);
    if revisions.len() != finals.len() {
        return Err(input.wrong("final ends without a revision"));
    }
    Ok(revisions.into_iter().zip(finals).collect())
}
