//! Tables that are created and dropped: ids, exactly once, refusals, and when a drop is answered.

use shoal_cluster::manager::{
    Action, Applied, Ask, ChangeRefusal, ClusterChange, Command, Incarnation, ManagerOptions,
    ManagerPlantedBugs, ProcessInstance, Revision, StateMachine, TableChange, Term, ToManager,
    ToNode,
};
use shoal_cluster::manager::{CarriedLog, Manager, ManagerEffect, ManagerEvent};
use shoal_cluster::topology::{Partitioning, TableDefinition, TableStanding, Topology};
use shoal_types::limits::{TABLE_NAME_BYTES_MAX, TABLES_MAX};
use shoal_types::{ClusterId, NodeId, Rejected, ShardId, TableId, Time};
use std::sync::Arc;

const HASH: Partitioning = Partitioning::Hash { prefix_bytes: 0 };

/// A state machine, and the time of its manager.
struct Machine {
    machine: StateMachine,
    at: Time,
}

impl Machine {
    /// With two nodes and shards, the table `first`, and one of the cluster's own.
    fn new() -> Machine {
        let topology = Topology::symmetric(1, 2, 1, 0, 1);
        let tables = [("first", HASH), ("shoal.own", HASH)];
        let topology = topology.with_tables(tables).expect("valid");
        let machine = StateMachine::new(Arc::new(topology), ManagerOptions::default());
        let mut new = Machine { machine, at: Time(0) };
        new.apply(Action::Take { drawn: ClusterId::new(1).expect("not 0") });
        new
    }

    fn apply(&mut self, action: Action) -> Vec<Applied> {
        self.at = Time(self.at.0 + 1);
        let mut effects = Vec::new();
        self.machine.apply(&Command { term: Term(1), at: self.at, action }, &mut effects);
        let image = self.machine.image();
        let again = StateMachine::from_image(&image, self.machine.options().clone());
        assert_eq!(again.as_ref(), Ok(&self.machine), "the image of a machine is the machine");
        effects
    }

    fn change(&mut self, ask: u64, change: TableChange) -> Result<(), ChangeRefusal> {
        let change = ClusterChange::Table(change);
        let effects = self.apply(Action::Change { ask: Ask(ask), change });
        let answer = effects.iter().find_map(|it| match it {
            Applied::Answered { result, .. } => Some(result.clone()),
            _ => None,
        });
        answer.expect("a change is answered")
    }

    fn create(&mut self, ask: u64, name: &str, how: &Partitioning) -> Result<(), ChangeRefusal> {
        self.change(ask, create(name, how))
    }

    fn drop(&mut self, ask: u64, table: u32) -> Result<(), ChangeRefusal> {
        self.change(ask, TableChange::Drop { table: TableId(table) })
    }

    fn table(&self, name: &str) -> Option<TableId> {
        self.machine.configuration().topology.table(name)
    }

    fn standing(&self, table: u32) -> TableStanding {
        self.machine.configuration().topology.tables().standing(TableId(table))
    }
}

fn create(name: &str, how: &Partitioning) -> TableChange {
    TableChange::Create { name: name.to_owned(), definition: how.clone().into() }
}

fn refused(why: Rejected) -> Result<(), ChangeRefusal> {
    Err(ChangeRefusal::Table(why))
}

#[test]
fn an_id_is_given_once() {
    let mut it = Machine::new();
    assert_eq!((it.create(1, "t", &HASH), it.table("t")), (Ok(()), Some(TableId(2))));
    assert_eq!((it.drop(2, 2), it.table("t")), (Ok(()), None));
    assert_eq!((it.create(3, "t", &HASH), it.table("t")), (Ok(()), Some(TableId(3))));
    assert_eq!(it.drop(2, 2), Ok(()), "again: the later table of this name is another one");
    assert_eq!((it.table("t"), it.standing(2)), (Some(TableId(3)), TableStanding::Dropped));
    assert_eq!((it.drop(4, 0), it.table("first")), (Ok(()), None), "one of the topology");
    assert_eq!(it.standing(4), TableStanding::NotGiven);
}

