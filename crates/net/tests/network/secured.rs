//! TLS on: nodes, clients, and ends that lack the right certificate.

use crate::clients::block_on;
use crate::common::{Node, WORKER, cluster, config, peer};
use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use shoal_net::client::{Access, ConnectError, connect};
use shoal_net::tls::{Certificate, ClientTls, NodeTls, TlsError, read_certificates};
use shoal_net::{CloseReason, CoreInput, NetworkConfig};
use shoal_types::NodeId;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

const NAME: &str = "reef.shoal";

/// An authority for nodes.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("a certificate");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("signed"))
    }

    fn identity(&self, name: &str) -> Certificate {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a certificate");
        let certificate = params.signed_by(&key, &self.0).expect("signed");
        let key = key.serialize_der().try_into().expect("a key");
        Certificate { certificates: vec![certificate.der().clone()], key }
    }

    fn node(&self) -> NodeTls {
        self.node_that_trusts(self)
    }

    fn node_that_trusts(&self, other: &Authority) -> NodeTls {
        NodeTls::new(&self.identity(NAME), &[other.0.der().clone()], NAME).expect("fits")
    }

    fn client(&self) -> ClientTls {
        ClientTls::new(&[self.0.der().clone()], NAME).expect("fits")
    }
}

fn access(tls: Option<ClientTls>) -> Access {
    Access { tls, ..Access::open("reef") }
}

#[test]
fn nodes_and_clients_talk_through_tls() {
    let authority = Authority::new();
    let nodes = cluster(2, |config| config.tls = Some(authority.node()));
    let large = Bytes::from((0..3_000_000_u32).map(|byte| byte as u8).collect::<Vec<_>>());
    let sent = large.clone();
    nodes[0].order(move |_, out| {
        out.to_peer(NodeId(1), Bytes::from_static(b"one"));
        out.to_peer(NodeId(1), sent);
        out.to_peer(NodeId(1), Bytes::from_static(b"three"));
    });
    assert_eq!(nodes[1].wait_frame().1, "one");
    assert_eq!(nodes[1].wait_frame().1, large);
    assert_eq!(nodes[1].wait_frame().1, "three");

    block_on(async {
        let address = nodes[0].address().to_string();
        let connected = connect(&address, &access(Some(authority.client())), None).await;
        let mut connection = connected.expect("let in");
        connection.sender.send(Bytes::from_static(b"a secret")).await.expect("sent");
        let client = nodes[0].wait(|happened| match happened.input {
            CoreInput::FromClient { client, .. } => Some(client),
            _ => None,
        });
        let answer = large.clone();
        nodes[0].order(move |_, out| out.to_client(client, answer));
        assert_eq!(connection.receiver.receive().await, Ok(large));
    });
    // The client has ended between two frames, without a word of TLS.
    nodes[0].wait_count(|totals| totals.closes(CloseReason::Left) == 1);
    assert_eq!(nodes[0].counters().closes(CloseReason::Truncated), 0);
}

#[test]
fn those_without_the_right_certificate_stay_out() {
    let (authority, other) = (Authority::new(), Authority::new());
    let node = Node::alone(NetworkConfig { tls: Some(authority.node()), ..config(0) });
    let address = node.address().to_string();
    block_on(async {
        // A client that trusts another authority, and one without TLS.
        let wary = connect(&address, &access(Some(other.client())), None).await;
        assert_eq!(wary.err(), Some(ConnectError::Failed(CloseReason::TlsFailed)));
        let plain = connect(&address, &access(None), None).await;
        assert_eq!(plain.err(), Some(ConnectError::Refused(CloseReason::WrongTls)));
    });
    node.wait_count(|totals| totals.closes(CloseReason::TlsFailed) >= 1);
    node.wait_count(|totals| totals.closes(CloseReason::WrongTls) == 1);

    // A preamble that promises TLS, and then something else.
    let before = node.counters().closes(CloseReason::TlsFailed);
    let mut socket = TcpStream::connect(node.address()).expect("connected");
    socket.write_all(b"SHOL\x02\x82\0\0 and no TLS at all").expect("written");
    node.wait_count(|totals| totals.closes(CloseReason::TlsFailed) == before + 1);

    // A node that knows the secret, but for which no authority vouches here.
    let unauthenticated = Node::alone(NetworkConfig {
        tls: Some(other.node_that_trusts(&authority)),
        peers: vec![peer(0, node.address())],
        ..config(1)
    });
    node.handle().set_peer(&peer(1, unauthenticated.address()));
    node.wait_count(|totals| totals.closes(CloseReason::TlsFailed) >= 3);
    assert_eq!((node.counters().admitted, unauthenticated.counters().admitted), (0, 0));
    assert_eq!(node.handle().counters_of(WORKER).connects, 0);
}

#[test]
fn a_node_that_shows_another_name_is_not_trusted() {
    let authority = Authority::new();
    let root = [authority.0.der().clone()];
    let tls = NodeTls::new(&authority.identity("atoll.shoal"), &root, NAME).expect("fits");
    let node = Node::alone(NetworkConfig { tls: Some(tls), ..config(0) });
    let address = node.address().to_string();
    let refused = block_on(connect(&address, &access(Some(authority.client())), None));
    assert_eq!(refused.err(), Some(ConnectError::Failed(CloseReason::TlsFailed)));
}

#[test]
fn certificates_are_read_from_files() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key) = (folder.path().join("node.pem"), folder.path().join("node.key"));
    let pair = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![NAME.to_owned()]).expect("a certificate");
    let signed = params.signed_by(&pair, &authority.0).expect("signed");
    std::fs::write(&certificate, signed.pem()).expect("written");
    std::fs::write(&key, pair.serialize_pem()).expect("written");
    let identity = Certificate::read(&certificate, &key).expect("read");
    let root = [authority.0.der().clone()];
    assert!(NodeTls::new(&identity, &root, NAME).is_ok());
    assert_eq!(read_certificates(&certificate).expect("read").len(), 1);
    let missing = Certificate::read(&certificate, Path::new("/nowhere/node.key"));
    let error = missing.expect_err("no file").to_string();
    assert!(error.starts_with("/nowhere/node.key: "), "{error}");
    let name = NodeTls::new(&identity, &root, "not a name");
    assert!(matches!(name, Err(TlsError::Name(_))));
    assert!(NodeTls::new(&identity, &[], NAME).is_err(), "no authority");
}
