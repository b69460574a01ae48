//! The rules of the house, held by a test: it reads the whole tree and complains.
//!
//! Each rule is a function from text to complaints, so that each is tested on a planted violation
//! as well: a rule that cannot fail holds nothing. The reasons for the rules are in
//! `ARCHITECTURE.md`; what `clippy` can say itself stands in `clippy.toml` instead.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/words.rs"]
mod words;

/// The crates in the order of the plan, each with those it may use; these may use their own, too.
/// Crates that do not exist yet are here as well, so that the first line of one is already bound.
const PLAN: [(&str, &[&str]); 26] = [
    ("wire_derive", &[]),
    ("types", &["wire_derive"]),
    ("fuzz", &["types"]),
    ("golden", &[]),
    ("explore", &["types"]),
    ("store", &["types"]),
    ("log", &["types"]),
    ("wal", &["types"]),
    ("cluster", &["log"]),
    ("engine", &["store", "cluster"]),
    ("replication", &["engine"]),
    ("mako", &["replication"]),
    ("two_phase_commit", &["replication"]),
    ("zeus", &["engine"]),
    ("tiga", &["replication"]),
    ("registry", &["mako", "two_phase_commit", "zeus", "tiga"]),
    ("node", &["engine", "wal"]),
    ("raft", &["cluster"]),
    ("net", &["types"]),
    ("disk", &["wal"]),
    ("client", &["engine", "net", "disk"]),
    ("workloads", &["types"]),
    ("bench", &["client", "workloads"]),
    ("sim", &["client", "node", "workloads", "registry"]),
    ("server", &["node", "raft", "net", "disk", "registry"]),
    ("shoal", &["client", "bench", "sim", "server", "explore"]),
];

/// Code blocks in docs that are no examples of Rust.
const OTHER_FENCES: [&str; 5] = ["text", "toml", "sh", "console", "json"];

/// No runtime, socket, thread, ambient clock or ambient randomness.
const PURE: [&str; 13] = [
    "types",
    "store",
    "log",
    "wal",
    "cluster",
    "engine",
    "replication",
    "mako",
    "two_phase_commit",
    "zeus",
    "tiga",
    "registry",
    "node",
];

/// The folder of the engines, a crate each.
const ENGINES: &str = "engines";

/// What may name engines: the registry, the simulator's files of an engine each, and experiments with one.
const ABOUT_ENGINES: [&str; 7] = [
    "crates/engines/",
    "crates/registry/",
    "crates/sim/src/engines/",
    "crates/sim/src/observed/",
    "crates/sim/src/checks/",
    "crates/sim/src/demonstrations/",
    "crates/shoal/src/reproduce/",
];

/// The one crate that may say `unsafe`.
const UNSAFE: &str = "store";

/// The one file elsewhere that may: a system call of it has no safe interface.
const UNSAFE_FILE: &str = "crates/net/src/system_time.rs";

/// The one place among the workloads that lives in real time.
const BENCH: &str = "crates/workloads/src/bench";

const CLOCKS: [&str; 4] = ["Instant", "SystemTime", "UNIX_EPOCH", "thread::sleep"];
const RANDOMNESS: [&str; 4] = ["rand", "getrandom", "fastrand", "RandomState"];
/// Collections that iterate in another order in every process count as randomness too.
const OUTSIDE: [&str; 9] = [
    "HashMap",
    "HashSet",
    "std::net",
    "std::fs",
    "std::process",
    "std::thread",
    "thread::spawn",
    "tokio",
    "mio",
];

/// Features that put planted bugs into a build.
const PLANTING: [&str; 3] = ["planted", "faults", "early-clock"];
/// Features that may ask for those.
const ASKING: [&str; 2] = ["planted", "model"];

/// A file longer than this wants to be two.
const LINES_MAX: usize = 800;

/// A text file of the tree; its path counts from the root, with slashes.
struct File {
    path: String,
    text: String,
}

