//! Imports among the files of a crate form no circle: each file can be understood with those it imports, which do not
//! need it in turn.
//!
//! A file imports another one with a `use`, or with a path in its code; unit tests do not count. A name that a module
//! only re-exports is no import of the module: an import of that name goes to the file that declares it.

use super::{ENGINES, File, code_of, uses, without_unit_tests};
use std::collections::{BTreeMap, BTreeSet};

/// Crates that have circles, how many of their files may be part of one, and why they are. Numbers only become
/// smaller, and a crate without a circle is not named here.
const EXCEPTIONS: &[(&str, usize, &str)] = &[];

/// The place of a module in its crate; empty for the root.
type ModulePath = Vec<String>;

/// A file of a crate as its imports are concerned.
struct Module {
    file: String,
    /// The names it imports, each with whether it is re-exported, and its full path.
    names: BTreeMap<String, (bool, ModulePath)>,
    /// The code without the imports.
    code: String,
}

/// Complains of files in circles, of those crates that are not allowed any, or so many.
pub fn circles(files: &[File]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust() && !file.is_test()) {
        if let (Some(house), true) = (file.house(), file.path.contains("/src/")) {
            crates.entry(house).or_default().push(file);
        }
    }
    crates.into_iter().flat_map(|(house, files)| judge(house, &files, EXCEPTIONS)).collect()
}

/// The complaints about one crate.
fn judge(house: &str, files: &[&File], exceptions: &[(&str, usize, &str)]) -> Vec<String> {
    let found = circles_among(files);
    let count: usize = found.iter().map(Vec::len).sum();
    match exceptions.iter().find(|(name, ..)| *name == house) {
        Some(_) if count == 0 => {
            vec![format!("`{house}` has no circle of imports any more: it is no exception")]
        }
        Some((_, most, _)) if count <= *most => Vec::new(),
        Some(_) | None => {
            let circle = |files: &Vec<String>| {
                let (count, files) = (files.len(), files.join(", "));
                format!("`{house}`: these {count} files import each other: {files}")
            };
            found.iter().map(circle).collect()
        }
    }
}

/// The circles among the files of one crate.
fn circles_among(files: &[&File]) -> Vec<Vec<String>> {
    let paths: Vec<ModulePath> = files.iter().map(|file| module_path(&file.path)).collect();
    let known: BTreeSet<&ModulePath> = paths.iter().collect();
    let modules: BTreeMap<&ModulePath, Module> = paths
        .iter()
        .zip(files)
        .map(|(path, file)| (path, Module::read(path, file, &known)))
        .collect();
    let imports: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> =
        modules.keys().map(|path| (*path, imports(path, &modules))).collect();
    let reaches: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> =
        imports.keys().map(|path| (*path, reachable(path, &imports))).collect();
    let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
    for (path, reached) in &reaches {
        if reached.contains(path) {
            let circle = reached.iter().filter(|other| reaches[*other].contains(path));
            circles.insert(circle.map(|path| modules[*path].file.clone()).collect());
        }
    }
    circles.into_iter().collect()
}

/// All that a module imports, and what that imports, and so on.
fn reachable<'m>(
    from: &ModulePath,
    imports: &BTreeMap<&'m ModulePath, BTreeSet<&'m ModulePath>>,
) -> BTreeSet<&'m ModulePath> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(path) = open.pop() {
        for next in &imports[path] {
            if reached.insert(*next) {
                open.push(next);
            }
        }
    }
    reached
}

/// The modules whose declarations a module uses.
fn imports<'m>(
    path: &'m ModulePath,
    modules: &BTreeMap<&'m ModulePath, Module>,
) -> BTreeSet<&'m ModulePath> {
    let module = &modules[path];
    let named =
        module.names.iter().filter(|(name, (is_public, _))| !is_public || uses(&module.code, name));
    let named = named.map(|(_, (_, target))| target.clone());
    let known: BTreeSet<&ModulePath> = modules.keys().copied().collect();
    let inline = paths_in(&module.code).filter_map(|used| absolute(path, &used, &known));
    let through_names = paths_in(&module.code).filter_map(|used| {
        let (first, rest) = used.split_first()?;
        let (_, target) = module.names.get(first)?;
        Some([&target[..], rest].concat())
    });
    let targets: Vec<ModulePath> = named.chain(inline).chain(through_names).collect();
    let declaring = targets.iter().map(|target| declared_in(target, modules));
    declaring.filter(|declaring| *declaring != path).collect()
}

