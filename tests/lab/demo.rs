//! Makes the recording that the README tours: three faults, one after the other, and the quiet
//! between them.
//!
//! `STALLSCOPE_LAB=1 STALLSCOPE_DEMO=demo.stall cargo test --test lab demo -- --ignored`

use std::process::{Command, Stdio};

use crate::kit::block::{Dir, Loop, writer};
use crate::kit::cgroup::Cgroup;
use crate::kit::gate::lab;
use crate::kit::net::{Pair, fill};
use crate::kit::pause;
use crate::kit::sh::Held;

const SPIN: &str = "while :; do :; done";

/// A minute and a half: quiet, a peer that swallows everything, a disk limited to 500 requests/s,
/// three busy loops on one CPU; each is over before the next begins.
#[test]
#[ignore = "writes the demo recording, checks nothing"]
fn record_the_demo() {
    lab(&["ip", "nft", "losetup", "fio", "dd", "taskset"], || {
        let file = std::env::var("STALLSCOPE_DEMO").unwrap();
        let (net, dir) = (Pair::new(), Dir::new());
        let dev = Loop::new(&dir.image("disk.img", 64), true);
        let (number, _) = dir.lower_disk();
        let mut recorder = Command::new(env!("CARGO_BIN_EXE_stallscope"))
            .args(["record", "-o", &file, "--duration", "95s"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        pause(8_000);
        {
            let streams = [(); 3].map(|()| net.connect(5000));
            net.b.drop_tcp_to("input", 5000);
            for (mut tx, _) in streams.iter().map(|(tx, rx)| (tx.try_clone().unwrap(), rx)) {
                fill(&mut tx);
            }
            pause(20_000);
        }
        pause(6_000);
        {
            // What the disk does when nobody limits it, then under the limit.
            let fast = writer(&dev.dev, 1, |fio| format!("exec {fio}"));
            pause(4_000);
            drop(fast);
            let group = Cgroup::new("blkio", "cap");
            group.set("blkio.throttle.write_iops_device", &format!("{number} 500"));
            let _capped = writer(&dev.dev, 32, |fio| group.enter_and(fio));
            pause(20_000);
        }
        pause(10_000);
        {
            let _spinners =
                [(); 3].map(|()| Held::start(&["taskset", "-c", "0", "sh", "-c", SPIN]));
            pause(14_000);
        }
        assert!(recorder.wait().unwrap().success());
    });
}
