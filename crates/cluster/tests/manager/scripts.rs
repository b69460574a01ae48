//! Runs the scenarios of `manager_scripts/`: commands, a line of dashes, and the trace they make.
//!
//! `GOLDEN=refresh cargo test -p shoal-cluster --test manager scripts` writes the traces
//! anew; read the difference before you commit it. Messages take 5 ms, a commitment 10 ms, leases
//! are 600 ms; clocks are all right unless a script says otherwise.
//!
//! ```text
//! cluster [symmetric] [dcs=3] [shards=1] [voters=3] [learners=0] [managers=1] [owners=MS] [memberships]
//!   [voters-lead]
//! start NODE…|all [lost]    crash NODE… [zombie]     pause NODE MS         wait MS
//! begin                     (elects manager 0, starts all nodes, waits 300 ms, and says nothing)
//! cut NODE… [in|out]        heal                     (in: it receives nothing; out: no other receives from it)
//! elect MANAGER             restart MANAGER          outage                recover
//! rate node=N|manager=N ppm=±N                       delay MS              (for messages)
//! report NODE SHARD EPOCH CLOCK|inf                  caught NODE SHARD REPLICA
//! replace SHARD NODE NODE   keep SHARD               table NAME [SHARD]
//! add NAME DATACENTER [ADDRESS]                      remove NODE
//! move TABLE SHARD          end TABLE                cancel TABLE          show
//! ```
//! With `memberships`, each death and each return of a node begins an epoch; with `voters-lead`, no learner leads. Without
//! `owners`, nothing is reported, and no replica catches up, unless the script says so.

use crate::world::{NetworkFaults, Setup, World};
use shoal_cluster::manager::{
    Assignment, ClusterChange, Configuration, EpochEnd, LeaderCandidates, LogPace, ManagerClient,
    ManagerClientEvent, ManagerOptions, ManagerRequest, TableChange,
};
use shoal_cluster::topology::{Home, Partitioning, Topology};
use shoal_golden::Words;
use shoal_types::{Epoch, NodeId, Random, ShardId, TableId};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What words of these scripts mean.
trait ManagerWords {
    fn node(&self, place: usize) -> NodeId;
    fn shard(&self, place: usize) -> ShardId;
    fn span(&self, place: usize) -> Duration;
    fn nodes(&self) -> Vec<NodeId>;
}

impl ManagerWords for Words<'_> {
    fn node(&self, place: usize) -> NodeId {
        NodeId(self.number(place))
    }

    fn shard(&self, place: usize) -> ShardId {
        ShardId(self.number(place))
    }

    fn span(&self, place: usize) -> Duration {
        Duration::from_millis(self.number(place))
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.numbers().into_iter().map(NodeId).collect()
    }
}

fn build(words: &Words<'_>) -> World {
    let number = |name, default| words.named(name).unwrap_or(default);
    let (datacenters, shards) = (number("dcs", 3), number("shards", 1));
    let (voters, learners) = (number("voters", 3), number("learners", 0));
    let topology = if words.has("symmetric") {
        Topology::symmetric(datacenters, shards, voters, learners, 1)
    } else {
        Topology::compact(datacenters, shards, voters, learners, 1)
    };
    let delay = Duration::from_millis(5);
    World::new(Setup {
        topology,
        options: ManagerOptions {
            drift_ppm: 10_000,
            membership_epochs: words.has("memberships"),
            leader_candidates: match words.has("voters-lead") {
                true => LeaderCandidates::VotersOnly,
                false => LeaderCandidates::LearnersFirst,
            },
            ..ManagerOptions::default()
        },
        managers: words.named("managers").unwrap_or(1),
        pace: LogPace::steady(delay),
        network_faults: NetworkFaults::fair(delay),
        owners: words.named("owners").map(Duration::from_millis),
        random: Random::new(1),
    })
}

fn all_nodes(world: &World) -> Vec<NodeId> {
    (0..world.nodes.len() as u32).map(NodeId).collect()
}

fn cut(world: &mut World, words: &Words<'_>) {
    for node in words.nodes() {
        if !words.has("in") {
            world.mute.insert(node);
        }
        if !words.has("out") {
            world.deaf.insert(node);
        }
    }
}

fn set_rate(world: &mut World, words: &Words<'_>) {
    let (rate, now) = (words.named("ppm").expect("a rate"), world.now);
    if let Some(node) = words.named::<usize>("node") {
        world.nodes[node].dial.set_rate(now, rate);
    }
    if let Some(manager) = words.named::<usize>("manager") {
        world.servers[manager].dial.set_rate(now, rate);
    }
}

fn to_shard(shard: u32) -> Partitioning {
    Partitioning::Range { splits: vec![(Box::default(), ShardId(shard))] }
}

