//! `shoal shell`, whose lines come from a pipe.

use crate::local::Local;

#[test]
fn a_session_reads_writes_and_goes_on_after_errors() {
    let mut local = Local::start(&["--shards", "2", "--replicas", "1"]);
    let input = r#"
# What is printed can be typed.
put kv alice i64(100) ("users", 42) "Ada Lovelace"
get kv ("users", 42)
begin
put kv alice i64(90)
get kv alice
abort
get kv alice
shoal get kv '("users", 42)' --values text
got kv alice
get kv eve
begin
begin
call nothing
put kv carol 1
put kv carol 2 alice 3 --insert
commit
get kv carol
exit
put kv after exit
"#;
    let (code, said, error) = local.run_on(&["shell"], input);
    assert_eq!(code, Some(1), "commands failed: {said}{error}");
    let expected = "2 rows written\n\"Ada Lovelace\"\nbegun\n1 row written\ni64(90)\naborted\ni64(100)\n\
                    \"Ada Lovelace\"\nbegun\n1 row written\n";
    assert_eq!(said, expected, "{error}");
    let errors: Vec<&str> = error.lines().filter(|line| line.starts_with("error: ")).collect();
    let expected = [
        "unrecognized subcommand 'got'",
        r#"kv has no "eve""#,
        "a transaction is open; commit or abort it",
        "a procedure is a transaction of its own",
        "'carol' exists already",
        "no transaction is open; begin one",
        r#"kv has no "carol""#,
    ];
    assert_eq!(errors.len(), expected.len(), "{error}");
    for (error, expected) in errors.iter().zip(expected) {
        assert!(error.contains(expected), "{error}: {expected}");
    }
    assert!(errors[4].contains("the open transaction is aborted"), "{error}");
    assert_eq!(local.run(&["get", "kv", "after"]).0, Some(1), "it ran what stood after exit");

    let (code, said, error) = local.run_on(&["shell"], "help\nhelp scan\n");
    assert_eq!((code, &*error), (Some(0), ""), "{said}");
    for told in ["begin", "commit", "tables", "--prefix", "Examples"] {
        assert!(said.contains(told), "{told}: {said}");
    }
    let input = "begin\nput kv json 1\ncommit\nget kv json\nget kv json --raw\n";
    let (code, said, error) = local.run_on(&["shell", "--json"], input);
    assert_eq!(code, Some(0), "{error}");
    let (documents, raw) = said.split_at(said.len() - 1);
    assert_eq!(raw, "1");
    let documents: Vec<serde_json::Value> = serde_json::Deserializer::from_str(documents)
        .into_iter()
        .collect::<Result<_, _>>()
        .expect("JSON");
    assert_eq!(documents[0]["transaction"], "begun");
    assert_eq!(documents[1]["written"], 1);
    assert_eq!(documents[3][0]["value_hex"], "31");
    local.end();
}

#[test]
fn an_open_transaction_is_isolated_and_a_conflict_aborts_it() {
    let mut local = Local::start(&["--shards", "2", "--replicas", "1"]);
    local.run_well(&["put", "kv", "alice", "i64(100)", "bob", "i64(0)"]);
    let mut shell = local.converse(&["shell"]);
    assert_eq!(shell.told("begin"), "begun");
    assert_eq!(shell.told("get kv alice"), "i64(100)");
    assert_eq!(shell.told("put kv alice i64(40) bob i64(60)"), "2 rows written");
    assert_eq!(local.run_well(&["get", "kv", "bob"]), "i64(0)\n", "it is not committed");
    assert_eq!(shell.told("commit"), "committed");
    assert_eq!(local.run_well(&["get", "kv", "bob"]), "i64(60)\n");

    assert_eq!(shell.told("begin"), "begun");
    assert_eq!(shell.told("get kv alice"), "i64(40)");
    local.run_well(&["put", "kv", "alice", "i64(41)"]);
    assert_eq!(shell.told("put kv bob i64(59)"), "1 row written");
    let refused = shell.refused("commit");
    assert!(refused.contains("abort"), "{refused}");
    assert_eq!(shell.told("get kv bob"), "i64(60)", "the session goes on");

    assert_eq!(shell.told("begin"), "begun");
    assert_eq!(shell.told("put kv bob i64(1)"), "1 row written");
    let (code, errors) = shell.end();
    assert_eq!(
        (code, &*errors),
        (Some(1), &["note: the open transaction is aborted".to_owned()][..])
    );
    assert_eq!(local.run_well(&["get", "kv", "bob"]), "i64(60)\n");
    local.end();
}
