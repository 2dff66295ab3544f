//! What the kernel programs share: the layout of the maps, cells of a stripe, and reading
//! kernel structures at offsets that the loader takes from the running kernel.
#![no_std]
#![feature(asm_experimental_arch)]

#[path = "../../../src/collect/bpf/layout.rs"]
pub mod layout;

use core::ffi::c_void;
use core::ptr::{read_volatile, write_volatile};

use aya_ebpf::helpers::generated::{
    bpf_get_smp_processor_id, bpf_jiffies64, bpf_ktime_get_ns, bpf_probe_read_kernel,
};
use aya_ebpf::maps::Array;
use layout::{BUCKETS, placed};

/// Flag of arrays that user space maps into its memory.
pub const MMAPABLE: u32 = 1 << 10;

/// Limits `v` to `MASK` in a way that the compiler cannot prove away: the verifier needs to
/// see the mask even where the value is known to be small.
#[inline(always)]
#[must_use]
pub fn bounded<const MASK: u64>(v: u64) -> usize {
    let mut v = v;
    // SAFETY: one register in and out, no memory.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("{0} &= {1}", inout(reg) v, const MASK, options(pure, nomem, nostack));
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        v &= MASK;
    }
    v as usize
}

/// Nanoseconds of CLOCK_MONOTONIC.
#[inline(always)]
#[must_use]
pub fn now() -> u64 {
    // SAFETY: helper without arguments.
    unsafe { bpf_ktime_get_ns() }
}

/// Ticks of the kernel's clock (5.6): one load where programs are compiled for 64 bits.
#[inline(always)]
#[must_use]
pub fn jiffies() -> u64 {
    // SAFETY: helper without arguments.
    unsafe { bpf_jiffies64() }
}

/// Number of this CPU.
#[inline(always)]
#[must_use]
pub fn cpu() -> u32 {
    // SAFETY: helper without arguments.
    unsafe { bpf_get_smp_processor_id() as u32 }
}

/// The same as the kernel returns it. The binding says 32 bits, so that each use as an index
/// takes two instructions to clear the others, which are 0 already.
#[inline(always)]
#[must_use]
pub fn cpu_index() -> u64 {
    // SAFETY: helpers are called by number, and take and return 64-bit registers; 8 is
    // `bpf_get_smp_processor_id`, without arguments.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn() -> u64>(8)()
    }
    #[cfg(not(target_arch = "bpf"))]
    0
}

/// A stripe of words in a map. Its end is known to the verifier as that of the value, so
/// every offset used with it must be a constant, or bounded by [`bounded`].
#[derive(Clone, Copy)]
pub struct Stripe(*mut u64);

impl Stripe {
    /// The stripe at `index`.
    #[inline(always)]
    #[must_use]
    pub fn of<const WORDS: usize>(map: &Array<[u64; WORDS]>, index: u32) -> Option<Self> {
        map.get_ptr_mut(index).map(|p| Self(p.cast()))
    }
    /// The stripe at `index` of the map that the loader places in the program.
    #[inline(always)]
    #[must_use]
    pub fn placed<const WORDS: usize>(index: u64) -> Option<Self> {
        if index >= placed::STRIPES {
            return None;
        }
        Some(Self::address()?.after(index * (WORDS * size_of::<u64>()) as u64))
    }
    /// What the loader replaces by the address of a map.
    #[inline(always)]
    fn address() -> Option<Self> {
        #[cfg(target_arch = "bpf")]
        {
            let at: *mut u64;
            // SAFETY: sets one register.
            unsafe {
                core::arch::asm!("{0} = {1} ll", out(reg) at, const placed::ADDRESS, options(pure, nomem, nostack));
            }
            Some(Self(at))
        }
        #[cfg(not(target_arch = "bpf"))]
        None
    }
    /// What lies `bytes` further: added as it is, where the compiler would rather turn the words
    /// of each access into bytes again.
    #[inline(always)]
    #[must_use]
    pub fn after(self, bytes: u64) -> Self {
        let mut at = self.0;
        // SAFETY: one register in and out, no memory; the verifier checks what is done with it.
        #[cfg(target_arch = "bpf")]
        unsafe {
            core::arch::asm!("{0} += {1}", inout(reg) at, in(reg) bytes, options(pure, nomem, nostack));
        }
        #[cfg(not(target_arch = "bpf"))]
        {
            at = at.wrapping_byte_add(bytes as usize);
        }
        Self(at)
    }
    /// Reads a word.
    #[inline(always)]
    #[must_use]
    pub fn get(self, word: usize) -> u64 {
        // SAFETY: the verifier checks each access against the size of the map's value.
        unsafe { read_volatile(self.0.add(word)) }
    }
    /// Writes a word.
    #[inline(always)]
    pub fn set(self, word: usize, v: u64) {
        // SAFETY: as above.
        unsafe { write_volatile(self.0.add(word), v) }
    }
    /// Adds to a word that only this context writes.
    #[inline(always)]
    pub fn add(self, word: usize, v: u64) {
        self.set(word, self.get(word).wrapping_add(v));
    }
    /// Adds to a word that other CPUs, or other contexts of this one, write too.
    #[inline(always)]
    pub fn add_shared(self, word: usize, v: u64) {
        // The compiler offers no atomics for this target. SAFETY: as above; words are aligned.
        #[cfg(target_arch = "bpf")]
        unsafe {
            core::arch::asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) self.0.add(word), in(reg) v, options(nostack));
        }
        #[cfg(not(target_arch = "bpf"))]
        self.add(word, v);
    }
    /// Counts a duration in the histogram that begins at `hist`.
    #[inline(always)]
    pub fn observe(self, hist: usize, ns: u64) {
        self.add(hist + bucket(ns), 1);
    }
}

