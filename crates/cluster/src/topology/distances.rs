//! Distances between datacenters in a topology file, and their validation.
//!
//! ```toml
//! [[distance]]
//! between = ["oregon", "iowa"]   # both ways
//! one_way_ms = 18
//! jitter_ms = 0.5                # may be left out
//!
//! [[distance]]
//! from = "oregon"                # this way only
//! to = "dublin"
//! one_way_ms = 70
//! ```
//! Each direction is listed once at most; the default is no distance.

use super::draft::DistanceDraft;
use super::error::{Complaint, NOWHERE};
use super::names::Names;
use shoal_types::distance::ONE_WAY_MAX;
use shoal_types::{DatacenterId, Distance, DistanceMatrix, Way};
use std::ops::Range;
use std::time::Duration;
use toml::Spanned;

/// The distances of these drafts.
pub(super) fn read(drafts: Vec<DistanceDraft>, names: &Names) -> Result<DistanceMatrix, Complaint> {
    let mut distances = DistanceMatrix::none();
    for draft in drafts {
        let distance = Distance {
            delay: milliseconds("one_way_ms", &draft.one_way_ms)?,
            jitter: match &draft.jitter_ms {
                Some(jitter_ms) => milliseconds("jitter_ms", jitter_ms)?,
                None => Duration::ZERO,
            },
        };
        let Ends { from, to, both_ways, span } = ends(&draft, names)?;
        let back = both_ways.then_some((to, from));
        for (from, to) in [(from, to)].into_iter().chain(back) {
            if distances.set(Way { from, to, distance }).is_some() {
                let what = "there is a distance for this way already; keep one of them";
                return Complaint::about(span, what);
            }
        }
    }
    Ok(distances)
}

/// The pair of datacenters of a draft.
struct Ends {
    from: DatacenterId,
    to: DatacenterId,
    both_ways: bool,
    /// The place of the pair in the text.
    span: Range<usize>,
}

fn ends(draft: &DistanceDraft, names: &Names) -> Result<Ends, Complaint> {
    let (from, to, both_ways, span) = match (&draft.between, &draft.from, &draft.to) {
        (Some(between), None, None) => {
            let [one, other] = &between.get_ref()[..] else {
                let count = between.get_ref().len();
                let what = format!("a distance is between 2 datacenters, not {count}; name two");
                return Complaint::about(between.span(), what);
            };
            (one, other, true, between.span())
        }
        (None, Some(from), Some(to)) => (from, to, false, to.span()),
        (Some(between), Some(_), _) | (Some(between), None, Some(_)) => {
            let what = "`between` is for both ways, `from` and `to` for one; keep one of the two";
            return Complaint::about(between.span(), what);
        }
        (None, Some(_), None) | (None, None, Some(_)) | (None, None, None) => {
            let what = "the datacenters are missing; add between = [\"a\", \"b\"] for \
                        both ways, or from = \"a\" and to = \"b\" for one";
            return Complaint::about(draft.one_way_ms.span(), what);
        }
    };
    let (one, other) = (names.find(from)?, names.find(to)?);
    if one == other {
        let what = "from a datacenter to itself there is no distance; name two";
        return Complaint::about(span, what);
    }
    Ok(Ends { from: DatacenterId(one), to: DatacenterId(other), both_ways, span })
}

fn milliseconds(key: &str, ms: &Spanned<f64>) -> Result<Duration, Complaint> {
    let max = as_milliseconds(ONE_WAY_MAX);
    if !(0.0..=max).contains(ms.get_ref()) {
        let what = format!("{key} is a number of milliseconds from 0 to {max}; write one");
        return Complaint::about(ms.span(), what);
    }
    Ok(Duration::from_nanos((ms.get_ref() * 1e6).round() as u64))
}

/// Milliseconds for a text. They are read as the same duration: a double has room for the nanoseconds of
/// [`ONE_WAY_MAX`].
pub(super) fn as_milliseconds(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e6
}

/// Whether these distances are valid for so many datacenters.
pub(super) fn check(distances: &DistanceMatrix, count: u32) -> Result<(), Complaint> {
    for Way { from, to, distance } in distances.ways() {
        if from.0.max(to.0) >= count {
            let what = format!("there is a distance from {from} to {to}, and no such datacenter");
            return Complaint::about(NOWHERE, what);
        }
        if distance.delay.max(distance.jitter) > ONE_WAY_MAX {
            let what =
                format!("from {from} to {to} it takes {distance:?}, {ONE_WAY_MAX:?} at most");
            return Complaint::about(NOWHERE, what);
        }
    }
    Ok(())
}
