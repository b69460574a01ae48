//! Commits whose answers are lost, and what the client finds out about them.

use crate::block_on;
use crate::scripted::{Asked, Do, Scripted};
use crate::served::options;
use shoal_client::{Aborted, ClusterOptions, Error, Result, Unknown};
use shoal_engine::client::{ClientReply, ClientRequest, SessionEnd};
use std::time::Duration;

fn with_ids() -> ClusterOptions {
    ClusterOptions { commit_ids: true, patience: Duration::from_millis(5), ..options() }
}

fn commits(asked: &Asked) -> bool {
    matches!(asked.ending(), Some(SessionEnd::CommitAs(_)))
}

/// A node that closes the connection instead of answering the first commit, and what it does when it is asked about that.
fn cluster(mut resolve: impl FnMut(&Asked) -> Do + Send + 'static) -> Scripted {
    let mut is_first = true;
    Scripted::start(1, move |asked| match &asked.what {
        ClientRequest::Resolve { .. } => resolve(asked),
        _ if commits(asked) && std::mem::take(&mut is_first) => Do::Close,
        _ => Do::Naturally,
    })
}

fn never_commits(asked: &Asked) -> Do {
    let ClientRequest::Resolve { id } = asked.what else { return Do::Nothing };
    let result = Err(Aborted::CallSessionOver { request: id }.into());
    Do::Reply(ClientReply::Called { id, result })
}

/// Puts a key in a transaction, and returns how often the body has run.
async fn put(cluster: &Scripted, options: ClusterOptions) -> (Result<()>, u32) {
    let db = cluster.connect_with(options).await;
    let people = db.table("people").expect("a table");
    let mut runs = 0;
    let outcome = db
        .transact(async |tx| {
            runs += 1;
            tx.put(people, b"a", b"1")
        })
        .await;
    (outcome, runs)
}

#[test]
fn a_commit_that_has_happened_is_told_so_and_not_run_again() {
    let cluster = cluster(|_| Do::Naturally);
    assert_eq!(block_on(put(&cluster, with_ids())), (Ok(()), 1));
    let asked = cluster.asked();
    let id = asked.iter().find_map(|asked| match asked.ending() {
        Some(SessionEnd::CommitAs(id)) => Some(id),
        _ => None,
    });
    let resolved = |asked: &&Asked| asked.what == ClientRequest::Resolve { id: id.expect("an id") };
    assert!(asked.iter().any(|asked| resolved(&asked)), "by its id: {asked:?}");
}

#[test]
fn a_commit_that_never_happens_is_run_again_under_another_id() {
    let cluster = cluster(never_commits);
    assert_eq!(block_on(put(&cluster, with_ids())), (Ok(()), 2));
    let ids = cluster.asked().iter().filter_map(Asked::ending).collect::<Vec<_>>();
    assert!(matches!(&ids[..], [first, second] if first != second), "{ids:?}");
}

#[test]
fn an_interactive_commit_is_told_what_became_of_it() {
    let told = |resolve: fn(&Asked) -> Do| {
        let cluster = cluster(resolve);
        block_on(async {
            let db = cluster.connect_with(with_ids()).await;
            let people = db.table("people").expect("a table");
            let tx = db.begin().expect("room");
            tx.put(people, b"a", b"1").expect("put");
            tx.commit().await
        })
    };
    assert_eq!(told(|_| Do::Naturally), Ok(()));
    let never = told(never_commits);
    assert!(matches!(never, Err(Error::Aborted(Aborted::CallSessionOver { .. }))), "{never:?}");
}

#[test]
fn an_outcome_that_no_node_tells_is_unknown_at_the_deadline() {
    let cluster = cluster(|_| Do::Nothing);
    let hasty = ClusterOptions { deadline: Duration::from_millis(300), ..with_ids() };
    let (outcome, runs) = block_on(put(&cluster, hasty));
    assert!(matches!(outcome, Err(Error::Unknown(Unknown::Session { .. }))), "{outcome:?}");
    assert_eq!(runs, 1);
}

#[test]
fn a_commit_of_nothing_has_no_id_and_is_run_again() {
    let mut is_first = true;
    let cluster = Scripted::start(1, move |asked| match asked.ending() {
        Some(SessionEnd::Commit) if std::mem::take(&mut is_first) => Do::Close,
        _ => Do::Naturally,
    });
    block_on(async {
        let db = cluster.connect_with(with_ids()).await;
        let people = db.table("people").expect("a table");
        let mut runs = 0;
        let read = db
            .transact(async |tx| {
                runs += 1;
                tx.get(people, b"a").await.map(|value| value.is_some())
            })
            .await;
        assert_eq!((read, runs), (Ok(false), 2));
    });
    assert_eq!(cluster.opened().len(), 0);
}