/// The module that declares what a path names: re-exports are followed.
fn declared_in<'m>(
    target: &[String],
    modules: &BTreeMap<&'m ModulePath, Module>,
) -> &'m ModulePath {
    let mut target = target.to_vec();
    let mut followed = BTreeSet::new();
    loop {
        let longest = (0..=target.len()).rev().map(|length| target[..length].to_vec());
        let (path, module) = longest
            .filter_map(|path| modules.get_key_value(&path))
            .next()
            .expect("the root of the crate is a module");
        let rest = &target[path.len()..];
        match rest.first().and_then(|name| module.names.get(name)) {
            // A trait and the macro that derives it have one name: the file of the trait imports the macro from where both are
            // exported.
            Some((_, next)) if !starts_with(next, &target) && followed.insert(target.clone()) => {
                target = [&next[..], &rest[1..]].concat();
            }
            _ => return path,
        }
    }
}

fn starts_with(path: &[String], with: &[String]) -> bool {
    path.len() >= with.len() && path[..with.len()] == *with
}

/// The place of the module in a file, whose path has a folder `src`.
fn module_path(file: &str) -> ModulePath {
    let (_, inner) = file.rsplit_once("/src/").expect("a source file of a crate");
    let mut path: ModulePath =
        inner.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

impl Module {
    fn read(path: &ModulePath, file: &File, known: &BTreeSet<&ModulePath>) -> Module {
        let code = code_of(&file.text);
        let (mut names, mut rest) = (BTreeMap::new(), String::new());
        for statement in statements(without_unit_tests(&code)) {
            let Some((is_public, tree)) = use_tree(statement) else {
                rest.push_str(statement);
                continue;
            };
            for (used, name) in expanded(tree) {
                if let Some(target) = absolute(path, &used, known) {
                    names.insert(name, (is_public, target));
                }
            }
        }
        Module { file: file.path.clone(), names, code: rest }
    }
}

/// Pieces of code, each up to the end of a statement or of a block's head.
fn statements(code: &str) -> impl Iterator<Item = &str> {
    code.split_inclusive(';')
}

/// Whether a statement re-exports, and what it imports, if it ends with an import.
fn use_tree(statement: &str) -> Option<(bool, &str)> {
    let (before, tree) = statement.rsplit_once("use ")?;
    let is_import = before.is_empty() || before.ends_with([' ', '\n', '\t']);
    let tree = tree.strip_suffix(';').filter(|_| is_import)?;
    let is_path = |c: char| c.is_alphanumeric() || "_:{}, \n*".contains(c);
    let visibility = before.rsplit(['\n', ';', '}']).next().unwrap_or_default().trim();
    tree.chars().all(is_path).then_some((visibility.starts_with("pub"), tree))
}

/// The paths of a tree of imports, each with the name under which it is known.
fn expanded(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some((prefix, inner)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
        let last = path.last().cloned().unwrap_or_default();
        let name = if name.is_empty() { last } else { name.trim().to_owned() };
        return vec![(path, name)];
    };
    let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
    let branches = branches(inner).into_iter().filter(|branch| !branch.trim().is_empty());
    branches.flat_map(|branch| expanded(&format!("{prefix}{}", branch.trim()))).collect()
}

/// What stands between the commas of a tree that are not within braces of its own.
fn branches(inner: &str) -> Vec<&str> {
    let (mut depth, mut from, mut found) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&inner[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(&inner[from..]);
    found
}

/// A path from the root of the crate; `None` for one that leaves it.
fn absolute(
    from: &ModulePath,
    used: &[String],
    known: &BTreeSet<&ModulePath>,
) -> Option<ModulePath> {
    let supers = used.iter().take_while(|part| *part == "super").count();
    let target = match used.first().map(String::as_str)? {
        "crate" => used[1..].to_vec(),
        "self" => [&from[..], &used[1..]].concat(),
        "super" => [from.get(..from.len().checked_sub(supers)?)?, &used[supers..]].concat(),
        first => {
            let child = [&from[..], &[first.to_owned()]].concat();
            known.contains(&child).then(|| [&from[..], used].concat())?
        }
    };
    let is_glob = target.last().is_some_and(|last| last == "*" || last == "self");
    Some(target[..target.len() - usize::from(is_glob)].to_vec())
}

/// The paths of two parts or more in code.
fn paths_in(code: &str) -> impl Iterator<Item = Vec<String>> + '_ {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let paths = words.filter(|word| word.contains("::") && !word.starts_with(':'));
    paths.map(|word| word.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect())
}

/// A crate of these files, by their names below `src`.
fn crate_of(files: &[(&str, &str)]) -> Vec<File> {
    let path = |name: &str| format!("crates/{ENGINES}/a/src/{name}");
    files.iter().map(|(name, text)| File::new(&path(name), text)).collect()
}

/// The circles among them, each as the names of its files.
fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let files = crate_of(files);
    let circles = circles_among(&files.iter().collect::<Vec<_>>());
    let short = |file: &String| file.rsplit("src/").next().unwrap_or_default().to_owned();
    circles.iter().map(|circle| circle.iter().map(short).collect()).collect()
}

