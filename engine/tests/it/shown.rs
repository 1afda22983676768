//! What a kernel's log, or a failed assertion, shows of values with `{:?}`.

use crate::kit;

use firstlight::addr::{Frame, FrameRange, Order, PhysAddr};
use firstlight::early::EarlyFlags;
use firstlight::firmware::acpi::Signature;
use firstlight::memmap::Writer;
use kit::{GIB, MIB, Machine, page, range};

#[test]
fn places_and_sizes_are_shown_with_their_unit() {
    let frames = FrameRange::new(0x10, 0x20).unwrap();
    for (shown, expected) in [
        (format!("{:?}", PhysAddr::new(0x1000)), "0x1000"),
        (
            format!("{:?}", range(0x1000, 0x3000)),
            "[0x0000000000001000-0x0000000000002fff]",
        ),
        (format!("{:?}", Frame::new(0x10)), "frame 0x10"),
        (format!("{frames:?}"), "frames 0x10..0x20"),
        (format!("{:?}", Order::new(9).unwrap()), "order 9"),
        (format!("{:?}", EarlyFlags::HOTPLUG), "hotplug"),
        (format!("{:?}", Signature(*b"DS\xffT")), r"DS\xffT"),
        (format!("{:?}", Writer::plain()), "Writer(plain)"),
    ] {
        assert_eq!(shown, expected);
    }
}

#[test]
fn an_allocator_shows_its_parts_and_a_request_what_was_asked_for() {
    let frames = Machine::new(&[(0, range(4 * GIB, 4 * GIB + 64 * MIB))]).frames_with_cpus(2);
    let shown = format!("{frames:?}");
    for part in ["Nodes", "segments", "CpuSlot"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let request = format!("{:?}", page().only_on(firstlight::node::NodeId(0)));
    assert!(request.contains("only on"), "{request}");
}
