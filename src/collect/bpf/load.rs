//! Loads an object and attaches its programs, each on its own: one that the kernel refuses
//! is reported with the reason, the others run.
//!
//! Links are owned by file descriptors and nothing is pinned, so that the kernel detaches
//! everything however we end.

use std::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};

use aya::maps::{Map, MapData};
use aya::programs::{
    BtfTracePoint, FEntry, Iter, Program, ProgramError, ProgramType, RawTracePoint, TracePoint,
};
use aya::sys::{BpfHelper, is_helper_supported};
use aya::{Ebpf, EbpfLoader, Endianness};
use aya_obj::generated::bpf_map_type;
use memchr::memmem;
use rustix::io::Errno;
use rustix::process::chroot;

use super::btf::Btf;
use super::fields::{self, FieldError, Fields};
use super::maps::{Stripes, unshare_root};
use super::rights::{missing_capabilities, refused};
use super::runq::HOST_PIDS;
use super::{objects, tracefs};
use crate::collect::{BpfMode, CollectOptions, HostFs, Unavailable};
use crate::parse::cpu_list;

/// Where a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// Tracepoint with typed arguments (5.5 with BTF).
    Btf(&'static str),
    /// Tracepoint with raw arguments (4.17).
    Raw(&'static str),
    /// Classic tracepoint: group and event; needs tracefs.
    Classic(&'static str, &'static str),
    /// Entry of a function (5.5 with BTF, `CONFIG_FUNCTION_TRACER`).
    Function(&'static str),
}

/// Values for the read-only variables of an object.
pub(super) type Globals = Vec<(&'static str, u32)>;

/// What all collectors share while they open: read once, dropped after.
pub(super) struct Kernel {
    /// Highest possible CPU number + 1.
    pub(super) cpus: usize,
    /// The kernel's types, or why there are none.
    pub(super) types: Result<Types, Unavailable>,
    /// One for all objects.
    loader: Mutex<EbpfLoader<'static>>,
}

impl Kernel {
    fn new(cpus: usize, types: Result<Types, Unavailable>) -> Self {
        Self { cpus, types, loader: Mutex::new(loader()) }
    }
}

/// A loader without the kernel's types: our objects have nothing to relocate. All constructors
/// of aya parse them, 5 MB that become 20 for a moment, when memory may be what the host is
/// short of. So one is made where that file is not to be found, in a thread with another root;
/// where that is not allowed, they are parsed and freed.
fn loader() -> EbpfLoader<'static> {
    let make = || {
        let mut loader = EbpfLoader::new();
        loader.btf(None);
        loader
    };
    let elsewhere = move || {
        // A directory that is always there and has none of a root's.
        let _ = unshare_root().and_then(|()| Ok(chroot("/proc/self/fdinfo")?));
        make()
    };
    // Where the system has no thread to spare, as where it forbids another root.
    std::thread::scope(|s| {
        let spawned = std::thread::Builder::new().spawn_scoped(s, elsewhere);
        spawned.ok().and_then(|t| t.join().ok())
    })
    .unwrap_or_else(make)
}

/// The kernel's type information, for us and for the loader.
pub(super) struct Types {
    pub(super) own: Btf,
    /// Not 0: programs read with a helper what they read seldom.
    pub(super) by_helper: u32,
    /// Whether programs may read any address of the kernel.
    pub(super) helper: bool,
    loader: aya::Btf,
}

static KERNEL: Mutex<Option<Arc<Kernel>>> = Mutex::new(None);

/// Checks the options and our rights, then reads what all collectors need.
pub(super) fn kernel(host: &HostFs, opts: &CollectOptions) -> Result<Arc<Kernel>, Unavailable> {
    if opts.bpf == BpfMode::Off {
        return Err(Unavailable::new("switched off by --no-bpf", "start without --no-bpf"));
    }
    if !host.is_live() {
        return Err(Unavailable::new("not reading the running kernel", ""));
    }
    // Before the kernel's types are read, which takes the most time and memory of all.
    if !missing_capabilities().is_empty() {
        return Err(refused());
    }
    enough_files(rustix::process::getrlimit(rustix::process::Resource::Nofile).current)?;
    let mut cached = KERNEL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(k) = &*cached {
        return Ok(k.clone());
    }
    let k = Arc::new(Kernel::new(possible_cpus(host), types(host)));
    *cached = Some(k.clone());
    Ok(k)
}

/// Programs, links and maps stay open, some 50 of them: where files are short, all the others
/// that we read with them would go without.
fn enough_files(limit: Option<u64>) -> Result<(), Unavailable> {
    const FILES: u64 = 192;
    match limit.filter(|n| *n < FILES) {
        None => Ok(()),
        Some(n) => Err(Unavailable::new(
            format!("only {n} open files allowed: not enough for eBPF as well"),
            format!("raise the limit of open files (ulimit -n, LimitNOFILE=) to {FILES} or more"),
        )),
    }
}

/// Where the numbers of processes that programs tell are not those of `/proc`, nobody can be named.
pub(super) fn host_pids(host: &HostFs) -> Result<(), Unavailable> {
    if host.link("proc/self/ns/pid").is_ok_and(|ns| ns != HOST_PIDS) {
        return Err(Unavailable::new(
            "in a namespace of process ids, where the kernel's numbers are not those of /proc",
            "run it in the host's (hostPID, --pid=host)",
        ));
    }
    Ok(())
}

/// Gives back the memory of [`kernel`]; called when sampling begins.
pub(super) fn forget_kernel() {
    KERNEL.lock().unwrap_or_else(PoisonError::into_inner).take();
}

fn possible_cpus(host: &HostFs) -> usize {
    let list = host.read("sys/devices/system/cpu/possible").unwrap_or_default();
    let highest = cpu_list(&list).into_iter().map(|c| c as usize).max();
    highest.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), |h| h + 1)
}

