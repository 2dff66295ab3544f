//! `stallscope serve`: the last tick as metrics over HTTP, for Prometheus.

mod answer;
mod connections;
mod latest;
mod timeouts;
mod token;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::task::LocalSet;

use self::connections::Connections;
use self::latest::Latest;
use self::token::Token;
use super::Run;
use super::shared::limits;
use super::shared::live::Live;
use super::shared::output::say;
use super::shared::wait::{Signals, runtime};
use super::shared::wakeups::{Wakeup, Wakeups};
use crate::exit::{Exit, Stop};
use crate::rights::Duty;
use crate::source::Feed;

/// How long connections have to finish an answer when the program ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// Between two attempts to take a connection, when there is no room for one.
const BREATH: Duration = Duration::from_millis(100);

/// Serve metrics over HTTP for Prometheus.
///
/// GET /metrics answers with the last sample of this host, its findings and the tool's own cost, in
/// OpenMetrics or Prometheus text format. It runs until it gets TERM, INT or HUP.
///
/// It listens on this host only. Another address needs --allow-remote and a token that clients have
/// to send: the page names processes, cgroups and peers. There is no TLS; put a proxy in front
/// where the network is not trusted.
///
/// More: stallscope help metrics
#[derive(Args, Debug)]
pub(super) struct Serve {
    /// What to read.
    #[command(flatten)]
    live: Live,
    /// Address and port to listen on; port 0 takes any that is free.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:9464",
        value_parser = address
    )]
    listen: SocketAddr,
    /// Allow an address that other machines can reach.
    #[arg(long, requires = "token_file")]
    allow_remote: bool,
    /// File with a token that every request has to carry as Authorization: Bearer TOKEN. Only its
    /// owner may have access to it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected an address and a port, such as 127.0.0.1:9464 or [::1]:9464";
    text.parse().map_err(|_| expected.to_owned())
}

impl Run for Serve {
    fn reads_kernel(&self) -> bool {
        true
    }

    fn run(&self) -> anyhow::Result<Exit> {
        if !self.listen.ip().to_canonical().is_loopback() && !self.allow_remote {
            return Err(Stop::usage(format!(
                "--listen {}: other machines can reach it; that needs --allow-remote and \
                 --token-file FILE",
                self.listen
            )));
        }
        limits::ready_to_read()?;
        let token = self.token_file.as_deref().map(Token::read).transpose();
        let token = token.map_err(|why| Stop::cannot(format!("--token-file {why}")))?;
        let listener = bind(self.listen)?;
        let at = listener.local_addr().context("the address that it listens on")?;
        let host = self.live.host()?;
        // Before the readers, which open as many files as they may.
        let runtime = runtime()?;
        let feed = self.live.feed(&host, Duty::Figures)?;
        say(&format!("metrics on http://{at}/metrics"));
        LocalSet::new().block_on(&runtime, self.watch(feed, listener, token))
    }
}

impl Serve {
    /// One thread for all: ticks, connections, answers. Whoever takes his time waits in the event
    /// loop, and nobody else does.
    async fn watch(
        &self,
        feed: Feed,
        listener: TcpListener,
        token: Option<Token>,
    ) -> anyhow::Result<Exit> {
        let listener = tokio::net::TcpListener::from_std(listener).context("the event loop")?;
        let Feed { host, events, interest, .. } = feed;
        let signals = Signals::watch(false)?;
        let mut wakeups = Wakeups::new(events, signals, self.live.interval, None);
        let latest = Rc::new(Latest::new(host, interest, token));
        let mut connections = Connections::new();
        let end = loop {
            tokio::select! {
                wakeup = wakeups.next() => match wakeup {
                    Wakeup::Tick(tick) => latest.push(tick),
                    Wakeup::Mark => {}
                    Wakeup::End => break Ok(Exit::Ok),
                    Wakeup::Silent => break Err(wakeups.silence("")),
                },
                stream = accept(&listener) => connections.admit(stream, &latest),
                () = connections.one_ends() => {}
            }
        };
        drop(listener);
        let _ = tokio::time::timeout(FAREWELL, connections.all_end()).await;
        end
    }
}

/// The next connection. Without room for another one (open files, memory) it waits for some.
async fn accept(listener: &tokio::net::TcpListener) -> tokio::net::TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => tokio::time::sleep(BREATH).await,
        }
    }
}

fn bind(at: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(at).and_then(|l| l.set_nonblocking(true).map(|()| l));
    listener.map_err(|e| {
        let what = match e.kind() {
            ErrorKind::AddrInUse => "the port is in use; port 0 takes any that is free".to_owned(),
            ErrorKind::PermissionDenied => "no permission; it gives up the right to ports below \
                 1024, so choose a higher one"
                .to_owned(),
            ErrorKind::AddrNotAvailable => "this host does not have the address".to_owned(),
            _ => e.to_string(),
        };
        Stop::cannot(format!("--listen {at}: {what}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port() {
        assert!(address("127.0.0.1:0").is_ok() && address("[::1]:9464").is_ok());
        for wrong in ["", "9464", ":9464", "localhost:9464", "127.0.0.1", "127.0.0.1:65536"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
