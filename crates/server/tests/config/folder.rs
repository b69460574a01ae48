//! A folder with all that a node's file can name: topologies, secrets, certificates.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use shoal_server::NodeConfig;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tempfile::TempDir;

const NODES: &str = r#"workers = 1
[[datacenter]]
name = "here"
[[node]]
name = "a"
datacenter = "here"
address = "127.0.0.1:7001"
[[node]]
name = "b"
datacenter = "here"
address = "127.0.0.1:7002"
[[node]]
name = "c"
datacenter = "here"
address = "127.0.0.1:7003"
[[shard]]
leader = "a"
voters = ["a", "b", "c"]
[[table]]
name = "kv"
partitioning = "everywhere"
"#;

pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().expect("a folder"));
        folder.write("topology.toml", NODES);
        folder.write("no-address.toml", NODES.replacen("address = \"127.0.0.1:7002\"\n", "", 1));
        folder.write("no-datacenter.toml", NODES.replacen("\"here\"", "\"there\"", 1));
        let digits = "9f2c71d0ab35e84604d7b19ce2f86a53\n";
        folder.write_for("secret", digits, 0o600);
        folder.write_for("shared", digits, 0o640);
        folder.write_for("short", "password \n", 0o600);
        folder.write_for("sentence", "this is not so secret\n", 0o600);
        folder.write_for("empty", "", 0o600);
        folder.write_for("bytes", [0xff, 0, 1, 0x80, 9, 7].map(|byte| [byte; 3]).concat(), 0o600);
        fs::create_dir(folder.file("data")).expect("made");
        let mut params = CertificateParams::new(Vec::new()).expect("a certificate");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("signed");
        folder.write("ca.pem", authority.pem());
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["reef".to_owned()]).expect("a certificate");
        folder.write("node.pem", params.signed_by(&key, &authority).expect("signed").pem());
        folder.write("node.key", key.serialize_pem());
        folder.write("other.key", KeyPair::generate().expect("a key").serialize_pem());
        folder
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.file(name), text).expect("written");
    }

    /// Writes a file with these permissions.
    fn write_for(&self, name: &str, text: impl AsRef<[u8]>, mode: u32) {
        self.write(name, text);
        fs::set_permissions(self.file(name), Permissions::from_mode(mode)).expect("changed");
    }

    /// What the topology says.
    pub fn topology(&self) -> String {
        fs::read_to_string(self.file("topology.toml")).expect("written")
    }

    /// What is read from a file of that content, or what is wrong with it; files without their folder.
    pub fn read(&self, content: impl AsRef<[u8]>) -> Result<NodeConfig, String> {
        self.write("node.toml", content);
        let path = self.0.path().to_str().expect("a plain name");
        let read = NodeConfig::read(&self.file("node.toml"));
        read.map_err(|error| error.to_string().replace(&format!("{path}/"), ""))
    }
}
