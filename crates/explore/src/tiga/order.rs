//! The order of conflicting transactions at one replica: conflict tables, digests, and what a transaction reads.

use super::Tiga;
use super::rules::Rule;
use super::scenario::{Access, KEYS, Shape};
use super::state::{Entry, Reads, Stamp, State, Tentative};

/// A hash of these words: equal means equal.
pub(super) fn mix(words: &[u64]) -> u64 {
    words.iter().fold(0x9E37_79B9_7F4A_7C15, |hash: u64, word| {
        let mixed = (hash ^ word).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 32
    })
}

/// A released transaction, as a digest sees it.
struct Link {
    id: u8,
    t: u8,
    access: Access,
    digest: u64,
    history: u64,
    predecessors: u8,
}

/// The digest of a transaction behind others.
pub(super) struct Digest {
    pub digest: u64,
    pub history: u64,
    pub predecessors: u8,
}

impl Tiga {
    pub(super) fn access(&self, id: u8, shard: usize) -> Access {
        self.scenario.transactions[id as usize].access[shard]
    }

    /// The shards that a transaction touches.
    pub(super) fn participants(&self, id: u8) -> impl Iterator<Item = usize> {
        let access = self.scenario.transactions[id as usize].access;
        (0..self.scenario.shards).filter(move |shard| access[*shard].is_some())
    }

    pub(super) fn is_multi(&self, id: u8) -> bool {
        self.participants(id).count() > 1
    }

    /// Whether its participants exchange what they read: it is executed as a whole, and by several shards.
    pub(super) fn is_whole(&self, id: u8) -> bool {
        self.scenario.shape == Shape::Whole && self.is_multi(id)
    }

    pub(super) fn conflict(&self, shard: usize, one: u8, other: u8) -> bool {
        self.access(one, shard).conflicts(self.access(other, shard))
    }

    /// The greatest stamp that is released or promised at a replica, among those that conflict with `id`.
    pub(super) fn table(
        &self,
        state: &State,
        shard: usize,
        replica: usize,
        id: u8,
    ) -> Option<Stamp> {
        let conflicts = |other: &Stamp| other.1 != id && self.conflict(shard, id, other.1);
        let of = &state.shards[shard].replicas[replica];
        let log = state.shards[shard].log_of(replica).iter().map(Entry::stamp);
        let tentative = of.tentative.iter().map(Tentative::stamp);
        let queue = of.leader.iter().flat_map(|leader| &leader.queue);
        let promised = queue.filter_map(|queued| Some((queued.promised?, queued.id)));
        log.chain(tentative).chain(promised).filter(conflicts).max()
    }

    /// The digest of `id` at a replica: behind its log, and behind tentative entries with smaller stamps.
    pub(super) fn digest(
        &self,
        state: &State,
        shard: usize,
        replica: usize,
        stamp: Stamp,
    ) -> Digest {
        let of = &state.shards[shard].replicas[replica];
        let log = state.shards[shard].log_of(replica);
        let mut links: Vec<Link> = log.iter().map(|entry| self.link(shard, entry)).collect();
        let is_leader = of.leader.is_some();
        let mut before: Vec<&Tentative> =
            of.tentative.iter().filter(|entry| !is_leader && entry.stamp() < stamp).collect();
        before.sort_by_key(|entry| entry.stamp());
        links.extend(before.into_iter().map(|entry| Link {
            id: entry.id,
            t: entry.t,
            access: self.access(entry.id, shard),
            digest: entry.digest,
            history: entry.history,
            predecessors: entry.predecessors,
        }));
        self.digest_behind(shard, stamp, &links)
    }

    /// The digest of an entry behind the end of `log`.
    pub(super) fn digest_in_log(&self, shard: usize, stamp: Stamp, log: &[Entry]) -> Digest {
        let links: Vec<Link> = log.iter().map(|entry| self.link(shard, entry)).collect();
        self.digest_behind(shard, stamp, &links)
    }

    /// An entry of a log. All that it rests on is synced, so its predecessors do not count.
    fn link(&self, shard: usize, entry: &Entry) -> Link {
        Link {
            id: entry.id,
            t: entry.t,
            access: self.access(entry.id, shard),
            digest: entry.digest,
            history: entry.history,
            predecessors: 0,
        }
    }

    fn digest_behind(&self, shard: usize, (t, id): Stamp, links: &[Link]) -> Digest {
        let access = self.access(id, shard);
        let (mut digests, mut histories) =
            (vec![7, id.into(), t.into()], vec![7, id.into(), t.into()]);
        let (mut predecessors, mut published) = (0, 0);
        for key in (0..KEYS).map(|key| 1 << key) {
            if access.reads & key != 0 {
                let writer = links.iter().rev().find(|link| link.access.writes & key != 0);
                digests.push(writer.map_or(0, |writer| writer.digest));
                histories.push(writer.map_or(0, |writer| writer.history));
                predecessors |= writer.map_or(0, |writer| writer.predecessors | 1 << writer.id);
            }
            if access.writes & key != 0 {
                // What overwrites a key comes behind those that have read it.
                let writes = |link: &Link| link.access.writes & key != 0;
                let behind = links.iter().rposition(writes).map_or(0, |last| last + 1);
                for reader in links[behind..].iter().filter(|link| link.access.reads & key != 0) {
                    digests.push(reader.digest);
                    predecessors |= reader.predecessors | 1 << reader.id;
                }
            }
            if (access.reads | access.writes) & key != 0 {
                let touch = |link: &&Link| (link.access.reads | link.access.writes) & key != 0;
                for link in links.iter().filter(touch) {
                    published ^= mix(&[key.into(), link.id.into(), link.t.into()]);
                }
            }
        }
        let is_chained = self.holds(Rule::ChainedDigests);
        Digest {
            digest: if is_chained { mix(&digests) } else { mix(&[id.into(), t.into(), published]) },
            history: mix(&histories),
            predecessors,
        }
    }

    /// What `id` reads behind the end of `log`, as a hash.
    pub(super) fn reads(&self, shard: usize, id: u8, log: &[Entry]) -> u64 {
        let access = self.access(id, shard);
        let keys = (0..KEYS).filter(|key| access.reads >> key & 1 != 0);
        let mut words = vec![3];
        words.extend(keys.map(|key| {
            let writes = |entry: &&Entry| self.access(entry.id, shard).writes >> key & 1 != 0;
            let writer = log.iter().rev().find(writes);
            writer.map_or(0, |entry| {
                mix(&[self.result(shard, entry.id, &entry.reads), shard as u64, key as u64])
            })
        }));
        mix(&words)
    }

    /// The result of a transaction on a shard, of which all that it writes there is made.
    pub(super) fn result(&self, shard: usize, id: u8, reads: &Reads) -> u64 {
        match self.is_whole(id) {
            true => self.participants(id).fold(id.into(), |hash, at| mix(&[hash, reads[at]])),
            false => mix(&[id.into(), reads[shard]]),
        }
    }

    /// How many entries at the beginning of a ballot's log are stable, as its leader knows: at a majority.
    pub(super) fn stable(&self, state: &State, shard: usize, ballot: u8) -> usize {
        if !self.holds(Rule::T6) {
            return state.shards[shard].ballots[ballot as usize].log.len();
        }
        let synced = |replica: &super::state::Replica| {
            replica.synced.get(ballot as usize).map_or(0, |length| *length as usize)
        };
        let mut lengths: Vec<usize> = state.shards[shard].replicas.iter().map(synced).collect();
        lengths.sort_unstable();
        lengths[lengths.len() - super::scenario::FAULTS]
    }
}
