//! What a frame of the console costs: build, render, diff and write, per number of sockets.
//!
//! `cargo bench --bench frame`. Prints the median of many frames in us; asserts nothing.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "../support/mod.rs"]
mod support;

use std::hint::black_box;
use std::time::Instant;

use stallscope::ui::render::render;
use stallscope::ui::terminal::Canvas;
use stallscope::ui::{ColorMode, GlyphSet};
use stallscope::view::build::build;
use stallscope::view::vm::Size;

use support::console::{Console, theme};
use support::script::Script;

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
    println!("{:>9} {:>22} {:>9} {:>9} {:>9}", "sockets", "view", "build", "render", "frame");
    for connections in [40, 12_000, 100_000] {
        for (name, keys) in [
            ("landing", ""),
            ("sorted by peer", "ss"),
            ("filter rto>1s", "/rto>1s<enter>"),
            ("filter word", "/<c-u>10.0.9.77<enter>"),
            ("cursor at the end", "/<c-u><enter>G"),
        ] {
            let script = Script { connections, busy: true, ..Script::three_faults() };
            let mut c = Console::after(script, size, 30);
            c.keys(keys);
            let t = theme(ColorMode::Named, GlyphSet::Block);
            let mut canvas = Canvas::new(std::io::sink(), size);
            let vm = c.vm();
            let built = median(50, || {
                black_box(build(&c.analysis, &c.view, size));
            });
            let rendered = median(50, || {
                canvas.repaint();
                let _ = canvas.draw(None, |buf| render(&vm, &t, *buf.area(), buf));
            });
            println!(
                "{connections:>9} {name:>22} {built:>8.0} {rendered:>9.0} {:>9.0}",
                built + rendered
            );
        }
    }
}