impl File {
    fn new(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The crate whose folder it is in.
    fn house(&self) -> Option<&str> {
        let mut folders = self.path.strip_prefix("crates/")?.split('/');
        folders.find(|folder| *folder != ENGINES)
    }

    fn is_test(&self) -> bool {
        self.path.contains("/tests/")
            || self.path.contains("/benches/")
            || self.path.ends_with("/tests.rs")
    }

    fn complain(&self, line: usize, what: &str) -> String {
        format!("{}:{}: {what}", self.path, line + 1)
    }

    /// A complaint for each line of `code` that uses one of `words`.
    fn complain_of(&self, code: &str, words: &[&str], why: &str) -> Vec<String> {
        let lines = code.lines().enumerate();
        lines
            .flat_map(|(line, text)| {
                let used = words.iter().filter(move |word| uses(text, word));
                used.map(move |word| self.complain(line, &format!("`{word}`: {why}")))
            })
            .collect()
    }
}

/// Whether `word` stands in `code` by itself, not as a part of a longer name.
fn uses(code: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        !code[..at].ends_with(part_of_name) && !code[at + word.len()..].starts_with(part_of_name)
    })
}

/// Rust source without comments and without what strings and characters say; lines stay lines.
fn code_of(source: &str) -> String {
    parts_of(source).0
}

/// The code and the comments of Rust source; the lines of both are those of the source.
fn parts_of(source: &str) -> (String, String) {
    let mut code = String::with_capacity(source.len());
    let mut comments = String::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let is_comment = rest.starts_with("//") || rest.starts_with("/*");
        let (length, is_code) = match first {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), false),
            '/' if rest.starts_with("/*") => {
                (rest.find("*/").map_or(rest.len(), |end| end + 2), false)
            }
            '"' => (string_length(rest), false),
            'r' if !code.ends_with(|c: char| c.is_alphanumeric() || c == '_') => {
                raw_string_length(rest).map_or((1, true), |length| (length, false))
            }
            '\'' => character_length(rest).map_or((1, true), |length| (length, false)),
            _ => (first.len_utf8(), true),
        };
        let (taken, after) = rest.split_at(length);
        code.extend(taken.chars().filter(|c| is_code || *c == '\n'));
        comments.extend(taken.chars().filter(|c| is_comment || *c == '\n'));
        rest = after;
    }
    (code, comments)
}

