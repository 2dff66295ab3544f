//! What a frame of the console costs: build, render, diff and write, per number of sockets.
//!
//! `cargo bench --bench frame`. Prints the median of many frames in us: the build of the view, the
//! rendering of what changed since the second before, both together, and the rendering of a screen
//! of which nothing is there yet. Asserts nothing.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "../support/mod.rs"]
mod support;

use std::hint::black_box;
use std::time::Instant;

use stallscope::ui::render::render;
use stallscope::ui::terminal::Canvas;
use stallscope::ui::{ColorMode, GlyphSet};
use stallscope::view::build::build;
use stallscope::view::vm::{Size, Vm};

use stallscope::sample::subject::TaskId;
use stallscope::sample::tick::Tick;
use stallscope::sample::waits::{Sleep, ThreadWaits, WaitsSample};
use stallscope::view::panes::processes::Studies;

use support::console::{Console, theme};
use support::script::{Script, stamp};

fn median(n: usize, mut f: impl FnMut()) -> f64 {
    let mut us: Vec<f64> = (0..n)
        .map(|_| {
            let t = Instant::now();
            f();
            t.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    us.sort_by(f64::total_cmp);
    us[us.len() / 2]
}

fn main() {
    let size = Size::new(120, 40);
    println!(
        "{:>9} {:>22} {:>9} {:>9} {:>9} {:>9}",
        "sockets", "view", "build", "render", "frame", "repaint"
    );
    page(size);
    for connections in [40, 12_000, 100_000] {
        for (name, keys, size) in [
            ("landing", "", size),
            ("landing at 200x60", "", Size::new(200, 60)),
            ("sorted by peer", "ss", size),
            ("filter rto>1s", "/rto>1s<enter>", size),
            ("filter word", "/<c-u>10.0.9.77<enter>", size),
            ("cursor at the end", "/<c-u><enter>G", size),
        ] {
            let script = Script { connections, busy: true, ..Script::three_faults() };
            let mut c = Console::after(script, size, 30);
            c.keys(keys);
            let t = theme(ColorMode::Named, GlyphSet::Block);
            let before = c.vm();
            let after = c.ticks(1).vm();
            let built = median(50, || {
                black_box(build(&c.analysis, &c.view, size));
            });
            let mut canvas = Canvas::new(std::io::sink(), size);
            let mut draw = |vm: &Vm, again: bool| {
                if again {
                    canvas.repaint();
                }
                let _ = canvas.draw(None, |buf| render(vm, &t, *buf.area(), buf));
            };
            // What changes from one second to the next, and everything.
            let mut moments = [&before, &after].into_iter().cycle();
            let rendered = median(100, || moments.next().map_or((), |vm| draw(vm, false)));
            let repainted = median(50, || draw(&after, true));
            println!(
                "{connections:>9} {name:>22} {built:>8.0} {rendered:>9.0} {:>9.0} {repainted:>9.0}",
                built + rendered
            );
        }
    }
}

/// The page of a process with 2,000 threads: the first frame of a tick, and each further one.
fn page(size: Size) {
    let script = Script { change: crowd, ..Script::three_faults() };
    let mut c = Console::after(script, size, 60);
    c.keys("6/pid=2200<enter><enter>");
    assert_eq!(c.vm().watched, [2200]);
    let first = median(20, || {
        c.view.studies = Studies::default();
        black_box(build(&c.analysis, &c.view, size));
    });
    let further = median(50, || {
        black_box(build(&c.analysis, &c.view, size));
    });
    println!("page of 2,000 threads: {first:.0} us once per tick, {further:.0} us per frame");
}

fn crowd(t: &mut Tick, n: u64) {
    let thread = |i: u32| ThreadWaits {
        task: TaskId { pid: 2200, tid: 2200 + i, start: 1 },
        comm: "worker".into(),
        cgroup: Some("/kube/pod7".into()),
        run_ns: n * 10_000_000,
        run_delay_ns: Some(n * 5_000_000),
        utime: n,
        samples: 10,
        sleeps: vec![Sleep {
            state: 'S',
            wchan: Some("ep_poll".into()),
            syscall: Some("epoll_wait".into()),
            samples: 10,
            ..Sleep::default()
        }],
        ..ThreadWaits::default()
    };
    let threads = (0..2000).map(thread).collect();
    t.samples.waits = Some(stamp(t.mono, WaitsSample { threads, ..WaitsSample::default() }));
}
