//! The network to other replicas: the transport that the caller implements, and its adapter for the library.

use crate::code::{self, RaftRequest, RaftResponse};
use crate::config::{Types, Vote};
use crate::counters::CounterCells;
use crate::leadership_evidence::LeadershipEvidence;
use crate::member::{LogMember, Number};
use crate::store::MachineSnapshot;
use crate::{ENTRIES_PER_REQUEST_MAX, REQUEST_BYTES_MAX, SNAPSHOT_BYTES_MAX};
use bytes::Bytes;
use openraft::error::{
    Fatal, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable as RaftUnreachable,
};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetwork, RaftNetworkFactory, Snapshot};
use shoal_types::{NodeId, Time};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thiserror::Error;

/// No answer has arrived. The request may have arrived, or may arrive later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no answer from {to}")]
pub struct Unreachable {
    /// The replica that was asked.
    pub to: NodeId,
}

/// Carries requests to other replicas, and their answers back.
///
/// Messages may be lost, late, out of order, or repeated. A call is given up by dropping its future; an
/// implementation needs no timeout.
pub trait Transport: Send + Sync + 'static {
    /// Delivers `request` to [`RaftHandle::serve`](crate::RaftHandle::serve) of `to`, and returns the answer.
    /// If that refuses, there is no answer. A request has at most [`REQUEST_BYTES_MAX`] bytes plus one entry.
    fn call(
        &self,
        to: NodeId,
        request: Bytes,
    ) -> impl Future<Output = Result<Bytes, Unreachable>> + Send;

    /// The time, by the same clock as the times that [`RaftReplica::exchange`](crate::RaftReplica::exchange)
    /// is given. It continues while the machine is suspended, and never goes back.
    fn now(&self) -> Time;
}

/// A [`Transport`] of any type. The library is generic over its network and large: with one type for all
/// transports it is compiled once, in this crate.
trait DynTransport: Send + Sync {
    fn carry(&self, to: NodeId, request: Bytes) -> CarriedReply<'_>;
    fn read_clock(&self) -> Time;
}

type CarriedReply<'a> = Pin<Box<dyn Future<Output = Result<Bytes, Unreachable>> + Send + 'a>>;

impl<T: Transport> DynTransport for T {
    fn carry(&self, to: NodeId, request: Bytes) -> CarriedReply<'_> {
        Box::pin(self.call(to, request))
    }

    fn read_clock(&self) -> Time {
        self.now()
    }
}

/// Makes the path to each replica.
pub struct ReplicaNetwork {
    transport: Arc<dyn DynTransport>,
    /// The pause before a replica that was not reached is tried again.
    pause: Duration,
    lead: LeadershipEvidence,
    tally: Arc<CounterCells>,
}

impl ReplicaNetwork {
    pub fn new(
        transport: impl Transport,
        pause: Duration,
        lead: LeadershipEvidence,
        tally: Arc<CounterCells>,
    ) -> ReplicaNetwork {
        ReplicaNetwork { transport: Arc::new(transport), pause, lead, tally }
    }
}

impl RaftNetworkFactory<Types> for ReplicaNetwork {
    type Network = ReplicaPath;

    async fn new_client(&mut self, target: Number, (): &()) -> ReplicaPath {
        ReplicaPath {
            to: LogMember::numbered(target),
            transport: Arc::clone(&self.transport),
            pause: self.pause,
            lead: self.lead.clone(),
            tally: Arc::clone(&self.tally),
        }
    }
}

/// The way from this replica to one other, which the library calls.
pub struct ReplicaPath {
    to: LogMember,
    transport: Arc<dyn DynTransport>,
    pause: Duration,
    lead: LeadershipEvidence,
    tally: Arc<CounterCells>,
}

/// Why a request has no answer.
type Unanswered = RPCError<Number, (), RaftError<Number>>;

impl ReplicaPath {
    async fn call(&self, request: RaftRequest) -> Result<RaftResponse, Unanswered> {
        let bytes = code::encode(&(self.to, request));
        let answer = self.transport.carry(self.to.node, bytes).await;
        let answer = answer.map_err(|error| unreachable(&error))?;
        code::decode(&answer).map_err(|error| {
            self.tally.malformed.fetch_add(1, Ordering::Relaxed);
            unreachable(&error)
        })
    }

    /// The answer is of another kind than the request.
    fn crossed(&self) -> Unanswered {
        self.tally.malformed.fetch_add(1, Ordering::Relaxed);
        unreachable(&Unreachable { to: self.to.node })
    }
}

fn unreachable(error: &(impl std::error::Error + 'static)) -> Unanswered {
    RPCError::Unreachable(RaftUnreachable::new(error))
}

impl RaftNetwork<Types> for ReplicaPath {
    /// Sends as many entries as fit into one request, and reports how many those were.
    async fn append_entries(
        &mut self,
        mut append: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<Number>, Unanswered> {
        let (mut fit, mut bytes) = (0, 0);
        for entry in &append.entries {
            bytes += code::encode(entry).len();
            if fit > 0 && bytes > REQUEST_BYTES_MAX {
                break;
            }
            fit += 1;
        }
        assert!(fit as u64 <= ENTRIES_PER_REQUEST_MAX, "the library sends {fit} entries at once");
        let is_cut = fit < append.entries.len();
        append.entries.truncate(fit);
        let last = append.entries.last().map(|entry| entry.log_id);
        let (vote, sent) = (append.vote, self.transport.read_clock());
        let RaftResponse::Append(response) = self.call(RaftRequest::Append(append)).await? else {
            return Err(self.crossed());
        };
        if !matches!(response, AppendEntriesResponse::HigherVote(_)) {
            self.lead.acknowledges(self.to.number(), &vote, sent);
        }
        match response {
            AppendEntriesResponse::Success if is_cut => {
                Ok(AppendEntriesResponse::PartialSuccess(last))
            }
            response => Ok(response),
        }
    }

    async fn vote(
        &mut self,
        vote: VoteRequest<Number>,
        _: RPCOption,
    ) -> Result<VoteResponse<Number>, Unanswered> {
        match self.call(RaftRequest::Vote(vote)).await? {
            RaftResponse::Vote(response) => Ok(response),
            RaftResponse::Append(_) | RaftResponse::Snapshot(_) => Err(self.crossed()),
        }
    }

    /// Sends the snapshot in one request: the library repeats it if no answer arrives.
    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<Types>,
        closed: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Number>, StreamingError<Types, Fatal<Number>>> {
        let image = MachineSnapshot { meta: snapshot.meta, machine: *snapshot.snapshot };
        let unreachable = || RaftUnreachable::new(&Unreachable { to: self.to.node });
        if image.machine.len() > SNAPSHOT_BYTES_MAX {
            self.tally.snapshots_too_long.fetch_add(1, Ordering::Relaxed);
            return Err(unreachable().into());
        }
        let answer = tokio::select! {
            answer = self.call(RaftRequest::Snapshot(vote, image)) => answer,
            closed = closed => return Err(closed.into()),
        };
        match answer {
            Ok(RaftResponse::Snapshot(vote)) => Ok(SnapshotResponse::new(vote)),
            Ok(RaftResponse::Append(_) | RaftResponse::Vote(_)) => {
                self.tally.malformed.fetch_add(1, Ordering::Relaxed);
                Err(unreachable().into())
            }
            Err(_) => Err(unreachable().into()),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.pause))
    }
}