fn types(host: &HostFs) -> Result<Types, Unavailable> {
    let path = "sys/kernel/btf/vmlinux";
    let blob = host.read(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Unavailable::new(
            format!("no /{path}: this kernel was built without CONFIG_DEBUG_INFO_BTF"),
            NO_BTF,
        ),
        _ => Unavailable::because(format!("/{path}"), &e, NO_BTF),
    })?;
    types_of(blob).map_err(|e| Unavailable::new(format!("/{path}: {e}"), NO_BTF))
}

/// What makes it slow to load a program that follows a pointer of an argument (6.3): the verifier
/// looks for types of certain names with this function of its own.
const SEARCH: &str = "btf_nested_type_is_trusted";

/// Programs may read the kernel's memory with a helper: not in lockdown (since 5.14 the helper is
/// not there then; before that it would read zeros, but those kernels do not search).
fn helper_allowed() -> bool {
    let helper = BpfHelper::BPF_FUNC_probe_read_kernel;
    is_helper_supported(ProgramType::RawTracePoint, helper).unwrap_or(false)
}

fn types_of(blob: Vec<u8>) -> Result<Types, String> {
    let own = Btf::parse(blob).map_err(|e| e.to_string())?;
    // aya makes an object of every type; all that it looks up is the number of one that a program
    // is attached to.
    let loader = aya::Btf::parse(&own.hooks(), Endianness::default());
    let loader = loader.map_err(|e| e.to_string())?;
    let helper = helper_allowed();
    let by_helper = u32::from(own.names(SEARCH) && helper);
    Ok(Types { own, by_helper, helper, loader })
}

/// An object in the kernel, with the programs that attached and those that did not.
pub(super) struct Loaded {
    pub(super) ebpf: Ebpf,
    /// True when array maps may be mapped into memory.
    pub(super) mmap: bool,
    /// The map whose address the programs hold, until it is taken.
    placed: Option<Map>,
    attached: Vec<&'static str>,
    /// As it was read last, and how often it was asked for.
    missed: (Option<u64>, u32),
}

/// Missed events cost system calls: they are read every so many times.
const MISSED_EVERY: u32 = 60;

/// An array of stripes in the one value of a map: programs can hold its address.
pub(super) struct Placed {
    map: MapData,
    stripes: u32,
}

impl Placed {
    /// Creates it. Many kernels allow 4 MiB for a value.
    pub(super) fn new<const W: usize>(name: &str, stripes: usize) -> Result<Self, Unavailable> {
        let bytes = u32::try_from(stripes * W * size_of::<u64>()).unwrap_or(u32::MAX);
        let kind = bpf_map_type::BPF_MAP_TYPE_ARRAY as u32;
        let map = aya_obj::Map::new_from_params(kind, 4, bytes, 1, MMAPABLE);
        let map = MapData::create(map, name, None).map_err(|e| explain(&e))?;
        Ok(Self { map, stripes: stripes as u32 })
    }
}

