//! A connection that is waited for only so long: for a request to begin, for the rest of it, and
//! for the answer to be taken. The limits are on the whole of each, so that a byte now and then
//! does not extend them.

use std::future::Future as _;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// From the start of a connection, or the first byte of a further request, to the end of its head.
const HEAD: Duration = Duration::from_secs(10);
/// Between two requests: longer than most scrape intervals.
const IDLE: Duration = Duration::from_secs(120);
/// From when an answer does not fit into the socket's buffer until all of it does.
const ANSWER: Duration = Duration::from_secs(10);

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// A further request to begin.
    Request,
    /// The rest of a request.
    Head,
    /// The client to take the answer.
    Answer,
}

/// Whether an answer is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Nothing,
    Something,
}

/// The connection.
pub(super) struct TimedStream {
    stream: TcpStream,
    what: For,
    limit: Pin<Box<Sleep>>,
    /// Since the last flush.
    written: Written,
    /// Told of each answer that was taken.
    answered: Box<dyn Fn()>,
}

impl TimedStream {
    pub(super) fn new(stream: TcpStream, answered: impl Fn() + 'static) -> Self {
        Self {
            stream,
            what: For::Head,
            limit: Box::pin(sleep(HEAD)),
            written: Written::Nothing,
            answered: Box::new(answered),
        }
    }

    /// From now on this is waited for, for its whole time.
    fn wait_for(&mut self, what: For) {
        self.what = what;
        self.limit.set(sleep(match what {
            For::Request => IDLE,
            For::Head => HEAD,
            For::Answer => ANSWER,
        }));
    }

    /// Nothing can be done now; an error when the time is up.
    fn waits<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        ready!(self.limit.as_mut().poll(cx));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }

    /// After an attempt to write.
    fn has_written(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.written = Written::Something;
        if done.is_ready() {
            return done;
        }
        if self.what != For::Answer {
            self.wait_for(For::Answer);
        }
        self.waits(cx)
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let done = Pin::new(&mut self.stream).poll_read(cx, buf);
        if done.is_pending() {
            return self.waits(cx);
        }
        if self.what == For::Request && buf.filled().len() > before {
            self.wait_for(For::Head);
        }
        done
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.has_written(cx, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.has_written(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called when nothing is left to write.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if self.written == Written::Something {
            self.written = Written::Nothing;
            self.wait_for(For::Request);
            (self.answered)();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
