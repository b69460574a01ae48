//! Each rule, violated by hand-written observations: each has to be reported.

use bytes::Bytes;
use shoal_cluster::manager::FinalEnds;
use shoal_cluster::topology::Topology;
use shoal_engine::client::{
    ClientId, ClientReply, ClientRequest, SessionEnd, request_key, request_row, requests_table,
};
use shoal_engine::operation::{Operation, OperationResult};
use shoal_engine::{TransactionId, WorkerPlace};
use shoal_mako::MakoObservation;
use shoal_mako::epoch_ends::end_at;
use shoal_sim::Violation;
use shoal_sim::checks::{Checks, MakoRules, Moment};
use shoal_types::{
    Ballot, CallSession, Clock, Epoch, NodeId, RequestId, ShardId, Stamp, TableId, Time, WorkerId,
};

const S0: ShardId = ShardId(0);
const S1: ShardId = ShardId(1);
const EPOCH: Epoch = Epoch(1);

fn id(sequence: u64) -> TransactionId {
    TransactionId { node: NodeId(0), worker: WorkerId(0), sequence }
}

/// A stamp as shard 0 keeps it, which depends on shard 1 up to `remote`.
fn stamp(clock: u64, remote: u64) -> Stamp {
    let mut stamp = Stamp::local(EPOCH, Clock(clock));
    stamp.push(S0, S1, Clock(remote));
    stamp
}

fn drawn(sequence: u64, clock: u64) -> MakoObservation {
    MakoObservation::Drawn { transaction: id(sequence), shard: S0, clock: Clock(clock) }
}

fn resolved(sequence: u64, clock: u64) -> MakoObservation {
    let (transaction, clock) = (id(sequence), Clock(clock));
    MakoObservation::Resolved { transaction, shard: S0, clock, installed: true }
}

fn installed(sequence: u64, clock: u64) -> MakoObservation {
    MakoObservation::Installed {
        transaction: id(sequence),
        shard: S0,
        stamp: stamp(clock, 0),
        table: TableId(0),
        key: b"key".to_vec(),
        value: Some(b"value".to_vec()),
    }
}

fn appended(index: u64, safe: u64, clocks: &[u64]) -> MakoObservation {
    let clocks = clocks.iter().map(|clock| Clock(*clock)).collect();
    let (ballot, ends) = (Ballot::default(), Vec::new());
    MakoObservation::Appended { shard: S0, ballot, index, ends, safe: Clock(safe), clocks }
}

fn read(sequence: u64, stamp: Stamp, tombstone: bool) -> MakoObservation {
    MakoObservation::Read { transaction: id(sequence), shard: S0, stamp, tombstone }
}

fn certified(sequence: u64, stamp: Stamp, clock: u64) -> MakoObservation {
    let writes = vec![(S0, Clock(clock))];
    MakoObservation::Certified { transaction: id(sequence), own: S0, stamp, writes }
}

fn told(sequence: u64, stamp: Stamp) -> MakoObservation {
    MakoObservation::Acknowledged { transaction: id(sequence), own: S0, stamp }
}

fn applied(clock: u64, won: bool) -> MakoObservation {
    let (stamp, key) = (stamp(clock, 0), b"key".to_vec());
    MakoObservation::Applied { shard: S0, stamp, table: TableId(0), key, won }
}

/// Shows the checkers an observation, and the entry that it is about.
fn observe(
    checks: &mut Checks<MakoRules>,
    moment: Moment,
    observation: &MakoObservation,
) -> Result<(), Violation> {
    if let MakoObservation::Appended { index, .. } = observation {
        checks.entry(S0, WorkerId(0), *index, &Bytes::from(index.to_le_bytes().to_vec()));
    }
    checks.observe(moment, observation)
}

/// A replica of shard 0 has accepted this many entries under this ballot.
fn accepts(
    checks: &mut Checks<MakoRules>,
    node: NodeId,
    ballot: Ballot,
    length: u64,
) -> Result<(), &'static str> {
    let moment = Moment { at: Time(1), place: WorkerPlace { node, worker: WorkerId(0) } };
    checks.accepted(moment, S0, ballot, length).map_err(|violation| violation.rule)
}

