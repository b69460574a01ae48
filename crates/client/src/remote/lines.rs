//! The connections to all workers in use: each is made when it is first needed, and again when it has ended.
//!
//! A connection is made on a task of its own, so that a caller that loses patience does not undo what others wait
//! for. For a moment after it could not be made it is not tried again.

use super::link::Link;
use super::lock;
use super::shared::{Desk, Inner};
use super::world::Unreached;
use engines::Place;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use types::{Cause, Time};

/// So long it is not tried again.
const REDIAL_AFTER: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Mutex<BTreeMap<Place, Arc<Line>>>,
}

/// The way to one worker.
type Line = watch::Sender<State>;

#[derive(Debug, Clone, Default)]
enum State {
    /// It was not tried yet.
    #[default]
    Idle,
    /// A task tries.
    Dialing,
    /// It stands, or stood.
    Open(Arc<Link>),
    /// It could not be made.
    Failed(Time, Cause),
}

impl Lines {
    fn line(&self, place: Place) -> Arc<Line> {
        Arc::clone(lock(&self.lines).entry(place).or_default())
    }

    /// A connection was made without being asked for.
    pub(super) fn adopt(&self, place: Place, link: &Arc<Link>) {
        self.line(place).send_replace(State::Open(Arc::clone(link)));
    }

    /// Ends all connections.
    pub(super) fn end(&self, cause: Cause) {
        for line in lock(&self.lines).values() {
            if let State::Open(link) = &*line.borrow() {
                link.end(cause);
            }
        }
    }
}

impl Inner {
    /// The connection to a worker, as soon as it stands.
    ///
    /// # Errors
    /// Why it cannot be made now.
    pub(super) async fn link(self: &Arc<Self>, place: Place) -> Result<Arc<Link>, Cause> {
        let line = self.lines.line(place);
        let mut seen = line.subscribe();
        loop {
            match &*seen.borrow_and_update() {
                State::Open(link) if !link.has_ended() => return Ok(Arc::clone(link)),
                State::Failed(at, cause) if *at + REDIAL_AFTER > self.world().now() => {
                    return Err(*cause);
                }
                State::Dialing | State::Idle | State::Open(_) | State::Failed(..) => {}
            }
            let dials = line.send_if_modified(|state| {
                let dials = match state {
                    State::Idle => true,
                    State::Dialing => false,
                    State::Open(link) => link.has_ended(),
                    State::Failed(at, _) => *at + REDIAL_AFTER <= self.world().now(),
                };
                if dials {
                    *state = State::Dialing;
                }
                dials
            });
            if dials {
                self.world().spawn(Box::pin(dial(Arc::clone(self), place, Arc::clone(&line))));
                seen.mark_unchanged();
            }
            let stands = seen.wait_for(|state| !matches!(state, State::Dialing)).await;
            match &*stands.expect("we hold the line") {
                State::Open(link) => return Ok(Arc::clone(link)),
                State::Failed(_, cause) => return Err(*cause),
                State::Idle | State::Dialing => {}
            }
        }
    }
}

/// Makes a connection, and says what came of it.
async fn dial(inner: Arc<Inner>, place: Place, line: Arc<Line>) {
    let state = match reach(&inner, place).await {
        Ok(link) => State::Open(link),
        Err(cause) => State::Failed(inner.world().now(), cause),
    };
    line.send_replace(state);
}

async fn reach(inner: &Arc<Inner>, place: Place) -> Result<Arc<Link>, Cause> {
    let Desk { view, founding, world, .. } = &*inner.desk;
    let connected = world.connect(place, view.address(place.node), founding.own()).await;
    let connection = connected.map_err(|Unreached { cause, found }| {
        if found.is_some() {
            founding.meet(place.node, found);
        }
        cause
    })?;
    if connection.node != place.node {
        // Another node has that address now.
        return Err(Cause::Unreachable);
    }
    if !founding.meet(place.node, connection.identity) {
        return Err(Cause::FoundedAgain);
    }
    Ok(Link::start(connection, &inner.desk))
}
