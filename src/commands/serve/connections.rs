//! The connections: never more than a few at once. When there are as many as may be, the one that
//! has waited longest since its last answer makes room for a new one; so neither silent nor slow
//! clients keep a scraper out.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::answer::answer;
use super::latest::Latest;
use super::timeouts::TimedStream;

/// Connections at once.
const MOST: usize = 32;
/// Bytes of the head of a request.
const MAX_HEAD: usize = 16 << 10;
/// Header lines of a request.
const MAX_HEADERS: usize = 64;

/// A connection that is open.
struct Slot {
    task: AbortHandle,
    /// Its place in the order of arrivals and answers.
    since: Rc<Cell<u64>>,
}

/// All of them.
pub(super) struct Connections {
    tasks: JoinSet<()>,
    slots: Vec<Slot>,
    /// Arrivals and answers so far.
    clock: Rc<Cell<u64>>,
    closing: watch::Sender<()>,
}

impl Connections {
    pub(super) fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            slots: Vec::new(),
            clock: Rc::default(),
            closing: watch::Sender::new(()),
        }
    }

    /// Takes in a connection.
    pub(super) fn admit(&mut self, stream: TcpStream, latest: &Rc<Latest>) {
        self.slots.retain(|s| !s.task.is_finished());
        if self.slots.len() >= MOST {
            let longest = self.slots.iter().enumerate().min_by_key(|(_, s)| s.since.get());
            if let Some(i) = longest.map(|(i, _)| i) {
                self.slots.swap_remove(i).task.abort();
            }
        }
        let since = Rc::new(Cell::new(0));
        let arrived_or_answered = {
            let (since, clock) = (since.clone(), self.clock.clone());
            move || {
                clock.set(clock.get() + 1);
                since.set(clock.get());
            }
        };
        arrived_or_answered();
        let stream = TimedStream::new(stream, arrived_or_answered);
        let served = serve(stream, latest.clone(), self.closing.subscribe());
        self.slots.push(Slot { task: self.tasks.spawn_local(served), since });
    }

    /// Waits for a connection to end; for ever when there is none.
    pub(super) async fn one_ends(&mut self) {
        if self.tasks.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Lets each finish the answer that it is at, and no more.
    pub(super) async fn all_end(&mut self) {
        self.closing.send_replace(());
        while self.tasks.join_next().await.is_some() {}
    }
}

/// One connection to its end. How it ends is the client's business: a request that makes no sense
/// was answered, and whoever left does not want to hear.
async fn serve(stream: TimedStream, latest: Rc<Latest>, mut closing: watch::Receiver<()>) {
    let service = service_fn(|request: Request<Incoming>| {
        let (parts, _body) = request.into_parts();
        std::future::ready(Ok::<_, Infallible>(answer(&parts, &latest)))
    });
    let connection = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closing.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