impl Loaded {
    /// Creates the maps of an object and prepares its programs. `sizes` are map entries.
    pub(super) fn new(
        kernel: &Kernel,
        object: &[u8],
        globals: &Globals,
        sizes: &[(&'static str, u32)],
    ) -> Result<Self, Unavailable> {
        Self::with_fields(kernel, object, globals, &Fields::new(), sizes, None)
    }

    /// The same for an object whose instructions hold offsets too, and the address of a map.
    pub(super) fn with_fields(
        kernel: &Kernel,
        object: &[u8],
        globals: &Globals,
        fields: &Fields,
        sizes: &[(&'static str, u32)],
        placed: Option<Placed>,
    ) -> Result<Self, Unavailable> {
        if !objects::whole(object) {
            return Err(damaged());
        }
        let mut object = fields::set(object, fields).map_err(not_set)?;
        if let Some(Placed { map, stripes }) = &placed {
            let fd = map.fd().as_fd().as_raw_fd();
            object = fields::place(&object, fd, *stripes).map_err(not_set)?;
        }
        let object = &object;
        let placed = placed.map(|p| Map::Array(p.map));
        if let Some((name, _)) = globals.iter().find(|(name, _)| !names(object, name)) {
            let reason = format!("the object has no variable {name}");
            return Err(Unavailable::new(reason, REINSTALL));
        }
        match create(kernel, object, globals, sizes) {
            Ok(ebpf) => {
                Ok(Self { ebpf, mmap: true, placed, attached: Vec::new(), missed: (None, 0) })
            }
            // Kernels before 5.5 do not know the flag for mappable arrays.
            Err(e) if os_error(&e) == Some(Errno::INVAL) && placed.is_none() => {
                let plain = without_mmap(object);
                let ebpf = create(kernel, &plain, globals, sizes).map_err(|e| explain(&e))?;
                Ok(Self { ebpf, mmap: false, placed, attached: Vec::new(), missed: (None, 0) })
            }
            Err(e) => Err(explain(&e)),
        }
    }

    /// Loads and attaches one program.
    pub(super) fn attach(
        &mut self,
        kernel: &Kernel,
        name: &'static str,
        hook: Hook,
    ) -> Result<(), Unavailable> {
        let program = self.ebpf.program_mut(name).ok_or_else(|| {
            Unavailable::new(format!("the object has no program {name}"), REINSTALL)
        })?;
        match hook {
            Hook::Btf(tracepoint) => {
                let types = kernel.types.as_ref().map_err(Clone::clone)?;
                attach_btf(program, tracepoint, &types.loader).map_err(|e| explain(&e))?;
            }
            Hook::Raw(tracepoint) => {
                attach_raw(program, tracepoint).map_err(|e| explain(&e))?;
            }
            Hook::Classic(group, event) => {
                tracefs::ready()?;
                attach_classic(program, group, event).map_err(|e| explain(&e))?;
            }
            Hook::Function(function) => {
                let types = kernel.types.as_ref().map_err(Clone::clone)?;
                if !types.own.names(function) {
                    let reason = format!("this kernel has no function {function}");
                    return Err(Unavailable::new(reason, "use a kernel with CONFIG_SECURITY"));
                }
                attach_entry(program, function, &types.loader).map_err(|e| at_function(&e))?;
            }
        }
        self.attached.push(name);
        Ok(())
    }

    /// Loads a program that walks over all `what` of the kernel; it runs while somebody reads a
    /// [`walk`](Self::walk).
    pub(super) fn load_walk(
        &mut self,
        kernel: &Kernel,
        name: &'static str,
        what: &str,
    ) -> Result<(), Unavailable> {
        let types = kernel.types.as_ref().map_err(Clone::clone)?;
        let walker = self.walker(name).map_err(|e| explain(&e))?;
        walker.load(what, &types.loader).map_err(|e| explain(&e))?;
        self.attached.push(name);
        Ok(())
    }

    /// A walk from the beginning, to be read once. aya gives a file for a link and takes the link:
    /// each walk has one of its own, a call more.
    pub(super) fn walk(&mut self, name: &str) -> io::Result<File> {
        let walker = self.walker(name).map_err(io::Error::other)?;
        let link = walker.attach().and_then(|id| walker.take_link(id)).map_err(io::Error::other)?;
        link.into_file().map_err(io::Error::other)
    }

    fn walker(&mut self, name: &str) -> Result<&mut Iter, ProgramError> {
        let program = self.ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)?;
        program.try_into()
    }

    /// Takes the map of stripes out of the object.
    pub(super) fn stripes<const W: usize>(
        &mut self,
        map: &str,
        count: usize,
    ) -> Result<Stripes<W>, Unavailable> {
        let taken =
            self.placed.take().or_else(|| self.ebpf.take_map(map)).ok_or_else(|| {
                Unavailable::new(format!("the object has no map {map}"), REINSTALL)
            })?;
        Stripes::new(taken, count, self.mmap)
            .map_err(|e| Unavailable::new(format!("cannot map {map}: {e}"), ""))
    }

    /// The programs that are attached.
    pub(super) fn attached(&self) -> &[&'static str] {
        &self.attached
    }

    /// Events that the kernel did not run a program for, because it or another one ran on the
    /// CPU already (5.12). `None` where the kernel does not tell. Read every 60th time.
    pub(super) fn missed(&mut self) -> Option<u64> {
        if self.missed.1.is_multiple_of(MISSED_EVERY) {
            self.missed.0 = self.missed_now();
        }
        self.missed.1 = self.missed.1.wrapping_add(1);
        self.missed.0
    }

    /// The same, read now.
    pub(super) fn missed_now(&self) -> Option<u64> {
        let mut sum = None;
        for name in &self.attached {
            let Some(program) = self.ebpf.program(name) else { continue };
            let Ok(fd) = program.fd() else { continue };
            let path = format!("/proc/thread-self/fdinfo/{}", fd.as_fd().as_raw_fd());
            let text = std::fs::read_to_string(path).ok()?;
            let misses = text.lines().find_map(|l| l.strip_prefix("recursion_misses:"));
            if let Some(n) = misses.and_then(|v| v.trim().parse::<u64>().ok()) {
                sum = Some(sum.unwrap_or(0u64).saturating_add(n));
            }
        }
        sum
    }
}

pub(super) const NO_BTF: &str = "use a kernel with CONFIG_DEBUG_INFO_BTF";
/// The object is not what we built.
const REINSTALL: &str = "reinstall stallscope";
/// For layouts and verifiers that this version does not know.
pub(super) const UNKNOWN_KERNEL: &str = "update stallscope, or report this kernel to its authors";

fn create(
    kernel: &Kernel,
    object: &[u8],
    globals: &Globals,
    sizes: &[(&'static str, u32)],
) -> Result<Ebpf, aya::EbpfError> {
    let mut loader = kernel.loader.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, value) in globals {
        // Four bytes each, for as long as we run: the loader outlives this call. It keeps the
        // variables of objects before, which this one need not have: `names` has checked ours.
        let value: &'static u32 = Box::leak(Box::new(*value));
        loader.override_global(name, value, false);
    }
    for (name, entries) in sizes {
        loader.map_max_entries(name, *entries);
    }
    loader.load(object)
}

fn not_set(e: FieldError) -> Unavailable {
    match e {
        FieldError::NotLoaded(field) => {
            Unavailable::new(format!("the object does not load field {field:#x}"), REINSTALL)
        }
        FieldError::NotPlaced => {
            Unavailable::new("no program of the object asks for its map", REINSTALL)
        }
        FieldError::TooFar(offset) => {
            let reason = format!("a structure of this kernel has a field at byte {offset}");
            Unavailable::new(reason, UNKNOWN_KERNEL)
        }
    }
}

/// Flag of arrays that can be mapped into memory (`BPF_F_MMAPABLE`, 5.5).
const MMAPABLE: u32 = 1 << 10;

fn damaged() -> Unavailable {
    Unavailable::new("the kernel program in this binary is damaged", REINSTALL)
}

/// True when the object has a symbol of that name.
fn names(object: &[u8], symbol: &str) -> bool {
    let with_ends = [b"\0", symbol.as_bytes(), b"\0"].concat();
    memmem::find(object, &with_ends).is_some()
}

fn attach_btf(p: &mut Program, tracepoint: &str, btf: &aya::Btf) -> Result<(), ProgramError> {
    let p: &mut BtfTracePoint = p.try_into()?;
    p.load(tracepoint, btf)?;
    p.attach().map(|_| ())
}

fn attach_entry(p: &mut Program, function: &str, btf: &aya::Btf) -> Result<(), ProgramError> {
    let p: &mut FEntry = p.try_into()?;
    p.load(function, btf)?;
    p.attach().map(|_| ())
}

fn attach_raw(p: &mut Program, tracepoint: &str) -> Result<(), ProgramError> {
    let p: &mut RawTracePoint = p.try_into()?;
    p.load()?;
    p.attach(tracepoint).map(|_| ())
}

fn attach_classic(p: &mut Program, group: &str, event: &str) -> Result<(), ProgramError> {
    let p: &mut TracePoint = p.try_into()?;
    p.load()?;
    p.attach(group, event).map(|_| ())
}

/// The object with the flag for mappable arrays taken away: in the definitions of array maps
/// (type 2, 4-byte keys) it is the fifth word.
fn without_mmap(object: &[u8]) -> Vec<u8> {
    let mut out = object.to_vec();
    let mut at = 0;
    while let Some(def) = out.get_mut(at..at + 28) {
        let array = def.starts_with(&[2, 0, 0, 0, 4, 0, 0, 0]);
        let rest_is_zero = def.get(20..).is_some_and(|r| r.iter().all(|b| *b == 0));
        if let Some(flags) = def.get_mut(16..20)
            && array
            && rest_is_zero
            && flags == MMAPABLE.to_ne_bytes()
        {
            flags.fill(0);
        }
        at += 4;
    }
    out
}

/// The system's error behind another one.
fn os_error(e: &(dyn Error + 'static)) -> Option<Errno> {
    let mut e = Some(e);
    while let Some(inner) = e {
        if let Some(io) = inner.downcast_ref::<io::Error>()
            && let Some(code) = io.raw_os_error()
        {
            return Some(Errno::from_raw_os_error(code));
        }
        e = inner.source();
    }
    None
}

/// What to tell the user about an error of the loader.
fn explain(e: &(dyn Error + 'static)) -> Unavailable {
    match os_error(e) {
        Some(Errno::PERM | Errno::ACCESS) if verifier_line(e).is_none() => refused(),
        Some(Errno::NOENT) => {
            Unavailable::new("this kernel lacks the tracepoint", "use a newer kernel")
        }
        Some(Errno::NOMEM) => Unavailable::new(
            "no memory for the programs' maps",
            "raise the memory limit of the service or container",
        ),
        Some(code @ (Errno::MFILE | Errno::NFILE)) => {
            Unavailable::because("eBPF", &code.into(), UNKNOWN_KERNEL)
        }
        Some(code) => {
            let what = verifier_line(e).unwrap_or_else(|| io::Error::from(code).to_string());
            Unavailable::new(format!("the kernel refuses the program: {what}"), UNKNOWN_KERNEL)
        }
        None => Unavailable::new(format!("the program cannot be loaded: {e}"), REINSTALL),
    }
}

/// The same of a program at a function, which is refused where others are not.
fn at_function(e: &(dyn Error + 'static)) -> Unavailable {
    match os_error(e) {
        Some(Errno::PERM | Errno::ACCESS) if verifier_line(e).is_none() => {
            let reason = "a security module forbids eBPF at functions of the kernel";
            Unavailable::new(reason, "allow it there")
        }
        Some(Errno::NOENT | Errno::BUSY) => Unavailable::new(
            "this kernel has no place for eBPF at its functions",
            "use a kernel with CONFIG_FUNCTION_TRACER",
        ),
        _ => explain(e),
    }
}

/// The line in which the verifier says what it does not like.
fn verifier_line(e: &(dyn Error + 'static)) -> Option<String> {
    let Some(ProgramError::LoadError { verifier_log, .. }) = e.downcast_ref() else { return None };
    let log = verifier_log.to_string();
    let stats = ["processed ", "verification time", "stack depth"];
    log.lines()
        .rev()
        .map(str::trim)
        .find(|l| !l.is_empty() && !stats.iter().any(|s| l.starts_with(s)))
        .map(|l| l.chars().take(160).collect())
}

#[cfg(test)]
mod tests;