/// The verdict of the checkers, with `accepted` entries of shard 0's stream on each of its three voters.
fn verdict(accepted: [u64; 3], observations: &[MakoObservation]) -> Result<(), &'static str> {
    let topology = Topology::compact(3, 2, 3, 0, 1);
    let mut checks = Checks::new(&topology, topology.nodes().len());
    for (voter, length) in topology.voters(S0).iter().zip(accepted) {
        accepts(&mut checks, *voter, Ballot::default(), length).unwrap();
    }
    let mut all = observations.iter();
    all.try_for_each(|observation| {
        let follows = matches!(observation, MakoObservation::Applied { .. });
        let place = WorkerPlace { node: NodeId(u32::from(follows)), worker: WorkerId(0) };
        observe(&mut checks, Moment { at: Time(1), place }, observation)
    })
    .map_err(|violation| violation.rule)
}

/// A transaction that writes the key with this clock, from its draw to its entry in the stream.
fn written(sequence: u64, clock: u64) -> Vec<MakoObservation> {
    vec![
        drawn(sequence, clock),
        certified(sequence, stamp(clock, 0), clock),
        installed(sequence, clock),
        resolved(sequence, clock),
        appended(sequence, clock, &[clock]),
    ]
}

#[test]
fn what_is_right_passes() {
    let watermark = MakoObservation::Watermark { shard: S0, clock: Clock(4) };
    let mut all = written(0, 4);
    all.extend([watermark, told(0, stamp(4, 0)), applied(4, true)]);
    assert_eq!(verdict([1, 1, 0], &all), Ok(()));
}

#[test]
fn m1_a_stamp_covers_what_was_read() {
    for tombstone in [false, true] {
        let writer = stamp(4, 7);
        let forgets = [read(1, writer.clone(), tombstone), certified(1, stamp(5, 6), 5)];
        assert_eq!(verdict([0; 3], &forgets), Err("M1"));
        let covers = [read(1, writer, tombstone), certified(1, stamp(5, 7), 5)];
        assert_eq!(verdict([0; 3], &covers), Ok(()));
    }
    assert_eq!(verdict([0; 3], &[certified(1, stamp(5, 0), 6)]), Err("M1"), "not even its own");
}

#[test]
fn m1_what_is_installed_carries_the_whole_stamp() {
    let bare = Stamp::local(EPOCH, Clock(4));
    let installs = |stamp: Stamp| MakoObservation::Installed {
        transaction: id(0),
        shard: S0,
        stamp,
        table: TableId(0),
        key: b"key".to_vec(),
        value: Some(b"value".to_vec()),
    };
    let whole = certified(0, stamp(4, 7), 4);
    let after = [drawn(0, 4), whole.clone(), installs(bare.clone())];
    assert_eq!(verdict([0; 3], &after), Err("M1"), "installed after it was certified");
    let before = [drawn(0, 4), installs(bare.clone()), whole.clone()];
    assert_eq!(verdict([0; 3], &before), Err("M1"), "installed in the step that certified it");
    let kept = [drawn(0, 4), whole.clone(), installs(stamp(4, 7))];
    assert_eq!(verdict([0; 3], &kept), Ok(()));
    let pruned_by_a_reader = [&kept[..], &[read(1, bare, false)]].concat();
    assert_eq!(verdict([0; 3], &pruned_by_a_reader), Err("M1"), "served without it");
    // Shard 1 is not durable, even if the piece itself is.
    let (key, bare) = (b"key".to_vec(), Stamp::local(EPOCH, Clock(4)));
    let half =
        MakoObservation::Applied { shard: S0, stamp: bare, table: TableId(0), key, won: true };
    let torn = [&kept[..], &[resolved(0, 4), appended(0, 4, &[4]), half]].concat();
    assert_eq!(verdict([1, 1, 0], &torn), Err("M6"));
}

#[test]
fn m2_versions_of_a_key_are_installed_in_the_order_of_their_clocks() {
    let blind = [drawn(0, 4), drawn(1, 5), installed(1, 5), installed(0, 4)];
    assert_eq!(verdict([0; 3], &blind), Err("M2"));
    let twice = [drawn(0, 4), installed(0, 4), installed(1, 4)];
    assert_eq!(verdict([0; 3], &twice), Err("M2"));
}

