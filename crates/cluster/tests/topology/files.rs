//! Topologies as texts: the example says what it seems to say, writing and reading give the same,
//! and each error names its line.

use proptest::prelude::*;
use shoal_cluster::topology::{
    Builder, DATACENTERS_MAX, Home, Homes, NAME_BYTES_MAX, NODES_MAX, Partitioning, RANGES_MAX,
    REPLICAS_MAX, Role, SHARDS_MAX, Table, TableDefinition, TableGranules, Topology, WORKERS_MAX,
};
use shoal_types::limits::{KEY_BYTES_MAX, TABLE_NAME_BYTES_MAX, TABLES_MAX};
use shoal_types::{
    DatacenterId, Distance, DistanceMatrix, NodeId, Scan, ShardId, TableId, Way, tuple,
};
use std::time::Duration;

const EXAMPLE: &str = include_str!("three-datacenters.toml");

fn example() -> Topology {
    Topology::parse(EXAMPLE).expect("the example is a topology")
}

/// What the documentation shows between a line "```toml" and the next "```".
fn documented() -> impl Iterator<Item = &'static str> {
    let text = include_str!("../../../../docs/topology.md");
    text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().expect("a part"))
}

#[test]
fn the_examples_of_the_documentation_are_topologies() {
    assert_eq!(documented().count(), 3, "examples in docs/topology.md");
    for text in documented() {
        if let Err(error) = Topology::parse(text) {
            panic!("{error}, in docs/topology.md:\n{text}");
        }
    }
}

#[test]
fn the_example_says_who_holds_what() {
    let topology = example();
    assert_eq!(topology.workers(), 4);
    let datacenters: Vec<_> =
        topology.datacenters().iter().map(|at| (at.id.0, &*at.name)).collect();
    assert_eq!(datacenters, [(0, "oregon"), (1, "ohio"), (2, "dublin")]);
    let nodes = topology.nodes();
    assert_eq!(nodes.len(), 5);
    assert!(nodes.iter().zip(0..).all(|(node, id)| node.id == NodeId(id)));
    assert_eq!((&*nodes[3].name, nodes[3].datacenter), ("ohio-1", DatacenterId(1)));
    assert_eq!(nodes[3].address.as_deref(), Some("10.2.0.1:7000"));
    assert_eq!((topology.node(NodeId(3)), topology.node(NodeId(5))), (Some(&nodes[3]), None));

    let shard = ShardId(1);
    assert_eq!((topology.shards(), topology.leader(shard)), (3, NodeId(1)));
    assert_eq!(topology.voters(shard), [1, 3, 4].map(NodeId));
    assert_eq!(topology.learners(shard), [NodeId(2)]);
    assert_eq!(topology.replicas(shard).collect::<Vec<_>>(), [1, 3, 4, 2].map(NodeId));
    let roles = [0, 1, 2].map(|node| topology.role(shard, NodeId(node)));
    assert_eq!(roles, [None, Some(Role::Voter), Some(Role::Learner)]);
    let held = |node| topology.shards_of(NodeId(node)).map(|shard| shard.0).collect::<Vec<_>>();
    assert_eq!([0, 1, 2, 3].map(held), [vec![0, 2], vec![0, 1], vec![1, 2], vec![0, 1, 2]]);
}

