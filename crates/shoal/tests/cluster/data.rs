//! A look at the data from the shell.

use crate::local::Local;
use shoal::Db;

/// What a program does to an account.
async fn pay(address: &str) -> Result<i64, Box<dyn std::error::Error>> {
    let db = Db::connect(&[address]).await?;
    let accounts = db.table("accounts")?;
    Ok(db.transact(async |tx| tx.add(accounts, b"alice", -10).await).await?)
}

#[test]
fn tables_are_there_for_all_clients_until_one_drops_them() {
    let mut local = Local::start(&["--shards", "2", "--replicas", "1"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let address = local.addresses().next().expect("a node");
    for left in [-10, -20] {
        assert_eq!(runtime.block_on(pay(&address)).expect("it is there"), left);
    }
    // Whether or not the tables of `shoal local` have one of this name.
    runtime.block_on(async {
        let db = Db::connect(&[&*address]).await.expect("it is there");
        let (made, again) = (db.table("made").expect("new"), db.table("made").expect("there"));
        assert_eq!(made, again);
        let other = Db::connect(&[&*address]).await.expect("it is there");
        assert_eq!(other.table("made").expect("there"), made, "another client finds it");
        db.transact(async |tx| tx.put(made, b"k", b"v")).await.expect("written");
        assert_eq!(other.drop_table("made").await.expect("there"), made);
        let dropped = db.transact(async |tx| tx.put(made, b"k", b"v")).await;
        let is_dropped = matches!(
            dropped,
            Err(shoal::Error::Rejected(
                shoal::Rejected::TableDropped { .. } | shoal::Rejected::UnknownTable { .. }
            ))
        );
        assert!(is_dropped, "{dropped:?}");
        let anew = other.table("made").expect("new");
        assert_ne!(anew, made);
        let rows = other.transact(async |tx| Ok(tx.scan(anew, shoal::Scan::all()).await?.len()));
        assert_eq!(rows.await, Ok(0), "rows of the dropped one");
    });
    local.end();
}

#[test]
fn rows_are_written_read_and_deleted_from_the_shell() {
    let mut local = Local::start(&["--shards", "2", "--replicas", "1"]);
    let put = |arguments: &[&str]| local.run_well(&[&["put", "kv"], arguments].concat());
    assert_eq!(put(&["alice", "i64(100)", "bob", "two words"]), "2 rows written\n");
    assert_eq!(put(&[r#"("users", 42)"#, "x'00ff'"]), "1 row written\n");
    assert_eq!(local.run_well(&["get", "kv", "alice"]), "i64(100)\n");
    assert_eq!(local.run_well(&["get", "kv", r#"("users", 42)"#]), "x'00ff'\n");

    // What is printed can be typed.
    let (code, json, error) = local.run(&["get", "kv", "bob", "eve", r#"("users",42)"#, "--json"]);
    assert_eq!(code, Some(1), "one has no value: {error}");
    let rows: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(rows[0]["value"], r#""two words""#);
    assert_eq!(
        (&rows[1]["value"], &rows[1]["key"]),
        (&serde_json::Value::Null, &r#""eve""#.into())
    );
    assert_eq!(
        (&rows[2]["key"], &rows[2]["value_hex"]),
        (&r#"("users", 42)"#.into(), &"00ff".into())
    );
    let scanned = local.run_well(&["scan", "kv", "--json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&scanned).expect("JSON");
    for row in &rows {
        let [key, value] = ["key", "value"].map(|name| row[name].as_str().expect("a literal"));
        put(&[key, value]);
    }
    assert_eq!(local.run_well(&["scan", "kv", "--json"]), scanned);

    let prefix = local.run_well(&["scan", "kv", "--prefix", r#"("users")"#]);
    assert!(prefix.contains(r#"("users", 42)"#) && prefix.ends_with("\n1 row\n"), "{prefix}");
    let first = local.run_well(&["scan", "kv", "--limit", "1"]);
    assert!(
        first.contains(r#"1 row, and there are more: go on with --after '"alice"'"#),
        "{first}"
    );
    let rest = local.run_well(&["scan", "kv", "--after", r#""alice""#, "--reverse"]);
    assert!(rest.contains("2 rows") && !rest.contains("alice"), "{rest}");

    let (code, _, error) = local.run(&["put", "kv", "new", "1", "bob", "2", "--insert"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("'bob' exists already"), "{error}");
    let (code, _, error) = local.run(&["get", "kv", "new"]);
    assert_eq!((code, &*error), (Some(1), "error: kv has no \"new\"\n"), "none was written");
    let deleted = local.run_well(&["delete", "kv", "alice", "eve"]);
    assert_eq!(deleted, "1 row deleted; 1 of the keys had no value\n");

    let (code, _, error) = local.run(&["get", "vk", "alice"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains(r#"there is no table "vk""#), "{error}");
    let (code, _, error) = local.run(&["get", "kv", "(users, 42)"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("character 2: an element is expected"), "{error}");
    let tables = local.run_well(&["tables"]);
    assert!(tables.contains("kv") && !tables.contains("shoal."), "{tables}");
    assert!(local.run_well(&["tables", "--all", "--json"]).contains("shoal.requests"));

    // The table's number, 5, and a key.
    let named: Vec<serde_json::Value> =
        serde_json::from_str(&local.run_well(&["tables", "--json"])).expect("JSON");
    let id = named.iter().find(|table| table["name"] == "kv").expect("it is there")["id"].clone();
    let id = u32::try_from(id.as_u64().expect("a number")).expect("an id");
    let argument = [&id.to_le_bytes()[..], &5_i64.to_le_bytes(), b"calls"].concat();
    let digits: String = argument.iter().map(|byte| format!("{byte:02x}")).collect();
    let call = ["call", "shoal.add", &format!("x'{digits}'"), "--near", "kv", "calls"];
    assert_eq!(local.run_well(&call), "i64(5)\n");
    assert_eq!(local.run_well(&["get", "kv", "calls"]), "i64(5)\n");
    let created = local.run_well(&["tables", "create", "orders", "--prefix-bytes", "2"]);
    assert!(created.starts_with("orders is there, as "), "{created}");
    assert_eq!(local.run_well(&["tables", "create", "orders", "--prefix-bytes", "2"]), created);
    let (code, _, error) = local.run(&["tables", "create", "orders", "--everywhere"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains(r#"a table "orders" exists and is partitioned otherwise"#), "{error}");
    local.run_well(&["tables", "create", "people", "--range", "m"]);
    assert_eq!(local.run_well(&["put", "people", "ada", "1", "zoe", "2"]), "2 rows written\n");
    let tables = local.run_well(&["tables"]);
    assert!(
        tables.contains("in 2 ranges, split at \"m\"") && tables.contains("first 2 bytes"),
        "{tables}"
    );
    assert_eq!(local.run_well(&["tables", "drop", "people"]), "people is dropped\n");
    let (code, _, error) = local.run(&["get", "people", "ada"]);
    assert_eq!(code, Some(2), "{error}");
    local.run_well(&["tables", "create", "people", "--range", "m"]);
    assert_eq!(local.run_well(&["scan", "people"]).lines().last(), Some("0 rows"));
    let (code, _, error) = local.run(&["tables", "drop", "shoal.requests"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("belongs to the cluster itself"), "{error}");

    let (code, _, error) = local.run(&["call", "nothing"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains(r#"there is no procedure "nothing""#), "{error}");
    local.end();
}
