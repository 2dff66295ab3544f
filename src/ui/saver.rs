//! Saves panes (`w`), each on a thread of its own: a disk that does not answer must not block the
//! console.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::report::save::save;
use crate::rights::writing;

/// Maximum number of panes being written.
const MOST: usize = 4;
/// How long they may take when the console ends.
const PATIENCE: Duration = Duration::from_secs(2);

/// Writes panes and reports the results.
pub(super) struct Saver {
    dir: PathBuf,
    tell: UnboundedSender<String>,
    told: UnboundedReceiver<String>,
    waiting: usize,
}

impl Saver {
    pub(super) fn new(dir: PathBuf) -> Self {
        let (tell, told) = unbounded_channel();
        Self { dir, tell, told, waiting: 0 }
    }

    /// Starts to write. Returns a message if there is one already.
    pub(super) fn save(&mut self, name: String, stamp: String, text: String) -> Option<String> {
        if self.waiting >= MOST {
            return Some(format!("{}: still writing {MOST} panes", self.dir.display()));
        }
        let (dir, tell) = (self.dir.clone(), self.tell.clone());
        let started = std::thread::Builder::new().name("save".into()).spawn(move || {
            let says = match writing(|| save(&dir, &name, &stamp, &text)) {
                Ok(path) => format!("written to {}", path.display()),
                Err(e) => format!("cannot write to {}: {e}", dir.display()),
            };
            // Nobody is left to receive it.
            let _ = tell.send(says);
        });
        match started {
            Ok(_) => self.waiting += 1,
            Err(e) => return Some(format!("cannot write to {}: {e}", self.dir.display())),
        }
        None
    }

    /// The next result.
    pub(super) async fn next(&mut self) -> String {
        match self.told.recv().await {
            Some(says) => {
                self.waiting = self.waiting.saturating_sub(1);
                says
            }
            // Never happens: we hold one of the senders.
            None => std::future::pending().await,
        }
    }

    /// Results of those that are still being written, one line each.
    pub(super) async fn finish(&mut self) -> Vec<String> {
        let mut out = Vec::new();
        let all = async {
            while self.waiting > 0 {
                let says = self.next().await;
                out.push(says);
            }
        };
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            out.push(format!("{}: the disk is not responding", self.dir.display()));
        }
        out
    }
}
