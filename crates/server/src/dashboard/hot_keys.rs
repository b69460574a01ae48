//! The keys that are used most, of all workers of the node together.

use crate::status::{HotKeysStatus, NodeStatus};
use serde::Serialize;
use shoal_cluster::topology::Topology;

/// A key that transactions of this node use much.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct HotKeyView {
    /// `read`, `written` or `conflicted`.
    pub(super) what: String,
    /// The name of the table, or its id where the topology does not have it.
    table: String,
    /// Printable, and only the beginning of a long key.
    pub(super) key: String,
    /// About how often, in the last half to whole minute.
    pub(super) uses: u64,
}

/// The most used keys of these workers, each kind with the most used first.
pub(super) fn hot_keys(workers: &[&NodeStatus], topology: &Topology) -> Vec<HotKeyView> {
    let kinds = HotKeysStatus::of(workers.iter().copied()).into_iter();
    let views = kinds.flat_map(|HotKeysStatus { what, keys }| {
        keys.into_iter().map(move |key| HotKeyView {
            what: what.clone(),
            table: key.table_name(topology),
            key: format!("{}{}", key.key.escape_ascii(), if key.is_cut { "…" } else { "" }),
            uses: key.uses,
        })
    });
    views.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::HotKeyStatus;
    use shoal_engine::hot_keys::REPORTED_MAX;

    fn worker(what: &str, keys: impl Iterator<Item = (u8, u64)>) -> NodeStatus {
        let key = |(key, uses)| HotKeyStatus { table: 9, key: vec![key], is_cut: false, uses };
        let hot = HotKeysStatus { what: what.to_owned(), keys: keys.map(key).collect() };
        NodeStatus { hot_keys: vec![hot], ..NodeStatus::default() }
    }

    #[test]
    fn uses_of_all_workers_are_added_and_the_greatest_are_kept() {
        let builder = Topology::builder().workers(1).datacenter("here");
        let builder = builder.node_at("n0", "here", "a:1").shard("n0", ["n0"], []);
        let topology = builder.build().expect("a topology");
        let [first, second, third] = [
            worker("read", (b'a'..b'q').map(|key| (key, u64::from(key)))),
            worker("read", [(b'a', 1000)].into_iter()),
            worker("written", [(0, 5)].into_iter()),
        ];
        let views = hot_keys(&[&first, &second, &third], &topology);
        assert_eq!(views.len(), REPORTED_MAX + 1);
        let shown: Vec<_> = views.iter().map(|it| (&it.what[..], &it.key[..], it.uses)).collect();
        assert_eq!(shown[..2], [("read", "a", 1097), ("read", "p", 112)]);
        assert_eq!(shown.last(), Some(&("written", "\\x00", 5)));
        assert_eq!(views[0].table, "t9");
    }
}
