//! Arguments about recording: those of `record`, and `--record` of other commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{LiveArgs, time};

/// Arguments of `stallscope record`.
#[derive(Args, Debug)]
pub struct RecordArgs {
    /// What to read.
    #[command(flatten)]
    pub live: LiveArgs,
    /// New file to write, readable only by you; - for a pipe. By default
    /// stallscope-HOST-TIME.stall in the working directory.
    #[arg(short, long, value_name = "FILE|-")]
    pub output: Option<PathBuf>,
    /// Append to FILE if it exists, also after a crash or a reboot.
    #[arg(long)]
    pub append: bool,
    /// Stop after this time, such as 90s, 12h or 7d.
    #[arg(long, value_name = "DURATION", value_parser = long_time)]
    pub duration: Option<Duration>,
    /// How often to force data to the disk: after every tick, at this interval, or never. Only
    /// matters if the machine crashes.
    #[arg(long, value_name = "tick|DURATION|off", default_value = "5s", value_parser = sync)]
    pub sync: SyncArg,
    /// Keep FILE and its parts below this size by deleting the oldest parts; 1M or more.
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    pub max_size: Option<u64>,
    /// Delete parts that are older than this; 1m or more.
    #[arg(long, value_name = "DURATION", value_parser = age)]
    pub max_age: Option<Duration>,
    /// Start a new FILE at this size (10M is MiB) or age (10m is minutes), and rename the old one
    /// to a part that has the time in its name.
    #[arg(long, value_name = "SIZE|DURATION", value_parser = rotate)]
    pub rotate: Option<RotateArg>,
    /// Downsample older ticks to one per STEP, and delete what is older than the last AGE. By
    /// default: all ticks for an hour, one in 10 s for a day, one in 60 s for a week. Ages are
    /// minimum ages.
    #[arg(
        long,
        value_name = "STEP:AGE,..",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all:1h,10s:1d,60s:7d",
        value_parser = thin,
        conflicts_with_all = ["rotate", "max_size", "max_age"]
    )]
    pub thin: Option<ThinArg>,
}

/// `--record` of the console and of `check`.
#[derive(Args, Debug, Default)]
pub struct RecordTo {
    /// Also record, into this new file.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Append to the file of --record if it exists.
    #[arg(long, requires = "record")]
    pub append: bool,
}

/// `--sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncArg {
    /// After each tick.
    Tick,
    /// After the first tick that comes this long after the last time.
    Every(Duration),
    /// Never.
    Off,
}

/// `--rotate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotateArg {
    /// At this many bytes.
    Size(u64),
    /// At this age.
    Age(Duration),
}

/// `--thin`: steps (zero: all ticks) with the ages until which they hold, both ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThinArg(pub Vec<(Duration, Duration)>);

const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(366 * 86_400);

fn sync(text: &str) -> Result<SyncArg, String> {
    match text {
        "tick" => Ok(SyncArg::Tick),
        "off" => Ok(SyncArg::Off),
        t => time(t, Duration::from_millis(100), Duration::from_secs(3600), "100ms to 1h")
            .map(SyncArg::Every)
            .map_err(|e| format!("{e}, or tick, or off")),
    }
}

fn long_time(text: &str) -> Result<Duration, String> {
    in_days(text, Duration::from_secs(1), "1s to 366d")
}

fn age(text: &str) -> Result<Duration, String> {
    in_days(text, Duration::from_secs(60), "1m to 366d")
}

/// As [`time`], with days and weeks.
fn in_days(text: &str, least: Duration, range: &str) -> Result<Duration, String> {
    let days = |n: &str, each: u64| n.trim().parse::<u64>().ok()?.checked_mul(each);
    let whole = match text.trim().strip_suffix(['d', 'w']) {
        Some(n) => days(n, if text.trim().ends_with('d') { 1 } else { 7 }),
        None => None,
    };
    match whole {
        Some(d) => {
            let d = Duration::from_secs(d.saturating_mul(86_400));
            if (least..=LONG).contains(&d) {
                Ok(d)
            } else {
                Err(format!("out of range; expected {range}"))
            }
        }
        None => time(text, least, LONG, range),
    }
}

fn limit(text: &str) -> Result<u64, String> {
    let n = size(text).ok_or("expected a size such as 500M or 2G")?;
    if n >= MIB { Ok(n) } else { Err("out of range; expected 1M or more".to_owned()) }
}

