//! Messages in one line, for traces.

use crate::granule::GranuleId;
use crate::message::{CarriedPart, Inv, MessageBody, PartRequest, ReplicationInv, ZeusMessage};
use std::fmt;

fn name(granule: &GranuleId) -> String {
    granule.prefix.escape_ascii().to_string()
}

fn inv(inv: &Inv) -> String {
    let Inv { granule, record, replaced, requested, .. } = inv;
    let source = inv.source.map_or(String::new(), |source| format!(" rows from {source}"));
    let answer = match inv.answer_to == requested.by.node {
        true => String::new(),
        false => format!(" answer to {}", inv.answer_to),
    };
    let of = requested.by.node;
    format!("{} {} for {of} {replaced} → {record}{source}{answer}", name(granule), requested.kind)
}

fn part(part: &CarriedPart) -> String {
    let more = if part.is_last { "" } else { ", more follow" };
    format!(" with {} rows{more}", part.rows.len())
}

fn part_request(request: &PartRequest) -> String {
    let (_, after) = &request.after;
    format!("{} {} after {}", name(&request.granule), request.o_ts, after.escape_ascii())
}

fn replication_inv(inv: &ReplicationInv) -> String {
    let ReplicationInv { pipeline, slot, clock, .. } = inv;
    let known = if inv.previous_validated { " previous validated" } else { "" };
    let writes = inv.writes.iter().flat_map(|writes| &writes.rows).map(|row| {
        let key = row.key.escape_ascii();
        match &row.value {
            Some(value) => format!(" {key}={}", value.escape_ascii()),
            None => format!(" {key} deleted"),
        }
    });
    let writes: String = writes.collect();
    format!("{pipeline} {slot}{known} clock={}{writes}", clock.0)
}

fn text_of(body: &MessageBody) -> String {
    match body {
        MessageBody::Request(request) => {
            let (granule, as_of) = (name(&request.granule), request.as_of);
            format!("Request {granule} {} as of {as_of}", request.kind)
        }
        MessageBody::Nack { granule, record, is_pending } => {
            // Elsewhere it makes no difference to the receiver.
            let shows_pending = *is_pending && record.is_lost();
            let pending = if shows_pending { " pending" } else { "" };
            format!("Nack {} {record}{pending}", name(granule))
        }
        MessageBody::Inv(of) => format!("Inv {}", inv(of)),
        MessageBody::Ack(ack) => {
            let rows = ack.rows.as_ref().map_or(String::new(), part);
            format!("Ack {} {}{rows}", name(&ack.inv.granule), ack.inv.record)
        }
        MessageBody::Val { granule, record } => format!("Val {} {record}", name(granule)),
        MessageBody::ReplicationInv(of) => format!("ReplicationInv {}", replication_inv(of)),
        MessageBody::ReplicationAck { pipeline, slot } => {
            format!("ReplicationAck {pipeline} {slot}")
        }
        MessageBody::ReplicationVal { pipeline, slot } => {
            format!("ReplicationVal {pipeline} {slot}")
        }
        MessageBody::Replayed => "Replayed".to_owned(),
        MessageBody::ReplayedHeard => "ReplayedHeard".to_owned(),
        MessageBody::CopyRequest { shard, after } => {
            format!("CopyRequest {shard} after {}", after.as_ref().map_or("-".to_owned(), name))
        }
        MessageBody::CopyQuery { shard } => format!("CopyQuery {shard}"),
        MessageBody::CopyDone { shard } => format!("CopyDone {shard}"),
        MessageBody::Copy(copy) => {
            let records = copy.records.iter().map(|record| {
                let pending = record.pending.as_ref();
                let pending =
                    pending.map_or(String::new(), |inv| format!(" pending {}", inv.record));
                let is_asked = !copy.is_directory && !record.record.is_uncreated();
                let serves = if is_asked && !record.serves { " not serving" } else { "" };
                format!(" {} {}{serves}{pending}", name(&record.granule), record.record)
            });
            let whose = match (copy.is_directory, copy.is_rebuilt) {
                (true, false) => "directory",
                (true, true) => "rebuilt directory",
                (false, _) => "holdings",
            };
            let last = if copy.is_last { " last" } else { "" };
            format!("Copy {} {whose}{last}{}", copy.shard, records.collect::<String>())
        }
        MessageBody::PartRequest(request) => format!("PartRequest {}", part_request(request)),
        MessageBody::Part { request, part: of } => {
            format!("Part {}{}", part_request(request), part(of))
        }
        MessageBody::Recruit { granule, o_ts } => format!("Recruit {} as of {o_ts}", name(granule)),
    }
}

/// Its name, and what it says. Epochs after the first are named.
impl fmt::Display for ZeusMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epoch.0 {
            1 => {}
            epoch => write!(f, "e{epoch} ")?,
        }
        f.write_str(&text_of(&self.body))
    }
}
