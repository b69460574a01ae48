//! Random faults, then healing, after which the cluster has to work again.

use crate::world::{World, nodes};
use shoal_types::{NodeId, Random};
use std::time::Duration;

/// Begins or ends a fault.
async fn disturb(world: &mut World, random: &mut Random) {
    let members: Vec<_> = nodes([1, 2, 3]).into_iter().collect();
    let one = *random.pick(&members).expect("three");
    let other = *random.pick(&members).expect("three");
    match random.below(7) {
        0 => world.network.isolate(one, nodes([1, 2, 3])),
        1 => world.network.cut(one, other),
        2 => world.network.set_loss(random.below(40), Duration::from_millis(random.below(40))),
        3 => world.network.heal(),
        _ => {
            if world.test_replicas.contains_key(&one) {
                world.stop(one).await;
            } else {
                world.start(one).await;
            }
        }
    }
}

async fn survives(seed: u64) {
    let mut random = Random::new(seed);
    // With some seeds, the log is compacted all the time.
    let options = match seed % 2 {
        0 => shoal_raft::RaftOptions::default(),
        _ => shoal_raft::RaftOptions {
            snapshot_every: 30,
            entries_kept: 5,
            ..shoal_raft::RaftOptions::default()
        },
    };
    let mut world = World::with(options, seed, [1, 2, 3]).await;
    for step in 0..40 {
        disturb(&mut world, &mut random).await;
        let running: Vec<NodeId> = world.test_replicas.keys().copied().collect();
        for node in running {
            world.ask(node, &format!("t{step}"));
        }
        let pause = Duration::from_millis(random.below(1000));
        world.run(pause).await;
    }
    world.network.heal();
    for node in nodes([1, 2, 3]) {
        if !world.test_replicas.contains_key(&node) {
            world.start(node).await;
        }
    }
    world.create("healed").await;
    world.agree().await;
    assert!(world.certain > 0, "no replica ever led for certain");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn managers_survive_faults() {
    for seed in 0..20 {
        survives(seed).await;
    }
}