fn rotate(text: &str) -> Result<RotateArg, String> {
    // Times first: `10m` is ten minutes, as everywhere else; sizes have capital letters.
    if let Ok(d) = in_days(text, Duration::ZERO, "") {
        return if d >= Duration::from_secs(10) {
            Ok(RotateArg::Age(d))
        } else {
            Err("out of range; expected 10s to 366d, or 1M or more".to_owned())
        };
    }
    match size(text) {
        Some(n) if n >= MIB => Ok(RotateArg::Size(n)),
        Some(_) => Err("out of range; expected 1M or more, or 10s to 366d".to_owned()),
        None => Err("expected a size such as 100M or a duration such as 1h".to_owned()),
    }
}

fn thin(text: &str) -> Result<ThinArg, String> {
    let mut out: Vec<(Duration, Duration)> = Vec::new();
    for pair in text.split(',') {
        let (step, until) = pair
            .split_once(':')
            .ok_or_else(|| format!("expected STEP:AGE, for example 10s:1d, not '{pair}'"))?;
        let step = match step.trim() {
            "all" => Duration::ZERO,
            t => time(t, Duration::from_secs(1), Duration::from_secs(3600), "all, or 1s to 1h")?,
        };
        let until = age(until)?;
        if out.last().is_some_and(|l| step <= l.0 || until <= l.1) {
            return Err("steps and ages must increase, as in all:1h,10s:1d".to_owned());
        }
        out.push((step, until));
    }
    if out.len() > 5 { Err("at most 5 steps are allowed".to_owned()) } else { Ok(ThinArg(out)) }
}

/// Bytes: `K`, `M`, `G`, `T` and `KiB` are powers of 1024, `kB`, `MB` of 1000.
fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let number: f64 = number.parse().ok()?;
    let mut rest = unit.trim().chars();
    let power = match rest.next() {
        None | Some('B') => 0,
        Some('K' | 'k') => 1,
        Some('M') => 2,
        Some('G') => 3,
        Some('T') => 4,
        _ => return None,
    };
    let base: f64 = match (power, rest.as_str()) {
        (0 | 1.., "") | (1.., "iB") => 1024.0,
        (1.., "B") => 1000.0,
        _ => return None,
    };
    let bytes = number * base.powi(power);
    (bytes.is_finite() && bytes >= 0.0).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_told_apart() {
        let mib = |n: u64| Ok(RotateArg::Size(n << 20));
        assert_eq!(rotate("10M"), mib(10));
        assert_eq!(rotate("1.5G"), mib(1536));
        assert_eq!(rotate("1MiB"), mib(1));
        assert_eq!(rotate("2MB"), Ok(RotateArg::Size(2_000_000)));
        assert_eq!(rotate("10m"), Ok(RotateArg::Age(Duration::from_secs(600))));
        assert_eq!(rotate("1h"), Ok(RotateArg::Age(Duration::from_secs(3600))));
        assert_eq!(rotate("1d"), Ok(RotateArg::Age(Duration::from_secs(86_400))));
        for bad in ["", "M", "10", "5s", "-1M", "1000K", "1X", "1Mb", "NaNM", "1e9999G", "0d"] {
            assert!(rotate(bad).is_err(), "{bad}");
        }
        assert_eq!(limit("1048576"), Ok(1 << 20));
        assert!(limit("1000K").is_err() && limit("lots").is_err());
        assert_eq!(age("2w"), Ok(Duration::from_secs(14 * 86_400)));
        assert!(age("59s").is_err() && age("99999999999999999999d").is_err());
        assert_eq!(long_time("90s"), Ok(Duration::from_secs(90)));
    }

    #[test]
    fn steps_and_ages_grow() {
        let s = Duration::from_secs;
        let want = vec![(s(0), s(3600)), (s(10), s(86_400)), (s(60), s(7 * 86_400))];
        assert_eq!(thin("all:1h,10s:1d,60s:7d"), Ok(ThinArg(want)));
        assert_eq!(thin("1s:1h"), Ok(ThinArg(vec![(s(1), s(3600))])));
        for bad in [
            "",
            "1s",
            "all",
            "1h:",
            ":1h",
            "10s:1d,all:1h",
            "10s:1d,60s:1h",
            "10s:1d,10s:2d",
            "500ms:1h",
            "2h:1d",
            "all:30s",
            "all:1h,",
            "1s:1m,2s:2m,3s:3m,4s:4m,5s:5m,6s:6m,7s:7m",
        ] {
            assert!(thin(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sync_is_a_word_or_a_time() {
        assert_eq!(sync("tick"), Ok(SyncArg::Tick));
        assert_eq!(sync("off"), Ok(SyncArg::Off));
        assert_eq!(sync("5s"), Ok(SyncArg::Every(Duration::from_secs(5))));
        for bad in ["", "always", "5", "0s", "2h"] {
            assert!(sync(bad).is_err(), "{bad}");
        }
    }
}
