//! M5 at the client, and exactly once: what a reply to a client outside shows is durable.
//!
//! Judged by values alone, so that no engine has to report what it read for which client. A value that is
//! shown to a client is that of an installed and durable version, unless the client's own transaction wrote
//! it. When a commit is acknowledged, everything that the client asked to write is durable; when a call is
//! answered, so is the request row that keeps it from taking effect again. There is one such row for a call.
//! Answers to the same step of an interactive transaction agree, however often and late they are given: a
//! repeated step runs nothing anew.

use super::durable::Durable;
use super::verdict::RuleVerdict;
use bytes::Bytes;
use shoal_cluster::topology::Topology;
use shoal_engine::client::{
    ClientId, ClientReply, ClientRequest, REQUESTS_TABLE, SessionEnd, read_request_row,
    request_key, request_row, returned_row,
};
use shoal_engine::operation::{Operation, OperationResult};
use shoal_types::{RequestId, ShardId, Stamp, TableId};
use std::collections::BTreeMap;

/// The check of what clients outside received against what is durable.
#[derive(Debug)]
pub struct Replies {
    requests: Option<TableId>,
    versions: BTreeMap<(TableId, Vec<u8>), Vec<DurableVersion>>,
    /// Interactive transactions, by the connection and the number of the session.
    sessions: BTreeMap<(ClientId, u64), ReplySession>,
    /// Calls whose request row was written, by its key and count: the stamps with which it was.
    performed: BTreeMap<(Vec<u8>, u64), Vec<KeptStamp>>,
}

/// A stamp, and the shard that keeps it.
type KeptStamp = (ShardId, Stamp);

/// A version of a key; it is never removed.
#[derive(Debug)]
struct DurableVersion {
    shard: ShardId,
    stamp: Stamp,
    /// None of a version that its leader did not install before it stopped, so that its value was not seen.
    value: Option<Vec<u8>>,
}

impl DurableVersion {
    fn is(&self, shard: ShardId, stamp: &Stamp) -> bool {
        (self.shard, &self.stamp) == (shard, stamp)
    }
}

/// An interactive transaction of a client.
#[derive(Debug, Default)]
struct ReplySession {
    /// The steps that the client has sent and that are not answered, by number.
    asked: BTreeMap<u32, ReplyStep>,
    /// The keys that the transaction has written itself, and their values.
    own: BTreeMap<(TableId, Bytes), Option<Bytes>>,
    /// The answers given so far, by step.
    answers: BTreeMap<u32, OperationResult>,
}

/// A reply that must not be sent to its client, and why.
pub(super) enum WrongReply {
    /// The reply reveals a version that is not durable.
    NotDurable(String),
    /// The reply contradicts an earlier one.
    Contradicts(String),
}

#[derive(Debug, Clone)]
enum ReplyStep {
    Operation(Operation),
    End(SessionEnd),
}

impl Replies {
    /// No request was made yet.
    pub fn new(topology: &Topology) -> Replies {
        Replies {
            requests: topology.table(REQUESTS_TABLE),
            versions: BTreeMap::new(),
            sessions: BTreeMap::new(),
            performed: BTreeMap::new(),
        }
    }

    /// A version was installed by a leader.
    pub fn installed(
        &mut self,
        shard: ShardId,
        stamp: &Stamp,
        table: TableId,
        key: &[u8],
        value: Option<&[u8]>,
        durable: &Durable,
    ) -> RuleVerdict {
        let versions = self.versions.entry((table, key.to_vec())).or_default();
        let Some(value) = value else {
            versions.retain(|version| !version.is(shard, stamp));
            return Ok(());
        };
        if versions.iter().any(|version| version.is(shard, stamp) && version.value.is_some()) {
            return Ok(()); // A later leader installs its predecessor's versions again.
        }
        versions.retain(|version| !version.is(shard, stamp));
        let seen = Some(value.to_vec());
        versions.push(DurableVersion { shard, stamp: stamp.clone(), value: seen });
        if self.requests == Some(table)
            && let Ok(Some((count, _))) = read_request_row(key, value)
        {
            let times = self.performed.entry((key.to_vec(), count)).or_default();
            // A version that was rolled back, or may be since its epoch is closed, does not count.
            let counts = |(shard, other): &KeptStamp| {
                other.epoch == stamp.epoch || durable.missing(*shard, other).is_none()
            };
            let before = times.iter().any(counts);
            times.push((shard, stamp.clone()));
            if before {
                let row = key.escape_ascii();
                return Err(format!("call {count} of '{row}' took effect a second time"));
            }
        }
        Ok(())
    }

