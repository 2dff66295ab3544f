//! What a frame costs on the way to the terminal.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use stallscope::ui::render::render;
use stallscope::ui::terminal::Canvas;
use stallscope::ui::{ColorMode, GlyphSet};
use stallscope::view::vm::Size;

use crate::support::console::{Console, theme};
use crate::support::script::Script;

const SIZE: Size = Size::new(120, 40);

#[derive(Clone, Default)]
struct Wire(Rc<RefCell<Vec<Vec<u8>>>>);

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().push(buf.to_vec());
        Ok(buf.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire {
    /// Writes and bytes since the last call.
    fn take(&self) -> (usize, usize, Vec<u8>) {
        let w = std::mem::take(&mut *self.0.borrow_mut());
        let all = w.concat();
        (w.len(), all.len(), all)
    }
}

fn frame(c: &Console, canvas: &mut Canvas<Wire>) -> bool {
    let vm = c.vm();
    let t = theme(ColorMode::Named, GlyphSet::Block);
    canvas
        .draw(vm.cursor, |buf| {
            let area = *buf.area();
            render(&vm, &t, area, buf);
        })
        .unwrap()
}

#[test]
fn a_steady_frame_is_small_and_leaves_in_one_write() {
    for faults in [false, true] {
        let script = Script { faults, busy: true, ..Script::default() };
        let wire = Wire::default();
        let mut canvas = Canvas::new(wire.clone(), SIZE);
        let mut c = Console::after(script, SIZE, 180);
        frame(&c, &mut canvas);
        let (writes, first, _) = wire.take();
        assert_eq!(writes, 1);
        assert!(first < 20_000, "{first} bytes for the first frame");
        let mut sizes = Vec::new();
        for _ in 0..60 {
            c.ticks(1);
            frame(&c, &mut canvas);
            let (writes, bytes, all) = wire.take();
            assert!(writes <= 2, "{writes} writes");
            assert!(all.starts_with(b"\x1b[?2026h") && all.ends_with(b"\x1b[?2026l"));
            sizes.push(bytes);
        }
        let (max, mean) = (sizes.iter().max().unwrap(), sizes.iter().sum::<usize>() / sizes.len());
        println!("faults {faults}: first {first}, steady mean {mean}, max {max}");
        assert!(*max <= 2048, "{max} bytes in a steady frame, mean {mean}");
    }
}

#[test]
fn nothing_is_sent_when_nothing_changed() {
    let wire = Wire::default();
    let mut canvas = Canvas::new(wire.clone(), SIZE);
    let c = Console::after(Script::healthy(), SIZE, 5);
    assert!(frame(&c, &mut canvas));
    wire.take();
    assert!(!frame(&c, &mut canvas));
    assert_eq!(wire.take().0, 0);
}

#[test]
fn a_failed_frame_still_ends_the_synchronized_update() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
    let mut canvas = Canvas::new(Full, SIZE);
    let c = Console::after(Script::healthy(), SIZE, 2);
    let vm = c.vm();
    let r = canvas
        .draw(None, |buf| render(&vm, &theme(ColorMode::Mono, GlyphSet::Block), *buf.area(), buf));
    assert!(r.is_err(), "an unreachable terminal is an error, not a panic");
}
