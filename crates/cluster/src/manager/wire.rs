//! Tests of the bytes of commands, which logs keep, and of messages between nodes and managers: values are
//! read as they were written, and the bytes of a value stay as they are.

use super::{
    Action, AddedVoter, Ask, Assignment, ClusterChange, Command, Configuration, EpochEnd,
    FinalEnds, Generation, HeartbeatRecord, Incarnation, Knowledge, KnownEpochs, LeadershipClaim,
    ManagerRequest, Move, NodeStanding, ProcessInstance, Recollection, Revision, TableChange, Term,
    ToManager, ToNode,
};
use crate::topology::{Partitioning, TableDefinition, Topology};
use proptest::collection::vec;
use proptest::prelude::*;
use shoal_types::wire::check::{returns, withstands};
use shoal_types::wire::{decode, encode};
use shoal_types::{Ballot, ClusterId, Epoch, NodeId, Rejected, ShardId, TableId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

fn partitionings() -> impl Strategy<Value = Partitioning> {
    let splits = vec((vec(any::<u8>(), 0..20), any::<u32>()), 0..5);
    prop_oneof![
        any::<usize>().prop_map(|prefix_bytes| Partitioning::Hash { prefix_bytes }),
        splits.prop_map(|splits| Partitioning::Range {
            splits: splits.into_iter().map(|(key, shard)| (key.into(), ShardId(shard))).collect()
        }),
        Just(Partitioning::Everywhere),
    ]
}

fn table_changes() -> impl Strategy<Value = TableChange> {
    prop_oneof![
        (".{0,20}", partitionings(), any::<(Option<usize>, Option<String>)>()).prop_map(
            |(name, partitioning, (granule_bytes, family))| TableChange::Create {
                name,
                definition: TableDefinition { partitioning, granule_bytes, family },
            }
        ),
        any::<u32>().prop_map(|table| TableChange::Drop { table: TableId(table) }),
    ]
}

fn changes() -> impl Strategy<Value = ClusterChange> {
    let ids = any::<(u32, u32, u32)>();
    prop_oneof![
        ids.prop_map(|(shard, outgoing, incoming)| ClusterChange::ReplaceReplica {
            shard: ShardId(shard),
            outgoing: NodeId(outgoing),
            incoming: NodeId(incoming)
        }),
        any::<u32>().prop_map(|shard| ClusterChange::KeepReplicas { shard: ShardId(shard) }),
        table_changes().prop_map(ClusterChange::Table),
        (any::<u32>(), partitionings()).prop_map(|(table, partitioning)| {
            ClusterChange::BeginMove { table: TableId(table), partitioning }
        }),
        any::<u32>().prop_map(|table| ClusterChange::EndMove { table: TableId(table) }),
        any::<u32>().prop_map(|table| ClusterChange::CancelMove { table: TableId(table) }),
    ]
}

fn heartbeats() -> impl Strategy<Value = HeartbeatRecord> {
    any::<(u32, u32, u64, u64, u64)>().prop_map(|(node, incarnation, round, at, known)| {
        HeartbeatRecord {
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
            round,
            at: Time(at),
            known: Revision(known),
        }
    })
}

fn claims() -> impl Strategy<Value = LeadershipClaim> {
    any::<(u32, u32, u32, u32, u32)>().prop_map(|(node, incarnation, shard, epoch, leader)| {
        LeadershipClaim {
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
            shard: ShardId(shard),
            ballot: Ballot { epoch: Epoch(epoch), node: NodeId(leader) },
        }
    })
}

fn clusters() -> impl Strategy<Value = ClusterId> {
    (1..=u64::MAX).prop_map(|number| ClusterId::new(number).expect("not 0"))
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        clusters().prop_map(|drawn| Action::Take { drawn }),
        vec(heartbeats(), 0..5).prop_map(|heartbeats| Action::Tick { heartbeats }),
        any::<(u32, u64, u32, bool, u64)>().prop_map(
            |(node, instance, after, lost, last_heartbeat)| {
                Action::Join {
                    node: NodeId(node),
                    instance: ProcessInstance(instance),
                    after: Incarnation(after),
                    lost,
                    last_heartbeat: Time(last_heartbeat),
                }
            }
        ),
        (claims(), any::<(u32, u64)>()).prop_map(|(claim, (epoch, end))| Action::Report {
            claim,
            epoch: Epoch(epoch),
            end: EpochEnd::up_to(end)
        }),
        (claims(), any::<u32>())
            .prop_map(|(claim, epoch)| Action::Close { claim, epoch: Epoch(epoch) }),
        (claims(), any::<(u32, u32)>()).prop_map(|(claim, (replica, incarnation))| {
            Action::CaughtUp {
                claim,
                replica: NodeId(replica),
                incarnation: Incarnation(incarnation),
            }
        }),
        (claims(), any::<u32>())
            .prop_map(|(claim, epoch)| Action::Whole { claim, epoch: Epoch(epoch) }),
        (any::<u64>(), changes())
            .prop_map(|(ask, change)| Action::Change { ask: Ask(ask), change }),
    ]
}