#[test]
fn m3_a_safe_clock_is_below_all_that_is_in_flight() {
    assert_eq!(verdict([0; 3], &[drawn(0, 4), appended(0, 4, &[])]), Err("M3"));
    assert_eq!(verdict([0; 3], &[appended(0, 4, &[]), drawn(0, 4)]), Err("M3"), "drawn below");
    assert_eq!(verdict([0; 3], &[appended(0, 4, &[]), appended(1, 3, &[])]), Err("M3"), "falls");
    assert_eq!(verdict([0; 3], &[resolved(0, 4)]), Err("M3"), "never drawn");
    let forgotten = [drawn(0, 4), installed(0, 4), resolved(0, 4), appended(0, 5, &[])];
    assert_eq!(verdict([0; 3], &forgotten), Err("M3"), "installed, and in no entry");
}

#[test]
fn m4_a_watermark_counts_what_a_majority_has() {
    let mut all = written(0, 4);
    all.push(MakoObservation::Watermark { shard: S0, clock: Clock(4) });
    assert_eq!(verdict([1, 0, 0], &all), Err("M4"));
    assert_eq!(verdict([1, 0, 1], &all), Ok(()));
}

#[test]
fn m4_a_replica_that_accepts_under_a_ballot_has_what_its_leader_began_with() {
    let ballot = Ballot { epoch: Epoch(2), node: NodeId(0) };
    let leads = MakoObservation::Led { shard: S0, ballot, length: 3 };
    let mut checks = checks(&[leads], 0);
    assert_eq!(accepts(&mut checks, NodeId(1), ballot, 2), Err("M4"));
    assert_eq!(accepts(&mut checks, NodeId(1), ballot, 3), Ok(()));
    assert_eq!(accepts(&mut checks, NodeId(2), Ballot::default(), 2), Ok(()), "not under it");
}

#[test]
fn m4_a_replica_without_memory_counts_when_it_has_again_what_was_durable() {
    let (node, ballot) = (NodeId(1), Ballot::default());
    let mut checks = checks(&[appended(0, 4, &[])], 2);
    checks.forgets(node);
    let appointed =
        |checks: &Checks<MakoRules>| checks.appointed_anew(Time(2), S0, Ballot { node, ..ballot });
    assert_eq!(appointed(&checks).map_err(|violation| violation.rule), Err("M4"));
    let early = checks.remembers(Time(2), S0, node);
    assert_eq!(early.map_err(|violation| violation.rule), Err("M4"));
    checks.forgets(node);
    accepts(&mut checks, node, ballot, 1).unwrap();
    assert_eq!(checks.remembers(Time(2), S0, node), Ok(()));
    assert_eq!(appointed(&checks), Ok(()));
}

#[test]
fn m5_no_client_is_told_of_what_is_not_durable() {
    let mut all = written(0, 4);
    all.push(told(0, stamp(4, 0)));
    assert_eq!(verdict([1, 0, 0], &all), Err("M5"));
    // The stamp that the engine reports does not cover all that the transaction has read.
    let read_more = [read(1, stamp(4, 0), false), told(1, stamp(0, 0))];
    assert_eq!(verdict([0; 3], &read_more), Err("M5"), "not certified: its client is shown it");
    let reader = certified(1, stamp(4, 0), 0);
    let read_more = [read(1, stamp(4, 0), false), reader, told(1, stamp(0, 0))];
    assert_eq!(verdict([0; 3], &read_more), Err("M5"));
}

#[test]
fn m6_followers_apply_what_is_durable_and_the_greatest_clock_wins() {
    let mut all = written(0, 4);
    all.push(applied(4, true));
    assert_eq!(verdict([1, 0, 0], &all), Err("M6"), "not durable");
    let mut all = [written(0, 4), written(1, 5)].concat();
    all.extend([applied(5, true), applied(4, true)]);
    assert_eq!(verdict([2, 2, 0], &all), Err("M6"), "an older one won");
    let mut all = [written(0, 4), written(1, 5)].concat();
    all.extend([applied(4, true), applied(5, false)]);
    assert_eq!(verdict([2, 2, 0], &all), Err("M6"), "a newer one lost");
}