fn string_length(rest: &str) -> usize {
    let mut escaped = true; // Steps over the opening quote.
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn raw_string_length(rest: &str) -> Option<usize> {
    let marks = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
    rest[1 + marks..].starts_with('"').then(|| {
        let close = format!("\"{}", "#".repeat(marks));
        let body = 2 + marks;
        rest[body..].find(&close).map_or(rest.len(), |end| body + end + close.len())
    })
}

/// `None` for the tick of a lifetime.
fn character_length(rest: &str) -> Option<usize> {
    let mut characters = rest.char_indices().skip(1);
    let (_, first) = characters.next()?;
    if first == '\\' {
        let (escaped, _) = characters.next()?;
        return Some(escaped + 2 + rest[escaped + 1..].find('\'')?);
    }
    characters.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

/// The code before the unit tests, which stand at the end of a file.
fn without_unit_tests(code: &str) -> &str {
    code.split("\nmod tests {").next().unwrap_or(code)
}

/// The crates that `house` may use: those the plan names, and those that they may use.
fn reachable(house: &str) -> Vec<&'static str> {
    let named = PLAN.iter().find(|(name, _)| *name == house).map_or(&[][..], |(_, named)| named);
    let mut all: Vec<_> =
        named.iter().flat_map(|name| reachable(name)).chain(named.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// An arrow between crates only ever points up the plan.
fn arrows(file: &File) -> Vec<String> {
    let (Some(house), true) = (file.house(), file.path.ends_with("/Cargo.toml")) else {
        return Vec::new();
    };
    if PLAN.iter().all(|(name, _)| *name != house) {
        return vec![
            file.complain(0, "the crate is not in the plan of crates/shoal/tests/tidy.rs"),
        ];
    }
    let allowed = reachable(house);
    let foreign =
        |name: &str| PURE.contains(&house) && [&RANDOMNESS[..], &OUTSIDE].concat().contains(&name);
    let mut complaints = Vec::new();
    let mut section = "";
    for (number, line) in file.text.lines().enumerate() {
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        } else if section.ends_with("dependencies") && !section.ends_with("dev-dependencies") {
            let house_of = |package: &str| package.replace('-', "_");
            let used = name.strip_prefix("shoal-").map(house_of);
            let own = |used: &str| PLAN.iter().any(|(other, _)| *other == used);
            let banned = |used: &String| own(used) && !allowed.contains(&used.as_str());
            if used.as_ref().is_some_and(banned) || foreign(name) {
                complaints.push(file.complain(number, &format!("`{house}` may not use `{name}`")));
            }
        }
    }
    complaints
}

/// A build has planted bugs only where they are asked for by name, or for tests: no dependency has them, and no default.
fn unasked_bugs(file: &File) -> Vec<String> {
    if !file.path.ends_with("Cargo.toml") {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    let mut section = "";
    for (number, line) in file.text.lines().enumerate() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
            continue;
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        let is_asked = section.ends_with("dev-dependencies")
            || (section == "features" && ASKING.contains(&name))
            || line.starts_with('#');
        let mut quoted = line.split('"').skip(1).step_by(2);
        let plants = |feature: &str| PLANTING.contains(&feature.rsplit('/').next().unwrap_or(""));
        if !is_asked && quoted.any(plants) {
            complaints.push(file.complain(number, "this puts planted bugs into every build"));
        }
    }
    complaints
}

/// Pure crates get time, messages and randomness as arguments; workloads read clocks in one place.
fn ambient(file: &File) -> Vec<String> {
    let pure = file.house().is_some_and(|house| PURE.contains(&house));
    let workload = file.house() == Some("workloads") && !file.path.starts_with(BENCH);
    if !file.is_rust() || file.is_test() || !(pure || workload) {
        return Vec::new();
    }
    let code = code_of(&file.text);
    let mut words = [&CLOCKS[..], &RANDOMNESS].concat();
    words.extend(OUTSIDE.iter().filter(|_| pure));
    file.complain_of(without_unit_tests(&code), &words, "this crate has no world outside")
}

/// Only the registry and what is about one engine name engines; all else is generic.
fn named_engines(file: &File) -> Vec<String> {
    let is_exempt = ABOUT_ENGINES.iter().any(|folder| file.path.starts_with(folder));
    if !file.is_rust() || file.is_test() || is_exempt {
        return Vec::new();
    }
    let engines = ["shoal_mako", "shoal_two_phase_commit", "shoal_zeus", "shoal_tiga"];
    let code = code_of(&file.text);
    file.complain_of(without_unit_tests(&code), &engines, "engines come from the registry")
}

fn memory_safety(file: &File) -> Vec<String> {
    if !file.is_rust() || file.house() == Some(UNSAFE) || file.path == UNSAFE_FILE {
        return Vec::new();
    }
    file.complain_of(&code_of(&file.text), &["unsafe"], "only the store may say that")
}

fn headers(file: &File) -> Vec<String> {
    if !file.is_rust() || file.text.starts_with("//! ") {
        return Vec::new();
    }
    vec![file.complain(0, "a file begins with a `//!` header that says what it is about")]
}

/// Each parameter has a name and a type of its own: values that belong together are a struct.
fn paired_parameters(file: &File) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    let code = code_of(&file.text);
    let mut complaints = Vec::new();
    let mut is_head = false;
    for (number, line) in code.lines().enumerate() {
        is_head |= line.trim_start().starts_with("fn ") || line.contains(" fn ");
        let pattern = line.trim_start().strip_prefix('(').and_then(|rest| rest.split_once("): ("));
        if is_head && pattern.is_some_and(|(names, _)| !names.contains(['(', '{', '|'])) {
            complaints.push(file.complain(number, "a pair of parameters in one tuple"));
        }
        is_head &= !line.contains('{') && !line.ends_with(';');
    }
    complaints
}

fn sizes(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    if !file.is_rust() || lines <= LINES_MAX {
        return Vec::new();
    }
    vec![
        file.complain(lines - 1, &format!("more than {LINES_MAX} lines; it wants to be two files")),
    ]
}

/// What is left to do is an issue, or it is not left.
fn promises(file: &File) -> Vec<String> {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME")];
    let lines = file.text.lines().enumerate();
    let promised = |line: &str| {
        words.iter().any(|word| uses(line, word) && !line.contains(&format!("{word}(#")))
    };
    lines
        .filter(|(_, line)| promised(line))
        .map(|(number, line)| file.complain(number, &format!("name the issue: {}", line.trim())))
        .collect()
}

fn whitespace(file: &File) -> Vec<String> {
    let lines = file.text.lines().enumerate();
    let mut complaints: Vec<_> = lines
        .filter(|(_, line)| line.contains('\t') || line.ends_with(' '))
        .map(|(number, _)| file.complain(number, "a tab, or blanks at the end"))
        .collect();
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        complaints.push(file.complain(file.text.lines().count() - 1, "the last line does not end"));
    }
    complaints
}

