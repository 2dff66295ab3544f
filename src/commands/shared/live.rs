//! `--interval`, `--netns`, `--no-bpf`: what of this host is read, and the readers that do it.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::environment::Environment;
use super::settings::{Flags, Settings};
use crate::amount;
use crate::collect::{BpfMode, CollectOptions, HostFs, NetnsScope, namespaces};
use crate::exit::Stop;
use crate::rights::{self, Duty};
use crate::sample::rule_settings::RuleSettings;
use crate::sample::tick::HostInfo;
use crate::source::{Feed, live};

/// What is read, and how often.
#[derive(Args, Debug)]
pub(crate) struct Live {
    /// Sampling interval, 100ms to 60s.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Of what.
    #[command(flatten)]
    reach: Reach,
}

impl Live {
    /// This host.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub(crate) fn host(&self) -> anyhow::Result<HostInfo> {
        let settings = Settings::read(Flags::default(), &Environment::read())?;
        Ok(host(self.interval, settings.rules))
    }

    /// Starts the readers of `this` host. The calling thread keeps the capabilities that its own
    /// `duty` needs.
    pub(crate) fn feed(&self, this: &HostInfo, duty: Duty) -> anyhow::Result<Feed> {
        let mut feed = self.reach.feed(self.interval, duty)?;
        feed.host.rules = this.rules.clone();
        Ok(feed)
    }
}

/// What is read.
#[derive(Args, Debug)]
pub(crate) struct Reach {
    /// Network namespaces to read: all, self, or the path of one, such as /run/netns/blue.
    #[arg(long, value_name = "all|self|PATH", default_value = "all")]
    netns: NetnsScope,
    /// Never load eBPF programs.
    #[arg(long)]
    no_bpf: bool,
}

impl Reach {
    /// As [`Live::feed`].
    pub(crate) fn feed(&self, interval: Duration, duty: Duty) -> anyhow::Result<Feed> {
        if let NetnsScope::Path(p) = &self.netns {
            std::fs::metadata(p).map_err(|e| {
                Stop::cannot(format!("--netns {}: {e}; `ip netns list` shows them", p.display()))
            })?;
            // Continuing without it would end in "No findings", a false all-clear.
            if namespaces::of_path(p).is_none() {
                return Err(Stop::cannot(format!(
                    "--netns {}: not a network namespace; give a file such as /run/netns/NAME or \
                     /proc/PID/ns/net",
                    p.display()
                )));
            }
        }
        let bpf = if self.no_bpf { BpfMode::Off } else { BpfMode::Auto };
        let opts = CollectOptions { netns: self.netns.clone(), bpf, ..CollectOptions::default() };
        let feed = live::start(&HostFs::live(), &opts, interval).map_err(|e| {
            Stop::cannot(format!("cannot start a thread: {e}; {}", live::MORE_THREADS))
        })?;
        rights::restrict(duty);
        Ok(feed)
    }
}

/// This host, read so often, with what is configured for its rules.
pub(crate) fn host(interval: Duration, rules: RuleSettings) -> HostInfo {
    HostInfo { rules: Arc::new(rules), ..live::host_info(&HostFs::live(), interval) }
}

pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    amount::interval(text)
}