fn change(words: &Words<'_>) -> ClusterChange {
    match words.plain[0] {
        "replace" => {
            let (shard, outgoing, incoming) = (words.shard(1), words.node(2), words.node(3));
            ClusterChange::ReplaceReplica { shard, outgoing, incoming }
        }
        "keep" => ClusterChange::KeepReplicas { shard: words.shard(1) },
        "table" => {
            let shard = if words.plain.len() > 2 { words.number(2) } else { 0 };
            let (name, partitioning) = (words.plain[1].to_owned(), to_shard(shard));
            ClusterChange::Table(TableChange::Create { name, definition: partitioning.into() })
        }
        "drop" => ClusterChange::Table(TableChange::Drop { table: TableId(words.number(1)) }),
        "move" => {
            let partitioning = to_shard(words.number(2));
            ClusterChange::BeginMove { table: TableId(words.number(1)), partitioning }
        }
        "add" => {
            let (name, datacenter) = (words.plain[1].to_owned(), words.plain[2].to_owned());
            let address = words.plain.get(3).map(|address| (*address).to_owned());
            ClusterChange::AddNode { name, datacenter, address }
        }
        "remove" => ClusterChange::RemoveNode { node: words.node(1) },
        "end" => ClusterChange::EndMove { table: TableId(words.number(1)) },
        "cancel" => ClusterChange::CancelMove { table: TableId(words.number(1)) },
        other => panic!("no such command: {other}"),
    }
}

fn show_shard(line: &mut String, it: &Assignment) {
    let list = |nodes: &[NodeId]| nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(",");
    write!(line, " {} voters={}", it.ballot, list(&it.voters)).expect("a string");
    if let Some(since) = it.out {
        write!(line, " out since {since}").expect("a string");
    }
    if !it.learners.is_empty() {
        write!(line, " learners={}", list(&it.learners)).expect("a string");
    }
    for (node, since) in &it.empty {
        write!(line, " {node} empty since {since}").expect("a string");
    }
    if let Some(added) = &it.added {
        let catching_up = added.catching_up_after.map_or("", |_| ", catching up");
        let given_up = if added.is_given_up { ", given up" } else { "" };
        let (node, in_place_of) = (added.node, added.in_place_of);
        write!(line, " ({node} for {in_place_of}{catching_up}{given_up})").expect("a string");
    }
}

fn show_end(end: &EpochEnd) -> String {
    match end {
        EpochEnd::Whole => "inf".to_owned(),
        part => format!("{part:?}"),
    }
}

fn show_configuration(lines: &mut Vec<String>, it: &Configuration) {
    let mut line = format!("  revision {} {} settled={}", it.revision, it.epoch, it.settled);
    let dead = (0..).map(NodeId).zip(&it.nodes).filter(|(_, standing)| !standing.alive);
    dead.for_each(|(node, _)| write!(line, " {node} dead").expect("a string"));
    let returned = (0..).map(NodeId).zip(&it.nodes);
    for (node, standing) in returned.filter(|(_, it)| it.alive && it.since > Epoch(1)) {
        write!(line, " {node} in since {}", standing.since).expect("a string");
    }
    lines.push(line);
    for (id, shard) in (0..).map(ShardId).zip(&it.shards) {
        let mut line = format!("  {id}");
        show_shard(&mut line, shard);
        lines.push(line);
    }
    for (epoch, ends) in &it.ends {
        let clocks = ends.iter().map(|end| end.as_ref().map_or("?".to_owned(), show_end));
        lines.push(format!("  ends of {epoch}: {}", clocks.collect::<Vec<_>>().join(" ")));
    }
    for found in &it.finals {
        let shards = (0..it.shards.len() as u32).map(ShardId);
        let clocks = shards.map(|shard| show_end(found.of(shard)));
        let clocks = clocks.collect::<Vec<_>>().join(" ");
        lines.push(format!("  FVW({}) = {clocks}", found.epoch()));
    }
    for table in it.topology.tables().iter() {
        let id = table.id();
        let home = match it.topology.home(id, b"key") {
            Some(Home::One(shard)) => shard.to_string(),
            Some(Home::Everywhere) | None => "everywhere".to_owned(),
        };
        let moves = it.moving.as_ref().is_some_and(|moving| moving.table == id);
        let moves = if moves { ", moves" } else { "" };
        lines.push(format!("  {id} {} on {home}{moves}", table.name()));
    }
}

