//! Health, metrics and a page to look at, over HTTP, for operators and their tools: `GET /health`, `GET /metrics`, `GET /`.
//!
//! As much of HTTP/1.1 as that takes: a request is read up to the end of its head, answered, and the
//! connection closed. It asks for no secret, so it should listen where only operators can reach it.
//!
//! What always holds:
//!
//! - It has a thread of its own. It queries workers by command, at most once in [`FRESH`], however many requests there
//!   are, and waits for them no longer than [`PATIENCE`]. It looks at them every [`SAMPLE_EVERY`], also without requests.
//! - A peer has at most [`OF_PEER_MAX`](crate::connections::OF_PEER_MAX) connections at once; one more closes its oldest.
//!   A head that is not complete after [`HEAD_MAX`] is refused.
//! - It serves at most [`CONNECTIONS_MAX`] requests of [`REQUEST_BYTES_MAX`] bytes at a time, each for no longer than
//!   [`CONNECTION_MAX`]. More connections wait in the queue of the system.

use crate::connections::{Connections, Peer};
use crate::dashboard::{self, History, SAMPLE_EVERY};
use crate::status::NodeStatus;
use crate::worker_command::WorkerCommand;
use crate::{health, metrics};
use shoal_cluster::topology::Topology;
use shoal_engine::declarations::Declarations;
use shoal_net::Handle;
use shoal_types::WorkerId;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, Semaphore, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};

/// Connections that are served at once.
const CONNECTIONS_MAX: usize = 16;

/// The head of a request: its line and its fields.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// The head of a request has to have come after this.
const HEAD_MAX: Duration = Duration::from_secs(2);

/// Longest duration of a connection.
const CONNECTION_MAX: Duration = Duration::from_secs(5);

/// Longest wait for the status of a worker; one that takes longer is overloaded.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the statuses of workers are cached.
const FRESH: Duration = Duration::from_millis(50);

/// The pause after the system had no more sockets.
const PAUSE: Duration = Duration::from_millis(100);

// A client receives an answer although a worker does not reply.
const _: () = assert!(HEAD_MAX.as_millis() + PATIENCE.as_millis() < CONNECTION_MAX.as_millis());

/// The service, while it runs. It ends when this is dropped, or joined.
#[derive(Debug)]
pub(crate) struct Http {
    address: SocketAddr,
    ends: Option<oneshot::Sender<()>>,
    thread: JoinHandle<()>,
}

impl Http {
    /// Starts the service of a node of this topology.
    ///
    /// # Errors
    /// If the system has no thread or socket for it.
    pub(crate) fn start(
        name: String,
        listener: TcpListener,
        worker_hosts: Handle<WorkerCommand>,
        topology: Arc<Topology>,
        declarations: Declarations,
    ) -> io::Result<Http> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (ends, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let queries = Arc::new(WorkerQueries {
                worker_hosts,
                topology,
                declarations,
                last: Mutex::default(),
                history: Mutex::default(),
            });
            runtime.block_on(async {
                tokio::select! {
                    result = serve(listener, Arc::clone(&queries)) => {
                        if let Err(error) = result {
                            tracing::error!(%error, "health and metrics are not served any more");
                        }
                    }
                    () = queries.remember() => {}
                    // The owner drops the sender.
                    _ = ended => {}
                }
            });
        })?;
        Ok(Http { address, ends: Some(ends), thread })
    }

    /// The address at which it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it, and waits until its address is free.
    pub(crate) fn join(mut self) {
        drop(self.ends.take());
        if self.thread.join().is_err() {
            tracing::error!("the thread for health and metrics panicked");
        }
    }
}

async fn serve(listener: TcpListener, queries: Arc<WorkerQueries>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connections = Connections::default();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, address)) => {
                let (counted, closed) = connections.enter(Peer::of(address.ip()));
                let queries = Arc::clone(&queries);
                tokio::spawn(async move {
                    // A client that has disconnected needs no answer.
                    let conversation = timeout(CONNECTION_MAX, converse(stream, &queries));
                    tokio::select! {
                        _ = closed => {}
                        _ = conversation => {}
                    }
                    drop((counted, place));
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection for health or metrics is not accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

/// One request and its answer.
async fn converse(mut stream: TcpStream, queries: &WorkerQueries) -> io::Result<()> {
    let answer = match timeout(HEAD_MAX, read_head(&mut stream)).await {
        Ok(read) => match read? {
            Some(head) => queries.answer(&head).await,
            None => HttpResponse::new(431, "the request is too long\n"),
        },
        Err(_) => HttpResponse::new(408, "the request has not come in time\n"),
    };
    stream.write_all(&answer.bytes()).await?;
    stream.shutdown().await?;
    // Unread bytes would make the system reset the connection, and lose the answer.
    let mut rest = [0; 1024];
    for _ in 0..REQUEST_BYTES_MAX / rest.len() {
        if stream.read(&mut rest).await? == 0 {
            break;
        }
    }
    Ok(())
}

/// Reads up to the first empty line. `None` if that is too long.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() >= REQUEST_BYTES_MAX {
            return Ok(None);
        }
        match stream.read(&mut piece).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&piece[..read]),
        }
    }
    Ok(Some(head))
}

