//! A node of a program of its own, with procedures that its client calls: the example does what it says.

#[allow(dead_code, reason = "its main is for those who run it")]
#[path = "../examples/procedures.rs"]
mod example;

use shoal::{Db, Error, Rejected};
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Writes what a cluster of one node needs, and returns its configuration.
fn write_files(folder: &Path, address: &str) -> PathBuf {
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let secret = write("secret", "nyxW0jQ4m/7eV+2kTzR5aA".to_owned());
    fs::set_permissions(secret, Permissions::from_mode(0o600)).expect("permissions");
    write(
        "topology.toml",
        format!(
            "workers = 1\n\
             datacenter = [{{ name = \"here\" }}]\n\
             node = [{{ name = \"n0\", datacenter = \"here\", address = \"{address}\" }}]\n\
             shard = [{{ leader = \"n0\", voters = [\"n0\"] }}]\n\
             table = [{{ name = \"accounts\", partitioning = \"hash\" }}]\n"
        ),
    );
    let node = "cluster = \"shoal\"\nnode = \"n0\"\ntopology = \"topology.toml\"\n\
                managers = [\"n0\"]\ndata = \"data\"\nsecret = \"secret\"\n";
    fs::create_dir(folder.join("data")).expect("a folder");
    write("node.toml", node.to_owned())
}

#[test]
fn a_client_calls_procedures_of_a_server_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let config = write_files(folder.path(), &address);
    let node = example::node(&config).expect("a configuration");
    let server = node.listener(listener).start().expect("a node");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let db = Db::connect(&[address]).await.expect("a cluster");
        let call = async |procedure, arguments| example::call(&db, procedure, arguments).await;
        assert_eq!(call("deposit", "alice 100").await, Ok("100".to_owned()));
        assert_eq!(call("transfer", "alice bob 30").await, Ok("70".to_owned()));
        assert_eq!(call("deposit", "bob 1").await, Ok("31".to_owned()));
        let refused = call("transfer", "alice bob 71").await;
        assert_eq!(refused, Err(Error::reject("insufficient funds")));
        assert_eq!(call("deposit", "alice 1").await, Ok("71".to_owned()));
        let unknown = Rejected::UnknownProcedure { name: "steal".into() };
        assert_eq!(call("steal", "alice").await, Err(unknown.into()));
    });
    server.stop();
    server.join().expect("a node that was stopped");
}