/// What each node believes, and the newest configuration.
fn show(world: &mut World) {
    let mut lines = Vec::new();
    for (id, node) in (0..).map(NodeId).zip(&world.nodes) {
        let Some(member) = &node.member else {
            lines.push(format!("  {id} is down"));
            continue;
        };
        let now = node.dial.read(world.now);
        let led: Vec<_> = world.topology.shard_ids().filter(|s| member.leads(*s, now)).collect();
        let led = led.iter().map(ShardId::to_string).collect::<Vec<_>>().join(",");
        let known = member.configuration().map_or(0, |configuration| configuration.revision.0);
        let lease = if member.holds_lease(now) { "lease" } else { "no lease" };
        let leads = if led.is_empty() { String::new() } else { format!(" leads {led}") };
        lines.push(format!("  {id} revision {known}, {lease}{leads}"));
    }
    let managers = world.servers.iter().filter_map(|server| server.manager.as_ref());
    let newest = managers.map(|manager| manager.machine().configuration());
    if let Some(newest) = newest.max_by_key(|configuration| configuration.revision) {
        show_configuration(&mut lines, newest);
    }
    world.trace.extend(lines);
}

fn run_command(world: &mut World, line: &str) -> Result<(), String> {
    let words = Words::of(line);
    match words.plain[0] {
        "begin" => {
            world.elect(0);
            all_nodes(world).into_iter().try_for_each(|node| world.start(node, true))?;
            world.wait(Duration::from_millis(300))?;
            world.trace.clear();
            Ok(())
        }
        "start" => {
            let nodes = if words.has("all") { all_nodes(world) } else { words.nodes() };
            let mut nodes = nodes.into_iter();
            nodes.try_for_each(|node| world.start(node, words.has("lost")))
        }
        "crash" => {
            words.nodes().into_iter().for_each(|node| world.crash(node, words.has("zombie")));
            Ok(())
        }
        "pause" => {
            let until = world.now + words.span(2);
            world.nodes[words.number::<usize>(1)].paused = Some(until);
            Ok(())
        }
        "wait" => world.wait(words.span(1)),
        "cut" => {
            cut(world, &words);
            Ok(())
        }
        "heal" => {
            world.mute.clear();
            world.deaf.clear();
            Ok(())
        }
        "elect" => {
            world.elect(words.number::<usize>(1));
            Ok(())
        }
        "restart" => {
            world.start_manager(words.number::<usize>(1));
            Ok(())
        }
        "outage" | "recover" => {
            world.log.set_out(words.has("outage"));
            Ok(())
        }
        "rate" => {
            set_rate(world, &words);
            Ok(())
        }
        "delay" => {
            world.network_faults = NetworkFaults::fair(words.span(1));
            Ok(())
        }
        "report" => {
            let (shard, epoch) = (words.shard(2), Epoch(words.number(3)));
            let inf = words.has("inf");
            let end = if inf { EpochEnd::Whole } else { EpochEnd::up_to(words.number(4)) };
            world.member_step(
                words.node(1),
                ManagerClientEvent::Request(ManagerRequest::Report { shard, epoch, end }),
            )
        }
        "close" => {
            let (shard, epoch) = (words.shard(2), Epoch(words.number(3)));
            world.member_step(
                words.node(1),
                ManagerClientEvent::Request(ManagerRequest::Close { shard, epoch }),
            )
        }
        "caught" => {
            let (shard, replica) = (words.shard(2), words.node(3));
            let configuration = world.nodes[words.node(1).0 as usize].member.as_ref();
            let configuration =
                configuration.and_then(ManagerClient::configuration).expect("it joined");
            let ballot = configuration.shard(shard).expect("there").ballot;
            let incarnation = configuration.nodes[replica.0 as usize].incarnation;
            let event = ManagerClientEvent::Request(ManagerRequest::CaughtUp {
                shard,
                replica,
                ballot,
                incarnation,
            });
            world.member_step(words.node(1), event)
        }
        "show" => {
            show(world);
            Ok(())
        }
        _ => world.ask(&change(&words)),
    }
}

/// One line for all that know the same at the same time.
fn together(trace: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in trace {
        let last = lines.last_mut().and_then(|last| Some((last.rfind(" know")?, last)));
        match (line.split_once(" knows "), last) {
            (Some((node, what)), Some((at, last))) if last[at..].ends_with(&format!(" {what}")) => {
                *last = format!("{}, {node} know {what}", &last[..at]);
            }
            _ => lines.push(line),
        }
    }
    lines
}

/// The trace of the commands.
fn run(commands: &str) -> String {
    let mut world = None;
    shoal_golden::trace_of(commands, |line, trace| {
        if line.starts_with("cluster") {
            world = Some(build(&Words::of(line)));
            return;
        }
        let world = world.as_mut().expect("a script begins with a cluster");
        let result = run_command(world, line);
        trace.extend(together(world.trace.drain(..)));
        trace.extend(result.err().map(|complaint| format!("VIOLATION: {complaint}")));
    })
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manager_scripts")
}

#[test]
fn scripts_make_their_traces() {
    shoal_golden::check_scripts(&folder(), 15, |path, commands| {
        let trace = run(commands);
        let beyond = commands.contains("beyond the bound");
        assert_eq!(trace.contains("VIOLATION"), beyond, "{}:\n{trace}", path.display());
        trace
    });
}