#[test]
fn circles_of_imports_are_seen() {
    let both = vec![vec!["a.rs".to_owned(), "b.rs".to_owned()]];
    assert_eq!(
        found(&[("a.rs", "use super::b::B;\n"), ("b.rs", "use crate::a::A;\n"), ("lib.rs", "")]),
        both
    );
    assert_eq!(
        found(&[
            ("a.rs", "fn a() { crate::b::b() }\n"),
            ("b.rs", "use super::{c::C, a};\n"),
            ("c.rs", ""),
            ("lib.rs", "")
        ]),
        both
    );
    let through = [
        ("a.rs", "use crate::B;\n"),
        ("b.rs", "use crate::a::A;\n"),
        ("lib.rs", "pub use b::B;\nmod a;\n"),
    ];
    assert_eq!(found(&through), both);
    let parent =
        [("lib.rs", "use inner::Inner;\nstruct Outer;\n"), ("inner.rs", "use super::Outer;\n")];
    assert_eq!(found(&parent), [["lib.rs", "inner.rs"]]);
    let child =
        [("d/mod.rs", "struct D(e::E);\n"), ("d/e.rs", "use crate::d::D;\n"), ("lib.rs", "")];
    assert_eq!(found(&child), [["d/mod.rs", "d/e.rs"]]);
    let three = [
        ("a.rs", "use crate::b;\n"),
        ("b.rs", "use crate::c;\n"),
        ("c.rs", "use crate::a;\n"),
        ("lib.rs", ""),
    ];
    assert_eq!(found(&three)[0].len(), 3);
}

#[test]
fn what_runs_one_way_is_no_circle() {
    let none: [Vec<String>; 0] = [];
    let front = [
        ("lib.rs", "mod a;\nmod b;\npub use a::A;\n"),
        ("a.rs", "use crate::b::B;\n"),
        ("b.rs", "use std::fmt;\n"),
    ];
    assert_eq!(found(&front), none);
    let siblings = [
        ("d/mod.rs", "mod e;\nmod f;\npub use e::E;\n"),
        ("d/e.rs", "use super::f;\n"),
        ("d/f.rs", "use bytes::{Buf, Bytes};\n"),
        ("lib.rs", ""),
    ];
    assert_eq!(found(&siblings), none);
    let tests = [
        ("a.rs", "use crate::b;\n"),
        ("b.rs", "#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n"),
        ("lib.rs", ""),
    ];
    assert_eq!(found(&tests), none);
    let words = [
        ("a.rs", "use crate::b;\n"),
        ("b.rs", "// See crate::a::A.\nconst A: &str = \"crate::a::A\";\n"),
        ("lib.rs", ""),
    ];
    assert_eq!(found(&words), none);
}

#[test]
fn exceptions_only_shrink() {
    let circle =
        crate_of(&[("a.rs", "use crate::b;\n"), ("b.rs", "use crate::a;\n"), ("lib.rs", "")]);
    let (circle, none): (Vec<&File>, Vec<&File>) = (circle.iter().collect(), Vec::new());
    assert_eq!(judge("a", &circle, &[]).len(), 1);
    assert_eq!(judge("a", &circle, &[("a", 2, "why")]), [""; 0]);
    assert_eq!(judge("a", &circle, &[("a", 1, "why")]).len(), 1);
    assert_eq!(judge("a", &none, &[("a", 2, "why")]).len(), 1);
}
