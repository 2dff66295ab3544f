//! The name of FILE: gives it to new files, takes it from old ones, and handles the case that it
//! leads elsewhere, because others may rename files at any time. Our own file is always written;
//! another one that has the name is left alone.

use std::ffi::{OsStr, OsString};
use std::io;
use std::time::Duration;

use super::{LOOK, Trouble, Worker, target};
use crate::clock;
use crate::recording::file::home::{Change, Holder, Home};
use crate::recording::file::writer::Writer;
use crate::recording::recorder::Existing;
use crate::recording::recorder::parts::{Parts, free_name};

/// After a failed rotation, the next attempt is made after this time.
const PATIENCE: Duration = Duration::from_secs(60);

impl Worker {
    /// Starts FILE anew. What was written becomes a part; if somebody moved it away, it stays where
    /// it is.
    pub(super) fn rotate(&mut self) {
        if self.is_deleted() {
            return self.after_deletion();
        }
        match self.try_rotate() {
            Ok(Change::Made) => self.trouble(Trouble::Rotate, None),
            // A limit on the total needs small files, whoever has the name.
            Ok(Change::NotOurs) if self.options.may_delete() && self.go_on_aside().is_ok() => {}
            Ok(Change::NotOurs) => {
                self.no_rotation = clock::mono() + PATIENCE;
                self.look_at_name();
            }
            Err(e) => {
                self.no_rotation = clock::mono() + PATIENCE;
                self.trouble(Trouble::Rotate, Some(format!("cannot rotate: {e}")));
            }
        }
    }

    fn try_rotate(&mut self) -> io::Result<Change> {
        let (Some(home), Some(w)) = (&self.home, &self.writer) else { return Ok(Change::NotOurs) };
        let ours = w.get_ref().file();
        match home.holder(ours)? {
            Holder::Stranger => return Ok(Change::NotOurs),
            Holder::Nobody => {}
            Holder::Us => {
                let first = self.first.unwrap_or_else(clock::wall);
                self.aside = Parts::set_aside(home, ours, first)?;
                if self.aside.is_none() {
                    return Ok(Change::NotOurs);
                }
            }
        }
        // The old file is closed only now, when there is a new one: there is always one.
        let fresh = match self.begin(home.name()) {
            Ok(fresh) => fresh,
            Err(e) => {
                let back = self.aside.as_ref().map(|part| home.put_back(ours, part));
                if matches!(back, Some(Ok(Change::Made))) {
                    self.aside = None;
                }
                // Somebody was quicker.
                return match e.kind() {
                    io::ErrorKind::AlreadyExists => Ok(Change::NotOurs),
                    _ => Err(e),
                };
            }
        };
        let (bytes, _) = self.seal();
        if let Some(part) = self.aside.take() {
            self.parts.add(part, bytes, clock::wall());
        }
        self.install(fresh);
        self.trouble(Trouble::Moved, None);
        Ok(Change::Made)
    }

    /// Another file has the name: closes ours where it is, and continues under the name of a part.
    fn go_on_aside(&mut self) -> io::Result<()> {
        let (fresh, name) = self.begin_aside()?;
        let (bytes, _) = self.seal();
        if let Some(part) = self.aside.replace(name) {
            self.parts.add(part, bytes, clock::wall());
        }
        self.install(fresh);
        self.look_at_name();
        Ok(())
    }

    /// Makes a file and begins a recording in it.
    fn begin(&self, name: &OsStr) -> io::Result<Writer<target::Sink>> {
        let Some(home) = &self.home else { return Err(io::ErrorKind::NotFound.into()) };
        let sink = target::create(home, name)?;
        let file = sink.file().try_clone()?;
        Writer::new(sink, &self.host).inspect_err(|_| {
            // Otherwise it would be in the way of the next attempt.
            let _ = home.remove(name, &file);
        })
    }

    /// The same under a name that a part may have.
    fn begin_aside(&self) -> io::Result<(Writer<target::Sink>, OsString)> {
        let Some(home) = &self.home else { return Err(io::ErrorKind::NotFound.into()) };
        free_name(home, clock::wall(), |n| Ok((self.begin(n)?, n.to_owned())))
    }

    fn install(&mut self, fresh: Writer<target::Sink>) {
        self.writer = Some(fresh);
        self.hosts = vec![self.host.clone()];
        self.begun = clock::mono();
        (self.age_before, self.first) = (Duration::ZERO, None);
    }

    /// From time to time, after a tick.
    pub(super) fn look_after_name(&mut self) {
        let now = clock::mono();
        if now.since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        if self.is_deleted() {
            self.after_deletion();
        } else {
            self.look_at_name();
        }
    }

    fn is_deleted(&self) -> bool {
        self.writer.as_ref().is_some_and(|w| w.get_ref().is_deleted())
    }

    /// A file that somebody deleted would swallow ticks without a trace.
    fn after_deletion(&mut self) {
        self.stop_thinning();
        self.writer = None;
        if let Err(e) = self.begin_after_deletion() {
            self.pause(&e);
        }
    }

    /// Starts it anew; if another file has its name, under the name of a part.
    pub(super) fn begin_after_deletion(&mut self) -> io::Result<()> {
        let followed = self.home.as_mut().map_or(Ok(()), Home::follow);
        let Some(home) = &self.home else { return Ok(()) };
        let begun = followed.and_then(|()| match self.begin(home.name()) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.begin_aside().map(|(w, name)| (w, Some(name)))
            }
            other => other.map(|w| (w, None)),
        });
        let (fresh, aside) = begun
            .map_err(|e| io::Error::new(e.kind(), format!("the file was deleted, and: {e}")))?;
        let says = match &aside {
            None => "the file was deleted; recording continues in a new one".to_owned(),
            Some(name) => format!(
                "the file was deleted and another one has its name; recording continues in {}",
                name.display()
            ),
        };
        self.aside = aside;
        self.install(fresh);
        self.trouble(Trouble::Deleted, Some(says));
        self.trouble(Trouble::Moved, None);
        Ok(())
    }

    /// Who has the name? Reports it if we do not.
    pub(super) fn look_at_name(&mut self) {
        let (Some(home), Some(w)) = (&self.home, &self.writer) else { return };
        let on = |old: &str| match &self.aside {
            Some(name) => format!("the recording stays in {}", name.display()),
            None => format!("the recording stays in {old}"),
        };
        let says = match home.holder(w.get_ref().file()) {
            _ if self.is_deleted() => {
                Some("the file was deleted, and everything recorded in it is lost".to_owned())
            }
            Ok(Holder::Us) => None,
            // It was deleted before, and that has been said.
            Ok(_) if self.aside.is_some() && self.troubles.contains_key(&Trouble::Deleted) => None,
            Ok(Holder::Stranger) => {
                Some(format!("another file has this name now; {}", on("the old one")))
            }
            Ok(Holder::Nobody) => Some(format!("the file was moved away; {}", on("it"))),
            Err(e) => Some(format!("cannot check the file's name: {e}")),
        };
        self.trouble(Trouble::Moved, says);
    }

    /// Does the name lead to our file?
    pub(super) fn has_its_name(&self) -> bool {
        let (Some(home), Some(w)) = (&self.home, &self.writer) else { return false };
        home.holder(w.get_ref().file()).is_ok_and(|h| h == Holder::Us)
    }

    /// Removes what a recorder of this file left behind when it was killed.
    pub(super) fn sweep(&self) {
        let looks = self.options.thin.is_some() || self.options.existing == Existing::Append;
        if let Some(home) = self.home.as_ref().filter(|_| looks) {
            home.sweep(self.owner, target::is_unfinished);
        }
    }
}
