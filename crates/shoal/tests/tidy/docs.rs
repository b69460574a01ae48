//! Docs that say something: a sentence of its own, about more than the name of the item that it stands on.

use super::File;

/// Words that add nothing to a name.
const ARTICLES: [&str; 9] = ["a", "an", "the", "this", "its", "all", "one", "of", "and"];

/// Words of Rust that stand in front of a name.
const KEYWORDS: [&str; 17] = [
    "pub", "crate", "super", "in", "default", "const", "static", "mut", "async", "unsafe", "fn",
    "struct", "enum", "trait", "type", "mod", "union",
];

/// A comment `///` with the lines that follow it.
struct Doc {
    /// The number of its first line, from 0.
    line: usize,
    text: String,
    /// The first line of the item that it stands on, behind the item's attributes.
    item: String,
}

fn docs_of(source: &str) -> Vec<Doc> {
    let mut docs: Vec<Doc> = Vec::new();
    let (mut goes_on, mut has_item, mut open_brackets) = (false, true, 0);
    for (line, text) in source.lines().map(str::trim_start).enumerate() {
        if let Some(text) = text.strip_prefix("///") {
            match docs.last_mut().filter(|_| goes_on) {
                Some(doc) => doc.text = format!("{} {}", doc.text, text.trim()),
                None => {
                    let text = text.trim().to_owned();
                    docs.push(Doc { line, text, item: String::new() });
                }
            }
            (goes_on, has_item, open_brackets) = (true, false, 0);
            continue;
        }
        goes_on = false;
        if has_item {
            continue;
        }
        if text.starts_with('#') || open_brackets > 0 {
            let count = |bracket| text.matches(bracket).count() as i32;
            open_brackets += count('[') - count(']');
            continue;
        }
        has_item = true;
        docs.last_mut().expect("a doc came before").item = text.to_owned();
    }
    docs
}

/// A doc says more than one word, says it itself, and is a sentence of its own. Names of columns, which have no small
/// letters, are words of TPC-C's specification.
pub fn whole_docs(file: &File) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    let small = |text: &str| text.starts_with(|c: char| c.is_ascii_lowercase());
    let complain = |Doc { line, text, .. }: Doc| {
        let words = text.split_whitespace().count();
        let wrong = match text.as_str() {
            "See the module." | "See the [module](super)." => "this doc only points elsewhere",
            text if words == 1 && text.chars().any(char::is_lowercase) => "a doc of one word",
            text if text.ends_with(',') || words > 1 && small(text) => "half a sentence",
            _ => return None,
        };
        Some(file.complain(line, &format!("`{text}`: {wrong}")))
    };
    docs_of(&file.text).into_iter().filter_map(complain).collect()
}

/// A doc says what the name does not, such as a unit, a range, an error, or when it is absent: it has a word besides those
/// of the item's name.
pub fn repeated_names(file: &File) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    let repeats = |doc: &Doc| {
        let name = words_of(name_of(&doc.item));
        let words = doc.text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        !name.is_empty()
            && words.map(singular).all(|word| ARTICLES.contains(&&*word) || name.contains(&word))
    };
    let docs = docs_of(&file.text).into_iter().filter(repeats);
    docs.map(|Doc { line, text, .. }| {
        file.complain(line, &format!("`{text}`: this doc only repeats the name"))
    })
    .collect()
}

/// The name that an item declares; empty for one that declares none.
fn name_of(item: &str) -> &str {
    let mut words = item.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let name = words.find(|word| !word.is_empty() && !KEYWORDS.contains(word));
    name.filter(|name| *name != "impl").unwrap_or_default()
}

/// The words of `some_name` or `SomeName`.
fn words_of(name: &str) -> Vec<String> {
    let mut spaced = String::with_capacity(2 * name.len());
    let mut after_small = false;
    for c in name.chars() {
        if c.is_uppercase() && after_small {
            spaced.push(' ');
        }
        spaced.push(if c == '_' { ' ' } else { c });
        after_small = c.is_lowercase() || c.is_numeric();
    }
    spaced.split_whitespace().map(singular).collect()
}

/// A word in small letters, and without the ending of a plural or of the third person.
fn singular(word: &str) -> String {
    let word = word.to_lowercase();
    match word.strip_suffix('s') {
        Some(stem) if !stem.ends_with('s') && !ARTICLES.contains(&&*word) => stem.to_owned(),
        _ => word,
    }
}

#[test]
fn docs_that_say_nothing_are_seen() {
    let path = "crates/types/src/a.rs";
    let whole = "/// The clock up to which all is durable,\n/// as this node knows.\nat: Clock,\n/// C_ID.\nid: u16,\n";
    for planted in [
        "/// Both.\nReadWrite,\n",
        "/// See the module.\npub struct Store;\n",
        "/// See the [module](super).\npub struct Store;\n",
        "    /// The first,\n    pub first: u8,\n",
        "    /// and the last.\n    pub last: u8,\n",
    ] {
        super::sees(whole_docs, path, planted, whole);
    }
}

#[test]
fn docs_that_repeat_a_name_are_seen() {
    let innocent = "/// The shard that is read.\npub shard: ShardId,\n/// In bytes.\npub length: u64,\n\
                    /// Ascending.\nimpl Coded for Map {}\n/// A lock; fair.\n#[repr(C)]\nstruct Lock;\n";
    for planted in [
        "/// The shard.\nshard: ShardId,\n",
        "    /// The leaders\n    /// of the shards.\n    #[coded(\n        tag = 1,\n    )]\n    pub(crate) shard_leader: NodeId,\n",
        "/// An empty map.\npub const fn empty_map() -> Map {\n",
        "/// Starts the clients.\nfn start_clients(&mut self) {\n",
        "/// All of the [`Nodes`].\npub enum Node {\n",
        "/// The HTTP address.\npub http_address: String,\n",
        "/// The shape of its cluster.\nstruct ClusterShape {\n",
    ] {
        super::sees(repeated_names, "crates/types/src/a.rs", planted, innocent);
    }
}
