//! Network devices of our namespace with their queues, from `/sys/class/net`.

use crate::collect::HostFs;
use crate::parse::number;
use crate::sample::softirq::{IrqRow, NicQueues};

const DIR: &str = "sys/class/net";

/// All devices. `irqs` lends the handler names for NICs whose interrupts sysfs does not list.
pub(super) fn read(host: &HostFs, irqs: &[IrqRow]) -> Vec<NicQueues> {
    let names = host.list(DIR).unwrap_or_default();
    names.into_iter().map(|dev| read_one(host, dev, irqs)).collect()
}

fn read_one(host: &HostFs, dev: String, irqs: &[IrqRow]) -> NicQueues {
    let dir = format!("{DIR}/{dev}");
    let physical = host.path(format!("{dir}/device")).exists();
    let queues = host.list(format!("{dir}/queues")).unwrap_or_default();
    let count = |prefix| queues.iter().filter(|q| q.starts_with(prefix)).count() as u32;
    let mut out = NicQueues {
        physical,
        operstate: host.read_trimmed(format!("{dir}/operstate")).ok(),
        rx_queues: count("rx-"),
        tx_queues: count("tx-"),
        rps_cpus: rps(host, &dir, &queues),
        ..NicQueues::default()
    };
    if physical {
        // The attribute exists but cannot be read while the link is down.
        let speed: Option<i64> = host.read_number(format!("{dir}/speed")).ok();
        out.speed_mbit = speed.filter(|s| *s > 0).and_then(|s| u32::try_from(s).ok());
        // virtio and friends sit below the PCI device that has these.
        let near = |file: &str| [format!("{dir}/device/{file}"), format!("{dir}/device/../{file}")];
        out.numa_node = near("numa_node").iter().find_map(|p| host.read_number(p).ok());
        out.irqs = near("msi_irqs")
            .iter()
            .find_map(|p| host.list(p).ok())
            .map_or_else(|| by_name(&dev, irqs), |l| numbers(l.iter().map(String::as_str)));
    }
    out.dev = dev;
    out
}

/// In the order of the queue numbers; `list` sorts as text.
fn rps(host: &HostFs, dir: &str, queues: &[String]) -> Vec<String> {
    let ids = numbers(queues.iter().filter_map(|q| q.strip_prefix("rx-")));
    ids.iter()
        .filter_map(|i| host.read_trimmed(format!("{dir}/queues/rx-{i}/rps_cpus")).ok())
        .collect()
}

fn numbers<'a>(names: impl Iterator<Item = &'a str>) -> Vec<u32> {
    let mut out: Vec<u32> =
        names.filter_map(|n| u32::try_from(number(n.as_bytes())?).ok()).collect();
    out.sort_unstable();
    out
}

/// Handlers are called `eth0`, `eth0-TxRx-3`, `mlx5_comp3@pci:...`; only the first two name
/// the device.
fn by_name(dev: &str, irqs: &[IrqRow]) -> Vec<u32> {
    let names = |row: &IrqRow| {
        row.name.split([' ', ',']).any(|word| {
            word.strip_prefix(dev).is_some_and(|r| r.is_empty() || r.starts_with(['-', ':', '_']))
        })
    };
    numbers(irqs.iter().filter(|r| names(r)).map(|r| &*r.irq))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn irq(irq: &str, name: &str) -> IrqRow {
        IrqRow { irq: irq.into(), name: name.into(), counts: vec![1] }
    }

    #[test]
    fn handlers_are_matched_on_whole_device_names() {
        let rows = [
            irq("45", "PCI-MSI 524288-edge      eth0-TxRx-0"),
            irq("46", "PCI-MSI 524289-edge      eth01-TxRx-1"),
            irq("LOC", "eth0"),
            irq("9", "IO-APIC 9-fasteoi acpi, eth0"),
        ];
        assert_eq!(by_name("eth0", &rows), [9, 45]);
    }
}
