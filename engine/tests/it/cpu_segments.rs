//! A CPU whose zone consists of several segments of different length.

use crate::kit;

use firstlight::addr::Order;
use firstlight::node::NodeId;
use kit::{GIB, Machine, huge, range};

/// One node: a gigabyte, a hole, and four more.
fn two_segments() -> Machine {
    Machine::new(&[(0, range(4 * GIB, 5 * GIB)), (0, range(8 * GIB, 12 * GIB))])
}

#[test]
fn huge_frames_are_found_in_all_segments_of_a_zone() {
    let frames = two_segments().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let mut all = Vec::new();
    while let Ok(frame) = cpu.allocate(huge()) {
        all.push(frame);
    }
    assert!(all.len() > 2500, "{}", all.len());
    for frame in all {
        cpu.free(frame, Order::HUGE).unwrap();
    }
    cpu.close().unwrap();
    frames.validate().unwrap();
}
