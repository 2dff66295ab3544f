//! Who may run the lab, and beside whom.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Condvar, Mutex, Once, PoisonError};

use stallscope::clock;
use stallscope::sample::time::MonoNs;

/// Where a test breaks things, and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "not every suite has such tests")]
pub enum Place {
    /// Between network namespaces of its own.
    Network = 0,
    /// On a loop device of its own.
    Disk = 1,
    /// In a file system of its own.
    Files = 2,
    /// Where it neither disturbs others nor minds them: few processes, little work.
    Anywhere = 3,
    /// As [`Place::Network`], with packets as fast as a CPU can send them.
    Flood = 4,
    /// In a console that is itself what is measured: it hears of faults, and they would hear of it.
    Console = 5,
    /// In a sleep that does not end, which is told of the host: no disk may be slow beside it.
    Hung = 6,
    /// On a host of which hardly anything else is told: beside another one of these, and no others.
    Still = 7,
}

/// How many tests run at a time in each [`Place`]. Most of a test is waiting.
const ROOM: [usize; 8] = [3, 2, 1, 2, 3, 2, 1, 2];

impl Place {
    /// Do tests of both places run side by side?
    fn bears(self, other: usize) -> bool {
        let own = self as usize;
        let is = |place: Self| own == place as usize || other == place as usize;
        own == other
            || if is(Self::Hung) {
                is(Self::Network) || is(Self::Console)
            } else {
                !is(Self::Flood) && !is(Self::Console) && !is(Self::Still)
            }
    }
}

/// Faults disturb each other (a pinned spinner slows a sender), so tests take turns, but for those
/// that stay in their place.
struct OnTheBox {
    alone: bool,
    by_place: [usize; ROOM.len()],
    /// Tests of [`Place::Hung`] and [`Place::Console`] that wait. They come first, since hardly any
    /// others run beside them: each other do.
    first: usize,
}

static ON_THE_BOX: Mutex<OnTheBox> =
    Mutex::new(OnTheBox { alone: false, by_place: [0; ROOM.len()], first: 0 });
static ONE_LESS: Condvar = Condvar::new();

impl OnTheBox {
    fn has_room_for(&self, place: Option<Place>) -> bool {
        let mut others = self.by_place.iter().enumerate().filter(|(_, tests)| **tests > 0);
        let gives_way = self.first > 0 && !comes_first(place);
        !self.alone
            && !gives_way
            && match place {
                None => others.next().is_none(),
                Some(p) => {
                    self.by_place[p as usize] < ROOM[p as usize] && others.all(|(q, _)| p.bears(q))
                }
            }
    }
}

fn comes_first(place: Option<Place>) -> bool {
    matches!(place, Some(Place::Hung | Place::Console))
}

/// A test that has its turn, and since when: in its place, or alone.
struct Turn(Option<Place>, MonoNs);

impl Turn {
    fn wait_for(place: Option<Place>) -> Self {
        // After two notifications a hundred tests that wait look like a queue for a mutex, and the
        // program under test looks at each of them ten times a second.
        static BEGUN: Once = Once::new();
        BEGUN.call_once(|| (0..3).for_each(|_| ONE_LESS.notify_all()));
        let is_first = usize::from(comes_first(place));
        let mut there = ON_THE_BOX.lock().unwrap_or_else(PoisonError::into_inner);
        there.first += is_first;
        let mut there = ONE_LESS
            .wait_while(there, |b| !b.has_room_for(place))
            .unwrap_or_else(PoisonError::into_inner);
        there.first -= is_first;
        match place {
            None => there.alone = true,
            Some(p) => there.by_place[p as usize] += 1,
        }
        Self(place, clock::mono())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut there = ON_THE_BOX.lock().unwrap_or_else(PoisonError::into_inner);
        match self.0 {
            None => there.alone = false,
            Some(p) => there.by_place[p as usize] -= 1,
        }
        ONE_LESS.notify_all();
        let (place, took) = (self.0, clock::mono().since(self.1).as_secs_f64());
        let place = place.map_or("alone".to_owned(), |p| format!("{p:?}"));
        say(&format!("took {took:.1} s, {place}:"));
    }
}

