//! Kernels from Debian: the newest that apt offers of each line.

use std::path::{Path, PathBuf};
use std::process::Command;

/// An unpacked kernel package.
pub(crate) struct Kernel {
    /// `boot/vmlinuz-*`.
    pub(crate) image: PathBuf,
    /// `lib/modules/VERSION/kernel`.
    pub(crate) modules: PathBuf,
}

/// Downloads and unpacks the newest cloud kernel of `line`, such as `6.1`.
pub(crate) fn kernel(line: &str, dir: &Path) -> Kernel {
    let package = newest(line).or_else(|| {
        run(Command::new("apt-get").args(["update", "-qq"])).ok()?;
        newest(line)
    });
    let package = package.unwrap_or_else(|| {
        panic!("apt offers no linux-image-{line}.*-cloud-amd64: this suite needs Debian 12")
    });
    let dir = dir.join(line);
    std::fs::create_dir_all(&dir).unwrap();
    let unpacked = dir.join(&package);
    if !unpacked.is_dir() {
        let deb = download(&package, &dir);
        let partial = dir.join("partial");
        let _ = std::fs::remove_dir_all(&partial);
        run(Command::new("dpkg-deb").arg("-x").args([&deb, &partial])).unwrap();
        std::fs::rename(&partial, &unpacked).unwrap();
    }
    println!("{line}: {package}");
    let boot = entry(&unpacked.join("boot"), "vmlinuz-");
    // Merged /usr came with Debian 13.
    let lib = ["lib/modules", "usr/lib/modules"].map(|p| unpacked.join(p));
    let lib = lib.iter().find(|p| p.is_dir()).expect("a kernel without modules");
    Kernel { image: boot, modules: entry(lib, "").join("kernel") }
}

fn download(package: &str, dir: &Path) -> PathBuf {
    let get = || run(Command::new("apt-get").args(["download", "-q", package]).current_dir(dir));
    if let Err(first) = get() {
        // A list that is older than the archive names files that are gone.
        run(Command::new("apt-get").args(["update", "-qq"]))
            .and_then(|_| get())
            .unwrap_or_else(|e| panic!("cannot download {package}: no network? {first}; {e}"));
    }
    entry(dir, &format!("{package}_"))
}

fn newest(line: &str) -> Option<String> {
    let pattern = format!("^linux-image-{}\\..*-cloud-amd64$", line.replace('.', "\\."));
    let found = run(Command::new("apt-cache").args(["search", "--names-only", &pattern])).ok()?;
    let names = found.lines().filter_map(|l| l.split_whitespace().next());
    names.max_by_key(|n| numbers(n)).map(str::to_owned)
}

/// The numbers in a name, to compare versions by.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

fn entry(dir: &Path, prefix: &str) -> PathBuf {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap())
        .filter(|e| e.file_name().to_string_lossy().starts_with(prefix))
        .map(|e| e.path())
        .filter(|p| prefix.ends_with('_') == p.extension().is_some_and(|e| e == "deb"))
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| panic!("no {prefix}* in {}", dir.display()))
}

/// Runs a command that must work; its standard output.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(format!("{command:?}: {}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim()))
}
