//! The simulated network: order, delays and troubles of messages, clogs and cuts of links, connections of clients.

use shoal_sim::metrics::Traffic;
use shoal_sim::network::{Arrivals, Delay, SimulatedNetwork, Troubles, WorkerEnd};
use shoal_types::{Random, Time};

fn network() -> SimulatedNetwork {
    let delay = Delay { base_ns: 1000, jitter_ns: 100 };
    SimulatedNetwork::new(&[0, 0], &[vec![delay]], 1, Random::new(1))
}

fn arrivals(network: &mut SimulatedNetwork, count: u64) -> Vec<Arrivals> {
    (0..count)
        .map(|number| network.send(Time(number * 10), WorkerEnd::first(0), WorkerEnd::first(1)))
        .collect()
}

#[test]
fn without_troubles_messages_arrive_once_and_in_order() {
    let arrived = arrivals(&mut network(), 1000);
    assert!(arrived.iter().all(|arrival| matches!(arrival, [Some(_), None])));
    assert!(arrived.is_sorted_by(|one, two| one[0] < two[0]));
}

#[test]
fn workers_of_any_two_numbers_have_an_order_of_their_own_and_share_what_befalls_their_nodes() {
    let delay = Delay { base_ns: 50_000, jitter_ns: 100 };
    let mut network = SimulatedNetwork::new(&[0, 0], &[vec![delay]], 2, Random::new(1));
    let pairs: Vec<_> = (0..16).map(|pair| [pair >> 2, pair & 3]).collect();
    let place = |number: usize| WorkerEnd { end: number >> 1, worker: number & 1 };
    let send = |network: &mut SimulatedNetwork, now| -> Vec<Arrivals> {
        let others = pairs.iter().filter(|[from, to]| from != to);
        others.map(|[from, to]| network.send(Time(now), place(*from), place(*to))).collect()
    };
    let mut last = vec![[Some(Time::ZERO), None]; 12];
    for number in 0..100 {
        let arrivals = send(&mut network, number * 10);
        for (now, before) in arrivals.iter().zip(&last) {
            assert!(now[0] > before[0], "{now:?} after {before:?}");
        }
        last = arrivals;
    }
    let others = || pairs.iter().filter(|[from, to]| from != to);
    let within = |[from, to]: &[usize; 2]| place(*from).end == place(*to).end;
    for ([from, to], arrival) in others().zip(&last) {
        let took = arrival[0].expect("nothing is lost").0 - 990;
        let most = if within(&[*from, *to]) { 3000 } else { 53_000 };
        assert!(took < most && (took >= 50_000 || most == 3000), "{from} to {to}: {took}");
    }
    network.cut(0, 1, Time(10_000));
    let arrivals = send(&mut network, 5000);
    for ([from, to], arrival) in others().zip(&arrivals) {
        let is_cut = (place(*from).end, place(*to).end) == (0, 1);
        assert_eq!(arrival[0].is_none(), is_cut, "{from} to {to}");
    }
}

#[test]
fn each_trouble_happens_about_as_often_as_asked() {
    let mut troubled = network();
    let half = 500_000;
    troubled.set_troubles(Troubles { loss_ppm: half, ..Troubles::default() });
    arrivals(&mut troubled, 1000);
    troubled.set_troubles(Troubles { duplicate_ppm: half, ..Troubles::default() });
    arrivals(&mut troubled, 1000);
    troubled.set_troubles(Troubles { tail_ppm: half, ..Troubles::default() });
    arrivals(&mut troubled, 1000);
    let Traffic { lost, duplicated, late, .. } = troubled.traffic;
    for count in [lost, duplicated, late] {
        assert!((400..600).contains(&count), "{:?}", troubled.traffic);
    }
    let mut reordering = network();
    reordering.set_troubles(Troubles { reorder_ppm: 1_000_000, ..Troubles::default() });
    let arrived = arrivals(&mut reordering, 1000);
    assert!(!arrived.is_sorted_by(|one, two| one[0] <= two[0]));
    assert!(reordering.traffic.reordered > 100);
}

#[test]
fn a_connection_delivers_all_in_order_and_late() {
    let mut network = network();
    let all = 500_000;
    let troubles = Troubles { loss_ppm: all, duplicate_ppm: all, reorder_ppm: all, tail_ppm: all };
    network.set_troubles(troubles);
    network.cut(0, 1, Time(500));
    let carried: Vec<(Time, bool)> =
        (0..1000).map(|number| network.carry(Time(number * 10), 0, 1, 0)).collect();
    assert!(carried.is_sorted_by(|one, two| one.0 < two.0));
    assert!(carried[..50].iter().all(|(at, again)| *again && at.0 > 1500));
    let again = carried.iter().filter(|(_, again)| *again).count();
    assert!((400..700).contains(&again), "{again}");
}

#[test]
fn a_clogged_link_holds_back_and_a_cut_one_loses() {
    let mut network = network();
    network.clog(0, 1, Time(50_000));
    let arrived = arrivals(&mut network, 100);
    assert!(arrived.iter().all(|arrival| arrival[0] >= Some(Time(50_000))));
    assert_eq!(network.traffic.clogged, 100);
    network.heal(Time(1000));
    network.cut(0, 1, Time(500));
    let arrived = arrivals(&mut network, 100);
    assert_eq!(arrived.iter().filter(|arrival| arrival[0].is_none()).count(), 50);
    assert!(
        matches!(network.send(Time(0), WorkerEnd::first(1), WorkerEnd::first(0)), [Some(_), None]),
        "one-way"
    );
}
