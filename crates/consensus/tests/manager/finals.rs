//! FVWs that are not whole are kept for ever: a node that begins anew has to know what was lost.

use crate::world::DRAWN;
use shoal_consensus::manager::{Action, Claim, Command, Incarnation, Life, Machine, Options, Term};
use shoal_consensus::topology::Topology;
use std::sync::Arc;
use types::{Clock, Epoch, ShardId, Time, VectorWatermark};

#[test]
fn who_begins_anew_hears_the_same_finals() {
    let topology = Arc::new(Topology::symmetric(1, 2, 3, 0, 1));
    let mut machine = Machine::new(Arc::clone(&topology), Options::default());
    let mut effects = Vec::new();
    let mut apply = |machine: &mut Machine, action| {
        let command = Command { term: Term(1), at: Time(1), action };
        machine.apply(&command, &mut effects);
    };
    apply(&mut machine, Action::Take { drawn: DRAWN });
    for node in topology.nodes() {
        let (node, life, after) = (node.id, Life(7), Incarnation(0));
        let join = Action::Join { node, life, after, lost: false, heard: Time::ZERO };
        apply(&mut machine, join);
    }
    let claim = |machine: &Machine, shard: u32| {
        let it = &machine.configuration().shards[shard as usize];
        Claim {
            node: it.leader,
            incarnation: it.incarnation,
            shard: ShardId(shard),
            ballot: it.ballot,
        }
    };
    for epoch in (1..1100).map(Epoch) {
        let of = claim(&machine, 0);
        apply(&mut machine, Action::Close { claim: of, epoch });
        for shard in 0..2 {
            let of = claim(&machine, shard);
            apply(
                &mut machine,
                Action::Report { claim: of, epoch, watermark: Clock(u64::from(epoch.0)) },
            );
        }
        // A tick forgets what need not be kept.
        apply(&mut machine, Action::Tick { heard: Vec::new() });
        assert_eq!(machine.configuration().settled, epoch);
    }
    let first = machine.configuration().last(Epoch(1)).expect("settled");
    let mut truth = VectorWatermark::new(Epoch(1), 2);
    truth.raise(ShardId(0), Clock(1));
    truth.raise(ShardId(1), Clock(1));
    assert_eq!(first, truth, "what a node that restarts is told of the first epoch");
}