#[test]
fn m8_a_clock_that_was_drawn_after_its_epoch_had_closed_is_not_used() {
    let opens = MakoObservation::Opened { epoch: Epoch(2) };
    let locked = MakoObservation::Locked { shard: S0, epoch: EPOCH, clock: Clock(4) };
    for used in [installed(0, 4), locked] {
        let late = [opens.clone(), drawn(0, 4), used.clone()];
        assert_eq!(verdict([0; 3], &late), Err("M8"));
        let in_time = [drawn(0, 4), opens.clone(), used];
        assert_eq!(verdict([0; 3], &in_time), Ok(()));
    }
}

#[test]
fn m10_the_cut_of_a_copy_is_not_above_what_its_sender_has() {
    let given = |cut, epochs| MakoObservation::Given {
        shard: S0,
        cut: Clock(cut),
        from: (TableId(0), Vec::new()),
        until: None,
        settled: epochs,
        watermarks: Vec::new(),
        rows: Vec::new(),
        undecided: Vec::new(),
        withheld: 0,
    };
    let copied = MakoObservation::Copied { shard: S0, cut: Clock(9) };
    let judge = |before: &[MakoObservation], cut| {
        let mut checks = checks(&[&[appended(0, 4, &[])], before].concat(), 2);
        checks.holds(vec![(WorkerId(0), 1)]);
        let none = (Epoch(0), Epoch(0));
        checks.observe(MOMENT, &given(cut, none)).map_err(|violation| violation.rule)
    };
    assert_eq!((judge(&[], 4), judge(&[], 5)), (Ok(()), Err("M10")));
    assert_eq!(judge(&[copied], 9), Ok(()), "it has taken a copy");
    // Shard 0 has lost what it had above clock 4.
    let last = FinalEnds::new(EPOCH, [Clock(4), Clock(0)].map(end_at).to_vec());
    let mut checks = checks(&[appended(0, 4, &[])], 2);
    checks.is_final(Time(1), &last).unwrap();
    let silent = checks.observe(MOMENT, &given(0, (Epoch(0), EPOCH)));
    assert_eq!(silent.map_err(|violation| violation.rule), Err("M9"));
    assert_eq!(checks.observe(MOMENT, &given(0, (EPOCH, EPOCH))), Ok(()), "it has forgotten");
}

#[test]
fn m8_no_transaction_reads_across_epochs_what_is_not_settled() {
    let later = Stamp::local(Epoch(2), Clock(1));
    let from_the_future = [read(1, later.clone(), false), certified(1, stamp(5, 0), 5)];
    assert_eq!(verdict([0; 3], &from_the_future), Err("M8"));
    let writes = vec![(S0, Clock(1))];
    let of_the_next =
        MakoObservation::Certified { transaction: id(1), own: S0, stamp: later, writes };
    let unsettled = [read(1, stamp(4, 0), false), of_the_next];
    assert_eq!(verdict([0; 3], &unsettled), Err("M8"));
}

const CLIENT: ClientId = ClientId(7);
const MOMENT: Moment =
    Moment { at: Time(1), place: WorkerPlace { node: NodeId(0), worker: WorkerId(0) } };

/// Checks of a cluster whose table 0 is that of requests, with one entry on so many voters.
fn checks(observations: &[MakoObservation], accepted: usize) -> Checks<MakoRules> {
    let (name, partitioning) = requests_table(2);
    let topology = Topology::compact(3, 2, 3, 0, 1).with_tables([(name.to_owned(), partitioning)]);
    let topology = topology.unwrap();
    let mut checks = Checks::new(&topology, topology.nodes().len());
    for voter in &topology.voters(S0)[..accepted] {
        accepts(&mut checks, *voter, Ballot::default(), 1).unwrap();
    }
    for observation in observations {
        observe(&mut checks, MOMENT, observation).unwrap();
    }
    checks
}

/// The verdict on these replies to a client that sent these requests.
fn shown(
    checks: &mut Checks<MakoRules>,
    steps: &[(ClientRequest, ClientReply)],
) -> Result<(), &'static str> {
    let mut steps = steps.iter();
    let verdict = steps.try_for_each(|(request, reply)| {
        checks.asked(CLIENT, request);
        checks.replied(MOMENT, CLIENT, reply)
    });
    verdict.map_err(|violation| violation.rule)
}

