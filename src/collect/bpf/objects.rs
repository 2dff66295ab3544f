//! The embedded objects, and a check that they are what was built: the library that parses
//! them panics on damaged ones, as a torn or overwritten program file may hold.

/// The programs of the run queue.
pub(super) const SCHED: &[u8] = aya::include_bytes_aligned!("../../../assets/sched.bpf.o");
/// Of softirqs and interrupts.
pub(super) const IRQ: &[u8] = aya::include_bytes_aligned!("../../../assets/irq.bpf.o");
/// Of block requests.
pub(super) const BLOCK: &[u8] = aya::include_bytes_aligned!("../../../assets/block.bpf.o");
/// Of network events.
pub(super) const NET: &[u8] = aya::include_bytes_aligned!("../../../assets/net.bpf.o");
/// The same for kernels without ring buffers.
pub(super) const NET_PERF: &[u8] = aya::include_bytes_aligned!("../../../assets/net_perf.bpf.o");

/// The walk over all threads.
pub(super) const TASKS: &[u8] = aya::include_bytes_aligned!("../../../assets/tasks.bpf.o");

/// Of files that are created.
pub(super) const FILES: &[u8] = aya::include_bytes_aligned!("../../../assets/files.bpf.o");

/// What `cksum` printed when they were built: checksum, size and name per line.
const CHECKSUMS: &str = include_str!("../../../assets/bpf.cksum");

/// True for the bytes of an object as it was built.
pub(super) fn whole(object: &[u8]) -> bool {
    let own = checksum(object);
    CHECKSUMS.lines().any(|line| {
        let mut words = line.split(' ').map(str::parse::<u64>);
        let (sum, size) = (words.next(), words.next());
        sum == Some(Ok(u64::from(own))) && size == Some(Ok(object.len() as u64))
    })
}

/// The checksum of POSIX `cksum`: CRC-32, most significant bit first, over the bytes and then
/// their number.
fn checksum(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|i| {
        (0..8).fold((i as u32) << 24, |c, _| c << 1 ^ if c >> 31 == 1 { 0x04c1_1db7 } else { 0 })
    });
    let step = |c: u32, b: u8| {
        let at = usize::from((c >> 24) as u8 ^ b);
        c << 8 ^ table.get(at).copied().unwrap_or(0)
    };
    let mut sum = bytes.iter().fold(0, |c, b| step(c, *b));
    let mut left = bytes.len();
    while left > 0 {
        sum = step(sum, left as u8);
        left >>= 8;
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_cksum() {
        // As `printf 123456789 | cksum` and `printf '' | cksum` print.
        assert_eq!(checksum(b"123456789"), 930_766_865);
        assert_eq!(checksum(b""), 4_294_967_295);
    }

    #[test]
    fn damaged_objects_are_told_from_whole_ones() {
        for object in [SCHED, IRQ, BLOCK, NET, NET_PERF, TASKS, FILES] {
            assert!(whole(object));
            assert!(!whole(&object[1..]) && !whole(&object[..object.len() - 1]));
        }
        assert!(!whole(b""));
    }
}
