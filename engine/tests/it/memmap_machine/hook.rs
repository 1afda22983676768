//! Descriptors of frames that are allocated: ready, whatever the way of allocation.

use crate::kit::{self, GIANT_FRAMES, GIB, HUGE_BYTES, MIB, Machine, range};
use crate::memmap_machine::{Sixteen, reserve};
use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES};
use firstlight::frames::{Frames, Hooks, Request};
use firstlight::layout::SECTION_FRAMES;
use firstlight::memmap::{Descriptor, Memmap};
use firstlight::node::NodeId;

/// A kernel that reads descriptors without a look.
pub(crate) struct Kernel<T: Descriptor>(pub(crate) Memmap<'static, T>);

impl<T: Descriptor> Hooks for Kernel<T> {
    fn prepare(&self, blocks: &[Frame], order: Order) {
        self.0.prepare(blocks, order);
    }
}

/// Frames with descriptors, none of them ready.
fn described(machine: &Machine) -> (Frames<'static>, &'static Memmap<'static, Sixteen>) {
    let mut layout = machine.layout();
    let kernel = Box::leak(Box::new(Kernel(reserve(&mut layout))));
    let frames = Frames::build(layout, crate::memmap_machine::platform(false)).unwrap();
    let frames = kit::with_cpus(frames.with_hooks(kernel), 1);
    assert_eq!(kernel.0.progress().ready_sections, 0);
    (frames, &kernel.0)
}

#[test]
#[cfg_attr(feature = "page-64k", ignore = "node 0 has too few huge frames")]
#[cfg_attr(miri, ignore = "allocates by the gigabyte")]
fn every_way_to_allocate_leaves_descriptors_ready() {
    // Nodes and zones end inside sections.
    let end = 4 * GIB + 1536 * HUGE_BYTES + 5 * PAGE_BYTES;
    let machine = Machine::new(&[
        (0, range(MIB, 500 * MIB)),
        (0, range(510 * MIB + 3 * PAGE_BYTES, 700 * MIB)),
        (1, range(4 * GIB, end)),
    ]);
    let (frames, memmap) = described(&machine);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let mut checked = 0;
    let mut is_ready = |range: FrameRange| {
        for number in range.start().get()..range.end().get() {
            assert!(memmap.is_ready(Frame::new(number)), "{number:#x}");
        }
        checked += range.count();
    };
    let block = |frame, order| FrameRange::block(frame, order).unwrap();
    let (huge, giant) = (Order::HUGE.get(), Order::GIANT.get());
    let orders = [0, 2, 5, huge, huge + 1, giant - 2, giant];
    let orders = orders.map(|order| Order::new(order).unwrap());
    let huges = (0..700).map(|huge| Frame::new(huge * Order::HUGE.frames()));
    let mut free = huges.filter(|huge| {
        frames
            .allocate_range(kit::block(*huge, Order::HUGE))
            .is_ok()
    });
    is_ready(block(free.next().unwrap(), Order::HUGE));
    let mut ranges = (0..56).map(|section| {
        let start = section * SECTION_FRAMES + SECTION_FRAMES / 2;
        FrameRange::new(start, start + 1000).unwrap()
    });
    let free = ranges.find(|range| frames.allocate_range(*range).is_ok());
    is_ready(free.unwrap());
    for node in [0, 1].map(NodeId) {
        for order in orders {
            let request = Request::new(order).on(node);
            for _ in 0..20 {
                if let Ok(frame) = cpu.allocate(request.movable()) {
                    is_ready(block(frame, order));
                }
            }
            if let Ok(frame) = frames.allocate(request) {
                is_ready(block(frame, order));
            }
            let mut blocks = [Frame::new(0); 3];
            let taken = frames.allocate_bulk(request, &mut blocks).unwrap_or(0);
            for &frame in &blocks[..taken] {
                is_ready(block(frame, order));
            }
        }
        for count in [3, 100, SECTION_FRAMES + 1] {
            let request = Request::new(Order::PAGE).on(node);
            is_ready(frames.allocate_frames(count, 1, request).unwrap());
            if let Ok(range) = cpu.allocate_frames(count, 1, request) {
                is_ready(range);
            }
        }
    }
    assert!(checked > GIANT_FRAMES);
    // Frames that a CPU caches were prepared when they came to it.
    assert!(memmap.progress().ready_sections < memmap.progress().sections);
}
