//! Names in a topology file, each of which identifies one thing of its kind.

use super::NAME_BYTES_MAX;
use super::error::Complaint;
use shoal_types::limits::TABLE_NAME_BYTES_MAX;
use std::collections::BTreeMap;
use toml::Spanned;

/// The names of one kind of thing, and their numbers.
pub(super) struct Names {
    kind: &'static str,
    limit: &'static str,
    bytes_max: usize,
    ids: BTreeMap<String, u32>,
}

impl Names {
    pub(super) fn new(kind: &'static str) -> Names {
        Names { kind, limit: "NAME_BYTES_MAX", bytes_max: NAME_BYTES_MAX, ids: BTreeMap::new() }
    }

    pub(super) fn of_tables() -> Names {
        let (limit, bytes_max) = ("TABLE_NAME_BYTES_MAX", TABLE_NAME_BYTES_MAX);
        Names { limit, bytes_max, ..Names::new("table") }
    }

    /// Takes one more name and numbers it.
    pub(super) fn add(&mut self, name: &Spanned<String>) -> Result<u32, Complaint> {
        let (kind, text) = (self.kind, name.get_ref());
        if text.is_empty() {
            return Complaint::about(name.span(), format!("a {kind} needs a name; write one"));
        }
        if text.len() > self.bytes_max {
            let what = format!(
                "the name of this {kind} has {} bytes, {} is {}; shorten it",
                text.len(),
                self.limit,
                self.bytes_max
            );
            return Complaint::about(name.span(), what);
        }
        let id = self.ids.len() as u32;
        if self.ids.insert(text.clone(), id).is_some() {
            let what = format!("another {kind} is named {text:?} already; rename one of them");
            return Complaint::about(name.span(), what);
        }
        Ok(id)
    }

    /// The number of a name that is used.
    pub(super) fn find(&self, name: &Spanned<String>) -> Result<u32, Complaint> {
        let (kind, text) = (self.kind, name.get_ref());
        self.ids.get(text).copied().map_or_else(
            || {
                let what = format!(
                    "there is no {kind} {text:?}; correct the name, or add a [[{kind}]] with it"
                );
                Complaint::about(name.span(), what)
            },
            Ok,
        )
    }
}
