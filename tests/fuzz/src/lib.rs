//! What reads bytes that others made, as functions over bytes: each must come back from
//! anything, without a panic, without memory that the input only promises. `cargo fuzz` calls
//! them with what it invents, `tests/suite/bytes.rs` with real inputs that were changed a little.
//!
//! ```text
//! cargo +nightly fuzz run --fuzz-dir tests/fuzz netlink tests/fuzz/corpus/netlink \
//!     tests/fixtures/6.18/sock_diag tests/fixtures/6.18/rtnetlink -- -max_total_time=300
//! ```
//!
//! The first directory takes what is found; those behind it are where to begin, and are in
//! [`TARGETS`].

pub mod btf;
pub mod explain;
pub mod netlink;
pub mod procfs;
pub mod recording;
pub mod terminal;

/// A target: its name, its function, directories of the repository with real inputs.
pub type Target = (&'static str, fn(&[u8]), &'static [&'static str]);

/// All targets.
pub const TARGETS: &[Target] = &[
    ("recording", recording::whole, &["tests/fuzz/seeds/recording"]),
    ("payload", recording::payload, &["tests/fuzz/seeds/payload"]),
    ("sample", recording::sample, &["tests/fuzz/seeds/sample"]),
    (
        "netlink",
        netlink::datagram,
        &["tests/fixtures/6.18/sock_diag", "tests/fixtures/6.18/rtnetlink"],
    ),
    (
        "proc",
        procfs::file,
        &[
            "tests/fixtures/6.18/proc",
            "tests/fixtures/6.18/proc/net",
            "tests/fixtures/6.18/proc/net/stat",
            "tests/fixtures/6.18/proc/pressure",
            "tests/fixtures/3.10/proc",
            "tests/fixtures/4.19/proc",
            "tests/fixtures/cgroup1/proc/self",
            "tests/fixtures/cgroup2/sys/fs/cgroup/system.slice/db.service",
            "tests/fixtures/tasks/proc",
            "tests/fixtures/tasks/proc/100/task/100",
        ],
    ),
    (
        "explain",
        explain::text,
        &["tests/fixtures/pastes/vectors", "tests/fixtures/pastes/captured"],
    ),
    ("btf", btf::image, &["tests/fixtures/btf"]),
    ("terminal", terminal::bytes, &[]),
];
