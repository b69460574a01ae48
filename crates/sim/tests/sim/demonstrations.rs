//! The demonstrations in their small size: every target is met, with the same numbers each time, since time
//! is virtual.

use shoal_sim::demonstrations::{
    Demonstration, DemonstrationOptions, ResultLine, ResultTable, Size, TargetVerdict, report,
};

fn show(demonstration: Demonstration) -> ResultTable {
    let mut results = demonstration.show(&DemonstrationOptions::new(1, Size::Small)).unwrap();
    println!("{results}");
    results.tables.remove(0)
}

/// The number at the beginning of a cell.
fn number(cell: &str) -> f64 {
    let end = cell.find(' ').unwrap_or(cell.len());
    cell[..end].replace(',', "").parse().unwrap()
}

/// The cells of an engine's lines in these columns.
fn columns<const N: usize>(
    table: &ResultTable,
    engine: &str,
    heads: [&str; N],
) -> Vec<[String; N]> {
    let at = heads.map(|head| table.heads.iter().position(|other| *other == head).unwrap());
    let lines = table.lines.iter().filter(|line| line.cells[0] == engine);
    lines.map(|line| at.map(|column| line.cells[column].clone())).collect()
}

#[test]
#[ignore = "takes half a minute; ./check long runs it"]
fn a_commit_takes_one_round_trip() {
    let table = show(Demonstration::Latency);
    assert!(table.holds());
    assert_eq!(table.lines.iter().filter(|line| line.verdict == TargetVerdict::Met).count(), 4);
    // The baseline asks the participants first.
    let baseline = columns(&table, "two-phase-commit", ["transaction", "p50"]);
    for [_, p50] in baseline.iter().filter(|[transaction, _]| transaction == "writes, several") {
        assert!(number(p50) >= 100.0, "{p50}");
    }
}

#[test]
#[ignore = "takes half a minute; ./check long runs it"]
fn throughput_does_not_depend_on_the_distance() {
    let table = show(Demonstration::Distance);
    assert!(table.holds());
    let heads = ["distance", "of 0 ms", "busy"];
    for [distance, part, busy] in columns(&table, "mako", heads) {
        assert!(number(&busy) > 99.0, "clients are the limit at {distance}, not processors");
        assert!(number(&part) >= 95.0);
    }
    for [distance, part, _] in columns(&table, "two-phase-commit", heads) {
        assert!(number(&part) < 50.0 || distance == "0 ms", "{part} at {distance}");
    }
}

#[test]
#[ignore = "takes half a minute; ./check long runs it"]
fn a_slow_shard_delays_only_transactions_that_touch_it() {
    let table = show(Demonstration::SlowShard);
    assert!(table.holds());
    let p99 = |line: &ResultLine, at: usize| {
        let columns = table.heads.iter().enumerate().filter(|(_, head)| **head == "p99");
        let places: Vec<usize> = columns.map(|(place, _)| place).collect();
        number(&line.cells[places[at]])
    };
    for line in table.lines.iter().filter(|line| line.cells[0] == "mako" && line.cells[2] == "yes")
    {
        let (before, during) = (p99(line, 0), p99(line, 1));
        assert!(during > before, "{} was not slow: {before} ms, {during} ms", line.cells[1]);
    }
}

#[test]
#[ignore = "takes half a minute; ./check long runs it"]
fn sparse_stamps_are_smaller_than_full_ones() {
    let table = show(Demonstration::Stamps);
    let heads = ["workload", "cross-shard", "shards", "entries", "bytes"];
    let [full, sparse] = ["full", "sparse"].map(|form| columns(&table, form, heads));
    assert_eq!((full.len(), sparse.len()), (3, 3));
    for (full, sparse) in full.iter().zip(&sparse) {
        assert_eq!(full[0], sparse[0]);
        for at in [3, 4] {
            let [full, sparse] = [full, sparse].map(|line| number(&line[at]));
            assert!(sparse < full, "{}: {sparse} sparse, {full} full", heads[at]);
        }
        // The size of a full stamp is bounded only by the number of shards.
        assert!(number(&full[3]) < number(&full[2]));
    }
}

#[test]
#[ignore = "takes half a minute; ./check long runs it"]
fn a_failure_stops_only_the_shard_that_fails() {
    let results = Demonstration::Failure.show(&DemonstrationOptions::new(1, Size::Small)).unwrap();
    println!("{results}");
    let [throughput, steps, again] = &results.tables[..] else { panic!("three tables") };
    let verdict = |table: &ResultTable, name: &str| {
        let line = table.lines.iter().find(|line| line.cells[0] == name);
        line.map(|line| line.verdict).unwrap()
    };
    // The first line of each form is that of transactions that do not touch the failed shard: with a clock
    // for each shard they go on, with the other forms they stop.
    for name in ["mako", "one timestamp", "groups of 20 ms"] {
        assert_eq!(verdict(throughput, name), TargetVerdict::Met, "{name}");
    }
    for name in ["mako", "mako, far successor"] {
        assert_eq!(verdict(steps, name), TargetVerdict::Met, "{name}");
    }
    assert_eq!(again.lines.len(), 2);
    assert_eq!(results.plots.len(), 4);
    let page = report::html(&[results], 1);
    assert_eq!(page.matches("<svg").count(), 4);
}

#[test]
#[ignore = "takes half a minute; ./check long runs it"]
fn a_failure_rolls_back_only_what_depends_on_it() {
    let results = Demonstration::Rollback.show(&DemonstrationOptions::new(1, Size::Small)).unwrap();
    println!("{results}");
    assert!(results.holds());
    let met = results.tables[0].lines.iter().filter(|line| line.verdict == TargetVerdict::Met);
    assert_eq!(met.count(), 5, "one for each share of cross-shard clients");
}

#[test]
#[ignore = "takes half a minute; ./check long runs it"]
fn a_seed_shows_the_same_again() {
    let again = || {
        Demonstration::Latency.show(&DemonstrationOptions::new(2, Size::Small)).unwrap().to_string()
    };
    assert_eq!(again(), again());
}
