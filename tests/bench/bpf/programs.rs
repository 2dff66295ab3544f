//! ns per event by the kernel's own account of programs.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use aya::programs::loaded_programs;
use stallscope::clock;
use stallscope::collect::bpf::block::BlockBpf;
use stallscope::collect::bpf::files::FilesBpf;
use stallscope::collect::bpf::irq::IrqBpf;
use stallscope::collect::bpf::net::NetBpf;
use stallscope::collect::bpf::runq::RunqBpf;
use stallscope::collect::{Collector, SampleContext};
use stallscope::sample::Interest;

use super::load::{direct_reads, files, ping_pong, refused, udp};
use super::{goal, host, median, rounds, tool};

/// Name, time and runs of each program, by id.
type Account = BTreeMap<u32, (String, f64, f64)>;

fn account() -> Account {
    loaded_programs()
        .filter_map(Result::ok)
        .map(|p| {
            let name = p.name_as_str().unwrap_or("").to_owned();
            (p.id(), (name, p.run_time().as_nanos() as f64, p.run_count() as f64))
        })
        .collect()
}

/// Time and runs of each program that came after `before`.
fn new_ones(before: &Account) -> Vec<(String, f64, f64)> {
    account().into_iter().filter(|(id, _)| !before.contains_key(id)).map(|(_, p)| p).collect()
}

/// One contestant's programs under load: prints ns per run, returns ns per event (the most
/// frequent program runs once per event) without `floor` ns per run.
fn per_event(open: impl Fn() -> Option<Box<dyn Any>>, load: fn(), floor: f64, show: bool) -> f64 {
    let before = account();
    let Some(_held) = open() else { return f64::NAN };
    load();
    let programs = new_ones(&before);
    let events = programs.iter().map(|p| p.2).fold(0.0, f64::max);
    let mut sum = 0.0;
    for (name, time, runs) in programs.iter().filter(|p| p.2 > events / 100.0) {
        sum += time - floor * runs;
        if show {
            println!("    {name:<22} {:>5.0} ns/run  {runs:>8} runs", time / runs);
        }
    }
    sum / events
}

/// ns per run that the account takes for an empty program at `sched_switch`.
fn account_itself() -> f64 {
    let (host, opts) = host();
    let empty = || Some(Box::new(RunqBpf::open_empty(&host, &opts).unwrap()) as Box<dyn Any>);
    per_event(empty, pong, 0.0, false)
}

/// The same for the two at a softirq: they run less often, so the account finds less of its own
/// in the caches.
fn account_of_softirqs() -> f64 {
    let (host, opts) = host();
    let empty = || Some(Box::new(IrqBpf::open_empty(&host, &opts).unwrap()) as Box<dyn Any>);
    per_event(empty, udp, 0.0, false) / 2.0
}

/// Part of the softirqs of this load that is timed.
fn timed_part() -> f64 {
    let (host, opts) = host();
    let mut irq = IrqBpf::open(&host, &opts).unwrap();
    udp();
    let interest = Interest::default();
    let cx =
        SampleContext { at: clock::mono(), interval: Duration::from_secs(1), interest: &interest };
    let s = irq.sample(&cx).unwrap();
    let most = s.cpus.iter().flat_map(|c| &c.vectors).max_by_key(|v| v.count);
    most.map_or(f64::NAN, |v| 1.0 - v.passed as f64 / v.count as f64)
}

fn pong() {
    ping_pong(40_000);
}

/// Interleaved rounds: medians of what ours and the tool's cost more than nothing in the same
/// round, one by the other, and what that is in single rounds, for the machine's speed may change
/// from one to the next.
fn duel(
    ours: fn() -> Box<dyn Any>,
    name: &str,
    args: &[&str],
    load: fn(),
    floor: fn() -> f64,
) -> (f64, f64, f64) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for round in 0..rounds() {
        let floor = floor();
        a.push(per_event(|| Some(ours()), load, floor, round == 0));
        let theirs = || tool(name, args).map(|t| Box::new(t) as Box<dyn Any>);
        b.push(per_event(theirs, load, floor, round == 0));
    }
    let mut ratios: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a / b).collect();
    let (ours, theirs) = (median(&mut a), median(&mut b));
    let middle = median(&mut ratios);
    let quarter = |n: usize| ratios.get(ratios.len() * n / 4).copied().unwrap_or(f64::NAN);
    println!(
        "    single rounds: {middle:.2}x, half of them {:.2} to {:.2}",
        quarter(1),
        quarter(3)
    );
    (ours, theirs, ours / theirs)
}

fn open<C: Collector>() -> Box<dyn Any> {
    let (host, opts) = host();
    Box::new(C::open(&host, &opts).unwrap())
}

pub(crate) fn all() {
    let _stats = aya::sys::enable_stats(aya::sys::Stats::RunTime).unwrap();
    let (host, opts) = host();
    println!("ns per run:");
    let floor = median(&mut (0..3).map(|_| account_itself()).collect::<Vec<_>>());
    println!("    an empty program       {floor:>5.0} ns/run: what the account itself costs");
    let (ours, theirs, _) = duel(open::<RunqBpf>, "runqlat", &["1000", "1"], pong, account_itself);
    let tier_b = || Some(Box::new(RunqBpf::open_tier_b(&host, &opts).unwrap()) as Box<dyn Any>);
    let wakeups = per_event(tier_b, pong, floor, true);
    println!("  per switch: {ours:.0} ns, by wakeups {wakeups:.0} ns, runqlat {theirs:.0} ns");
    let (ours, theirs, ratio) =
        duel(open::<IrqBpf>, "softirqs", &["1000", "1"], udp, account_of_softirqs);
    let each = || Some(Box::new(IrqBpf::open_by_lookup(&host, &opts).unwrap()) as Box<dyn Any>);
    let each = per_event(each, udp, account_of_softirqs(), false);
    println!(
        "  per softirq: {ours:.0} ns, softirqs {theirs:.0} ns; with each one timed {each:.0} ns"
    );
    println!("    {:.0} % of them timed", 100.0 * timed_part());
    goal("softirq pair / softirqs", ratio, 0.7, "x");
    let args = ["-Q", "-D", "1000", "1"];
    let (ours, theirs, ratio) =
        duel(open::<BlockBpf>, "biolatency", &args, direct_reads, account_itself);
    println!("  per request: {ours:.0} ns, biolatency -Q -D {theirs:.0} ns");
    goal("block request, queue and device / biolatency -Q -D", ratio, 0.35, "x");
    let cost = per_event(|| Some(open::<NetBpf>()), refused, floor, true);
    println!("  per dropped packet with its events: {cost:.0} ns");
    let begun = clock::mono();
    files();
    let each = clock::mono().since(begun).as_nanos() as f64 / 5000.0;
    let cost = per_event(|| Some(open::<FilesBpf>()), files, floor, true);
    println!("  per created file: {cost:.0} ns, of {each:.0} ns to create and remove it");
}
