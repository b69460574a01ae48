//! The network between nodes, and to the clients outside.
//!
//! A message takes the delay of its link: a fixed part, some jitter and, rarely, a heavy tail. Messages
//! from one worker to another keep their order unless chance reorders one. Those between workers of different numbers are
//! passed on by another worker of the receiver's node, and take a little longer; those between workers of one node take no
//! more than that, and get lost where the receiver has no room for them. A link may be *clogged*: nothing arrives for a while, then everything at once; or *cut*:
//! all that is sent meanwhile is lost. Both are one-way.
//!
//! Connections of clients are those that the shipped client has: in order, and without losses. There, what gets lost
//! is sent again, and takes longer; nothing comes twice.

use crate::metrics::Traffic;
use shoal_types::{Random, Time, WorkerPlace};

/// How long messages take from one datacenter to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// The least time of a message.
    pub base_ns: u64,
    /// Up to so much more, each as likely.
    pub jitter_ns: u64,
}

/// How often things go wrong with a message, in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Troubles {
    /// How many are lost.
    pub loss_ppm: u32,
    /// How many arrive twice.
    pub duplicate_ppm: u32,
    /// How many overtake others, or are overtaken.
    pub reorder_ppm: u32,
    /// How many take a multiple of the usual time: twice as much or more, with half the chance four times as
    /// much or more, and so on.
    pub tail_ppm: u32,
}

/// An end of links: a node or a client.
pub type LinkEnd = usize;

/// A worker at an end of links; clients and managers are the first worker of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerEnd {
    /// The node, client or manager, by its number among all ends.
    pub end: LinkEnd,
    /// The worker of that node, from 0.
    pub worker: usize,
}

impl WorkerEnd {
    /// The first worker of an end.
    pub fn first(end: LinkEnd) -> WorkerEnd {
        WorkerEnd { end, worker: 0 }
    }
}

impl From<WorkerPlace> for WorkerEnd {
    fn from(place: WorkerPlace) -> WorkerEnd {
        WorkerEnd { end: place.node.0 as usize, worker: place.worker.0 as usize }
    }
}

#[derive(Debug, Clone, Copy)]
struct SimulatedLink {
    delay: Delay,
    /// Messages that are sent before this time arrive after it.
    clogged_until: Time,
    /// What is sent before is lost.
    cut_until: Time,
}

/// The simulated network: when a message arrives, how often, and whether at all.
#[derive(Debug)]
pub struct SimulatedNetwork {
    ends: usize,
    datacenters: Vec<usize>,
    workers: usize,
    links: Vec<SimulatedLink>,
    /// When the last message from each worker to each other arrives.
    last: Vec<Time>,
    troubles: Troubles,
    random: Random,
    /// What happened to messages so far.
    pub traffic: Traffic,
}

/// A worker of a node passes a message on to another within this.
const PASS_NS_MAX: u64 = 2_000;

/// When a message arrives: not at all, once or twice.
pub type Arrivals = [Option<Time>; 2];

/// A message that gets lost on a connection is sent again so often at most; then it arrives.
const RESENDS_MAX: u32 = 8;

/// Doublings of the usual time, at most.
const TAIL_DOUBLINGS_MAX: u32 = 8;

impl SimulatedNetwork {
    /// A network between ends that stand in these datacenters. `delays` has a row for each datacenter a
    /// message comes from and a column for each it goes to.
    pub fn new(
        datacenters: &[usize],
        delays: &[Vec<Delay>],
        workers: usize,
        random: Random,
    ) -> SimulatedNetwork {
        let ends = datacenters.len();
        let link = |from: usize, to: usize| SimulatedLink {
            delay: match from == to {
                true => Delay { base_ns: 0, jitter_ns: 0 },
                false => delays[datacenters[from]][datacenters[to]],
            },
            clogged_until: Time::ZERO,
            cut_until: Time::ZERO,
        };
        let links = (0..ends).flat_map(|from| (0..ends).map(move |to| link(from, to)));
        SimulatedNetwork {
            ends,
            datacenters: datacenters.to_vec(),
            workers,
            links: links.collect(),
            last: vec![Time::ZERO; ends * ends * workers * workers],
            troubles: Troubles::default(),
            random,
            traffic: Traffic::default(),
        }
    }

    /// How many ends there are.
    pub fn ends(&self) -> usize {
        self.ends
    }

    /// The datacenter in which an end is; it decides the delays of its links.
    pub fn datacenter(&self, end: LinkEnd) -> usize {
        self.datacenters[end]
    }