#[test]
fn the_example_says_where_keys_live() {
    let topology = example();
    let table = |name| topology.table(name).expect("a table of the example");
    assert_eq!((table("stock"), table("order")), (TableId(0), TableId(5)));
    assert_eq!((topology.table("nothing"), topology.home(TableId(6), b"a")), (None, None));
    assert_eq!(topology.homes(TableId(6), &Scan::all()), None);

    let home = |name, key: &[u8]| topology.home(table(name), key);
    let one = |shard| Some(Home::One(ShardId(shard)));
    assert_eq!(home("stock", b"\0\x07abc"), home("customer", b"\0\x07"));
    assert_eq!(home("item", b"a"), Some(Home::Everywhere));
    assert_eq!(
        [&b"alice"[..], b"h", b"hugo", b"zoe"].map(|key| home("user", key)),
        [0, 1, 1, 2].map(one)
    );
    let order = |key: &[u8]| home("order", key);
    assert_eq!([order(&tuple::encode((99,))), order(&tuple::encode((100, 1)))], [one(0), one(1)]);
    assert_eq!(order(&tuple::encode((200, "a"))), one(1));
    assert_eq!(order(&tuple::encode((200, "west"))), one(2));
    assert_eq!(order(b"\xff\0\0"), one(0));

    let homes = |name, scan| topology.homes(table(name), &scan).expect("a table of the example");
    let shards = |shards: &[u32]| shards.iter().copied().map(ShardId).collect::<Vec<_>>();
    assert!(matches!(homes("stock", Scan::prefix(b"\0\x07")), Homes::One(_)));
    assert_eq!(homes("stock", Scan::prefix(b"\0")), Homes::Mixed(shards(&[0, 1, 2])));
    assert_eq!(homes("item", Scan::all()), Homes::Everywhere);
    assert_eq!(homes("user", Scan::range(&b"i"[..]..b"q")), Homes::One(ShardId(1)));
    assert_eq!(homes("user", Scan::range(&b"i"[..]..=b"q")), Homes::Ordered(shards(&[1, 2])));
    assert_eq!(homes("order", Scan::all()), Homes::Mixed(shards(&[0, 1, 2])));
}

#[test]
fn layouts_put_replicas_where_they_say() {
    let topology = Topology::symmetric(3, 2, 3, 1, 4);
    assert_eq!((topology.nodes().len(), topology.shards(), topology.workers()), (8, 2, 4));
    for shard in topology.shard_ids() {
        let at = |node: NodeId| topology.nodes()[node.0 as usize].datacenter.0;
        let places: Vec<_> = topology.replicas(shard).map(at).collect();
        assert_eq!(places, [0, 1, 2, 0]);
        assert_eq!(topology.leader(shard), topology.voters(shard)[0]);
    }
    assert_eq!(topology.nodes()[6].name, "s1v2");
    assert!(topology.nodes().iter().all(|node| topology.shards_of(node.id).len() == 1));

    let topology = Topology::compact(2, 5, 3, 1, 1);
    assert_eq!(topology.nodes().len(), 4);
    assert!(topology.nodes().iter().all(|node| topology.shards_of(node.id).len() == 5));
    let leaders: Vec<_> = topology.shard_ids().map(|shard| topology.leader(shard).0).collect();
    assert_eq!(leaders, [0, 2, 0, 2, 0], "two of three voters are in the first of two datacenters");
}

#[test]
#[should_panic(expected = "no cluster has this shape: shard 0 has 2 voters")]
fn a_layout_with_an_even_number_of_voters_is_none() {
    Topology::symmetric(3, 1, 2, 0, 1);
}

#[test]
#[should_panic(expected = "there is no shard s3, only 3")]
fn a_shard_from_nowhere_is_a_bug() {
    example().leader(ShardId(3));
}

#[test]
fn writing_gives_a_text_that_reads_the_same() {
    let text = example().to_toml();
    assert_eq!(Topology::parse(&text), Ok(example()), "{text}");
    assert!(text.contains("voters = [\"oregon-1\", \"ohio-1\", \"dublin-1\"]\n"), "{text}");
    for from in ["\"h\"", "[100]", "[200, \"east\"]", "\"0xff00\""] {
        assert!(text.contains(&format!("{{ from = {from}, shard = ")), "{from} in {text}");
    }
    let layout = Topology::compact(3, 2, 5, 2, 1);
    assert_eq!(Topology::parse(&layout.to_toml()), Ok(layout));
}

