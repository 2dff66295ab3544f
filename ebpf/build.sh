#!/bin/bash
# Builds the kernel programs and writes assets/NAME.bpf.o.
#
#   ebpf/build.sh             build, write assets/
#   ebpf/build.sh --check     build in a temporary directory, compare with assets/ byte for byte
#   ebpf/build.sh --install   first install what is missing (also when CI=true)
#
# The committed objects come from the pinned toolchain: Debian's rustc-web 1.96 with
# rust-web-src and LLVM 22, bpf-linker 0.13.0. With STALLSCOPE_BPF_NIGHTLY=1 the pinned rustup
# nightly with rust-src builds them instead (or the toolchain named there); such objects work
# but differ from the committed ones.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
names=(sched irq block net net_perf tasks files)
llvm=22
linker_version=0.13.0
# A nightly with LLVM 22: its bitcode must not be newer than the linker's LLVM.
nightly=${STALLSCOPE_BPF_NIGHTLY:-}
[ "$nightly" != 1 ] || nightly=nightly-2026-05-20
check=0 install=${CI:-false}
for arg in "$@"; do
    case $arg in
        --check) check=1 ;;
        --install) install=true ;;
        *) echo "usage: ebpf/build.sh [--check] [--install]" >&2; exit 2 ;;
    esac
done

cargo_home=${CARGO_HOME:-$HOME/.cargo}
export PATH=$cargo_home/bin:/usr/lib/llvm-$llvm/bin:$PATH

have_linker() { bpf-linker --version 2>/dev/null | grep -q " $linker_version"; }

if [ "$install" != false ]; then
    packages=(rustc-web rust-web-src)
    if [ -n "$nightly" ]; then
        packages=()
        rustup toolchain install "$nightly" --profile minimal --component rust-src --no-self-update
    fi
    missing=()
    for p in "${packages[@]}" "llvm-$llvm-dev" "llvm-$llvm" "libpolly-$llvm-dev" libzstd-dev; do
        dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
    done
    if [ ${#missing[@]} -gt 0 ]; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
    fi
    have_linker || LLVM_PREFIX=/usr/lib/llvm-$llvm cargo install bpf-linker \
        --version "=$linker_version" --locked --no-default-features --features "llvm-$llvm"
fi
have_linker || { echo "bpf-linker $linker_version is missing: run ebpf/build.sh --install" >&2; exit 3; }

RUSTC=/usr/bin/rustc
[ -z "$nightly" ] || RUSTC=$(rustup which --toolchain "$nightly" rustc)
src=$("$RUSTC" --print sysroot)/lib/rustlib/src/rust/library
[ -e "$src" ] || { echo "no $src: run ebpf/build.sh --install" >&2; exit 3; }
export RUSTC RUSTC_BOOTSTRAP=1
sysroot=$("$RUSTC" --print sysroot)
target=${STALLSCOPE_BPF_TARGET:-$here/target}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
[ $check = 1 ] && target=$out/target

# Paths end up in debug information: replace the ones that differ between machines
# (of several that match, the last counts).
flags=(
    -Clinker=bpf-linker -Clink-arg=--btf -Cdebuginfo=2 -Ctarget-cpu=v2
    "--remap-path-prefix=$sysroot=/rust-sysroot"
    "--remap-path-prefix=$(readlink -f "$sysroot/lib/rustlib/src/rust")=/rust"
    "--remap-path-prefix=$cargo_home=/cargo"
    "--remap-path-prefix=$root=/stallscope"
)
(
    cd "$here"
    unset RUSTFLAGS CARGO_BUILD_RUSTFLAGS CARGO_INCREMENTAL
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; echo "${flags[*]}") \
    CARGO_TARGET_DIR=$target cargo build --locked --release --quiet \
        --target bpfel-unknown-none -Z build-std=core
)
for name in "${names[@]}"; do
    llvm-objcopy --strip-debug "$target/bpfel-unknown-none/release/$name" "$out/$name.bpf.o"
done
(
    cd "$out"
    sha256sum "${names[@]/%/.bpf.o}" > bpf.sha256
    cksum "${names[@]/%/.bpf.o}" > bpf.cksum # which the program checks before it loads them
    { "$RUSTC" --version; bpf-linker --version; llvm-objcopy --version | sed -n 's/.*LLVM version/LLVM/p'; } > bpf.toolchain
)

if [ $check = 1 ]; then
    status=0
    for f in "${names[@]/%/.bpf.o}" bpf.sha256 bpf.cksum; do
        if cmp "$out/$f" "$root/assets/$f"; then echo "same: assets/$f"; else status=1; fi
    done
    if [ $status != 0 ]; then
        echo "the objects in assets/ are not what this source builds; toolchains:" >&2
        diff "$root/assets/bpf.toolchain" "$out/bpf.toolchain" >&2 || true
    fi
    exit $status
fi
mkdir -p "$root/assets"
cp "$out"/*.bpf.o "$out/bpf.sha256" "$out/bpf.cksum" "$out/bpf.toolchain" "$root/assets/"
ls -l "$root"/assets/*.bpf.o
cat "$root/assets/bpf.toolchain"
