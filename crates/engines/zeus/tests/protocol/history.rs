//! Strict serializability of what transactions have read.
//!
//! The row `x` of a granule is the list of the transactions that wrote the granule, so that a read shows which it has seen.
//! Transactions whose number is divisible by [`TOGGLES`] also insert the row `y`, or delete it if it is there: whether it
//! must be there follows from the list.

use std::collections::BTreeSet;

/// One transaction in so many inserts or deletes the second row of what it writes.
pub const TOGGLES: usize = 3;

/// What a transaction has done.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// The transactions that were answered before it began.
    pub after: BTreeSet<usize>,
    /// For each granule that it read, the writers that it has seen.
    pub reads: Vec<(usize, Vec<usize>)>,
    /// The granules that it has written, after these reads.
    pub writes: BTreeSet<usize>,
    pub is_answered: bool,
}

/// Whether the second row is there, once these have written the granule.
pub fn has_second_row(writers: &[usize]) -> bool {
    writers.iter().filter(|writer| writer.is_multiple_of(TOGGLES)).count() % 2 == 1
}

/// One order explains what all transactions have read that were answered, or that these depend on, and keeps real time.
///
/// # Errors
/// Says what no order explains.
pub fn judge(history: &[Done]) -> Result<(), String> {
    let committed = committed(history);
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); history.len()];
    for number in &committed {
        before[*number] = history[*number].after.clone();
    }
    let granules: BTreeSet<usize> =
        history.iter().flat_map(|done| &done.reads).map(|(granule, _)| *granule).collect();
    for granule in granules {
        let reads = reads_of(history, &committed, granule);
        let Some(order) = reads.iter().map(|(_, seen)| seen).max_by_key(|seen| seen.len()) else {
            continue;
        };
        for (number, seen) in &reads {
            if !order.starts_with(seen) {
                return Err(format!("T{number} saw {seen:?} of {granule}, others {order:?}"));
            }
            let read = seen.strip_suffix(&[*number]).unwrap_or(seen);
            before[*number].extend(read.last());
            if let Some(next) = order.get(read.len()).filter(|next| *next != number) {
                before[*next].insert(*number);
            }
        }
    }
    match cycle(&before) {
        Some(number) => {
            let of: Vec<String> = committed
                .iter()
                .map(|number| {
                    format!(
                        "T{number} {:?} after {:?}",
                        history[*number].reads, history[*number].after
                    )
                })
                .collect();
            Err(format!("T{number} comes before itself:\n{}", of.join("\n")))
        }
        None => Ok(()),
    }
}

/// Those that were answered, and those whose writes these have seen.
fn committed(history: &[Done]) -> BTreeSet<usize> {
    let answered = (0..).zip(history).filter(|(_, done)| done.is_answered);
    let mut committed = BTreeSet::new();
    let mut open: Vec<usize> = answered.map(|(number, _)| number).collect();
    while let Some(number) = open.pop() {
        if committed.insert(number) {
            open.extend(history[number].reads.iter().flat_map(|(_, seen)| seen));
        }
    }
    committed
}

/// What these have seen of a granule; a writer sees its own write, too.
fn reads_of(history: &[Done], of: &BTreeSet<usize>, granule: usize) -> Vec<(usize, Vec<usize>)> {
    let mut reads = Vec::new();
    for number in of {
        let done = &history[*number];
        if let Some((_, seen)) = done.reads.iter().find(|(read, _)| *read == granule) {
            let own = done.writes.contains(&granule).then_some(*number);
            reads.push((*number, seen.iter().copied().chain(own).collect()));
        }
    }
    reads
}

/// A transaction that is on a cycle.
fn cycle(before: &[BTreeSet<usize>]) -> Option<usize> {
    let mut left: Vec<usize> = (0..before.len()).collect();
    loop {
        let is_free = |number: &usize| before[*number].iter().all(|other| !left.contains(other));
        let free: Vec<usize> = left.iter().copied().filter(|number| is_free(number)).collect();
        if free.is_empty() {
            return left.first().copied();
        }
        left.retain(|number| !free.contains(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(after: &[usize], reads: &[(usize, &[usize])], writes: &[usize]) -> Done {
        let reads = reads.iter().map(|(granule, seen)| (*granule, seen.to_vec())).collect();
        let (after, writes) = (after.iter().copied().collect(), writes.iter().copied().collect());
        Done { after, reads, writes, is_answered: true }
    }

    #[test]
    fn a_stale_read_is_found() {
        let writes = done(&[], &[(0, &[])], &[0]);
        judge(&[writes.clone(), done(&[], &[(0, &[])], &[])]).expect("it may come first");
        judge(&[writes, done(&[0], &[(0, &[])], &[])]).expect_err("the write was answered");
    }

    #[test]
    fn write_skew_is_found() {
        let both = [done(&[], &[(0, &[]), (1, &[])], &[0]), done(&[], &[(0, &[]), (1, &[])], &[1])];
        judge(&both).expect_err("each comes before the other");
    }

    #[test]
    fn a_lost_write_is_found() {
        let both = [done(&[], &[(0, &[])], &[0]), done(&[], &[(0, &[])], &[0])];
        judge(&both).expect_err("both are first");
    }
}