proptest! {
    #[test]
    fn any_names_and_keys_can_be_written_and_read(
        name in "\\PC{1,9}|[\"'\\\\\n\t\u{0}\u{7f}a]{1,9}",
        address in "\\PC{1,20}",
        splits in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..6), 0..6),
        words in prop::collection::btree_set("[0-9a-z ./]{1,4}|0x[0-9]{1,3}", 0..4),
        prefix_bytes in 0..=KEY_BYTES_MAX,
        nanos in prop::array::uniform4(0..=30_000_000_000_u64),
    ) {
        let keys: std::collections::BTreeSet<_> =
            splits.into_iter().chain(words.into_iter().map(String::into_bytes)).collect();
        let keys = std::iter::once(Vec::new()).chain(keys);
        let splits = keys.map(|key| (key.into(), ShardId(0))).collect();
        let hash = Partitioning::Hash { prefix_bytes };
        let like = |family| TableDefinition::from(hash.clone()).family(family);
        let topology = Topology::builder()
            .workers(1)
            .datacenter(&name)
            .datacenter(format!("{name}2"))
            .node_at(&name, &name, address)
            .shard(&name, [&name], [])
            .table(&name, Partitioning::Range { splits })
            .table(format!("{name}2"), hash.clone())
            .table(format!("{name}3"), Partitioning::Everywhere)
            .table(format!("{name}4"), like(format!("{name}2")))
            .build()
            .unwrap();
        let mut distances = DistanceMatrix::none();
        for (from, to, at) in [(0, 1, 0), (1, 0, 2)] {
            let [delay, jitter] = [nanos[at], nanos[at + 1]].map(Duration::from_nanos);
            let (from, to) = (DatacenterId(from), DatacenterId(to));
            distances.set(Way { from, to, distance: Distance { delay, jitter } });
        }
        let topology = topology.with_distances(&distances).unwrap();
        let text = topology.to_toml();
        prop_assert_eq!(Topology::parse(&text), Ok(topology), "{}", text);
    }

    #[test]
    fn no_text_panics(
        text in "\\PC*",
        cut in 0..EXAMPLE.len(),
        junk in "[\\[\\]{}=\",0-9a-z\n]{0,3}",
    ) {
        let _ = Topology::parse(&text);
        let _ = Topology::parse(&format!("{}{junk}{}", &EXAMPLE[..cut], &EXAMPLE[cut..]));
    }
}

/// A small topology, in which line 5 is the first of a node and line 13 that of a shard.
const SMALL: &str = r#"workers = 2
[[datacenter]]
name = "d"

[[node]]
name = "a"
datacenter = "d"

[[node]]
name = "b"
datacenter = "d"

[[shard]]
leader = "a"
voters = ["a"]
"#;

/// How an error shows a line that begins so, goes on with many x, and is cut.
fn cut(line: usize, begin: &str) -> String {
    format!("line {line}: `{begin}{}…`", "x".repeat(80 - begin.len()))
}

/// The small topology, with `new` instead of `old`, is refused at this place with these words.
#[track_caller]
fn refused(old: &str, new: &str, place: &str, what: &str) {
    assert!(SMALL.contains(old), "{old} is not in the small topology");
    let error = Topology::parse(&SMALL.replacen(old, new, 1)).expect_err(new);
    let at_place = if place.is_empty() { String::new() } else { format!("{place}: ") };
    assert_eq!(error.to_string(), at_place + what);
}

/// The small topology is refused when this follows it, from line 16 on.
#[track_caller]
fn refused_with(more: &str, place: &str, what: &str) {
    refused("voters = [\"a\"]\n", &format!("voters = [\"a\"]\n{more}"), place, what);
}

#[test]
fn the_small_topology_is_one() {
    Topology::parse(SMALL).unwrap();
}

