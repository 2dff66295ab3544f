//! What the guest boots from: the program, this very suite and the libraries of both, in an initial
//! file system of their own.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fetch::{Kernel, run};

/// Modules that the guest may need; kernels have them built in or not.
const MODULES: [&str; 6] = [
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "drivers/block/virtio_blk",
];

/// The program and the tests, as they were built for the host.
pub(crate) struct Binaries {
    program: PathBuf,
    suite: PathBuf,
    /// What both are linked with, the loader too.
    libraries: BTreeSet<PathBuf>,
}

/// Strips both: an emulated CPU unpacks what is left.
pub(crate) fn binaries(dir: &Path) -> Binaries {
    let program = stripped(Path::new(env!("CARGO_BIN_EXE_stallscope")), dir.join("stallscope"));
    let suite = stripped(&std::env::current_exe().unwrap(), dir.join("suite"));
    let libraries = [&program, &suite].into_iter().flat_map(|p| libraries(p)).collect();
    Binaries { program, suite, libraries }
}

fn stripped(from: &Path, to: PathBuf) -> PathBuf {
    run(Command::new("strip").arg(from).arg("-o").arg(&to)).unwrap();
    to
}

/// The absolute paths that `ldd` names: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let listed = run(Command::new("ldd").arg(program)).unwrap();
    let found: Vec<PathBuf> =
        listed.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect();
    assert!(found.len() >= 2, "no C library and no loader: {listed}");
    found
}

/// Builds the initial file system of one kernel.
pub(crate) fn initramfs(kernel: &Kernel, binaries: &Binaries) -> Vec<u8> {
    let mut out = Cpio::default();
    for dir in ["bin", "etc", "modules", "proc", "sys", "dev"] {
        out.dir(dir);
    }
    // The kernel opens it before anything is mounted.
    out.node("dev/console", 0o020_600, &[], (5, 1));
    out.program("init", include_bytes!("init.sh"));
    out.program("bin/busybox", &read(busybox()));
    out.program("bin/stallscope", &read(&binaries.program));
    out.program("bin/matrix", &read(&binaries.suite));
    out.file("formats", include_bytes!("formats"));
    out.file("etc/passwd", b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n");
    out.file("etc/group", b"root:x:0:\nnogroup:x:65534:\n");
    let mut made = BTreeSet::new();
    for library in &binaries.libraries {
        let inside = library.strip_prefix("/").unwrap();
        let mut above: Vec<&Path> = inside.ancestors().skip(1).collect();
        above.pop();
        for dir in above.into_iter().rev().filter(|dir| made.insert(dir.to_path_buf())) {
            out.dir(dir.to_str().unwrap());
        }
        out.program(inside.to_str().unwrap(), &read(library));
    }
    for module in MODULES {
        if let Some(bytes) = load_module(&kernel.modules.join(module)) {
            let name = Path::new(module).file_name().and_then(OsStr::to_str).unwrap();
            out.file(&format!("modules/{name}.ko"), &bytes);
        }
    }
    out.end()
}

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    let path = path.as_ref();
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn busybox() -> PathBuf {
    let found = ["/bin/busybox", "/usr/bin/busybox"].into_iter().map(PathBuf::from);
    let found = found.into_iter().find(|p| p.exists()).expect("busybox-static");
    // A program that needs a loader names it right behind its headers.
    let head = read(&found).into_iter().take(4096).collect::<Vec<u8>>();
    let dynamic = head.windows(9).any(|w| w == b"/ld-linux");
    assert!(!dynamic, "it may need other libraries than the program: install busybox-static");
    found
}

/// A module, plain or compressed; `None` when it is built in.
fn load_module(stem: &Path) -> Option<Vec<u8>> {
    let plain = stem.with_extension("ko");
    if plain.exists() {
        return Some(read(plain));
    }
    let packed = stem.with_extension("ko.xz");
    packed.exists().then(|| {
        let out = Command::new("xz").arg("-dc").arg(&packed).output().unwrap();
        assert!(out.status.success(), "{}", packed.display());
        out.stdout
    })
}

/// Writes an archive in the "newc" format, the one that the kernel unpacks.
#[derive(Default)]
struct Cpio {
    out: Vec<u8>,
    inode: u32,
}

impl Cpio {
    fn dir(&mut self, name: &str) {
        self.node(name, 0o040_755, &[], (0, 0));
    }

    fn file(&mut self, name: &str, data: &[u8]) {
        self.node(name, 0o100_644, data, (0, 0));
    }

    fn program(&mut self, name: &str, data: &[u8]) {
        self.node(name, 0o100_755, data, (0, 0));
    }

    fn node(&mut self, name: &str, mode: u32, data: &[u8], device: (u32, u32)) {
        self.inode += 1;
        let size = u32::try_from(data.len()).unwrap();
        let name_size = name.len() as u32 + 1;
        let mut head = String::from("070701");
        let links = 1;
        let fields = [self.inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size];
        for field in fields.into_iter().chain([0]) {
            write!(head, "{field:08x}").unwrap();
        }
        self.out.extend_from_slice(head.as_bytes());
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(0);
        self.pad();
        self.out.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.out.resize(self.out.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.node("TRAILER!!!", 0, &[], (0, 0));
        self.out
    }
}