fn commands() -> impl Strategy<Value = Command> {
    (any::<(u64, u64)>(), actions()).prop_map(|((term, at), action)| Command {
        term: Term(term),
        at: Time(at),
        action,
    })
}

fn to_manager() -> impl Strategy<Value = ToManager> {
    let tables = (any::<(u32, u64)>(), table_changes()).prop_map(|((incarnation, ask), change)| {
        let (incarnation, ask) = (Incarnation(incarnation), Ask(ask));
        ToManager::ChangeTable { incarnation, ask, change }
    });
    let remembered = (proptest::option::of(configurations()), any::<(u32, Option<u64>)>());
    let parts = (any::<[u64; 4]>(), any::<[u32; 3]>(), claims(), any::<bool>());
    let others = (0..6, parts, remembered).prop_map(|(variant, parts, remembered)| {
        let ([instance, round, granted, known], [one, two, three], claim, lost) = parts;
        let (instance, incarnation, epoch) =
            (ProcessInstance(instance), Incarnation(one), Epoch(two));
        match variant {
            0 => {
                let known = Revision(known);
                ToManager::Heartbeat { instance, incarnation, round, granted, known }
            }
            1 => ToManager::Join { instance, after: incarnation, lost },
            2 | 3 | 5 => {
                let (shard, ballot, end) = (claim.shard, claim.ballot, EpochEnd::up_to(known));
                let (held, replica) = ([(epoch, end.clone())].into(), NodeId(three));
                let request = match (variant, lost) {
                    (2, false) => ManagerRequest::Report { shard, epoch, end },
                    (2, true) => ManagerRequest::Close { shard, epoch },
                    (3, false) => {
                        let knowledge = Knowledge { durable: held, ends: BTreeMap::new() };
                        ManagerRequest::Known { shard, begun: epoch, knowledge }
                    }
                    (3, true) => ManagerRequest::Held { shard, held },
                    (_, false) => ManagerRequest::CaughtUp { shard, replica, ballot, incarnation },
                    (_, true) => ManagerRequest::Whole { shard, epoch },
                };
                ToManager::Request { incarnation, ballot, request }
            }
            _ => {
                let (configuration, (closed, end)) = remembered;
                let ends = [(Epoch(closed), vec![end.map(EpochEnd::up_to)])].into();
                let epochs = KnownEpochs { open: epoch, ends };
                let pledged = Generation(granted);
                let recollection =
                    Recollection { instance, incarnation, pledged, configuration, epochs };
                ToManager::Recalled { generation: Generation(round), recollection }
            }
        }
    });
    prop_oneof![others, tables]
}

fn assignments() -> impl Strategy<Value = Assignment> {
    let nodes = || vec(any::<u32>().prop_map(NodeId), 0..4);
    let empty = proptest::collection::btree_map(any::<u32>(), any::<u32>(), 0..4);
    let parts = (any::<[u32; 5]>(), nodes(), nodes(), any::<Option<u32>>(), empty);
    parts.prop_map(|(numbers, voters, learners, out, empty)| {
        let [leader, incarnation, epoch, node, since] = numbers;
        Assignment {
            leader: NodeId(leader),
            incarnation: Incarnation(incarnation),
            ballot: Ballot { epoch: Epoch(epoch), node: NodeId(node) },
            since: Epoch(since),
            voting_since: voters.iter().map(|voter| (*voter, Epoch(since))).collect(),
            voters,
            learners,
            out: out.map(Epoch),
            empty: empty.into_iter().map(|(node, epoch)| (NodeId(node), Epoch(epoch))).collect(),
            added: (since % 2 == 0).then_some(AddedVoter {
                node: NodeId(node),
                in_place_of: NodeId(leader),
                catching_up_after: out.map(Epoch),
                was_learner: since % 3 == 0,
                is_given_up: since % 5 == 0,
            }),
            loss: None,
            left: (0..since % 3).map(NodeId).collect(),
        }
    })
}