#[test]
fn what_is_no_toml_is_refused() {
    refused(
        "workers = 2",
        "workers = ",
        "line 1: `workers =`",
        "string values must be quoted, expected literal string",
    );
    refused("[[node]]", "[[node]", "line 5: `[[node]`", "unclosed array table, expected `]`");
    refused(
        "workers = 2",
        "workers = \"two\"",
        r#"line 1: `workers = "two"`"#,
        r#"invalid type: string "two", expected a number, 0 or more"#,
    );
    refused(
        "workers = 2",
        "workers = -1",
        "line 1: `workers = -1`",
        "invalid value: integer `-1`, expected a number, 0 or more",
    );
    refused(
        "workers = 2",
        "worker = 2",
        "line 1: `worker = 2`",
        "unknown field `worker`, expected one of `workers`, `durability`, `datacenter`, `distance`, `node`, \
         `shard`, `table`",
    );
    refused("datacenter = \"d\"", "", "line 5: `[[node]]`", "missing field `datacenter`; add it");
    refused(
        "leader = \"a\"",
        "leader = 7",
        "line 14: `leader = 7`",
        "invalid type: integer `7`, expected a string",
    );
    refused(
        "leader = \"a\"",
        "leader = \"a\"\nfollowers = []",
        "line 15: `followers = []`",
        "unknown field `followers`, expected one of `leader`, `voters`, `learners`",
    );
    refused(
        "voters = [\"a\"]",
        "voters = [\"a\", 1]",
        r#"line 15: `voters = ["a", 1]`"#,
        "invalid type: integer `1`, expected a string",
    );
    refused(
        "leader = \"a\"",
        "leader = \"a\"\nleader = \"b\"",
        r#"line 15: `leader = "b"`"#,
        "duplicate key; keep one of them",
    );
}

#[test]
fn what_is_missing_is_told() {
    refused(
        "workers = 2",
        "",
        "",
        "the number of workers is missing; begin with workers = 1, or more",
    );
    refused(
        "workers = 2",
        "workers = 0",
        "line 1: `workers = 0`",
        "a node without workers does nothing; write 1 or more",
    );
    refused(
        "workers = 2",
        &format!("workers = {}", WORKERS_MAX + 1),
        "line 1: `workers = 1025`",
        "a node has at most WORKERS_MAX = 1024 workers; write fewer",
    );
    let error = |text| Topology::parse(text).unwrap_err().to_string();
    assert_eq!(error("workers = 1"), "there is no datacenter; add a [[datacenter]]");
    assert_eq!(
        error("workers = 1\ndatacenter = [{name = 'd'}]"),
        "there is no node; add a [[node]]"
    );
    assert_eq!(
        error("workers = 1\ndatacenter = [{name = 'd'}]\nnode = [{name = 'a', datacenter = 'd'}]"),
        "there is no shard; add a [[shard]]"
    );
}