#[test]
fn a_request_creates_once_also_where_its_table_was_dropped_since() {
    let mut it = Machine::new();
    it.create(7, "t", &HASH).expect("new");
    let before = it.machine.configuration().revision;
    assert_eq!((it.create(7, "t", &HASH), it.create(8, "t", &HASH)), (Ok(()), Ok(())));
    assert_eq!(it.machine.configuration().revision, before, "nothing has changed");
    it.drop(9, 2).expect("there");
    assert_eq!((it.create(7, "t", &HASH), it.table("t")), (Ok(()), None), "it had created one");
    assert_eq!((it.create(8, "t", &HASH), it.table("t")), (Ok(()), Some(TableId(3))), "not yet");
}

#[test]
fn the_first_table_of_a_family_stays_until_the_others_are_dropped() {
    let mut it = Machine::new();
    it.create(1, "orders", &HASH).expect("there is room");
    let definition = TableDefinition::from(HASH).family("orders");
    let create = TableChange::Create { name: "lines".to_owned(), definition };
    it.change(2, create.clone()).expect("it is divided like its family");
    assert_eq!(it.change(3, create), Ok(()), "it is there");
    let [orders, lines] = ["orders", "lines"].map(|name| it.table(name).expect("a table"));
    assert_eq!(it.drop(4, orders.0), refused(Rejected::TableFamily { table: orders }));
    it.drop(5, lines.0).expect("there");
    it.drop(6, orders.0).expect("there");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let mut it = Machine::new();
    let other = Partitioning::Hash { prefix_bytes: 2 };
    let exists = refused(Rejected::TableExists { name: "first".into() });
    assert_eq!(it.create(1, "first", &other), exists);
    let max = TABLE_NAME_BYTES_MAX;
    assert_eq!(it.create(2, "", &HASH), refused(Rejected::TableName { bytes: 0, max }));
    let long = "x".repeat(max + 1);
    assert_eq!(it.create(3, &long, &HASH), refused(Rejected::TableName { bytes: max + 1, max }));
    let reserved = |name: &str| refused(Rejected::TableReserved { name: name.into() });
    assert_eq!(it.create(4, "shoal.mine", &HASH), reserved("shoal.mine"));
    assert_eq!(it.drop(5, 1), reserved("shoal.own"));
    let table = TableId(9);
    assert_eq!(it.drop(6, 9), refused(Rejected::UnknownTable { table }));
    let far = Partitioning::Range { splits: vec![(Box::default(), ShardId(2))] };
    let Err(ChangeRefusal::Table(Rejected::TablePartitioning { reason })) = it.create(7, "t", &far)
    else {
        panic!("there are two shards");
    };
    assert!(reason.contains("there is no shard 2"), "{reason}");
    let table = TableId(0);
    let begin = ClusterChange::BeginMove { table, partitioning: other };
    it.apply(Action::Change { ask: Ask(8), change: begin });
    assert_eq!(it.drop(9, 0), refused(Rejected::TableMoving { table }));
    it.apply(Action::Change { ask: Ask(20), change: ClusterChange::CancelMove { table } });
    assert_eq!(it.drop(9, 0), refused(Rejected::TableMoving { table }), "a late copy of a request");
    for number in 2..TABLES_MAX {
        it.create(100 + number as u64, &number.to_string(), &HASH).expect("there is room");
    }
    let full = refused(Rejected::TooManyTables { max: TABLES_MAX });
    assert_eq!(it.create(10, "one more", &HASH), full);
    it.drop(11, 5).expect("there");
    it.create(12, "one more", &HASH).expect("there is room again");
}

fn process(node: u32) -> ProcessInstance {
    ProcessInstance(10 + u64::from(node))
}

/// A manager alone, whose log commits at once, and which both nodes have joined.
fn manager(faults: ManagerPlantedBugs) -> Manager<CarriedLog> {
    let it = Machine::new();
    let topology = Arc::clone(&it.machine.configuration().topology);
    let options = ManagerOptions { faults, ..ManagerOptions::default() };
    let machine = StateMachine::new(topology, options);
    let cluster = ClusterId::new(1).expect("not 0");
    let mut manager = Manager::new(CarriedLog::default(), machine, cluster);
    manager.log_mut().term = Some(Term(1));
    step(&mut manager, 1, None);
    for node in [0, 1] {
        let (instance, after) = (process(node), Incarnation(0));
        let join = ToManager::Join { instance, after, lost: false };
        step(&mut manager, 2 + u64::from(node), Some((node, join)));
    }
    manager
}

