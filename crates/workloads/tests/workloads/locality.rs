//! The workloads whose data has homes keep their promises to themselves, and notice when the data does not.

use futures_executor::block_on;
use shoal_types::{Database, Transaction};
use shoal_workloads::locality::{
    HandoverShares, Handovers, Homes, SmallBank, Tatp, Updates, Voter, VoterMoves,
};
use shoal_workloads::model::Model;
use shoal_workloads::workload::Workload;

const HOMES: Homes = Homes { homes: 3, objects: 40, remote_ppm: 200_000 };
const SHARES: HandoverShares = HandoverShares { stations: 4, handovers_ppm: 50_000 };

fn failed_checks<W: Workload>(db: &Model, workload: &W) -> Vec<String> {
    let checks = block_on(workload.check(db)).expect("read");
    checks.into_iter().filter(|check| check.verdict.is_err()).map(|check| check.name).collect()
}

/// Loads a workload and has three clients run it, then sets a row of a table to a value that no transaction wrote.
fn runs_and_notices<W: Workload>(make: impl Fn(&Model) -> W, table: &str, key: &[u8]) {
    let db = Model::new();
    let workload = make(&db);
    for part in 0..workload.load_parts() {
        block_on(workload.load(&db, part, 7, &mut |_| ())).expect("loaded");
    }
    let mut kinds = vec![0; workload.kinds().len()];
    for number in 0..3 {
        let mut client = workload.client(number, 5);
        for _ in 0..1000 {
            kinds[block_on(workload.next(&db, &mut client)).expect("a transaction").kind] += 1;
        }
    }
    assert!(kinds.iter().all(|count| *count > 20), "{}: {kinds:?}", workload.name());
    assert_eq!(failed_checks(&db, &workload), [""; 0], "{}", workload.name());
    let table = db.table(table).expect("a table");
    block_on(db.transact(async |tx| tx.delete(table, key))).expect("deleted");
    assert!(!failed_checks(&db, &workload).is_empty(), "{} notices nothing", workload.name());
}

#[test]
fn small_bank_keeps_its_money() {
    let make = |db: &Model| SmallBank::new(db, HOMES).expect("tables");
    runs_and_notices(make, "small_bank.checking", &7_u32.to_be_bytes());
}

#[test]
fn tatp_counts_its_call_forwardings() {
    let make = |db: &Model| Tatp::new(db, HOMES).expect("tables");
    runs_and_notices(make, "tatp.subscribers", &7_u32.to_be_bytes());
}

#[test]
fn voter_counts_its_votes() {
    let make = |db: &Model| Voter::new(db, HOMES).expect("tables");
    runs_and_notices(make, "voter.contestants", &7_u32.to_be_bytes());
}

#[test]
fn voters_that_are_taken_stay_as_they_are() {
    let moves = VoterMoves { clients: 1, voters: 30, together: 5, rolls_back: false };
    let four = |db: &Model| {
        let homes = Homes { homes: 2, ..HOMES };
        Voter::new(db, homes).expect("tables").moving(moves)
    };
    runs_and_notices(four, "voter.contestants", &7_u32.to_be_bytes());
    runs_and_notices(four, "voter.voters", &101_u32.to_be_bytes());
}

#[test]
fn voters_that_are_loaded_elsewhere_are_taken_once() {
    let db = Model::new();
    let homes = Homes { homes: 1, objects: 4, remote_ppm: 0 };
    let moves = VoterMoves { clients: 1, voters: 20, together: 10, rolls_back: true };
    let workload = Voter::new(&db, homes).expect("tables").moving(moves);
    for part in 0..workload.load_parts() {
        block_on(workload.load(&db, part, 7, &mut |_| ())).expect("loaded");
    }
    let mut client = workload.client(0, 5);
    for _ in 0..2 {
        assert!(block_on(workload.next(&db, &mut client)).expect("taken").rolled_back);
    }
    assert!(block_on(workload.next(&db, &mut client)).is_err());
}

#[test]
fn updates_are_counted_in_their_rows() {
    let make = |db: &Model| Updates::new(db, HOMES).expect("a table");
    runs_and_notices(make, "updates.objects", &7_u32.to_be_bytes());
}

#[test]
fn handovers_leave_each_user_at_one_station() {
    let make = |db: &Model| Handovers::new(db, HOMES, SHARES).expect("tables");
    runs_and_notices(make, "handovers.stations", &7_u32.to_be_bytes());
}
