//! A CPU whose zone consists of several segments of different length.

use crate::kit;

use firstlight::addr::Order;
use firstlight::node::NodeId;
use kit::{GIANT_BYTES, GIANT_HUGES, Machine, huge, range};

/// One node: a giant frame, a hole, and four more.
fn two_segments() -> Machine {
    let giants = |start, end| (0, range(start * GIANT_BYTES, end * GIANT_BYTES));
    Machine::new(&[giants(4, 5), giants(8, 12)])
}

#[test]
fn huge_frames_are_found_in_all_segments_of_a_zone() {
    let frames = two_segments().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let mut all = Vec::new();
    while let Ok(frame) = cpu.allocate(huge()) {
        all.push(frame);
    }
    assert!(all.len() as u64 > 5 * GIANT_HUGES - 60, "{}", all.len());
    for frame in all {
        cpu.free(frame, Order::HUGE).unwrap();
    }
    cpu.close().unwrap();
    frames.validate().unwrap();
}
