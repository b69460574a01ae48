//! A cluster in this process, whose node knows the procedures of the example.

use crate::procedures;
use shoal::server::Server;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A node that leads two shards, on loopback.
pub struct LoopbackCluster {
    pub address: String,
    server: Option<Server>,
    _folder: TempDir,
}

impl LoopbackCluster {
    pub fn start() -> LoopbackCluster {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let config = write_files(folder.path(), &address);
        let node = procedures::node(&config).expect("a configuration");
        let server = Some(node.listener(listener).start().expect("a node"));
        LoopbackCluster { address, server, _folder: folder }
    }
}

impl Drop for LoopbackCluster {
    fn drop(&mut self) {
        let server = self.server.take().expect("it was started");
        server.stop();
        server.join().expect("a node that was stopped");
    }
}

/// Writes what a cluster of one node needs, and returns its configuration.
fn write_files(folder: &Path, address: &str) -> PathBuf {
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let secret = write("secret", "nyxW0jQ4m/7eV+2kTzR5aA".to_owned());
    fs::set_permissions(secret, Permissions::from_mode(0o600)).expect("permissions");
    let shard = "{ leader = \"n0\", voters = [\"n0\"] }";
    write(
        "topology.toml",
        format!(
            "workers = 1\n\
             datacenter = [{{ name = \"here\" }}]\n\
             node = [{{ name = \"n0\", datacenter = \"here\", address = \"{address}\" }}]\n\
             shard = [{shard}, {shard}]\n"
        ),
    );
    let node = "cluster = \"shoal\"\nnode = \"n0\"\ntopology = \"topology.toml\"\n\
                managers = [\"n0\"]\ndata = \"data\"\nsecret = \"secret\"\n";
    fs::create_dir(folder.join("data")).expect("a folder");
    write("node.toml", node.to_owned())
}
