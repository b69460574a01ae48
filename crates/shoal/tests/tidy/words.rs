//! The words of names, comments and pages.

use super::{File, parts_of, sees, without_unit_tests};

/// Pronouns for persons that nothing in the code stands for.
const PRONOUNS: [&str; 7] =
    ["whoever", "whatever", "whom", "nobody", "somebody", "anybody", "everybody"];

/// Verbs and pronouns of persons, in comments and pages: a node receives, sends, learns and answers.
const PERSONS: [&str; 9] =
    ["told", "tell", "tells", "hear", "hears", "heard", "speak", "speaks", "who"];

/// Files that may use words of persons, with the reason.
const PERSONS_EXCUSED: [(&str, &str); 4] = [
    // It quotes errors.
    ("docs/operating.md", "speak"),
    ("docs/operating.md", "speaks"),
    // The name of a command of scripts, which their traces contain.
    ("crates/engines/zeus/tests/protocol/scripts.rs", "hear"),
    // The name of a field of the Raft library's driver.
    ("crates/raft/tests/cluster/world.rs", "told"),
];

/// Words for which the field has a standard term: each stands beside it in no name, comment, message or page.
const RETIRED: [(&str, &str); 21] = [
    ("desk", "runtime, manager inbox"),
    ("clerk", "task driver"),
    ("errand", "local command"),
    ("errands", "local commands"),
    ("seat", "worker host"),
    ("seats", "worker hosts"),
    ("reign", "leadership"),
    ("reigns", "leaderships"),
    ("office", "leadership"),
    ("offices", "leaderships"),
    ("hub", "worker context, loop state"),
    ("courier", "RPC"),
    ("weather", "fault schedule, link faults"),
    ("giver", "sender"),
    ("taker", "receiver"),
    ("exhibition", "results"),
    ("absorbed", "stable"),
    ("burial", "death"),
    ("stranger", "unauthenticated peer, other process"),
    ("strangers", "unauthenticated peers"),
    ("overheard", "captured"),
];

/// The crates that all engines share.
const SHARED: [&str; 5] = ["log", "cluster", "engine", "node", "client"];

/// Words that only engines use, beside the numbers of their rules.
const WORDS_OF_ENGINES: [&str; 14] = [
    "mako",
    "zeus",
    "tiga",
    "watermark",
    "watermarks",
    "fvw",
    "fvws",
    "vw",
    "stamp",
    "stamps",
    "piece",
    "pieces",
    "speculative",
    "speculatively",
];

/// A set of regions is named after the paper that has published their distances.
const EXCUSED: [(&str, &str); 1] = [("crates/cluster/src/topology/regions.rs", "tiga")];

/// The subject of a sentence is a thing in the code: a node, a client, a transaction.
pub fn pronouns(file: &File) -> Vec<String> {
    let text = match file.path.ends_with(".md") {
        true => file.text.to_lowercase(),
        false if file.is_rust() => parts_of(&file.text).1.to_lowercase(),
        false => return Vec::new(),
    };
    file.complain_of(&text, &PRONOUNS, "name the thing in the code that is meant")
}

/// Things in the code do not talk.
pub fn persons(file: &File) -> Vec<String> {
    let is_page = file.path.ends_with(".md") && file.path != "CHANGELOG.md";
    let text = match file.is_rust() {
        true => parts_of(&file.text).1.to_lowercase(),
        false if is_page => file.text.to_lowercase(),
        false => return Vec::new(),
    };
    let is_excused = |word: &str| PERSONS_EXCUSED.contains(&(&file.path, word));
    let words: Vec<&str> = PERSONS.into_iter().filter(|word| !is_excused(word)).collect();
    file.complain_of(&text, &words, "say what the node or the code does")
}

/// Text whose names are split into words, in small letters; lines stay lines.
fn words_of(text: &str) -> String {
    let mut words = String::with_capacity(text.len());
    let mut is_inside = false;
    for c in text.chars() {
        if c.is_uppercase() && is_inside {
            words.push(' '); // The words of `SomeName`.
        }
        is_inside = c.is_lowercase();
        words.extend(c.to_lowercase().map(|c| if c == '_' { ' ' } else { c }));
    }
    words
}

/// Names, comments, messages and pages use the standard terms of the field.
pub fn retired(file: &File) -> Vec<String> {
    let is_history = file.path == "CHANGELOG.md" || file.path.ends_with("tidy/words.rs");
    if is_history || !(file.is_rust() || file.path.ends_with(".md")) {
        return Vec::new();
    }
    let text = words_of(&file.text);
    let complaints = RETIRED.iter().flat_map(|&(word, term)| {
        file.complain_of(&text, &[word], &format!("the term is: {term}"))
    });
    complaints.collect()
}

/// The crates that all engines share use no word of one engine.
pub fn words_of_engines(file: &File) -> Vec<String> {
    // The embedded database works on the store itself, whose versions have stamps.
    let is_embedded = file.path.starts_with("crates/client/src/embedded/");
    let is_shared = file.house().is_some_and(|house| SHARED.contains(&house)) && !is_embedded;
    if !file.is_rust() || file.is_test() || !is_shared {
        return Vec::new();
    }
    let text = words_of(without_unit_tests(&file.text)).replace("mako §", ""); // Papers are cited.
    let is_excused = |word: &str| EXCUSED.contains(&(&file.path, word));
    let is_rule = |word: &str| {
        let number = word.strip_prefix(['m', 'p', 'z', 't']).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_foreign = |word: &str| WORDS_OF_ENGINES.contains(&word) || is_rule(word);
    let complaints = text.lines().enumerate().flat_map(|(number, line)| {
        let words = line.split(|c: char| !c.is_alphanumeric());
        let found = words.filter(|word| is_foreign(word) && !is_excused(word));
        found.map(move |word| file.complain(number, &format!("`{word}` is a word of one engine")))
    });
    complaints.collect()
}

#[test]
fn retired_words_are_seen() {
    sees(
        retired,
        "crates/a/src/a.rs",
        "struct WorkerSeat;\n",
        "struct WorkerHost; // foreign, official\n",
    );
    sees(retired, "crates/a/src/a.rs", "let own_reign = 1;\n", "let sovereign = 1;\n");
    sees(retired, "docs/a.md", "The hub.\n", "A hubbub.\n");
}

#[test]
fn words_of_engines_are_seen_where_all_share() {
    let innocent = "// The epoch (Mako §5).\nfn p() { q(M_7, v2, timestamp) }\n";
    for planted in
        ["// Of mako.\n", "fn vector_watermark() {}\n", "struct ReadStamp;\n", "// M7: FVW\n"]
    {
        sees(words_of_engines, "crates/engine/src/a.rs", planted, innocent);
        assert_eq!(words_of_engines(&File::new("crates/zeus/src/a.rs", planted)), [""; 0]);
    }
}

#[test]
fn pronouns_in_comments_and_documents_are_seen() {
    let innocent = "//! A reader.\nconst WHY: &str = \"nobody\";\nlet whom = 1;\n";
    for word in PRONOUNS {
        sees(pronouns, "a.rs", &format!("let a = 1; // For {word} it is.\n"), innocent);
        sees(pronouns, "a.rs", &format!("/** {}, */\n", word.to_uppercase()), innocent);
        sees(pronouns, "docs/a.md", &format!("For {word}'s sake.\n"), "For its sake.\n");
    }
}

#[test]
fn words_of_persons_in_comments_are_seen() {
    for word in PERSONS {
        let innocent = format!("// It receives.\nlet {word} = \"{word}\";\n");
        sees(persons, "a.rs", &format!("let a = 1; // It {word} it.\n"), &innocent);
    }
}
