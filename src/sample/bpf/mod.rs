//! What the kernel programs measure: rows and histograms, cumulative since the programs were
//! attached. What a program could not count is counted too.

pub mod block;
pub mod files;
pub mod hist;
pub mod irq;
/// The shape of the maps, and with it that of histograms. The file lies beside the loader: the
/// programs under `ebpf/` include it there, and its path is part of the committed objects.
#[path = "../../collect/bpf/layout.rs"]
pub mod layout;
pub mod net;
pub mod runq;

pub use hist::Hist;

/// Kernels on which the programs are loaded, attached and compared with the kernel's own
/// counters by the tests. On others only the reading of layouts is tested, by fixtures from 5.5
/// on.
pub const TESTED_KERNELS: [&str; 3] = ["6.1", "6.12", "6.18"];
