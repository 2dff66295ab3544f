//! Time in softirqs and in hard interrupt handlers, per CPU and vector or interrupt, with
//! histograms of how long each run took. Raw tracepoints: no BTF, no tracefs, no offsets.
//!
//! Runs of a vector that come more than 30,000 times a second on a CPU are all counted, and timed
//! by a random one of three to six: see [`timed`].

use super::fields::Fields;
use super::gather::whole_us;
use super::load::{self, Hook, Kernel, Loaded, Placed};
use super::maps::Stripes;
use super::{Coverage, objects};
use crate::collect::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::sample::bpf::irq::{IrqBpfSample, IrqCpu, LineTime, VectorTime};
use crate::sample::bpf::layout::{irq as l, timed};
use crate::sample::subject::CpuId;
use crate::sample::{CollectorId, Signal};

/// Kernel memory per possible CPU.
pub(super) const BYTES_PER_CPU: usize = l::WORDS * 8;

/// Reads it. See the module head.
pub struct IrqBpf {
    loaded: Loaded,
    stripes: Stripes<{ l::WORDS }>,
    softirqs: bool,
    /// Why hard interrupts are not measured.
    no_hard: Option<String>,
    /// Each CPU as it was read last.
    cpus: Vec<IrqCpu>,
    coverage: Coverage,
    /// Exits of each CPU counted before its entries were: nothing is lost there.
    before_entries: Vec<u64>,
}

impl Collector for IrqBpf {
    type Sample = IrqBpfSample;
    const ID: CollectorId = CollectorId::IrqBpf;

    fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        let (loaded, no_hard) = by_address(&kernel).or_else(|_| by_lookup(&kernel))?;
        Self::with(&kernel, loaded, no_hard)
    }

    fn sample(&mut self, _cx: &SampleContext<'_>) -> Result<IrqBpfSample, CollectError> {
        load::forget_kernel();
        self.stripes.refresh().map_err(|e| CollectError::read("map IRQ", e))?;
        let mut out = IrqBpfSample {
            softirqs: self.softirqs,
            hardirqs: self.no_hard.is_none(),
            missed: self.loaded.missed(),
            ..IrqBpfSample::default()
        };
        self.coverage = Coverage { counted: 0, lost: out.missed.unwrap_or(0) };
        let mut cpus = std::mem::take(&mut self.cpus);
        for (cpu, row) in cpus.iter_mut().enumerate() {
            self.read(cpu, row);
            if row.vectors.is_empty() && row.hard_count == 0 {
                continue;
            }
            // Each event is two: an entry and an exit.
            let runs = row.vectors.iter().map(|v| v.count).sum::<u64>() + row.hard_count;
            self.coverage.counted += 2 * runs;
            out.cpus.push(row.clone());
        }
        self.cpus = cpus;
        Ok(out)
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        out.push(self.coverage.signal("softirq time"));
        out.push(match &self.no_hard {
            None => Signal::ok("interrupt time", "ebpf"),
            Some(why) => Signal::missing("interrupt time", "ebpf", why.clone(), ""),
        });
    }
}

