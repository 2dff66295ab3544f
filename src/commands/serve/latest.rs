//! What all connections ask: the run, and the page of its last tick, which is made when somebody
//! asks for it and kept until the next tick.

use std::cell::RefCell;
use std::sync::Arc;

use hyper::body::Bytes;
use tokio::sync::watch;

use super::token::Token;
use crate::analysis::Analysis;
use crate::diagnose::Engine;
use crate::openmetrics::{Format, Readings, exposition};
use crate::sample::Interest;
use crate::sample::tick::{HostInfo, Tick};
use crate::session::Session;

/// History for the findings; nobody scrolls back here. On a small machine it holds the five minutes
/// that rules look back.
const BUDGET: usize = 16 << 20;

/// The run, and who may ask for it.
pub(super) struct Latest {
    inner: RefCell<Inner>,
    token: Option<Token>,
}

struct Inner {
    session: Session,
    readings: Readings,
    /// Of the last tick, as far as anybody asked.
    pages: [Option<Bytes>; 2],
}

impl Latest {
    pub(super) fn new(
        host: HostInfo,
        interest: watch::Sender<Arc<Interest>>,
        token: Option<Token>,
    ) -> Self {
        let run = Analysis::lean(host, Engine::default(), BUDGET);
        let session = Session::new(run).read_by(interest);
        let inner = Inner { session, readings: Readings::default(), pages: [None, None] };
        Self { inner: RefCell::new(inner), token }
    }

    /// Takes in the next tick.
    pub(super) fn push(&self, tick: Arc<Tick>) {
        let inner = &mut *self.inner.borrow_mut();
        let host = inner.session.run().host();
        inner.readings.push(&tick, host.netns, host.interval);
        inner.session.push(tick);
        inner.pages = [None, None];
    }

    /// The page of the last tick; `None` before the first one. A client that takes its time holds
    /// on to no more than the page that it was given.
    pub(super) fn page(&self, format: Format) -> Option<Bytes> {
        let Inner { session, readings, pages } = &mut *self.inner.borrow_mut();
        let page = match format {
            Format::OpenMetrics => &mut pages[0],
            Format::Prometheus => &mut pages[1],
        };
        if page.is_none() {
            *page = exposition(session.run(), readings, format).map(Bytes::from);
        }
        page.clone()
    }

    /// The token that requests have to carry.
    pub(super) fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }
}
