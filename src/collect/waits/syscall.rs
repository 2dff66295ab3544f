//! System calls that block, by number: `/proc/PID/task/TID/syscall` says
//! `NUMBER ARG0 ... ARG5 SP PC` in hexadecimal, `running`, or `-1 SP PC` outside of a call.

use crate::parse::fields;
use crate::sample::waits::Futex;

/// A system call that a thread sleeps in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Its name; `None`: not one of those below.
    pub(super) name: Option<&'static str>,
    pub(super) args: [u64; 3],
}

/// Parses the file; `None` when the thread is in none.
pub(super) fn parse(bytes: &[u8]) -> Option<Call> {
    let mut words = fields(bytes).map(|w| std::str::from_utf8(w).ok());
    let number: u32 = words.next()??.parse().ok()?;
    let mut all = [0; 7];
    for word in &mut all {
        *word = u64::from_str_radix(words.next()??.strip_prefix("0x")?, 16).ok()?;
    }
    let [first, second, third, _, _, _, sp] = all;
    let args = [first, second, third];
    let is_short = u32::try_from(sp).is_ok();
    Some(if is_short { Call { name: None, args } } else { Call::numbered(number, args) })
}

impl Call {
    /// By its number.
    pub(super) fn numbered(number: u32, args: [u64; 3]) -> Self {
        Self { name: name(number), args }
    }

    /// What it waits for, if it is a futex.
    pub(super) fn futex(&self) -> Option<Futex> {
        let [addr, op, val] = self.args;
        let futex = Futex { op: op as u32, val: val as u32, addr: Some(addr) };
        (self.name == Some("futex")).then_some(futex)
    }

    /// The descriptor that the call is about.
    pub(super) fn fd(&self) -> Option<u32> {
        let takes_one = matches!(
            self.name?,
            "read"
                | "write"
                | "readv"
                | "writev"
                | "pread64"
                | "pwrite64"
                | "preadv"
                | "pwritev"
                | "preadv2"
                | "pwritev2"
                | "sendto"
                | "recvfrom"
                | "sendmsg"
                | "recvmsg"
                | "sendmmsg"
                | "recvmmsg"
                | "connect"
                | "accept"
                | "accept4"
                | "fsync"
                | "fdatasync"
                | "sync_file_range"
                | "syncfs"
                | "fallocate"
                | "ftruncate"
                | "flock"
                | "fcntl"
                | "ioctl"
                | "epoll_wait"
                | "epoll_pwait"
                | "epoll_pwait2"
                | "sendfile"
                | "io_uring_enter"
                | "getdents64"
                | "fstat"
        );
        u32::try_from(self.args[0]).ok().filter(|_| takes_one)
    }
}

macro_rules! calls {
    ($($name:literal = $x86_64:literal, $generic:literal;)+) => {
        /// Numbers of 32-bit programs differ. Their stacks are below 4 GiB, where no kernel puts
        /// those of others: what is called from there has no name.
        #[cfg(target_arch = "x86_64")]
        fn name(number: u32) -> Option<&'static str> {
            match number { $($x86_64 => Some($name),)+ _ => None }
        }
        #[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
        fn name(number: u32) -> Option<&'static str> {
            match number { $($generic => Some($name),)+ _ => None }
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
        fn name(_: u32) -> Option<&'static str> {
            None
        }
    };
}

// Generic numbers from asm-generic/unistd.h; those that it does not have are beyond all of them.
calls! {
    "read" = 0, 63;
    "write" = 1, 64;
    "open" = 2, 100_002;
    "close" = 3, 57;
    "stat" = 4, 100_004;
    "fstat" = 5, 80;
    "poll" = 7, 100_007;
    "ioctl" = 16, 29;
    "pread64" = 17, 67;
    "pwrite64" = 18, 68;
    "readv" = 19, 65;
    "writev" = 20, 66;
    "select" = 23, 100_023;
    "msync" = 26, 227;
    "pause" = 34, 100_034;
    "nanosleep" = 35, 101;
    "sendfile" = 40, 71;
    "connect" = 42, 203;
    "accept" = 43, 202;
    "sendto" = 44, 206;
    "recvfrom" = 45, 207;
    "sendmsg" = 46, 211;
    "recvmsg" = 47, 212;
    "wait4" = 61, 260;
    "msgsnd" = 69, 189;
    "msgrcv" = 70, 188;
    "semop" = 65, 193;
    "fcntl" = 72, 25;
    "flock" = 73, 32;
    "fsync" = 74, 82;
    "fdatasync" = 75, 83;
    "ftruncate" = 77, 46;
    "rename" = 82, 100_082;
    "unlink" = 87, 100_087;
    "rt_sigtimedwait" = 128, 137;
    "rt_sigsuspend" = 130, 133;
    "sync" = 162, 81;
    "futex" = 202, 98;
    "io_getevents" = 208, 4;
    "getdents64" = 217, 61;
    "semtimedop" = 220, 192;
    "clock_nanosleep" = 230, 115;
    "epoll_wait" = 232, 100_232;
    "waitid" = 247, 95;
    "openat" = 257, 56;
    "newfstatat" = 262, 79;
    "unlinkat" = 263, 35;
    "renameat" = 264, 38;
    "pselect6" = 270, 72;
    "ppoll" = 271, 73;
    "sync_file_range" = 277, 84;
    "epoll_pwait" = 281, 22;
    "fallocate" = 285, 47;
    "accept4" = 288, 242;
    "preadv" = 295, 69;
    "pwritev" = 296, 70;
    "recvmmsg" = 299, 243;
    "syncfs" = 306, 267;
    "sendmmsg" = 307, 269;
    "renameat2" = 316, 276;
    "preadv2" = 327, 286;
    "pwritev2" = 328, 287;
    "io_pgetevents" = 333, 292;
    "io_uring_enter" = 426, 426;
    "epoll_pwait2" = 441, 441;
    "futex_waitv" = 449, 449;
    "futex_wait" = 455, 455;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn calls_are_named_and_have_their_arguments() {
        // Captured: a reader of a pipe, and a mutex that somebody else holds.
        let read = parse(b"0 0x3 0x7ffc8a1b 0x1000 0x0 0x0 0x0 0x7ffd8a1b0000 0x7f0a\n");
        let read = read.expect("a call");
        assert_eq!((read.name, read.fd()), (Some("read"), Some(3)));
        let lock =
            parse(b"202 0x55d0c3 0x80 0x2 0x0 0x0 0x0 0x7ffd8a1b0000 0x7f0a\n").expect("a call");
        assert_eq!((lock.name, lock.args, lock.fd()), (Some("futex"), [0x55_d0c3, 0x80, 2], None));
        assert_eq!(
            parse(b"999 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffd8a1b0000 0x8\n").map(|c| c.name),
            Some(None)
        );
    }

    /// `read` of a 32-bit program has the number of `close` of others.
    #[test]
    fn a_call_of_a_32_bit_program_has_no_name() {
        let call = parse(b"3 0x0 0xffc8a1b0 0x1000 0x0 0x0 0x0 0xffc8a180 0xf7f0a549\n");
        assert_eq!(call.map(|c| (c.name, c.fd(), c.futex())), Some((None, None, None)));
    }

    #[test]
    fn outside_of_a_call_there_is_none() {
        for text in [&b"running\n"[..], b"-1 0x7ffd 0x7f0a\n", b"", b"0\n", b"0 3 4 5\n"] {
            assert_eq!(parse(text), None, "{}", String::from_utf8_lossy(text));
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes).and_then(|c| c.fd());
        }
    }
}