/// Every crate has its section in the tour.
fn tour(tour: &str, crates: &[String]) -> Vec<String> {
    let missing = crates.iter().filter(|name| !tour.contains(&format!("\n## `{name}`")));
    missing.map(|name| format!("ARCHITECTURE.md has no section on `{name}`")).collect()
}

/// The files and folders that the tour names exist. A path may leave out folders: `mako/steps/due.rs`.
fn paths_of_tour(tour: &str, files: &[File]) -> Vec<String> {
    let is_there = |path: &str| {
        let is_folder = path.ends_with('/');
        files.iter().any(|file| {
            let mut parts = file.path.split('/').rev();
            let mut named = path.trim_end_matches('/').split('/').rev();
            let last = named.next().expect("no path is empty");
            let ends =
                if is_folder { parts.any(|it| it == last) } else { parts.next() == Some(last) };
            ends && named.all(|folder| parts.any(|it| it == folder))
        })
    };
    let named = tour.lines().enumerate().flat_map(|(number, line)| {
        line.split(['`', ' ', '(', ')', ',']).map(move |word| (number, word))
    });
    let is_path = |word: &str| word.ends_with(".rs") || word.len() > 1 && word.ends_with('/');
    named
        .filter(|(_, word)| is_path(word) && !is_there(word))
        .map(|(number, word)| format!("ARCHITECTURE.md:{}: there is no `{word}`", number + 1))
        .collect()
}

/// What the workspace borrows, by name.
fn borrowed(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest.split("[workspace.dependencies]\n").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let lines = section.lines().filter(|line| !line.contains("path = "));
    lines.filter_map(|line| Some(line.split_once(" = ")?.0))
}

/// Every dependency has its reason.
fn reasons(manifest: &str, page: &str) -> Vec<String> {
    borrowed(manifest)
        .filter(|name| !page.contains(&format!("`{name}`")))
        .map(|name| format!("docs/dependencies.md does not say why `{name}` is here"))
        .collect()
}

/// Every dependency is used by a crate.
fn idle(manifest: &str, files: &[File]) -> Vec<String> {
    let crates: Vec<_> = files.iter().filter(|file| file.path.ends_with("/Cargo.toml")).collect();
    borrowed(manifest)
        .filter(|name| !crates.iter().any(|file| uses(&file.text, name)))
        .map(|name| format!("Cargo.toml: no crate uses `{name}`"))
        .collect()
}

