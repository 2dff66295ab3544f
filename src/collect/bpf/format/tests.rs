//! Records of tracefs, of captured kernels and torn ones.
#![allow(clippy::unwrap_used)]

mod history;

use super::*;
use crate::collect::bpf::offsets;
use proptest::prelude::*;

const SWITCH: &str = include_str!("../../../../tests/fixtures/format/6.18/sched_switch");
const WAKEUP: &str = include_str!("../../../../tests/fixtures/format/6.18/sched_wakeup");
const COMPLETE: &str = include_str!("../../../../tests/fixtures/format/6.18/block_rq_complete");

#[test]
fn fields_of_6_18() {
    let f = Format::parse(COMPLETE);
    assert_eq!(f.field("dev", 4), Some(8));
    assert_eq!(f.field("sector", 8), Some(16));
    assert_eq!(f.field("rwbs", 10), Some(34), "wider than before 6.18");
    assert_eq!(f.field("rwbs", 8), None, "another size is another layout");
    assert_eq!(f.field("cmd", 4), Some(44));
    assert_eq!(f.fields.len(), 11);
}

#[test]
fn preempted_tasks_carry_the_mark_that_the_kernel_prints() {
    assert_eq!(Format::parse(SWITCH).preempted_bit(), Some(0x100));
    // Constructed: 4.13 and before printed a constant.
    let old = "print fmt: \"..\", REC->prev_state & (0x1000) ? \"+\" : \"\", REC->next_comm";
    assert_eq!(Format::parse(old).preempted_bit(), Some(0x1000));
    assert_eq!(Format::parse("print fmt: \"%d\", REC->pid").preempted_bit(), None);
}

#[test]
fn scheduler_records_of_6_18_have_the_usual_layout() {
    let g = offsets::runq_records(&Format::parse(SWITCH), &Format::parse(WAKEUP)).unwrap();
    assert!(g.contains(&("TP_KNOWN", 1)) && g.contains(&("TP_PREEMPTED", 0x100)));
}

/// Constructed: a layout that no kernel has had yet is read through the helper.
#[test]
fn a_moved_field_is_not_read_at_its_old_place() {
    let moved = SWITCH.replace("next_pid;\toffset:56", "next_pid;\toffset:72");
    let g = offsets::runq_records(&Format::parse(&moved), &Format::parse(WAKEUP)).unwrap();
    assert!(g.contains(&("TP_KNOWN", 0)) && g.contains(&("TP_NEXT_PID", 72)));
    let narrow = SWITCH.replace("offset:32;\tsize:8", "offset:32;\tsize:4");
    let e = offsets::runq_records(&Format::parse(&narrow), &Format::parse(WAKEUP)).unwrap_err();
    assert_eq!(e.reason, "unknown record layout: no prev_state");
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "(field:|offset:|size:|;|\\[|0x|prev_state &|\\? \"\\+\"|\\PC|\n|\t){0,60}") {
        let f = Format::parse(&text);
        let _ = (f.preempted_bit(), f.field("pid", 4));
    }
}