fn final_ends() -> impl Strategy<Value = FinalEnds> {
    (any::<u32>(), vec(any::<u64>(), 0..4)).prop_map(|(epoch, numbers)| {
        FinalEnds::new(Epoch(epoch), numbers.into_iter().map(EpochEnd::up_to).collect())
    })
}

fn configurations() -> impl Strategy<Value = Arc<Configuration>> {
    let standing = any::<(u32, bool, u32, bool)>();
    let standing = standing.prop_map(|(incarnation, alive, since, is_first)| NodeStanding {
        incarnation: Incarnation(incarnation),
        alive,
        since: Epoch(since),
        is_first,
    });
    let moving =
        (any::<(u32, u32)>(), partitionings()).prop_map(|((table, begun), partitioning)| Move {
            table: TableId(table),
            partitioning,
            begun: Epoch(begun),
        });
    let shape = (1..3_u32, 0..3_u32)
        .prop_map(|(shards, learners)| Arc::new(Topology::compact(2, shards, 3, learners, 1)));
    let ends = (any::<u32>(), vec(any::<Option<u64>>(), 0..4)).prop_map(|(epoch, clocks)| {
        (Epoch(epoch), clocks.into_iter().map(|clock| clock.map(EpochEnd::up_to)).collect())
    });
    let closed = (vec(final_ends(), 0..3), vec(ends, 0..3));
    let lists = (vec(standing, 0..4), vec(assignments(), 0..4), closed);
    let parts = (any::<(u64, u32, u32)>(), shape, lists, proptest::option::of(moving));
    let parts = (proptest::option::of(clusters()), parts);
    parts.prop_map(|(cluster, (numbers, topology, (nodes, shards, closed), moving))| {
        let (revision, epoch, settled) = numbers;
        let (finals, ends) = closed;
        Arc::new(Configuration {
            cluster,
            generation: Generation(revision / 2),
            revision: Revision(revision),
            epoch: Epoch(epoch),
            topology,
            nodes,
            shards,
            settled: Epoch(settled),
            forgotten: Epoch(settled / 2),
            finals,
            ends: ends.into_iter().collect(),
            moving,
        })
    })
}

fn to_node() -> impl Strategy<Value = ToNode> {
    let parts = (0..9, any::<[u64; 3]>(), any::<[u32; 2]>(), claims(), configurations());
    parts.prop_map(|(variant, [instance, round, revision], [incarnation, epoch], claim, given)| {
        let (instance, incarnation) = (ProcessInstance(instance), Incarnation(incarnation));
        let granted = |configuration| {
            let revision = Revision(revision);
            let generation = Generation(round);
            ToNode::Granted { generation, incarnation, round, revision, configuration }
        };
        match variant {
            0 => ToNode::OtherProcess { instance, incarnation, admitted: instance },
            1 => ToNode::Welcome { instance, incarnation, configuration: given },
            2 => granted(None),
            3 => granted(Some(given)),
            4 => ToNode::Configured { configuration: given },
            5 => ToNode::Recall { generation: Generation(instance.0), pledges: round % 2 == 0 },
            6 => ToNode::TableChanged { ask: Ask(round), result: Ok(TableId(epoch)) },
            7 => {
                let result = Err(Rejected::UnknownTable { table: TableId(epoch) });
                ToNode::TableChanged { ask: Ask(round), result }
            }
            _ => ToNode::Reported { claim, epoch: Epoch(epoch) },
        }
    })
}

proptest! {
    #[test]
    fn commands_return(command in commands()) {
        returns(&command);
    }

    #[test]
    fn what_nodes_say_returns(message in to_manager()) {
        returns(&message);
    }

    #[test]
    fn any_bytes_are_withstood(bytes in vec(any::<u8>(), 0..200)) {
        let bytes = bytes.into();
        withstands::<Command>(&bytes);
        withstands::<ToManager>(&bytes);
        withstands::<ToNode>(&bytes);
    }
}

