//! The keys that are used most, of all workers of the node together.

use crate::status::NodeStatus;
use serde::Serialize;
use shoal_cluster::topology::Topology;
use shoal_engine::hot_keys::REPORTED_MAX;
use shoal_types::TableId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A key that transactions of this node use much.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct HotKeyView<'a> {
    /// `read`, `written` or `conflicted`.
    pub(super) what: &'a str,
    /// The name of the table, or its id where the topology does not have it.
    table: String,
    /// Printable, and only the beginning of a long key.
    pub(super) key: String,
    /// About how often, in the last half to whole minute.
    pub(super) uses: u64,
}

/// The most used keys of these workers, each kind with the most used first.
pub(super) fn hot_keys<'a>(workers: &[&'a NodeStatus], topology: &Topology) -> Vec<HotKeyView<'a>> {
    let mut sums: BTreeMap<(&str, u32, &[u8], bool), u64> = BTreeMap::new();
    for hot in workers.iter().flat_map(|status| &status.hot_keys) {
        for key in &hot.keys {
            *sums.entry((&hot.what, key.table, &key.key, key.is_cut)).or_default() += key.uses;
        }
    }
    let mut views: Vec<HotKeyView<'_>> = sums
        .into_iter()
        .map(|((what, table, key, is_cut), uses)| HotKeyView {
            what,
            table: match topology.tables().get(TableId(table)) {
                Some(known) => known.name().to_owned(),
                None => TableId(table).to_string(),
            },
            key: format!("{}{}", key.escape_ascii(), if is_cut { "…" } else { "" }),
            uses,
        })
        .collect();
    views.sort_by_key(|view| (view.what, Reverse(view.uses)));
    let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
    views.retain(|view| {
        let count = kept.entry(view.what).or_default();
        *count += 1;
        *count <= REPORTED_MAX
    });
    views
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{HotKeyStatus, HotKeysStatus};

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
        let shown: Vec<_> = views.iter().map(|it| (it.what, &it.key[..], it.uses)).collect();
        assert_eq!(shown[..2], [("read", "a", 1097), ("read", "p", 112)]);
        assert_eq!(shown.last(), Some(&("written", "\\x00", 5)));
        assert_eq!(views[0].table, "t9");
    }
}