/// Examples in the docs of a crate are run; where there are none, no time is taken to look for them.
fn examples(files: &[File]) -> Vec<String> {
    let is_example = |line: &str| {
        let comment = line.trim_start().strip_prefix("//").map(|line| &line[line.len().min(1)..]);
        comment.is_some_and(|comment| comment.trim_start().starts_with("```"))
    };
    let has_examples = |house: &str| {
        let mut sources = files.iter().filter(|file| {
            file.house() == Some(house) && file.is_rust() && file.path.contains("/src/")
        });
        sources.any(|file| {
            let mut fences = file.text.lines().filter(|line| is_example(line)).step_by(2);
            fences.any(|fence| !OTHER_FENCES.iter().any(|other| fence.ends_with(other)))
        })
    };
    let manifests = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    let complain = |file: &File| {
        let is_run = !file.text.contains("doctest = false");
        match (is_run, has_examples(file.house()?)) {
            (true, false) => Some(file.complain(0, "no examples: add `doctest = false` to [lib]")),
            (false, true) => Some(file.complain(0, "it has examples: remove `doctest = false`")),
            _ => None,
        }
    };
    manifests.filter_map(complain).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text files below `folder`, which counts from the root.
fn files_below(folder: &str, found: &mut Vec<File>) {
    let extensions = ["rs", "toml", "md", "css", "sh"];
    let mut entries: Vec<_> = fs::read_dir(root().join(folder))
        .unwrap_or_else(|error| panic!("{folder}: {error}"))
        .map(|entry| entry.expect("a readable folder"))
        .collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().into_string().expect("names in UTF-8");
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if entry.path().is_dir() {
            if !["target", "out", ".git"].contains(&name.as_str()) {
                files_below(&path, found);
            }
        } else if extensions.iter().any(|end| name.ends_with(&format!(".{end}"))) {
            found.push(File { text: read(&path), path });
        }
    }
}