    /// A follower has applied a version of a transaction whose leader stopped before it had installed all of it: a later
    /// leader may show what no leader was seen to install.
    pub fn follow(&mut self, shard: ShardId, stamp: &Stamp, table: TableId, key: &[u8]) {
        let versions = self.versions.entry((table, key.to_vec())).or_default();
        if !versions.iter().any(|version| version.is(shard, stamp)) {
            versions.push(DurableVersion { shard, stamp: stamp.clone(), value: None });
        }
    }

    /// At the end: each call has taken effect once, not counting what was rolled back.
    pub fn finish(&self, durable: &Durable) -> RuleVerdict {
        for ((key, count), times) in &self.performed {
            let counted = times.iter().filter(|(shard, it)| !durable.is_rolled_back(*shard, it));
            let counted = counted.count();
            if counted > 1 {
                let row = key.escape_ascii();
                return Err(format!("call {count} of '{row}' took effect {counted} times"));
            }
        }
        Ok(())
    }

    /// A client sends a request, perhaps again.
    pub fn asked(&mut self, client: ClientId, request: &ClientRequest) {
        let ClientRequest::Steps { session, number, operations, ending, .. } = request else {
            return;
        };
        let steps = operations.iter().map(|operation| ReplyStep::Operation(operation.clone()));
        let steps = (*number..).zip(steps.chain(ending.clone().map(ReplyStep::End)));
        self.sessions.entry((client, *session)).or_default().asked.extend(steps);
    }

    /// A connection has ended: no reply is sent over it any more.
    pub fn hung_up(&mut self, client: ClientId) {
        let its = self.sessions.range((client, 0)..=(client, u64::MAX));
        let its: Vec<_> = its.map(|(name, _)| *name).collect();
        its.iter().for_each(|name| drop(self.sessions.remove(name)));
    }

    /// Judges a reply that is about to be sent to a client.
    pub fn replied(
        &mut self,
        client: ClientId,
        reply: &ClientReply,
        by_watermark: bool,
        durable: &Durable,
    ) -> Result<(), WrongReply> {
        match reply {
            // An engine that is judged by records answers when those are durable, and installs afterwards.
            ClientReply::Called { id, result: Ok(result), .. } if by_watermark => {
                self.called(*id, result, durable).map_err(WrongReply::NotDurable)
            }
            ClientReply::Done { session: number, number: step, result: Ok(answer) } => {
                let name = (client, *number);
                let Some(mut session) = self.sessions.remove(&name) else { return Ok(()) };
                let of = |what| format!("{client:?}, session {number}, step {step}: {what}");
                let before = session.answers.entry(*step).or_insert(answer.clone());
                let verdict = match before == answer {
                    false => {
                        let what = of(format!("{before:?}, then {answer:?}"));
                        return Err(WrongReply::Contradicts(what));
                    }
                    true => self.done_up_to(&mut session, *step, answer, by_watermark, durable),
                };
                self.sessions.insert(name, session);
                verdict.map_err(|what| WrongReply::NotDurable(of(what)))
            }
            // An error reveals that another transaction is in the way, but no value.
            ClientReply::Called { .. }
            | ClientReply::CallsOpened { .. }
            | ClientReply::Done { .. }
            | ClientReply::TableChanged { .. }
            | ClientReply::Registered { .. } => Ok(()),
        }
    }

