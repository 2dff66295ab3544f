//! Pressure stall information: `/proc/pressure/{cpu,io,memory}` (since 4.20, CONFIG_PSI).

use super::hot::HotFile;
use super::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::parse::{fields, lines, number, whole_lines};
use crate::sample::psi::{PsiSample, PsiTotals};
use crate::sample::{CollectorId, Extent, Signal};

/// Reads it. See the module head.
pub struct PsiCollector {
    cpu: HotFile,
    io: HotFile,
    memory: HotFile,
    /// The file without totals, in the last reading.
    lacks: Option<&'static str>,
}

impl Collector for PsiCollector {
    type Sample = PsiSample;
    const ID: CollectorId = CollectorId::Psi;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        let file = |name: &str| HotFile::record(host, format!("proc/pressure/{name}"));
        let mut this =
            Self { cpu: file("cpu"), io: file("io"), memory: file("memory"), lacks: None };
        match this.cpu.read() {
            Ok(_) => Ok(this),
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error()) => {
                Err(Unavailable::new(
                    "PSI is built in but off (CONFIG_PSI_DEFAULT_DISABLED)",
                    "boot with psi=1",
                ))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Unavailable::new(
                "no /proc/pressure (kernel before 4.20, or without CONFIG_PSI)",
                "use a kernel with CONFIG_PSI, 4.20 or later",
            )),
            Err(e) => Err(Unavailable::because("/proc/pressure/cpu", &e, "")),
        }
    }

    fn sample(&mut self, _cx: &SampleContext<'_>) -> Result<PsiSample, CollectError> {
        let read = |f: &mut HotFile| f.read().map(parse_pressure);
        let out = PsiSample {
            cpu: read(&mut self.cpu).map_err(|e| CollectError::read("proc/pressure/cpu", e))?,
            io: read(&mut self.io).ok().flatten(),
            memory: read(&mut self.memory).ok().flatten(),
        };
        if out == PsiSample::default() {
            return Err(CollectError::Format {
                path: "proc/pressure/cpu".into(),
                line: 1,
                what: "a line `some` with `total=`".into(),
            });
        }
        let parts = [("cpu", out.cpu), ("io", out.io), ("memory", out.memory)];
        self.lacks = parts.iter().find(|p| p.1.is_none()).map(|p| p.0);
        Ok(out)
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        let (name, source) = ("pressure (PSI)", "/proc/pressure");
        out.push(match self.lacks {
            None => Signal::ok(name, source),
            Some(file) => {
                let why = format!("no totals in /proc/pressure/{file}");
                Signal::degraded(name, source, why, "mount the host's /proc")
                    .unseen(format!("{file} pressure"), Extent::Whole)
            }
        });
        let why = "only a share of time: not what waits, nor how long";
        out.push(Signal::degraded("run-queue latency", "PSI", why, ""));
    }
}

/// The totals of a pressure file, of the system or of a cgroup; `None` without a `some` line.
#[must_use]
pub fn parse_pressure(bytes: &[u8]) -> Option<PsiTotals> {
    let (mut some, mut full) = (None, None);
    for line in lines(whole_lines(bytes)) {
        let mut f = fields(line);
        let slot = match f.next() {
            Some(b"some") => &mut some,
            Some(b"full") => &mut full,
            _ => continue,
        };
        *slot = f.find_map(|f| number(f.strip_prefix(b"total=")?));
    }
    Some(PsiTotals { some_us: some?, full_us: full })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sample::Interest;
    use crate::sample::time::MonoNs;
    use proptest::prelude::*;
    use std::time::Duration;

    const TEXT: &str = "some avg10=0.00 avg60=0.05 avg300=0.10 total=14461523\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=77\n";

    #[test]
    fn totals_are_taken_and_averages_ignored() {
        let p = parse_pressure(TEXT.as_bytes()).unwrap();
        assert_eq!(p, PsiTotals { some_us: 14_461_523, full_us: Some(77) });
        // The cpu file has no full line before 5.13.
        let p = parse_pressure(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n").unwrap();
        assert_eq!(p, PsiTotals { some_us: 5, full_us: None });
    }

    #[test]
    fn without_pressure_files_the_reason_names_the_kernel_option() {
        let dir = tempfile::tempdir().unwrap();
        let e = PsiCollector::open(&HostFs::at(dir.path()), &CollectOptions::default());
        assert!(e.err().unwrap().reason.contains("CONFIG_PSI"));
    }

    #[test]
    fn live_totals_do_not_fall() {
        let Ok(mut c) = PsiCollector::open(&HostFs::live(), &CollectOptions::default()) else {
            return crate::collect::testing::skip("no PSI in this kernel");
        };
        let interest = Interest::default();
        let cx =
            SampleContext { at: MonoNs(0), interval: Duration::from_secs(1), interest: &interest };
        let a = c.sample(&cx).unwrap().cpu.unwrap();
        let b = c.sample(&cx).unwrap().cpu.unwrap();
        assert!(b.some_us >= a.some_us);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_pressure(&bytes);
        }

        #[test]
        fn a_truncated_file_loses_lines_but_changes_no_value(cut in 0usize..120) {
            let cut = cut.min(TEXT.len());
            if let Some(p) = parse_pressure(&TEXT.as_bytes()[..cut]) {
                prop_assert_eq!(p.some_us, 14_461_523);
                prop_assert!(p.full_us.is_none() || p.full_us == Some(77));
            }
        }
    }
}