/// Bucket of a duration.
#[inline(always)]
#[must_use]
pub fn bucket(ns: u64) -> usize {
    bounded::<{ BUCKETS as u64 - 1 }>(layout::bucket_of(ns) as u64)
}

/// A pointer into the kernel whose type the verifier knows (an argument of a BTF tracepoint,
/// or what such a pointer points to). Loads are direct: the kernel turns a bad address into 0.
#[derive(Clone, Copy)]
pub struct Kernel(*const u8);

impl Kernel {
    /// Argument `n` of a BTF tracepoint.
    #[inline(always)]
    #[must_use]
    pub fn arg(ctx: *mut c_void, n: usize) -> Self {
        Self(arg(ctx, n) as *const u8)
    }
    /// True for the null pointer.
    #[inline(always)]
    #[must_use]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
    /// Reads a field.
    #[inline(always)]
    #[must_use]
    pub fn read<T: Copy>(self, offset: usize) -> T {
        // SAFETY: the verifier checks the offset against the type's BTF.
        unsafe { read_volatile(self.0.add(offset).cast()) }
    }
    /// Follows a pointer field.
    #[inline(always)]
    #[must_use]
    pub fn follow(self, offset: usize) -> Self {
        Self(self.read::<*const u8>(offset))
    }
}

impl Kernel {
    /// The same place, to be read with a helper.
    #[inline(always)]
    #[must_use]
    pub fn untyped(self) -> Address {
        Address(self.0)
    }
}

/// A place in the kernel of which the verifier knows no type, for what is read seldom: the
/// helper takes some 20 ns more than a load. But since 6.3, wherever a program follows a pointer
/// of one of its arguments, the verifier looks for four names among all types of the kernel, one
/// after the other: 2 ms each time it comes by. Programs read so only where the loader set
/// `BY_HELPER` or `SKB_KNOWN`, for a kernel in lockdown has no such helper.
#[derive(Clone, Copy)]
pub struct Address(*const u8);

impl Address {
    /// What lies `bytes` further.
    #[inline(always)]
    #[must_use]
    pub fn at(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

/// What can be read either way.
pub trait Place: Copy {
    /// Reads a field; 0 from a bad address.
    #[must_use]
    fn read<T: Copy + Default>(self, offset: usize) -> T;
    /// Follows a pointer field.
    #[must_use]
    fn follow(self, offset: usize) -> Self;
}

impl Place for Kernel {
    #[inline(always)]
    fn read<T: Copy + Default>(self, offset: usize) -> T {
        Kernel::read(self, offset)
    }
    #[inline(always)]
    fn follow(self, offset: usize) -> Self {
        Kernel::follow(self, offset)
    }
}

impl Place for Address {
    #[inline(always)]
    fn read<T: Copy + Default>(self, offset: usize) -> T {
        let mut v = T::default();
        let from = self.0.wrapping_add(offset);
        // SAFETY: the helper checks the source; the target is a local of that size.
        unsafe {
            bpf_probe_read_kernel((&raw mut v).cast(), size_of::<T>() as u32, from.cast());
        }
        v
    }
    #[inline(always)]
    fn follow(self, offset: usize) -> Self {
        Self(self.read::<u64>(offset) as *const u8)
    }
}

/// Argument `n` of a raw or BTF tracepoint: an 8-byte slot.
#[inline(always)]
#[must_use]
pub fn arg(ctx: *mut c_void, n: usize) -> u64 {
    // SAFETY: the verifier knows how many arguments there are.
    unsafe { read_volatile(ctx.cast::<u64>().cast_const().add(n)) }
}

/// An offset that the loader fills in: `offset!(NAME)` inside the kernel structure, at most
/// 16 KiB. Masked, because kernels before 5.5 do not fold it into a constant.
#[macro_export]
macro_rules! offsets {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        static $name: aya_ebpf::Global<u32> = aya_ebpf::Global::new(0);
    )+ };
}

/// Reads an offset declared by `offsets!`.
#[macro_export]
macro_rules! at {
    ($name:ident) => {
        ($name.load() & 0x3fff) as usize
    };
}

/// The same without the mask, for programs that need 5.5 anyway (BTF tracepoints).
#[macro_export]
macro_rules! exact {
    ($name:ident) => {
        $name.load() as usize
    };
}

/// The kernel lets only programs under a licence it knows use all helpers.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Panics cannot happen: the verifier refuses programs that could.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

impl Kernel {
    /// What a helper returned: a pointer whose type the verifier knows.
    #[inline(always)]
    #[must_use]
    pub fn returned(pointer: i64) -> Self {
        Self(pointer as *const u8)
    }
    /// The pointer, for a helper.
    #[inline(always)]
    #[must_use]
    pub fn pointer<T>(self) -> *mut T {
        self.0.cast_mut().cast()
    }
}