    fn called(&self, id: RequestId, result: &Bytes, durable: &Durable) -> RuleVerdict {
        self.has_row(id, &request_row(id.number, result), durable)
    }

    fn has_row(&self, id: RequestId, row: &[u8], durable: &Durable) -> RuleVerdict {
        let Some(table) = self.requests else { return Ok(()) };
        let key = request_key(&id.session);
        self.is_durable(table, &key, row, true, durable)
            .map_err(|what| format!("{id:?} was answered: {what}"))
    }

    /// A step is answered, and with it the puts and deletes before it. When the step is repeated, the earlier
    /// answer is given again.
    fn done_up_to(
        &self,
        session: &mut ReplySession,
        step: u32,
        answer: &OperationResult,
        by_watermark: bool,
        durable: &Durable,
    ) -> RuleVerdict {
        let later = session.asked.split_off(&step);
        for (_, before) in std::mem::replace(&mut session.asked, later) {
            if let ReplyStep::Operation(Operation::Put { table, key, value }) = before {
                session.own.insert((table, key), value);
            }
        }
        let Some(asked) = session.asked.remove(&step) else { return Ok(()) };
        self.done(session, asked, answer, by_watermark, durable)
    }

    fn done(
        &self,
        session: &mut ReplySession,
        asked: ReplyStep,
        answer: &OperationResult,
        by_watermark: bool,
        durable: &Durable,
    ) -> RuleVerdict {
        match (asked, answer) {
            (
                ReplyStep::Operation(Operation::Get { table, key }),
                OperationResult::Value(Some(value)),
            ) => match session.own.contains_key(&(table, key.clone())) {
                true => Ok(()),
                false => self.is_durable(table, &key, value, by_watermark, durable),
            },
            (ReplyStep::Operation(Operation::Scan { table, .. }), OperationResult::Rows(rows)) => {
                rows.iter()
                    .filter(|(key, _)| !session.own.contains_key(&(table, key.clone())))
                    .try_for_each(|(key, value)| {
                        self.is_durable(table, key, value, by_watermark, durable)
                    })
            }
            (ReplyStep::Operation(Operation::Put { table, key, value }), _) => {
                session.own.insert((table, key), value);
                Ok(())
            }
            (ReplyStep::Operation(Operation::Insert { table, key, value }), _) => {
                session.own.insert((table, key), Some(value));
                Ok(())
            }
            (ReplyStep::End(SessionEnd::Call { id, .. }), OperationResult::Value(Some(result)))
                if by_watermark =>
            {
                self.has_row(id, &returned_row(id.number, result), durable)
            }
            (ReplyStep::End(ending), _) if by_watermark && ending.commits() => {
                session.own.iter().try_for_each(|write| {
                    let ((table, key), Some(value)) = write else { return Ok(()) };
                    self.is_durable(*table, key, value, by_watermark, durable)
                })
            }
            (
                ReplyStep::Operation(Operation::Get { .. } | Operation::Scan { .. })
                | ReplyStep::End(_),
                _,
            ) => Ok(()),
        }
    }

    /// Checks that some version of the key has this value and is durable.
    fn is_durable(
        &self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        by_watermark: bool,
        durable: &Durable,
    ) -> RuleVerdict {
        let versions = self.versions.get(&(table, key.to_vec()));
        let may_be_it = |it: &&DurableVersion| it.value.as_deref().is_none_or(|its| its == value);
        let mut alike = versions.into_iter().flatten().rev().filter(may_be_it);
        let mut newest = None;
        let shown = alike.any(|version| {
            newest.get_or_insert((version.shard, version.stamp.clock));
            !by_watermark || durable.missing(version.shard, &version.stamp).is_none()
        });
        if shown {
            return Ok(());
        }
        let why = match newest {
            None => "which no transaction wrote".to_owned(),
            Some((shard, clock)) => format!("written with {clock} on {shard}, is not durable"),
        };
        let (key, value) = (key.escape_ascii(), value.escape_ascii());
        Err(format!("'{key}' of {table} is '{value}', {why}"))
    }
}
