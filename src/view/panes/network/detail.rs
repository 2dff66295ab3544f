//! A network device: what it moves, what it lost, what waits in its qdiscs.

use super::{Network, find, full_name, qdiscs, used};
use crate::metrics::Derived;
use crate::metrics::netdev::LinkFigures;
use crate::sample::subject::Subject;
use crate::view::context::Cx;
use crate::view::lines::{chart, field, finding, gone};
use crate::view::panes::RowDetail;
use crate::view::state::RowKey;
use crate::view::vm::{Line, Tone};
use crate::view::{text, units};

impl RowDetail for Network {
    fn title(&self, _cx: &Cx<'_>, _key: RowKey) -> &'static str {
        "Network device"
    }

    fn lines(&self, cx: &Cx<'_>, key: RowKey, w: u16) -> Vec<Line> {
        let Some((s, l)) = find(cx, key) else { return gone("network device") };
        let mut head = Line::of(format!(" {}", full_name(s, l)), Tone::Strong);
        let kind = l.attrs.kind.as_deref().map(|k| format!("  {}", text::clean(k)));
        head.add(kind.unwrap_or_default(), Tone::Plain);
        head.add(if l.attrs.up { "  up" } else { "  down" }, Tone::Plain);
        let mut out = vec![head];
        for f in cx.now.findings.all() {
            let is_it = matches!(&f.subject, Subject::Link { dev, netns }
                if *dev == l.attrs.name && *netns == s.netns);
            if is_it {
                out.push(finding(cx, f, " "));
            }
        }
        let (netns, ifindex) = (s.netns, l.ifindex);
        let then = move |d: &Derived, f: fn(&LinkFigures) -> f64| {
            let s = d.netdev.as_ref()?.iter().find(|s| s.netns == netns)?;
            s.links.iter().find(|l| l.ifindex == ifindex).map(f)
        };
        let bytes = |v| format!("{}/s", units::bytes(v));
        let packets = |v| format!("{}/s", units::count(v));
        out.push(chart(cx, "received", w, 1.0, bytes, move |d| then(d, |l| l.rx_bytes_s)));
        out.push(chart(cx, "sent", w, 1.0, bytes, move |d| then(d, |l| l.tx_bytes_s)));
        let dropped = move |d: &Derived| then(d, |l| l.rx_dropped_s + l.tx_dropped_s);
        out.push(chart(cx, "dropped", w, 1.0, packets, dropped));
        out.push(field(
            "packets",
            format!("rx {}  tx {}", packets(l.rx_pps), packets(l.tx_pps)),
        ));
        out.push(field(
            "errors",
            format!("rx {}  tx {}", packets(l.rx_errors_s), packets(l.tx_errors_s)),
        ));
        out.push(field("speed", speed(l)));
        let set_up = l.attrs.channels.map_or(String::new(), |c| {
            format!("; the driver uses {} of {} receive queues", c.rx, c.rx_max)
        });
        let (rx, tx) = (l.attrs.rx_queues, l.attrs.tx_queues);
        out.push(field("queues", format!("rx {rx}  tx {tx}{set_up}")));
        out.push(field("mtu", l.attrs.mtu.to_string()));
        for q in qdiscs(s, l) {
            out.push(field(
                "qdisc",
                format!(
                    "{} backlog {} in {} packets  drops {}  requeues {}  overlimits {}",
                    text::clean(&q.kind),
                    units::bytes(f64::from(q.backlog)),
                    q.qlen,
                    packets(q.drops_s),
                    packets(q.requeues_s),
                    packets(q.overlimits_s),
                ),
            ));
        }
        out
    }

    fn next_command(&self, cx: &Cx<'_>, key: RowKey) -> Option<String> {
        let (s, l) = find(cx, key)?;
        let own = cx.own_space().is_some_and(|o| o.netns == s.netns);
        let name = text::clean(&l.attrs.name).into_owned();
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-@".contains(&b));
        (own && plain).then(|| format!("ip -s -s link show dev {name}"))
    }
}

fn speed(l: &LinkFigures) -> String {
    match (l.attrs.speed_mbit, used(l)) {
        (Some(mbit), Some(pct)) => format!("{mbit} Mbit/s, {}% used", units::pct(pct)),
        (Some(mbit), None) => format!("{mbit} Mbit/s"),
        (None, _) => format!("{} (the driver does not tell)", units::UNKNOWN),
    }
}