#[test]
fn names_are_given_once_and_known() {
    refused(
        "name = \"d\"",
        "name = \"\"",
        r#"line 3: `name = ""`"#,
        "a datacenter needs a name; write one",
    );
    refused(
        "name = \"b\"",
        "name = \"a\"",
        r#"line 10: `name = "a"`"#,
        r#"another node is named "a" already; rename one of them"#,
    );
    refused(
        "name = \"d\"",
        &format!("name = \"{}\"", "x".repeat(NAME_BYTES_MAX + 1)),
        &cut(3, r#"name = ""#),
        "the name of this datacenter has 129 bytes, NAME_BYTES_MAX is 128; shorten it",
    );
    refused(
        "[[node]]",
        "[[datacenter]]\nname = \"d\"\n[[node]]",
        r#"line 6: `name = "d"`"#,
        r#"another datacenter is named "d" already; rename one of them"#,
    );
    refused(
        "datacenter = \"d\"",
        "datacenter = \"e\"",
        r#"line 7: `datacenter = "e"`"#,
        r#"there is no datacenter "e"; correct the name, or add a [[datacenter]] with it"#,
    );
    refused(
        "datacenter = \"d\"",
        "datacenter = \"d\"\naddress = \"\"",
        r#"line 8: `address = ""`"#,
        "an address has a host and a port; write one, or leave it out",
    );
    refused(
        "datacenter = \"d\"\n\n[[node]]\n",
        "datacenter = \"d\"\naddress = \"x:1\"\n\n[[node]]\naddress = \"x:1\"\n",
        r#"line 11: `address = "x:1"`"#,
        r#"node "a" has this address already; give each its own"#,
    );
}

/// Two datacenters more than the small topology has, from line 16 on, and what is said of their distances from line 20.
#[track_caller]
fn refused_distances(said: &str, place: &str, what: &str) {
    let datacenters = "[[datacenter]]\nname = \"e\"\n[[datacenter]]\nname = \"f\"\n";
    refused_with(&format!("{datacenters}[[distance]]\n{said}\n"), place, what);
}

#[test]
fn distances_are_between_two_datacenters_and_each_is_said_once() {
    refused_distances(
        "between = [\"d\", \"e\"]",
        "line 20: `[[distance]]`",
        "missing field `one_way_ms`; add it",
    );
    refused_distances(
        "one_way_ms = 1",
        "line 21: `one_way_ms = 1`",
        "the datacenters are missing; add between = [\"a\", \"b\"] for both ways, or from = \"a\" and \
         to = \"b\" for one",
    );
    refused_distances(
        "from = \"d\"\none_way_ms = 1",
        "line 22: `one_way_ms = 1`",
        "the datacenters are missing; add between = [\"a\", \"b\"] for both ways, or from = \"a\" and \
         to = \"b\" for one",
    );
    refused_distances(
        "between = [\"d\"]\none_way_ms = 1",
        "line 21: `between = [\"d\"]`",
        "a distance is between 2 datacenters, not 1; name two",
    );
    refused_distances(
        "between = [\"d\", \"e\"]\nto = \"f\"\none_way_ms = 1",
        "line 21: `between = [\"d\", \"e\"]`",
        "`between` is for both ways, `from` and `to` for one; keep one of the two",
    );
    refused_distances(
        "from = \"d\"\nto = \"g\"\none_way_ms = 1",
        "line 22: `to = \"g\"`",
        "there is no datacenter \"g\"; correct the name, or add a [[datacenter]] with it",
    );
    refused_distances(
        "between = [\"e\", \"e\"]\none_way_ms = 1",
        "line 21: `between = [\"e\", \"e\"]`",
        "from a datacenter to itself there is no distance; name two",
    );
    refused_distances(
        "between = [\"d\", \"e\"]\none_way_ms = 1\n[[distance]]\nfrom = \"e\"\nto = \"d\"\none_way_ms = 2",
        "line 25: `to = \"d\"`",
        "there is a distance for this way already; keep one of them",
    );
    for (key, ms) in [("one_way_ms", "-1"), ("one_way_ms", "nan"), ("one_way_ms", "30001")] {
        let said = format!("{key} = {ms}\nbetween = [\"d\", \"e\"]");
        let what = "one_way_ms is a number of milliseconds from 0 to 30000; write one";
        refused_distances(&said, &format!("line 21: `{key} = {ms}`"), what);
    }
    refused_distances(
        "between = [\"d\", \"e\"]\none_way_ms = 1\njitter_ms = 30000.5",
        "line 23: `jitter_ms = 30000.5`",
        "jitter_ms is a number of milliseconds from 0 to 30000; write one",
    );
}

#[test]
fn distances_are_read_and_written() {
    let said = "[[datacenter]]\nname = \"e\"\n[[datacenter]]\nname = \"f\"\n\
                [[distance]]\nbetween = [\"d\", \"f\"]\none_way_ms = 25\njitter_ms = 0.000001\n\
                [[distance]]\nfrom = \"e\"\nto = \"d\"\none_way_ms = 0\n";
    let topology = Topology::parse(&format!("{SMALL}{said}")).expect("a topology");
    let [d, e, f] = ["d", "e", "f"].map(|name| topology.datacenter(name).expect("it is there"));
    let far = Distance { delay: Duration::from_millis(25), jitter: Duration::from_nanos(1) };
    let distances = topology.distances();
    assert_eq!([distances.between(d, f), distances.between(f, d)], [far; 2]);
    assert_eq!([distances.way(e, d), distances.way(d, e)], [Some(Distance::NONE), None]);
    let text = topology.to_toml();
    assert!(
        text.contains("between = [\"d\", \"f\"]\none_way_ms = 25.0\njitter_ms = 1e-6\n"),
        "{text}"
    );
    assert!(text.contains("from = \"e\"\nto = \"d\"\none_way_ms = 0.0\n"), "{text}");
    assert_eq!(Topology::parse(&text), Ok(topology), "{text}");
}

#[test]
fn shards_have_an_odd_number_of_voters_and_a_leader() {
    refused(
        "voters = [\"a\"]",
        "voters = []",
        "line 15: `voters = []`",
        "shard 0 has no voter, so nothing it does could last; name one",
    );
    refused(
        "voters = [\"a\"]",
        "voters = [\n    \"a\",\n    \"b\",\n]",
        "line 15: `voters = [`",
        "shard 0 has 2 voters; an even number survives no more failures than one fewer does, \
         and waits for more: name 1 or 3, or make one a learner",
    );
    refused(
        "voters = [\"a\"]",
        "voters = [\"c\"]",
        r#"line 15: `voters = ["c"]`"#,
        r#"there is no node "c"; correct the name, or add a [[node]] with it"#,
    );
    refused(
        "voters = [\"a\"]",
        "voters = [\"a\"]\nlearners = [\"c\"]",
        r#"line 16: `learners = ["c"]`"#,
        r#"there is no node "c"; correct the name, or add a [[node]] with it"#,
    );
    refused(
        "voters = [\"a\"]",
        "voters = [\"a\"]\nlearners = [\n  \"b\",\n  \"a\"\n]",
        r#"line 18: `"a"`"#,
        r#"node "a" is a replica of shard 0 already; it can be one voter or one learner of it"#,
    );
    refused(
        "voters = [\"a\"]",
        "voters = [\"a\", \"b\", \"a\"]",
        r#"line 15: `voters = ["a", "b", "a"]`"#,
        r#"node "a" is a replica of shard 0 already; it can be one voter or one learner of it"#,
    );
    refused(
        "leader = \"a\"",
        "leader = \"b\"",
        r#"line 14: `leader = "b"`"#,
        "node \"b\" holds no replica of shard 0 and cannot lead it; add it to the voters or \
         the learners, or name one of them",
    );
    refused(
        "leader = \"a\"",
        "leader = \"c\"",
        r#"line 14: `leader = "c"`"#,
        r#"there is no node "c"; correct the name, or add a [[node]] with it"#,
    );
    let many = "\"a\", ".repeat(REPLICAS_MAX + 1);
    refused(
        "voters = [\"a\"]",
        &format!("voters = [{many}]"),
        r#"line 15: `voters = ["a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", …`"#,
        "shard 0 has 65 replicas, REPLICAS_MAX is 64; use fewer",
    );
}

#[test]
fn tables_have_a_name_and_a_partitioning() {
    let table = |rest: &str| format!("[[table]]\nname = \"t\"\n{rest}\n");
    refused_with(&table(""), "line 16: `[[table]]`", "missing field `partitioning`; add it");
    refused_with(
        &table("partitioning = \"random\""),
        r#"line 18: `partitioning = "random"`"#,
        r#"there is no partitioning "random"; write "hash", "range" or "everywhere""#,
    );
    refused_with(
        &table("partitioning = \"everywhere\"\nprefix_bytes = 2"),
        "line 19: `prefix_bytes = 2`",
        "prefix_bytes is for hash partitioning only; take it away, or write partitioning = \
         \"hash\"",
    );
    refused_with(
        &table("partitioning = \"hash\"\nranges = []"),
        "line 19: `ranges = []`",
        "ranges are for range partitioning only; take them away, or write partitioning = \
         \"range\"",
    );
    refused_with(
        &table("partitioning = \"hash\"\nprefix_bytes = 4097"),
        "line 19: `prefix_bytes = 4097`",
        "prefix_bytes is 4097, but a key has at most KEY_BYTES_MAX = 4096 bytes; write 0 to \
         hash whole keys",
    );
    refused_with(
        &table("partitioning = \"hash\"\n[[table]]\nname = \"t\"\npartitioning = \"hash\""),
        r#"line 20: `name = "t"`"#,
        r#"another table is named "t" already; rename one of them"#,
    );
    refused_with(
        "[[table]]\nname = \"\"\npartitioning = \"hash\"",
        r#"line 17: `name = ""`"#,
        "a table needs a name; write one",
    );
    let long = "x".repeat(TABLE_NAME_BYTES_MAX + 1);
    refused_with(
        &format!("[[table]]\nname = \"{long}\"\npartitioning = \"hash\""),
        &cut(17, r#"name = ""#),
        "the name of this table has 129 bytes, TABLE_NAME_BYTES_MAX is 128; shorten it",
    );
    let many: String = (0..=TABLES_MAX)
        .map(|id| format!("[[table]]\nname = \"{id}\"\npartitioning = \"hash\"\n"))
        .collect();
    refused_with(&many, "", "there are 1025 tables, TABLES_MAX is 1024; use fewer");
}

#[test]
fn granules_lie_on_one_shard_and_families_are_divided_alike() {
    let hashed = |rest: &str| {
        format!("[[table]]\nname = \"t\"\npartitioning = \"hash\"\nprefix_bytes = 4\n{rest}\n")
    };
    let kin = |rest: &str| {
        let first = hashed("granule_bytes = 6");
        format!("{first}[[table]]\nname = \"u\"\npartitioning = \"hash\"\n{rest}\n")
    };
    refused_with(
        &hashed("granule_bytes = 3"),
        "line 20: `granule_bytes = 3`",
        "table \"t\": it is hashed by a longer prefix than granule_bytes",
    );
    refused_with(
        &hashed("family = \"none\""),
        r#"line 20: `family = "none"`"#,
        r#"table "t" is in the family "none", and there is no such table"#,
    );
    refused_with(
        &kin("prefix_bytes = 5\nfamily = \"t\""),
        r#"line 25: `family = "t"`"#,
        "table \"u\": it is divided otherwise than its family; give both the same partitioning and granule_bytes",
    );
    let text = format!("{SMALL}{}", kin("prefix_bytes = 4\nfamily = \"t\""));
    let topology = Topology::parse(&text).expect("a topology");
    let granules = TableGranules { family: TableId(0), granule_bytes: 6 };
    assert_eq!(topology.tables().iter().map(Table::granules).collect::<Vec<_>>(), [granules; 2]);
}

#[test]
fn ranges_are_sorted_and_have_shards() {
    let ranges = |rest: &str| {
        format!("[[table]]\nname = \"t\"\npartitioning = \"range\"\nranges = [\n{rest}\n]\n")
    };
    refused_with(
        "[[table]]\nname = \"t\"\npartitioning = \"range\"\n",
        r#"line 18: `partitioning = "range"`"#,
        "a range-partitioned table needs its ranges; add ranges = [{ shard = 0 }, { from = \
         \"m\", shard = 1 }]",
    );
    refused_with(
        &ranges(""),
        "line 19: `ranges = [`",
        r#"table "t" has no range; give it at least { shard = 0 }"#,
    );
    refused_with(
        &ranges("{ from = \"b\", shard = 0 },"),
        r#"line 20: `{ from = "b", shard = 0 },`"#,
        "the keys below this one have no shard; begin with a range without `from`",
    );
    refused_with(
        &ranges("{ shard = 0 },\n{ shard = 0 },"),
        "line 21: `{ shard = 0 },`",
        "only the first range begins at the least key; say with `from` where this one does",
    );
    refused_with(
        &ranges("{ shard = 0 },\n{ from = \"b\", shard = 0 },\n{ from = \"a\", shard = 0 },"),
        r#"line 22: `{ from = "a", shard = 0 },`"#,
        "this range does not begin above the one before it; sort the ranges by `from`, each \
         once",
    );
    refused_with(
        &ranges("{ shard = 0 },\n{ from = \"b\", shard = 0 },\n{ from = \"0x62\", shard = 0 },"),
        r#"line 22: `{ from = "0x62", shard = 0 },`"#,
        "this range does not begin above the one before it; sort the ranges by `from`, each \
         once",
    );
    refused_with(
        &ranges("{ shard = 1 },"),
        "line 20: `{ shard = 1 },`",
        "there is no shard 1; they count from 0, the last one is 0",
    );
    refused_with(
        &ranges("{ from = \"\" },"),
        r#"line 20: `{ from = "" },`"#,
        "missing field `shard`; add it",
    );
    for key in ["7", "\"0x123\"", "\"0xgg\"", "[1.5]", "[[1]]", "true"] {
        let error = Topology::parse(&format!(
            "{SMALL}{}",
            ranges(&format!("{{ from = {key}, shard = 0 }}"))
        ));
        let expected = format!(
            "line 20: `{{ from = {key}, shard = 0 }}`: this is no key; write text (\"m\"), \
             bytes in pairs of hexadecimal digits (\"0x00ff\"), or a tuple of integers and text \
             ([7, \"smith\"])"
        );
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
    let long = "x".repeat(KEY_BYTES_MAX + 1);
    refused_with(
        &ranges(&format!("{{ shard = 0 }},\n{{ from = \"{long}\", shard = 0 }}")),
        &cut(21, r#"{ from = ""#),
        "the key has 4097 bytes, KEY_BYTES_MAX is 4096; shorten it",
    );
}

#[test]
fn without_a_text_there_is_no_line() {
    let error = Topology::builder().workers(1).datacenter("d").build().unwrap_err();
    assert_eq!(error.to_string(), "there is no node; add a [[node]]");
    let splits = vec![(b"a"[..].into(), ShardId(0))];
    let tables = [("t", Partitioning::Range { splits })];
    let error = Topology::symmetric(1, 1, 1, 0, 1).with_tables(tables).unwrap_err();
    assert_eq!((error.line, &error.excerpt), (None, &None));
    assert_eq!(
        error.to_string(),
        "the keys below this one have no shard; begin with a range without `from`"
    );
    let key: Box<[u8]> = vec![1; KEY_BYTES_MAX + 1].into();
    let splits = vec![(Box::default(), ShardId(0)), (key, ShardId(0))];
    let tables = [("t", Partitioning::Range { splits })];
    let error = Topology::symmetric(1, 1, 1, 0, 1).with_tables(tables).unwrap_err();
    assert_eq!(error.to_string(), "the key has 4097 bytes, KEY_BYTES_MAX is 4096; shorten it");
}

#[test]
fn more_than_the_limits_allow_is_refused() {
    let error = |builder: Builder| builder.build().unwrap_err().to_string();
    let many = |max: usize| (0..=max).map(|id| id.to_string());
    let base = || Topology::builder().workers(1).datacenter("d").node("a", "d");
    assert_eq!(
        error(many(DATACENTERS_MAX).fold(base(), Builder::datacenter)),
        "there are 258 datacenters, DATACENTERS_MAX is 256; use fewer"
    );
    assert_eq!(
        error(many(NODES_MAX).fold(base(), |builder, name| builder.node(name, "d"))),
        "there are 4098 nodes, NODES_MAX is 4096; use fewer"
    );
    assert_eq!(
        error(many(SHARDS_MAX).fold(base(), |builder, _| builder.shard("a", ["a"], []))),
        "there are 4097 shards, SHARDS_MAX is 4096; use fewer"
    );
    let splits = (0..=RANGES_MAX as u32).map(|from| match from {
        0 => (Box::default(), ShardId(0)),
        _ => (Box::from(from.to_be_bytes()), ShardId(0)),
    });
    let ranges = Partitioning::Range { splits: splits.collect() };
    assert_eq!(
        error(base().shard("a", ["a"], []).table("t", ranges)),
        "table \"t\" has 65537 ranges, RANGES_MAX is 65536; use fewer"
    );
}