    /// From now on, this is what goes wrong with messages.
    pub fn set_troubles(&mut self, troubles: Troubles) {
        self.troubles = troubles;
    }

    /// Nothing from `from` arrives at `to` before this.
    pub fn clog(&mut self, from: LinkEnd, to: LinkEnd, until: Time) {
        let link = &mut self.links[from * self.ends + to];
        link.clogged_until = link.clogged_until.max(until);
        self.traffic.clogs += 1;
    }

    /// What `from` sends to `to` before this is lost.
    pub fn cut(&mut self, from: LinkEnd, to: LinkEnd, until: Time) {
        let link = &mut self.links[from * self.ends + to];
        link.cut_until = link.cut_until.max(until);
        self.traffic.cuts += 1;
    }

    /// Ends all clogs and cuts at `now`. What is on its way stays there.
    pub fn heal(&mut self, now: Time) {
        self.troubles = Troubles::default();
        for link in &mut self.links {
            link.clogged_until = link.clogged_until.min(now);
            link.cut_until = link.cut_until.min(now);
        }
    }

    /// Sends a message at `now` from one worker to another, and says when it arrives.
    #[inline]
    pub fn send(&mut self, now: Time, from: WorkerEnd, to: WorkerEnd) -> Arrivals {
        self.traffic.sent += 1;
        let at = from.end * self.ends + to.end;
        let link = self.links[at];
        let Troubles { loss_ppm, duplicate_ppm, reorder_ppm, tail_ppm } = self.troubles;
        if now < link.cut_until || self.happens(loss_ppm) {
            self.traffic.lost += 1;
            return [None, None];
        }
        let mut delay = link.delay.base_ns + self.random.below(link.delay.jitter_ns + 1);
        if self.happens(tail_ppm) {
            self.traffic.late += 1;
            delay <<= (1 + self.random.next_u64().trailing_zeros()).min(TAIL_DOUBLINGS_MAX);
        }
        if from.worker != to.worker {
            delay += self.random.below(PASS_NS_MAX);
        }
        let mut arrival = Time(now.0 + delay);
        if arrival < link.clogged_until {
            self.traffic.clogged += 1;
            arrival = Time(link.clogged_until.0 + self.random.below(link.delay.jitter_ns + 1));
        }
        let last = &mut self.last[(at * self.workers + from.worker) * self.workers + to.worker];
        if arrival > *last {
            *last = arrival;
        } else if reorder_ppm > 0 && self.random.below(1_000_000) < u64::from(reorder_ppm) {
            self.traffic.reordered += 1;
        } else {
            // A connection keeps order: a frame that is early waits for those before it.
            last.0 += 1;
            arrival = *last;
        }
        if !self.happens(duplicate_ppm) {
            return [Some(arrival), None];
        }
        self.traffic.duplicated += 1;
        let later = 1 + self.random.below(4 * (link.delay.base_ns + link.delay.jitter_ns) + 1);
        [Some(arrival), Some(Time(arrival.0 + later))]
    }

    /// Sends a message at `now` over a connection that keeps order and loses nothing, to or from this worker. Says when it
    /// arrives, and whether it had to be sent again for that.
    pub fn carry(&mut self, now: Time, from: LinkEnd, to: LinkEnd, worker: usize) -> (Time, bool) {
        self.traffic.sent += 1;
        let at = from * self.ends + to;
        let link = self.links[at];
        let Troubles { loss_ppm, tail_ppm, .. } = self.troubles;
        let mut delay = link.delay.base_ns + self.random.below(link.delay.jitter_ns + 1);
        if self.happens(tail_ppm) {
            self.traffic.late += 1;
            delay <<= (1 + self.random.next_u64().trailing_zeros()).min(TAIL_DOUBLINGS_MAX);
        }
        let mut again = now < link.cut_until;
        self.traffic.lost += u64::from(again);
        for tries in 0..RESENDS_MAX {
            if !self.happens(loss_ppm) {
                break;
            }
            again = true;
            self.traffic.lost += 1;
            delay += (2 * (link.delay.base_ns + link.delay.jitter_ns) + 1) << tries;
        }
        let mut arrival = Time(now.max(link.cut_until).0 + delay);
        if arrival < link.clogged_until {
            self.traffic.clogged += 1;
            arrival = Time(link.clogged_until.0 + self.random.below(link.delay.jitter_ns + 1));
        }
        let last = &mut self.last[(at * self.workers + worker) * self.workers + worker];
        *last = arrival.max(Time(last.0 + 1));
        (*last, again)
    }

    #[inline]
    fn happens(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.random.below(1_000_000) < u64::from(ppm)
    }
}
