//! What the terminal sends: fragments, floods, pastes, the wheel.

use std::time::{Duration, Instant};

use crate::support::files::{Dir, GOLDEN};
use crate::support::terminal::{DEADLINE, Session};

const PASTE: &str = "\x1b[200~";
const END: &str = "\x1b[201~";

impl Session {
    /// Presses a key until the program has ended: the first one may still belong to a sequence.
    fn insist(&mut self, key: &str) -> u32 {
        let end = Instant::now() + DEADLINE;
        loop {
            self.keys(key);
            let patience = Instant::now() + Duration::from_secs(1);
            while Instant::now() < patience {
                if let Some(s) = self.child.try_wait().unwrap() {
                    return s.exit_code();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(Instant::now() < end, "{key:?} is ignored:\n{}", self.text());
        }
    }
}

fn console(dir: &Dir, args: &[&str]) -> Session {
    let s = Session::within(dir.path(), 30, 120, &[&["--no-bpf"], args].concat());
    s.until("a sample", |s| s.text().contains("netlink"));
    s
}

const FRAGMENTS: &[&str] = &[
    "\x1b[?",
    "\x1b[1",
    "\x1b[<",
    "\x1b[<64;3",
    PASTE,
    "\x1b[200~text",
    "\x1b[M!",
    "\x1b[[",
    "\x1bO",
    "\x1b]0;title",
    "\x1bP1$r",
];

#[test]
fn ctrl_c_works_behind_every_fragment() {
    let dir = Dir::new();
    for fragment in FRAGMENTS {
        let mut s = console(&dir, &[]);
        s.keys(&format!("{fragment}\x03"));
        assert!(s.exit().success(), "{fragment:?}");
        s.assert_restored();
    }
}

#[test]
fn q_works_behind_every_fragment() {
    let dir = Dir::new();
    for fragment in FRAGMENTS {
        let mut s = console(&dir, &[]);
        s.keys(fragment);
        assert_eq!(s.insist("q"), 0, "{fragment:?}");
    }
}

/// The escape key alone closes what is open; it does not wait for another key.
#[test]
fn escape_alone_is_a_key() {
    let dir = Dir::new();
    let mut s = console(&dir, &[]);
    s.keys("?");
    s.shows("go to the sockets");
    s.keys("\x1b");
    s.hides("go to the sockets");
    s.keys("q");
    assert!(s.exit().success());
}

/// A flood is read to its end, whatever its keys; what stands at its end is obeyed.
#[test]
fn input_of_any_length_is_read_to_its_end() {
    let dir = Dir::new();
    let mut s = console(&dir, &["--mouse"]);
    let wheel = "\x1b[<65;10;10M".repeat(200);
    let text = "jjjjkkkk sss jkjkjkjkjkjkjkjkjkjkjkjkjkjkjkjkjkjk  \r\x1b".repeat(40);
    for flood in ["j".repeat(4000), wheel, text] {
        s.keys(&flood);
        s.keys("1?");
        s.shows("go to the sockets");
        s.keys("?");
        s.hides("go to the sockets");
    }
    s.keys("q");
    assert!(s.exit().success());
}

/// A paste is text, not keys: none of it is carried out, and one line says so.
#[test]
fn a_paste_outside_of_a_prompt_is_refused() {
    let dir = Dir::new();
    let mut s = console(&dir, &[]);
    s.until("bracketed paste", |s| s.said("\x1b[?2004h"));
    let text = "warn: retrying request with wrapped writer\rq r w\x1b[201~q\r".repeat(40);
    s.keys(&format!("{PASTE}{text}{END}"));
    s.shows("80 lines of pasted text refused");
    assert_eq!(dir.count(), 0, "a pasted w or r was carried out");
    // Twice as much as any prompt could want, many times over.
    s.keys("?");
    s.shows("go to the sockets");
    s.keys("?");
    s.hides("go to the sockets");
    s.keys(&format!("{PASTE}{}{END}", "0123456789abcde\r".repeat(65_536)));
    s.shows("65536 lines of pasted text refused");
    s.keys("q");
    assert!(s.exit().success());
    s.assert_restored();
    assert_eq!(dir.count(), 0);
}

/// A prompt takes a paste as one line.
#[test]
fn a_paste_goes_into_an_open_prompt() {
    let dir = Dir::new();
    let mut s = console(&dir, &[]);
    s.keys("/");
    s.keys(&format!("{PASTE}10.0.\x1b[31m3.7\r\n\tESTAB\r\n{END}"));
    s.shows("10.0.[31m3.7 ESTAB");
    s.keys("\x1b");
    s.until("the prompt to close", |s| !s.text().contains("ESTAB"));
    s.keys("q");
    assert!(s.exit().success());
    assert_eq!(dir.count(), 0);
}

/// The same in a replay, with the end of a paste inside of the paste and one that nobody began.
#[test]
fn a_replay_refuses_a_paste() {
    let dir = Dir::new();
    let mut s = Session::within(dir.path(), 30, 120, &["replay", GOLDEN]);
    s.shows("1 Sockets");
    s.keys(END);
    s.keys(&format!("{PASTE}a\rb{END}w{END}"));
    s.shows("2 lines of pasted text refused");
    assert_eq!(dir.count(), 0);
    s.keys("q");
    assert!(s.exit().success());
    s.assert_restored();
}

/// Stopped, the shell must not get brackets around what is pasted into it.
#[test]
fn a_stop_switches_bracketed_paste_off_and_fg_on() {
    let dir = Dir::new();
    let mut s = console(&dir, &[]);
    s.keys("\x1a");
    s.until("the stop", |s| Session::state(s.pid()) == 'T');
    s.until("the shell's screen", |s| s.said("\x1b[?2004l"));
    s.bytes.lock().unwrap().clear();
    s.signal(rustix::process::Signal::CONT);
    s.until("bracketed paste", |s| s.said("\x1b[?2004h"));
    // Before its first frame it would end without one.
    s.until("a frame", |s| s.said("\x1b[?2026h"));
    s.keys("q");
    assert!(s.exit().success());
    s.assert_restored();
}