#[test]
fn the_tree_keeps_the_rules() {
    let mut files = Vec::new();
    files_below("", &mut files);
    assert!(files.len() > 30, "only {} files found: this looks in the wrong place", files.len());
    let rules = [
        arrows,
        unasked_bugs,
        ambient,
        named_engines,
        memory_safety,
        headers,
        paired_parameters,
        sizes,
        words::pronouns,
        words::persons,
        words::retired,
        words::words_of_engines,
        promises,
        docs::whole_docs,
        docs::repeated_names,
        whitespace,
    ];
    let mut complaints: Vec<_> =
        files.iter().flat_map(|file| rules.iter().flat_map(move |rule| rule(file))).collect();

    let manifests = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    let crates: Vec<_> = manifests.filter_map(|file| file.house().map(str::to_owned)).collect();
    assert!(crates.len() >= 5, "only these crates found: {crates:?}");
    complaints.extend(circles::circles(&files));
    complaints.extend(tour(&read("ARCHITECTURE.md"), &crates));
    complaints.extend(paths_of_tour(&read("ARCHITECTURE.md"), &files));
    complaints.extend(reasons(&read("Cargo.toml"), &read("docs/dependencies.md")));
    complaints.extend(idle(&read("Cargo.toml"), &files));
    complaints.extend(examples(&files));
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// The rule complains of the planted text, and not of the innocent one.
#[track_caller]
fn sees(rule: fn(&File) -> Vec<String>, path: &str, planted: &str, innocent: &str) {
    assert_ne!(rule(&File::new(path, planted)), [""; 0], "the rule overlooks:\n{planted}");
    assert_eq!(rule(&File::new(path, innocent)), [""; 0], "the rule minds:\n{innocent}");
}

#[test]
fn arrows_down_the_plan_are_seen() {
    let manifest = "crates/store/Cargo.toml";
    sees(
        arrows,
        manifest,
        "[dependencies]\nshoal-client.workspace = true\n",
        "[dependencies]\nshoal-types.workspace = true\n",
    );
    sees(
        arrows,
        manifest,
        "[dependencies]\nrand = \"0.9\"\n",
        "[dev-dependencies]\nrand = \"0.9\"\n",
    );
    sees(
        arrows,
        manifest,
        "[target.'cfg(unix)'.dependencies]\nshoal-node = {}\n",
        "[dependencies]\nlibc = {}\n",
    );
    sees(
        arrows,
        "crates/workloads/Cargo.toml",
        "[dependencies]\nshoal-store = {}\n",
        "[dependencies]\nshoal-types = {}\n",
    );
    sees(
        arrows,
        "crates/client/Cargo.toml",
        "[dependencies]\nshoal-sim = {}\n",
        "[dependencies]\nshoal-store = {}\n",
    );
    sees(
        arrows,
        "crates/engines/mako/Cargo.toml",
        "[dependencies]\nshoal-two-phase-commit.workspace = true\n",
        "[dependencies]\nshoal-engine.workspace = true\n",
    );
    assert_ne!(arrows(&File::new("crates/attic/Cargo.toml", "")), [""; 0]);
}

#[test]
fn planted_bugs_that_nothing_asked_for_are_seen() {
    let manifest = "crates/sim/Cargo.toml";
    sees(
        unasked_bugs,
        manifest,
        "[dependencies]\nshoal-mako = { workspace = true, features = [\"planted\"] }\n",
        "[dev-dependencies]\nshoal-mako = { workspace = true, features = [\"planted\"] }\n",
    );
    sees(
        unasked_bugs,
        manifest,
        "[features]\ndefault = [\"planted\"]\n",
        "[features]\nplanted = [\"shoal-mako/planted\"]\n",
    );
    sees(
        unasked_bugs,
        "crates/engines/mako/Cargo.toml",
        "[features]\npoints = [\"shoal-store/early-clock\"]\n",
        "[features]\n# \"early-clock\" is not for all.\nplanted = [\"shoal-store/early-clock\"]\n",
    );
}

#[test]
fn every_arrow_of_the_plan_points_up() {
    for (place, (name, used)) in PLAN.iter().enumerate() {
        let above = |used: &&str| PLAN[..place].iter().any(|(other, _)| other == used);
        assert!(used.iter().all(above), "{name} uses what comes after it");
    }
}

#[test]
fn the_world_outside_is_seen() {
    let pure = "crates/types/src/a.rs";
    let innocent =
        "// Instant::now() is banned\nconst WHY: &str = \"std::net\";\nstruct InstantX;\n";
    for line in [
        "let now = Instant::now();",
        "use std::net::TcpStream;",
        "use std::collections::HashMap;",
        "let x = rand::random();",
        "std::thread::sleep(d);",
    ] {
        sees(ambient, pure, line, innocent);
    }
    sees(
        ambient,
        pure,
        "fn f() { SystemTime::now() }\n",
        "#[cfg(test)]\nmod tests {\n    use std::thread;\n}\n",
    );
    let workload = "crates/workloads/src/tpcc/a.rs";
    sees(ambient, workload, "Instant::now()", "use std::collections::HashMap;\n");
    assert_eq!(ambient(&File::new("crates/workloads/src/bench/a.rs", "Instant::now()")), [""; 0]);
    assert_eq!(ambient(&File::new("crates/store/tests/a.rs", "use std::thread;")), [""; 0]);
}

#[test]
fn engines_that_are_named_are_seen() {
    let innocent = "// As shoal_mako does.\nuse shoal_registry::Protocol;\n";
    sees(named_engines, "crates/sim/src/run.rs", "use shoal_mako::Mako;\n", innocent);
    let own = File::new("crates/sim/src/engines/mako.rs", "use shoal_mako::Mako;\n");
    assert_eq!(named_engines(&own), [""; 0]);
}

#[test]
fn the_word_unsafe_is_seen() {
    let text = "//! No unsafe here.\n#![deny(unsafe_code)]\nconst S: &str = \"unsafe\";\n";
    sees(memory_safety, "crates/client/src/a.rs", "unsafe { go() }", text);
    for path in ["crates/store/src/a.rs", UNSAFE_FILE] {
        assert_eq!(memory_safety(&File::new(path, "unsafe { go() }")), [""; 0]);
    }
}

#[test]
fn missing_headers_and_long_files_are_seen() {
    sees(headers, "crates/types/src/a.rs", "use std::fmt;\n", "//! A file.\n");
    sees(sizes, "a.rs", &"\n".repeat(LINES_MAX + 1), &"\n".repeat(LINES_MAX));
}

#[test]
fn pairs_of_parameters_are_seen() {
    sees(
        paired_parameters,
        "a.rs",
        "pub fn f(\n    &self,\n    (shard, clock): (ShardId, Clock),\n) {\n",
        "fn f(shard: ShardId) {\n    let g = (1, 2);\n    (a, b): (u8, u8)\n}\n",
    );
}

#[test]
fn promises_without_an_issue_are_seen() {
    let word = concat!("TO", "DO");
    sees(
        promises,
        "a.md",
        &format!("// {word}: later\n"),
        &format!("// {word}(#12): later\nMASTO{word}N\n"),
    );
    sees(promises, "a.rs", concat!("// FIX", "ME\n"), "// fixed\n");
}

#[test]
fn stray_whitespace_is_seen() {
    sees(whitespace, "a.rs", "a\tb\n", "a b\n\n");
    sees(whitespace, "a.rs", "a \n", "");
    sees(whitespace, "a.rs", "a", "a\n");
}

#[test]
fn missing_pages_and_idle_dependencies_are_seen() {
    let crates = ["types".to_owned(), "store".to_owned()];
    assert_eq!(tour("# Tour\n\n## `types`: words\n\n## `store`: data\n", &crates), [""; 0]);
    assert_eq!(tour("# Tour\n\n## `types`: words\n", &crates).len(), 1);
    let files = [File::new("crates/engines/mako/src/steps/due.rs", "")];
    let tour_of = |path: &str| paths_of_tour(&format!("See `{path}` (there)."), &files).len();
    assert_eq!(["mako/due.rs", "due.rs", "mako/", "steps/"].map(tour_of), [0; 4]);
    assert_eq!(["zeus/due.rs", "ue.rs", "due/", "due.rs/mako/"].map(tour_of), [1; 4]);
    let manifest = "[workspace.dependencies]\nshoal-types = { path = \"x\" }\nserde = \"1\"\n\n[profile.dev]\nx = 1\n";
    assert_eq!(reasons(manifest, "| JSON | `serde` |"), [""; 0]);
    assert_eq!(reasons(manifest, "serde_json").len(), 1);
    let uses_serde =
        |name: &str| File::new("crates/a/Cargo.toml", &format!("{name}.workspace = true"));
    assert_eq!(idle(manifest, &[uses_serde("serde")]), [""; 0]);
    assert_eq!(idle(manifest, &[uses_serde("serde_json")]).len(), 1);
}

#[test]
fn examples_that_are_not_run_are_seen() {
    let crate_of = |manifest: &str, source: &str| {
        let (manifest, source) = (format!("[lib]\n{manifest}\n"), source.to_owned());
        [("crates/a/Cargo.toml", manifest), ("crates/a/src/lib.rs", source)]
            .map(|(path, text)| File::new(path, &text))
    };
    let (example, picture) = ("//! ```\n//! a();\n//! ```\n", "//! ```text\n//! a\n//! ```\n");
    assert_eq!(examples(&crate_of("", example)), [""; 0]);
    assert_eq!(examples(&crate_of("doctest = false", picture)), [""; 0]);
    assert_eq!(examples(&crate_of("doctest = false", example)).len(), 1);
    assert_eq!(examples(&crate_of("", picture)).len(), 1);
}

#[test]
fn code_is_told_from_words_about_it() {
    let source = "a /* b */ c // d\n\"e \\\" f\" g r#\"h\" \"# i 'j' '\\'' '\\u{6b}' &'k l\nr\"m\" for_r \"n\n\"";
    assert_eq!(code_of(source), "a  c \n g  i    &'k l\n for_r \n");
}