/// Runs `test` if this machine allows it, alone. Without `STALLSCOPE_LAB=1` the whole suite
/// is skipped, so that `cargo test` passes for everybody; with it, and with `CI=true`, a
/// missing tool or missing root fails instead of skipping.
pub fn lab(tools: &[&str], test: impl FnOnce()) {
    suite("STALLSCOPE_LAB", tools, test);
}

/// As [`lab`], for a suite that another variable asks for.
pub fn suite(variable: &str, tools: &[&str], test: impl FnOnce()) {
    if asked_for(variable) {
        alone(by_root(tools), test);
    }
}

/// As [`lab`], beside other tests.
#[allow(dead_code, reason = "not every suite has such tests")]
pub fn beside(place: Place, tools: &[&str], test: impl FnOnce()) {
    if asked_for("STALLSCOPE_LAB") && may_run(by_root(tools)) {
        let _turn = Turn::wait_for(Some(place));
        test();
    }
}

/// As [`beside`], for a fault that is slow to come and disturbs nobody before it is judged: what
/// `prepare` makes ages while others have their turn.
#[allow(dead_code, reason = "not every suite has such tests")]
pub fn beside_after<T>(
    place: Place,
    tools: &[&str],
    prepare: impl FnOnce() -> T,
    test: impl FnOnce(T),
) {
    if asked_for("STALLSCOPE_LAB") && may_run(by_root(tools)) {
        let prepared = prepare();
        let _turn = Turn::wait_for(Some(place));
        test(prepared);
    }
}

/// Runs `test` if the tools it compares with are installed; needs no root.
pub fn with_tools(tools: &[&str], test: impl FnOnce()) {
    alone(present(tools), test);
}

/// Runs `test` if what is written to `dir` reaches a disk; needs no root.
#[allow(dead_code, reason = "not every suite has such tests")]
pub fn with_disk(dir: &Path, test: impl FnOnce()) {
    const TMPFS: u64 = 0x0102_1994;
    let in_memory = rustix::fs::statfs(dir).is_ok_and(|s| s.f_type as u64 == TMPFS);
    alone(if in_memory { Err(format!("{} is in memory", dir.display())) } else { Ok(()) }, test);
}

fn alone(allowed: Result<(), String>, test: impl FnOnce()) {
    if may_run(allowed) {
        let _turn = Turn::wait_for(None);
        test();
    }
}

fn asked_for(variable: &str) -> bool {
    let asked = std::env::var(variable).as_deref() == Ok("1");
    if !asked {
        say(&format!("SKIPPED (set {variable}=1, needs root):"));
    }
    asked
}

fn by_root(tools: &[&str]) -> Result<(), String> {
    if rustix::process::geteuid().is_root() { present(tools) } else { Err("not root".into()) }
}

fn may_run(allowed: Result<(), String>) -> bool {
    let Err(why) = allowed else { return true };
    assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot run in CI: {why}");
    say(&format!("SKIPPED ({why}):"));
    false
}

/// `eprintln!` would be swallowed with the output of the passing test.
fn say(what: &str) {
    let test = std::thread::current();
    let _ = writeln!(std::io::stderr(), "{what} {}", test.name().unwrap_or_default());
}

fn present(tools: &[&str]) -> Result<(), String> {
    match tools.iter().find(|t| !installed(t)) {
        Some(missing) => Err(format!("`{missing}` is not installed")),
        None => Ok(()),
    }
}

fn installed(tool: &str) -> bool {
    // Root's PATH may lack sbin when started by a service.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    path.split(':').any(|dir| Path::new(dir).join(tool).exists())
}