/// Entries of the map.
pub(super) fn sizes(cpus: usize) -> [(&'static str, u32); 1] {
    [("IRQ", cpus as u32)]
}

/// Programs and their tracepoints. The exit first: an entry without an exit would look like a run
/// that never ends.
type Hooks = &'static [(&'static str, &'static str)];

/// The programs with the address of the map in them, where the kernel allows a value as large as
/// all stripes: 4 MiB is enough for 146 CPUs.
fn by_address(kernel: &Kernel) -> Result<(Loaded, Option<String>), Unavailable> {
    const HARD: Hooks =
        &[("hardirq_exit", "irq_handler_exit"), ("hardirq_entry", "irq_handler_entry")];
    const SOFT: Hooks = &[("softirq_exit", "softirq_exit"), ("softirq_entry", "softirq_entry")];
    let placed = Placed::new::<{ l::WORDS }>("IRQ_PLACED", kernel.cpus)?;
    let loaded = Loaded::with_fields(
        kernel,
        objects::IRQ,
        &Vec::new(),
        &Fields::new(),
        &sizes(1),
        Some(placed),
    )?;
    attach(kernel, loaded, HARD, SOFT)
}

/// Those that look up the stripe of their CPU.
fn by_lookup(kernel: &Kernel) -> Result<(Loaded, Option<String>), Unavailable> {
    const HARD: Hooks = &[
        ("hardirq_exit_lookup", "irq_handler_exit"),
        ("hardirq_entry_lookup", "irq_handler_entry"),
    ];
    const SOFT: Hooks =
        &[("softirq_exit_lookup", "softirq_exit"), ("softirq_entry_lookup", "softirq_entry")];
    let loaded = Loaded::new(kernel, objects::IRQ, &Vec::new(), &sizes(kernel.cpus))?;
    attach(kernel, loaded, HARD, SOFT)
}

/// Attaches them; also why there are none at interrupts.
fn attach(
    kernel: &Kernel,
    mut loaded: Loaded,
    hard: Hooks,
    soft: Hooks,
) -> Result<(Loaded, Option<String>), Unavailable> {
    let mut both = |hooks: Hooks| {
        hooks.iter().try_for_each(|(name, at)| loaded.attach(kernel, name, Hook::Raw(at)))
    };
    let no_hard = both(hard).err().map(|u| u.reason);
    both(soft)?;
    Ok((loaded, no_hard))
}

impl IrqBpf {
    fn with(
        kernel: &Kernel,
        mut loaded: Loaded,
        no_hard: Option<String>,
    ) -> Result<Self, Unavailable> {
        let mut stripes = loaded.stripes("IRQ", kernel.cpus)?;
        stripes.refresh().map_err(|e| Unavailable::new(format!("cannot read IRQ: {e}"), ""))?;
        Ok(Self {
            before_entries: (0..stripes.count()).map(|c| stripes.get(c, l::UNPAIRED)).collect(),
            cpus: (0..stripes.count() as u32)
                .map(|c| IrqCpu { cpu: CpuId(c), ..IrqCpu::default() })
                .collect(),
            stripes,
            loaded,
            softirqs: true,
            no_hard,
            coverage: Coverage::default(),
        })
    }

    /// Opens it as on a host with more CPUs than a value of a map has room for.
    ///
    /// # Errors
    /// As [`Collector::open`].
    #[doc(hidden)]
    pub fn open_by_lookup(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        let (loaded, no_hard) = by_lookup(&kernel)?;
        Self::with(&kernel, loaded, no_hard)
    }

    /// Attaches programs that do nothing at softirqs: what the attachment itself costs.
    ///
    /// # Errors
    /// As [`Collector::open`].
    #[doc(hidden)]
    pub fn open_empty(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        const NONE: Hooks = &[("empty_exit", "softirq_exit"), ("empty_entry", "softirq_entry")];
        let kernel = load::kernel(host, opts)?;
        let loaded = Loaded::new(&kernel, objects::IRQ, &Vec::new(), &sizes(kernel.cpus))?;
        let (loaded, no_hard) = attach(&kernel, loaded, &[], NONE)?;
        Self::with(&kernel, loaded, no_hard)
    }

    /// The programs that are attached.
    #[doc(hidden)]
    #[must_use]
    pub fn programs(&self) -> &[&'static str] {
        self.loaded.attached()
    }

    /// [`Sample.missed`] read now: samples read it now and then only.
    #[doc(hidden)]
    pub fn missed_now(&self) -> Option<u64> {
        self.loaded.missed_now()
    }

    /// Reads a CPU; what did not change stays as it was.
    fn read(&self, cpu: usize, row: &mut IrqCpu) {
        let word = |w| self.stripes.get(cpu, w);
        row.unpaired =
            word(l::UNPAIRED).saturating_sub(self.before_entries.get(cpu).copied().unwrap_or(0));
        for v in 0..l::VECTORS {
            let at = l::VECTOR + v * l::VECTOR_WORDS;
            let count = word(at);
            let place = row.vectors.partition_point(|x| usize::from(x.vector) < v);
            let known = row.vectors.get(place).filter(|x| usize::from(x.vector) == v);
            let before = known.map_or(0, |x| x.count);
            if count == before {
                continue;
            }
            if known.is_none() {
                row.vectors.insert(place, VectorTime { vector: v as u8, ..VectorTime::default() });
            }
            let Some(x) = row.vectors.get_mut(place) else { continue };
            x.count = count;
            x.ns = whole_us(word(at + 1));
            x.max_ns = word(at + 2);
            let turn = word(at + l::TURN);
            // Programs that time each leave the turn as it was.
            x.passed = if turn == 0 { 0 } else { count.saturating_sub(timed::runs(turn)) };
            x.unsure = word(at + l::UNSURE);
            let counted_for = count.saturating_sub(timed::pending(turn));
            let hist = at + l::VECTOR_HIST;
            x.hist = x.hist.gather_again(&self.stripes, cpu, hist, counted_for);
        }
        // The count first: the program adds it after the time.
        let hard_count = word(l::HARD_COUNT);
        row.hard_ns = whole_us(word(l::HARD_NS));
        row.table_full = word(l::TABLE_FULL);
        if hard_count != row.hard_count {
            row.hard_count = hard_count;
            row.hard = row.hard.gather_again(&self.stripes, cpu, l::HARD_HIST, hard_count);
            let in_table = hard_count.saturating_sub(row.table_full);
            let known = self.known_lines(cpu, &row.lines, in_table);
            row.lines = known.unwrap_or_else(|| self.lines(cpu));
        }
    }

    /// A row of the table of interrupts; `None` when it is free.
    fn line(&self, cpu: usize, row: usize) -> Option<LineTime> {
        let at = l::LINE + row % l::LINES * l::LINE_WORDS;
        let word = |w| self.stripes.get(cpu, at + w);
        let irq = word(0).checked_sub(1)? as u32;
        Some(LineTime { irq, count: word(1), ns: whole_us(word(2)), max_ns: word(3) })
    }

    fn lines(&self, cpu: usize) -> Vec<LineTime> {
        let mut out: Vec<_> = (0..l::LINES).filter_map(|row| self.line(cpu, row)).collect();
        out.sort_by_key(|l| l.irq);
        out
    }

    /// The rows of the interrupts in `known` alone, when these are all that ran: `None` when
    /// they do not add up to `runs`. Rows stay where they are.
    fn known_lines(&self, cpu: usize, known: &[LineTime], runs: u64) -> Option<Vec<LineTime>> {
        let find = |k: &LineTime| {
            let home = k.irq as usize + 1;
            (home..home + l::PROBES).find_map(|r| self.line(cpu, r).filter(|n| n.irq == k.irq))
        };
        let out: Vec<_> = known.iter().map(find).collect::<Option<_>>()?;
        (out.iter().map(|l| l.count).sum::<u64>() == runs).then_some(out)
    }
}