/// The status of each worker; `None` for one that does not answer.
type WorkerStatuses = Arc<[Option<NodeStatus>]>;

/// Asks the workers for their statuses, and caches them.
struct WorkerQueries {
    worker_hosts: Handle<WorkerCommand>,
    topology: Arc<Topology>,
    /// What their engine measures.
    declarations: Declarations,
    /// The last statuses, and when they were received.
    last: Mutex<Option<(Instant, WorkerStatuses)>>,
    /// What the page shows of the past.
    history: Mutex<History>,
}

impl WorkerQueries {
    async fn answer(&self, head: &[u8]) -> HttpResponse {
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let Ok(line) = std::str::from_utf8(line) else { return HttpResponse::malformed() };
        let [method, target, version] = line.split(' ').collect::<Vec<_>>()[..] else {
            return HttpResponse::malformed();
        };
        if !version.starts_with("HTTP/1.") {
            return HttpResponse::malformed();
        }
        if !matches!(method, "GET" | "HEAD") {
            return HttpResponse::new(405, "there is only GET\n");
        }
        let path = target.split('?').next().unwrap_or_default();
        let answer = match path {
            "/health" => match health::trouble(&self.look().await) {
                None => HttpResponse::new(200, "ok\n"),
                Some(reason) => HttpResponse::new(503, format!("{reason}\n")),
            },
            "/metrics" => HttpResponse::of(
                metrics::CONTENT_TYPE,
                metrics::page(&self.look().await, &self.worker_hosts, &self.declarations),
            ),
            "/" => HttpResponse::of("text/html; charset=utf-8", dashboard::PAGE),
            "/dashboard.css" => HttpResponse::of("text/css; charset=utf-8", dashboard::STYLE),
            "/dashboard.js" => {
                HttpResponse::of("text/javascript; charset=utf-8", dashboard::SCRIPT)
            }
            "/dashboard.json" => {
                let statuses = self.look().await;
                let history = self.history.lock().await;
                let view = dashboard::json(&statuses, &history, &self.topology);
                HttpResponse::of("application/json", view)
            }
            _ => HttpResponse::new(404, "there are /, /health and /metrics\n"),
        };
        HttpResponse { has_body: method == "GET", ..answer }
    }

    /// Looks at the workers again and again, for the page.
    async fn remember(&self) {
        let mut ticks = interval(SAMPLE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let statuses = self.look().await;
            self.history.lock().await.add(&statuses);
        }
    }

    /// The statuses of the workers, cached for [`FRESH`].
    async fn look(&self) -> WorkerStatuses {
        let mut last = self.last.lock().await;
        if let Some((at, statuses)) = &*last
            && at.elapsed() < FRESH
        {
            return Arc::clone(statuses);
        }
        let asked: Vec<_> = (0..self.topology.workers())
            .map(|worker| {
                let (asker, answer) = oneshot::channel();
                let sent = self.worker_hosts.command(WorkerId(worker), WorkerCommand::Look(asker));
                sent.is_ok().then_some(answer)
            })
            .collect();
        let until = Instant::now() + PATIENCE;
        let mut statuses = Vec::new();
        for answer in asked {
            statuses.push(match answer {
                Some(answer) => timeout_at(until, answer).await.ok().and_then(Result::ok),
                None => None,
            });
        }
        let statuses: WorkerStatuses = statuses.into();
        *last = Some((Instant::now(), Arc::clone(&statuses)));
        statuses
    }
}

/// An answer.
struct HttpResponse {
    code: u16,
    kind: &'static str,
    body: String,
    has_body: bool,
}

impl HttpResponse {
    fn new(code: u16, body: impl Into<String>) -> HttpResponse {
        HttpResponse { code, kind: "text/plain; charset=utf-8", body: body.into(), has_body: true }
    }

    /// Content of this media type.
    fn of(kind: &'static str, body: impl Into<String>) -> HttpResponse {
        HttpResponse { kind, ..HttpResponse::new(200, body) }
    }

    fn malformed() -> HttpResponse {
        HttpResponse::new(400, "this is no request of HTTP/1.1\n")
    }

    fn bytes(&self) -> Vec<u8> {
        let HttpResponse { code, kind, body, has_body } = self;
        let reason = match code {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            408 => "Request Timeout",
            405 => "Method Not Allowed\r\nAllow: GET, HEAD",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let length = body.len();
        let body = if *has_body { body } else { "" };
        let policy = dashboard::POLICY;
        format!(
            "HTTP/1.1 {code} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Content-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}
