//! A collector of sockets, asked once, and what it says of a socket of ours.

use std::time::Duration;

use stallscope::clock;
use stallscope::collect::{Collector, SampleContext};
use stallscope::sample::Interest;
use stallscope::sample::sockets::{InetRows, SocketsSample};

/// One reading.
pub fn read<C: Collector<Sample = SocketsSample>>(
    collector: &mut C,
    interest: &Interest,
) -> SocketsSample {
    let cx = SampleContext { at: clock::mono(), interval: Duration::from_secs(1), interest };
    collector.sample(&cx).unwrap()
}

/// Asks again until there is an answer; fails after a minute.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = clock::mono() + Duration::from_secs(60);
    while clock::mono() < deadline {
        if let Some(answer) = ask() {
            return answer;
        }
        clock::sleep_until(clock::mono() + Duration::from_millis(20));
    }
    panic!("waited in vain until {what}");
}

/// The row with these ports.
pub fn row(rows: &InetRows, lport: u16, rport: u16) -> Option<usize> {
    (0..rows.len()).find(|i| rows.lport[*i] == lport && rows.rport[*i] == rport)
}

/// Inode of a descriptor.
pub fn inode(fd: &impl std::os::fd::AsFd) -> u32 {
    u32::try_from(rustix::fs::fstat(fd).unwrap().st_ino).unwrap()
}
