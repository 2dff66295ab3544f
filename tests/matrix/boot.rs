//! Boots a kernel in qemu and brings home what the guest wrote.
//!
//! Software emulation: it needs no rights on the host and works inside of virtual machines.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use stallscope::clock;

use crate::fetch::{self, run};
use crate::image::{self, Binaries};

/// Far longer than a boot takes as a batch (nice 19) on a busy two-core machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// A boot that is over.
pub(crate) struct Boot {
    /// Which kernels: `6.1`.
    pub(crate) line: &'static str,
    out: PathBuf,
}

/// qemu; ends with us.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn binaries(dir: &Path) -> &'static Binaries {
    static BUILT: OnceLock<Binaries> = OnceLock::new();
    BUILT.get_or_init(|| image::binaries(dir))
}

impl Boot {
    /// Boots the newest kernel of `line`, runs `sections` of `init.sh` and powers off.
    pub(crate) fn run(line: &'static str, sections: &str, cmdline: &str) -> Self {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("matrix");
        let name = if cmdline.is_empty() { line.to_owned() } else { format!("{line} {cmdline}") };
        let dir = cache.join(name.replace([' ', '='], "-") + ".boot");
        let _ = std::fs::remove_dir_all(&dir);
        let out = dir.join("out");
        std::fs::create_dir_all(&out).unwrap();
        let kernel = fetch::kernel(line, &cache);
        std::fs::write(dir.join("initrd"), image::initramfs(&kernel, binaries(&cache))).unwrap();
        for (disk, mib) in [("vda", 64), ("vdb", 16), ("nvme", 64)] {
            std::fs::File::create(dir.join(disk)).unwrap().set_len(mib << 20).unwrap();
        }
        let begun = clock::mono();
        let append = format!("console=ttyS0 panic=-1 quiet matrix={sections} {cmdline}");
        let mut guest = start(&kernel.image, &append, &dir);
        loop {
            if guest.0.try_wait().unwrap().is_some() {
                break;
            }
            let now = clock::mono();
            assert!(now.since(begun) < PATIENCE, "{name} does not end: {}", console(&dir));
            clock::sleep_until(now + Duration::from_millis(50));
        }
        println!("{name}: booted, ran {sections} and went off in {:?}", clock::mono().since(begun));
        let unpacked = run(Command::new("tar").arg("xf").arg(dir.join("vdb")).arg("-C").arg(&out));
        let boot = Self { line, out };
        assert!(
            unpacked.is_ok() && boot.out.join("complete").exists(),
            "{name} ended early ({unpacked:?}): {}",
            console(&dir)
        );
        boot
    }

    /// A file that the guest wrote; empty when it did not.
    pub(crate) fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.out.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How a command ended, and all that it said.
    pub(crate) fn result(&self, name: &str) -> (i32, String, String) {
        let file = |end: &str| self.read(&format!("{name}.{end}"));
        (file("rc").trim().parse().unwrap_or(-1), file("out"), file("err"))
    }
}

fn start(image: &Path, cmdline: &str, dir: &Path) -> Guest {
    let mut qemu = Command::new("qemu-system-x86_64");
    // One thread for all CPUs: with one for each, qemu may run an instruction that the kernel is
    // patching on another CPU (seen: the NOP of a tracepoint in __schedule, entered at its second
    // byte), and the guest dies when a program is attached.
    qemu.args(["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2", "-m", "1024"])
        .args(["-display", "none", "-no-reboot", "-nodefaults", "-monitor", "none"])
        .arg("-serial")
        .arg(format!("file:{}", dir.join("console").display()))
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(dir.join("initrd"))
        .args(["-append", cmdline]);
    let drive = |id: &str| format!("file={},if=none,format=raw,id={id}", dir.join(id).display());
    for (id, device) in [
        ("vda", "virtio-blk-pci,drive=vda"),
        ("vdb", "virtio-blk-pci,drive=vdb"),
        ("nvme", "nvme,drive=nvme,serial=1"),
    ] {
        qemu.args(["-drive", &drive(id), "-device", device]);
    }
    let log = std::fs::File::create(dir.join("qemu.log")).unwrap();
    let child = qemu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    Guest(child)
}

/// The end of what the guest and qemu said.
fn console(dir: &Path) -> String {
    let text = ["qemu.log", "console"].map(|f| {
        let bytes = std::fs::read(dir.join(f)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let lines: Vec<&str> = text.iter().flat_map(|t| t.lines()).collect();
    lines.get(lines.len().saturating_sub(40)..).unwrap_or_default().join("\n")
}
