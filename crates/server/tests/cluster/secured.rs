//! Clusters with TLS and secrets on, and nodes that lack them.

use crate::cluster::{Cluster, until_so};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use shoal_net::client::{Access, ConnectError, connect};
use shoal_net::tls::{Certificate, ClientTls, NodeTls};
use shoal_net::{CloseReason, Secret};
use shoal_server::{NodeConfig, Protocol};
use shoal_types::{NodeId, ShardId};

/// An authority for nodes.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("a certificate");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("signed"))
    }

    /// A node for which this one vouches, and which trusts those for which `trusted` does.
    fn node(&self, trusted: &Authority) -> NodeTls {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["shoal".to_owned()]).expect("a certificate");
        let certificate = params.signed_by(&key, &self.0).expect("signed").der().clone();
        let key = key.serialize_der().try_into().expect("a key");
        let identity = Certificate { certificates: vec![certificate], key };
        NodeTls::new(&identity, &[trusted.0.der().clone()], "shoal").expect("they fit")
    }

    fn client(&self) -> ClientTls {
        ClientTls::new(&[self.0.der().clone()], "shoal").expect("it fits")
    }
}

/// A client's part of what is secret.
fn client_secret() -> Secret {
    Secret::new([3; 16])
}

fn secure(authority: &Authority) -> impl Fn(&mut NodeConfig) {
    |config| {
        config.tls = Some(authority.node(authority));
        config.client_secret = client_secret();
    }
}

fn access(tls: Option<ClientTls>, secret: Secret) -> Access {
    Access { tls, secret, ..Access::open("shoal") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_tls_serves_and_replaces_its_leader() {
    let authority = Authority::new();
    let mut cluster = Cluster::start_with(2, 1, Protocol::Mako, secure(&authority));
    cluster.access = access(Some(authority.client()), client_secret());
    let mut client = cluster.client(1);
    for _ in 0..3 {
        client.call(NodeId(0), ShardId(1), "count_ten", &[]).await.expect("counted");
    }
    let dead = NodeId(3);
    cluster.kill(dead);
    let counted = cluster.client(2).call(NodeId(1), ShardId(1), "count_ten", &[]).await;
    counted.expect("counted by the next leader");
    cluster.restart(dead);
    let votes = |status: &shoal_server::NodeStatus| status.revision > 0 && status.empty == 0;
    cluster.until("it votes again", dead, votes).await;
    let count = cluster.client(3).call(dead, ShardId(0), "count", &[4]).await;
    assert_eq!(count.as_deref(), Ok(&5_i64.to_le_bytes()[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_without_certificate_or_secret_stay_out() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut cluster = Cluster::start_with(1, 1, Protocol::Mako, secure(&authority));
    let refused = [
        (access(None, client_secret()), ConnectError::Refused(CloseReason::WrongTls)),
        (
            access(Some(other.client()), client_secret()),
            ConnectError::Failed(CloseReason::TlsFailed),
        ),
        (
            access(Some(authority.client()), Secret::new([4; 16])),
            ConnectError::Refused(CloseReason::WrongSecret),
        ),
        (
            access(Some(authority.client()), Secret::none()),
            ConnectError::Refused(CloseReason::WrongSecret),
        ),
    ];
    for (access, why) in refused {
        let connected = connect(&cluster.address(NodeId(0)), &access, None).await;
        assert_eq!(connected.err(), Some(why));
    }
    cluster.access = access(Some(authority.client()), client_secret());
    let called = cluster.client(1).call(NodeId(0), ShardId(0), "count", &[1]).await;
    assert_eq!(called.as_deref(), Ok(&1_i64.to_le_bytes()[..]));
}

/// A node that pretends to be one of the topology is refused for that reason, while the others serve
/// without it.
async fn stays_out(
    unauthenticated: impl Fn(&mut NodeConfig),
    authority: &Authority,
    why: CloseReason,
) {
    let impostor = NodeId(2);
    let mut cluster = Cluster::start_with(1, 1, Protocol::Mako, |config| {
        secure(authority)(config);
        // All managers have to be there when a cluster begins.
        config.managers = vec![NodeId(0)];
        if config.node == impostor {
            unauthenticated(config);
        }
    });
    cluster.access = access(Some(authority.client()), client_secret());
    for number in 1..=3 {
        let count = cluster.client(number).call(NodeId(0), ShardId(0), "count", &[7]).await;
        assert_eq!(count.as_deref(), Ok(&number.to_le_bytes()[..]));
    }
    let counters = |node: u32| {
        let server = cluster.servers[node as usize].as_ref().expect("it runs");
        server.handle().counters()
    };
    until_so("it is refused again and again", || counters(0).closes(why) >= 3).await;
    assert_eq!(counters(impostor.0).connects, 0, "no node connects to it");
    assert!(counters(0).connects > 0, "the others speak with each other");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_the_secret_stays_out() {
    let authority = Authority::new();
    let unauthenticated = |config: &mut NodeConfig| config.secret = Secret::new([8; 32]);
    stays_out(unauthenticated, &authority, CloseReason::WrongSecret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_for_which_nobody_vouches_stays_out() {
    let (authority, other) = (Authority::new(), Authority::new());
    let unauthenticated = |config: &mut NodeConfig| config.tls = Some(other.node(&authority));
    stays_out(unauthenticated, &authority, CloseReason::TlsFailed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_tls_stays_out() {
    let authority = Authority::new();
    stays_out(|config| config.tls = None, &authority, CloseReason::WrongTls).await;
}