proptest! {
    // Each is cut and twisted at hundreds of places.
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn what_managers_say_returns(message in to_node()) {
        returns(&message);
    }
}

/// Logs on disks have these, and other releases say them.
#[test]
fn forms_stay_as_they_are() {
    let ballot = Ballot { epoch: Epoch(4), node: NodeId(1) };
    let claim =
        LeadershipClaim { node: NodeId(1), incarnation: Incarnation(2), shard: ShardId(3), ballot };
    let (shard, epoch, end) = (ShardId(3), Epoch(5), EpochEnd::up_to(6));
    let request = ManagerRequest::Report { shard, epoch, end };
    let report = ToManager::Request { incarnation: Incarnation(2), ballot, request };
    let claim_form = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0];
    let tail = [5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 6];
    let [incarnation_form, ballot_form] = [&claim_form[4..8], &claim_form[12..]];
    let request_form = [&[0][..], &claim_form[8..12], &tail].concat();
    assert_eq!(encode(&report), [&[2][..], incarnation_form, ballot_form, &request_form].concat());
    assert_eq!(
        encode(&ToNode::Reported { claim, epoch: Epoch(5) }),
        [&[4][..], &claim_form, &tail[..4]].concat()
    );

    let splits = vec![(Box::default(), ShardId(0)), (Box::from(&b"m"[..]), ShardId(1))];
    let partitioning = Partitioning::Range { splits };
    let definition = TableDefinition { partitioning, granule_bytes: None, family: None };
    let create = TableChange::Create { name: "t".to_owned(), definition };
    let change = ClusterChange::Table(create);
    let command =
        Command { term: Term(1), at: Time(2), action: Action::Change { ask: Ask(3), change } };
    #[rustfmt::skip]
    let form = [
        1, 0, 0, 0, 0, 0, 0, 0, // term
        2, 0, 0, 0, 0, 0, 0, 0, // at
        5, 3, 0, 0, 0, 0, 0, 0, 0, // change, ask
        7, 0, 1, 0, 0, 0, b't', // table, create, name
        1, 2, 0, 0, 0, // ranges, two
        0, 0, 0, 0, 0, 0, 0, 0, // no key, shard
        1, 0, 0, 0, b'm', 1, 0, 0, 0, // key, shard
        0, 0, // granules by default, no family
    ];
    assert_eq!(encode(&command)[..], form);
    let drop = ClusterChange::Table(TableChange::Drop { table: TableId(4) });
    assert_eq!(encode(&drop)[..], [7, 1, 4, 0, 0, 0]);
    let heartbeat = HeartbeatRecord {
        node: NodeId(1),
        incarnation: Incarnation(2),
        round: 3,
        at: Time(4),
        known: Revision(5),
    };
    let tick = Action::Tick { heartbeats: vec![heartbeat] };
    #[rustfmt::skip]
    let form = [
        7, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
        5, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(encode(&tick)[..], form);
    assert_eq!(encode(&Action::Close { claim, epoch: Epoch(5) })[0], 6);
    assert_eq!(encode(&ClusterChange::CancelMove { table: TableId(1) })[..], [5, 1, 0, 0, 0]);
    assert_eq!(encode(&Partitioning::Hash { prefix_bytes: 2 })[..], [0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(encode(&Partitioning::Everywhere)[..], [2]);
}

#[test]
fn a_configuration_says_where_it_makes_no_sense() {
    let topology = Arc::new(Topology::compact(1, 1, 1, 0, 1));
    let configuration = Configuration {
        cluster: None,
        generation: Generation(0),
        revision: Revision(1),
        epoch: Epoch(1),
        topology,
        nodes: Vec::new(),
        shards: Vec::new(),
        settled: Epoch(0),
        forgotten: Epoch(0),
        finals: Vec::new(),
        ends: BTreeMap::new(),
        moving: None,
    };
    let mut bytes = encode(&configuration).to_vec();
    bytes[21] = 0; // A topology of no workers.
    let error = decode::<Configuration>(&bytes.into()).expect_err("no workers");
    assert_eq!(error.what, "no topology");
}