fn step(
    number: u32,
    operation: Operation,
    answer: OperationResult,
) -> (ClientRequest, ClientReply) {
    let operations = vec![operation];
    (steps(number, operations, None), done(number, answer))
}

fn steps(number: u32, operations: Vec<Operation>, ending: Option<SessionEnd>) -> ClientRequest {
    ClientRequest::Steps { registration: 5, session: 1, number, operations, ending }
}

fn done(number: u32, answer: OperationResult) -> ClientReply {
    ClientReply::Done { session: 1, number, result: Ok(answer) }
}

fn get(number: u32, value: &'static [u8]) -> (ClientRequest, ClientReply) {
    let get = Operation::Get { table: TableId(0), key: Bytes::from_static(b"key") };
    step(number, get, OperationResult::Value(Some(Bytes::from_static(value))))
}

#[test]
fn m5_no_client_is_shown_what_is_not_durable() {
    for (accepted, verdict) in [(1, Err("M5")), (2, Ok(()))] {
        assert_eq!(shown(&mut checks(&written(0, 4), accepted), &[get(0, b"value")]), verdict);
    }
    let mut seen = checks(&written(0, 4), 3);
    assert_eq!(shown(&mut seen, &[get(0, b"other")]), Err("M5"), "no transaction wrote that");
    let (key, value) = (Bytes::from_static(b"key"), Some(Bytes::from_static(b"own")));
    let put = Operation::Put { table: TableId(0), key, value };
    let own = [step(0, put.clone(), OperationResult::Done), get(1, b"own")];
    assert_eq!(shown(&mut checks(&[], 0), &own), Ok(()), "it wrote that itself");
    let (asked, answered) = get(1, b"own");
    let ClientRequest::Steps { operations: read, .. } = asked else { unreachable!("of steps") };
    let both = steps(0, [vec![put.clone()], read].concat(), None);
    let own = [(both, answered)];
    assert_eq!(shown(&mut checks(&[], 0), &own), Ok(()), "in the same message");
    let end = steps(0, vec![put], Some(SessionEnd::Commit));
    let lost = shown(&mut checks(&[], 0), &[(end, done(1, OperationResult::Done))]);
    assert_eq!(lost, Err("M5"), "committed, and nowhere");
}

#[test]
fn answers_of_one_transaction_agree() {
    let (first, (again, answer)) = (get(0, b"value"), get(0, b"value"));
    let written = || checks(&written(0, 4), 3);
    let told = [first.clone(), (again.clone(), answer)];
    assert_eq!(shown(&mut written(), &told), Ok(()), "the same once more");
    let told = [first, (again, done(0, OperationResult::Value(None)))];
    assert_eq!(shown(&mut written(), &told), Err("one transaction"));
}

#[test]
fn a_call_is_answered_when_its_row_is_durable_and_has_one() {
    let session = CallSession { home: S0, serial: 7, ..CallSession::default() };
    let id = RequestId { session, number: 3 };
    let row = |sequence: u64, clock: u64| MakoObservation::Installed {
        transaction: TransactionId { node: NodeId(0), worker: WorkerId(0), sequence },
        shard: S0,
        stamp: stamp(clock, 0),
        table: TableId(0),
        key: request_key(&session),
        value: Some(request_row(3, b"result")),
    };
    let entry = appended(0, 4, &[4]);
    let performed = [drawn(0, 4), row(0, 4), resolved(0, 4), entry];
    let (procedure, arguments) = ("any".into(), Bytes::new());
    let call = ClientRequest::Call { id, procedure, arguments };
    let reply = ClientReply::Called { id, result: Ok(Bytes::from_static(b"result")) };
    for (accepted, verdict) in [(1, Err("M5")), (2, Ok(()))] {
        let mut checks = checks(&performed, accepted);
        assert_eq!(shown(&mut checks, &[(call.clone(), reply.clone())]), verdict);
    }
    let again = checks(&performed, 2).observe(MOMENT, &row(1, 5));
    assert_eq!(again.map_err(|violation| violation.rule), Err("exactly once"));
}