/// Steps a manager, commits what it proposes, and returns what it sends to nodes of changes of tables.
fn step(
    manager: &mut Manager<CarriedLog>,
    at: u64,
    event: Option<(u32, ToManager)>,
) -> Vec<(NodeId, Ask, Result<TableId, Rejected>)> {
    let now = Time(at);
    let mut effects = Vec::new();
    let event = event.map_or(ManagerEvent::Log, |(from, message)| ManagerEvent::Received {
        from: NodeId(from),
        at: now,
        message,
    });
    manager.step(now, event, &mut effects);
    for _ in 0..3 {
        let log = manager.log_mut();
        log.decided.extend(std::mem::take(&mut log.proposed));
        log.led = Some(now);
        manager.step(now, ManagerEvent::Log, &mut effects);
    }
    let replies = effects.into_iter().filter_map(|effect| match effect {
        ManagerEffect::Send { to, message: ToNode::TableChanged { ask, result } } => {
            Some((to, ask, result))
        }
        _ => None,
    });
    replies.collect()
}

#[test]
fn a_change_is_answered_when_all_live_nodes_have_it() {
    let mut manager = manager(ManagerPlantedBugs::default());
    let ask = |ask, change| ToManager::ChangeTable { incarnation: Incarnation(1), ask, change };
    let create_it = || ask(Ask(5), create("t", &HASH));
    assert_eq!(step(&mut manager, 5, Some((0, create_it()))), []);
    let known = manager.machine().configuration().revision;
    let heartbeat = |node, known| {
        let (instance, incarnation) = (process(node), Incarnation(1));
        ToManager::Heartbeat {
            instance,
            incarnation,
            round: known,
            granted: 0,
            known: Revision(known),
        }
    };
    assert_eq!(step(&mut manager, 100_000_000, Some((0, heartbeat(0, known.0)))), []);
    assert_eq!(step(&mut manager, 100_000_001, Some((0, create_it()))), [], "node 1 lacks it");
    let replies = step(&mut manager, 150_000_000, Some((1, heartbeat(1, known.0))));
    assert_eq!(replies, [(NodeId(0), Ask(5), Ok(TableId(2)))]);
    let replies = step(&mut manager, 150_000_001, Some((1, create_it())));
    assert_eq!(replies, [(NodeId(1), Ask(5), Ok(TableId(2)))], "a repeat by way of another node");
    let drop = || ask(Ask(6), TableChange::Drop { table: TableId(2) });
    assert_eq!(step(&mut manager, 150_000_002, Some((0, drop()))), []);
    let known = manager.machine().configuration().revision;
    assert_eq!(step(&mut manager, 200_000_000, Some((0, heartbeat(0, known.0)))), []);
    assert_eq!(step(&mut manager, 200_000_001, Some((0, drop()))), [], "node 1 may serve it");
    let late = ToManager::ChangeTable {
        incarnation: Incarnation(2),
        ask: Ask(7),
        change: create("u", &HASH),
    };
    assert_eq!(step(&mut manager, 200_000_002, Some((1, late))), [], "not its process");
    let replies = step(&mut manager, 250_000_000, Some((1, heartbeat(1, known.0))));
    assert_eq!(replies, [(NodeId(0), Ask(6), Ok(TableId(2)))]);
}

/// A request that is answered before any node has the configuration with the table.
#[test]
fn an_answer_before_the_nodes_know_is_seen() {
    let create_it = || {
        let (incarnation, ask) = (Incarnation(1), Ask(5));
        (0, ToManager::ChangeTable { incarnation, ask, change: create("t", &HASH) })
    };
    let answered = |faults| step(&mut manager(faults), 5, Some(create_it()));
    assert_eq!(answered(ManagerPlantedBugs::default()), []);
    let faults = ManagerPlantedBugs { answer_untold: true, ..ManagerPlantedBugs::default() };
    assert_eq!(answered(faults), [(NodeId(0), Ask(5), Ok(TableId(2)))]);
}
