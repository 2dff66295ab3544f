//! Signals that tokio cannot take for us: what was ignored when we started stays ignored, a
//! limit on the size of files is an error of the write, and one that kills restores the terminal
//! first, even while the main thread is busy or hangs.
//!
//! | signal | what happens |
//! |---|---|
//! | TERM, INT, HUP | tokio's: the program ends in order; by force when it is asked again a second later and has not begun to |
//! | XFSZ | ignored: `write(2)` says EFBIG |
//! | all others that kill | the terminal is restored, then the default action: the parent sees the signal, a core is written where one is due |
//!
//! A handler runs in the middle of anything: it calls the kernel and atomics, and nothing that
//! allocates or waits for a lock.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use libc::{c_int, c_void, siginfo_t};

use crate::clock;
use crate::sample::time::MonoNs;

/// Those that end the program in order.
const ORDERLY: [c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
/// Those that kill. USR1 is a mark, PIPE an error of the write.
const FATAL: [c_int; 9] = [
    libc::SIGQUIT,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGXCPU,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
];
/// Those that a thread brings upon itself.
const FAULTS: [c_int; 7] = [
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGBUS,
];
/// How long a request to end may go unheard before the next one is obeyed by force.
const PATIENCE: Duration = Duration::from_secs(1);

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Restores the terminal.
static RESTORE: OnceLock<fn()> = OnceLock::new();
/// Handlers of Rust's runtime, which names a stack overflow.
static SEGV_BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
static BUS_BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// When the first request to end came; 0: none did.
static ASKED: AtomicU64 = AtomicU64::new(0);
/// Somebody has heard it.
static HEARD: AtomicBool = AtomicBool::new(false);

/// Whether a signal is ignored. nohup ignores HUP, a script INT and QUIT of what it runs in the
/// background, and that is to stay.
pub fn is_ignored(signal: rustix::process::Signal) -> bool {
    current(signal.as_raw()).is_some_and(|a| a.sa_sigaction == libc::SIG_IGN)
}

/// Makes a limit on the size of files an error of the write.
pub fn ignore_file_size_limit() {
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// From now on `restore` is called before a signal kills. It must be fit for a signal handler.
pub fn restore_first(restore: fn()) {
    if RESTORE.set(restore).is_err() {
        return;
    }
    if let Some(a) = current(libc::SIGSEGV) {
        _ = SEGV_BEFORE.set(a);
    }
    if let Some(a) = current(libc::SIGBUS) {
        _ = BUS_BEFORE.set(a);
    }
    for signal in fatal_signals().chain(FAULTS) {
        catch(signal, fatal);
    }
    for signal in ORDERLY {
        catch(signal, orderly);
    }
}

fn fatal_signals() -> impl Iterator<Item = c_int> {
    FATAL.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

/// Leaves signals to the threads that run already: the kernel would give each to this one, and
/// wait for it while it hangs in a file system.
pub fn leave_to_others() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call makes the set valid, the others change it and this thread's mask.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in fatal_signals().chain(ORDERLY) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// The request to end is being followed.
pub fn heard() {
    HEARD.store(true, Ordering::Relaxed);
}

/// What happens now when a signal comes.
fn current(signal: c_int) -> Option<libc::sigaction> {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the pointer is to memory of the right size; nothing is set.
    let done = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: all zeros is a valid value, and the kernel has written another.
    (done == 0).then(|| unsafe { now.assume_init() })
}

/// Sets a handler, unless the signal is ignored.
fn catch(signal: c_int, handler: Handler) {
    if current(signal).is_none_or(|a| a.sa_sigaction == libc::SIG_IGN) {
        return;
    }
    // SAFETY: all zeros is a valid value of this type: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler as *const () as usize;
    // A stack that overflowed holds no handler.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handlers of this file are of the type that SA_SIGINFO wants, and do nothing
    // that a handler may not do.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
}

extern "C" fn fatal(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    if let Some(restore) = RESTORE.get() {
        restore();
    }
    // SAFETY: the kernel hands over a valid pointer or none.
    let by_kernel = unsafe { info.as_ref() }.is_some_and(|i| i.si_code > 0);
    let before = match signal {
        libc::SIGSEGV => SEGV_BEFORE.get(),
        libc::SIGBUS => BUS_BEFORE.get(),
        _ => None,
    };
    if let (true, Some(before)) = (by_kernel, before) {
        // SAFETY: it was in force before ours. The fault comes again when this returns.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
        return;
    }
    die(signal);
}

/// Goes before tokio's handler, which wakes the main thread.
extern "C" fn orderly(signal: c_int, _: *mut siginfo_t, _: *mut c_void) {
    let now = clock::mono();
    let first = ASKED.compare_exchange(0, now.0.max(1), Ordering::Relaxed, Ordering::Relaxed);
    // HUP comes twice in a row, from the kernel and from the shell.
    let unheard = first.is_err_and(|at| now.since(MonoNs(at)) >= PATIENCE);
    if unheard && !HEARD.load(Ordering::Relaxed) {
        if let Some(restore) = RESTORE.get() {
            restore();
        }
        die(signal);
    }
}

/// Takes the default action once this handler returns: until then the signal is blocked here.
fn die(signal: c_int) {
    // SAFETY: both may be called in a handler; no code of ours runs for the signal any more.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
