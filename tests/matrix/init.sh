#!/bin/busybox sh
# First process of the guest. Runs the sections that the kernel command line names, keeps what
# they print in /out, writes /out to the second virtio disk and powers off.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /out /tmp /empty /sys/fs/cgroup
chmod 1777 /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t securityfs securityfs /sys/kernel/security
ip link set lo up
# In the order in which they need each other.
for m in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
    [ ! -f /modules/$m.ko ] || insmod /modules/$m.ko
done

# keep NAME COMMAND...: what it printed and how it ended.
keep() {
    name=$1
    shift
    echo "matrix: $name at $(cut -d ' ' -f 1 /proc/uptime)"
    "$@" >/out/$name.out 2>/out/$name.err
    echo $? >/out/$name.rc
}

# Something to look at: waits on CPU 1, direct writes, refused connections.
load_on() {
    for i in 1 2 3; do
        taskset 2 sh -c 'while :; do :; done' &
        pids="$pids $!"
    done
    sh -c 'while :; do dd if=/dev/zero of=/dev/vda bs=64k count=32 oflag=direct; done' 2>/dev/null &
    pids="$pids $!"
    sh -c 'while :; do nc 127.0.0.1 9; done' 2>/dev/null &
    pids="$pids $!"
}

load_off() {
    kill -9 $pids
    wait $pids 2>/dev/null
}

guest() {
    STALLSCOPE_GUEST=1 matrix --ignored --exact "guest::$1" --nocapture --test-threads=1
}

live() {
    keep doctor stallscope doctor --format json
    load_on
    keep check stallscope check --format json --duration 5s
    load_off
    keep guest guest counts
}

# In a group: becomes `command` there.
within() {
    sh -c "echo \$\$ >/sys/fs/cgroup/$1/cgroup.procs && exec $2" 2>/dev/null
}

# Groups of version 2 that are short of something: the host that runs the lab has none.
groups() {
    spin='sh -c "while :; do :; done"'
    echo '+cpu +memory +pids' >/sys/fs/cgroup/cgroup.subtree_control
    for g in oom high light heavy tasks; do mkdir /sys/fs/cgroup/$g; done
    echo 20M >/sys/fs/cgroup/oom/memory.max
    echo 16M >/sys/fs/cgroup/high/memory.high
    echo 1 >/sys/fs/cgroup/light/cpu.weight
    echo 8 >/sys/fs/cgroup/tasks/pids.max
    # Somebody else runs: the host does not wait for memory.
    pids=
    for cpu in 1 2; do
        taskset $cpu sh -c 'while :; do :; done' &
        pids="$pids $!"
    done
    while :; do within oom 'tail /dev/zero'; sleep 1; done &
    pids="$pids $!"
    while :; do within high 'dd if=/dev/zero of=/dev/null bs=64M count=1'; done &
    pids="$pids $!"
    keep memory stallscope check --format json --duration 14s
    load_off
    # One that was just started joins its group first, and may be killed for its memory there: not
    # while the next check runs.
    sleep 1
    for g in oom high; do
        echo 1 >/sys/fs/cgroup/$g/cgroup.kill
        while grep -q 'populated 1' /sys/fs/cgroup/$g/cgroup.events; do sleep 1; done
    done
    pids=
    for g in heavy heavy light; do
        within $g "$spin" &
        pids="$pids $!"
    done
    within tasks 'sh -c "while :; do for i in 1 2 3 4 5 6 7; do sleep 9 & done; wait; done"' &
    # An emulated CPU gets through a tenth of the work within the readers' budgets.
    keep weights stallscope check --format json --duration 24s
    load_off
    for g in heavy light tasks; do echo 1 >/sys/fs/cgroup/$g/cgroup.kill; done
}

# The types are hidden, tracefs is not mounted: what a kernel without BTF looks like.
nobtf() {
    mount --bind /empty /sys/kernel/btf
    keep nobtf-doctor stallscope doctor --format json
    keep nobtf-check stallscope check --format json --duration 5s
    keep nobtf-guest guest counts_without_btf
    grep -c tracefs /proc/mounts >/out/nobtf-tracefs.out
    umount /sys/kernel/btf
}

user() {
    keep user-doctor su -s /bin/sh nobody -c 'stallscope doctor --format json'
    keep user-check su -s /bin/sh nobody -c 'stallscope check --format json --duration 5s'
    keep user-guest su -s /bin/sh nobody -c \
        'STALLSCOPE_GUEST=1 matrix --ignored --exact guest::refuses --nocapture --test-threads=1'
}

# Last: from here on tracefs is mounted.
formats() {
    mount -t tracefs tracefs /sys/kernel/tracing
    for event in $(cat /formats); do
        mkdir -p /out/format/${event%/*}
        cat /sys/kernel/tracing/events/$event/format >/out/format/$event 2>/dev/null
    done
}

uname -r >/out/kernel.out
cat /sys/kernel/security/lockdown >/out/lockdown.out
for word in $(cat /proc/cmdline); do
    case $word in matrix=*) sections=${word#matrix=} ;; esac
done
for section in $(echo "$sections" | tr , ' '); do
    $section
done
dmesg >/out/dmesg.out
echo >/out/complete
tar cf /dev/vdb -C /out .
sync
poweroff -f
