//! Where ticks come from: the live kernel. Those of a recording ([`crate::playback::tape`]) look
//! the same downstream of here.

pub mod live;

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::sample::Interest;
use crate::sample::tick::{HostInfo, Tick};

/// What a source yields.
#[derive(Clone, Debug)]
pub enum Event {
    /// The next tick.
    Tick(Arc<Tick>),
    /// There are no more ticks, and why.
    End(String),
}

/// The consumer's end of a source that runs on a thread of its own.
#[derive(Debug)]
pub struct Feed {
    /// What does not change during the run.
    pub host: HostInfo,
    /// Ticks, oldest first. A consumer that falls behind finds the oldest ones dropped at the
    /// source, with the gap noted in the next tick.
    pub events: mpsc::Receiver<Event>,
    /// What the consumer shows, for collectors that read detail on demand.
    pub interest: watch::Sender<Arc<Interest>>,
    /// How often it reads, to change that.
    pub scheduler: live::Scheduler,
}
