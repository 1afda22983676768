//! Requests that no machine can serve, on machines of every shape.

use crate::kit;

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES};
use firstlight::early::EarlyFlags;
use firstlight::frames::Request;
use firstlight::node::{NodeId, ZoneKind};
use kit::{GIANT_FRAMES, GIB, HUGE_FRAMES, MIB, Machine, page, range};

fn machines() -> Vec<Machine> {
    let mut all: Vec<_> = [
        vec![(0, range(0, 16 * PAGE_BYTES))],
        vec![
            (0, range(4 * GIB, 4 * GIB + MIB)),
            (1, range(4 * GIB + MIB, 4 * GIB + 2 * MIB)),
        ],
        vec![
            (0, range(4 * GIB - PAGE_BYTES, 4 * GIB + MIB)),
            (3, range(5 * GIB + PAGE_BYTES, 6 * GIB + PAGE_BYTES)),
        ],
        vec![
            (0, range(MIB, 2 * MIB)),
            (0, range(GIB - MIB, 3 * GIB + MIB)),
            (0, range(5 * GIB, 9 * GIB)),
        ],
        vec![(0, range((1 << 52) - 4 * MIB, 1 << 52))],
        vec![(
            0,
            range(
                u64::MAX - 4 * MIB + 1 - PAGE_BYTES,
                u64::MAX - (PAGE_BYTES - 1),
            ),
        )],
    ]
    .iter()
    .map(|memory| Machine::new(memory))
    .collect();
    all.push(Machine {
        memory: vec![(0, range(GIB + 2 * PAGE_BYTES, 2 * GIB), EarlyFlags::NONE)],
        boot: vec![range(GIB + 20 * MIB, GIB + 30 * MIB + PAGE_BYTES)],
        reserved: vec![range(GIB + 40 * MIB, GIB + 43 * MIB + PAGE_BYTES)],
        ..Machine::default()
    });
    all
}

#[test]
fn absurd_requests_are_refused_and_change_nothing() {
    for machine in machines() {
        let Ok(built) = machine.build() else { continue };
        let frames = kit::with_cpus(built, 3);
        let free = frames.statistics();
        let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
        let numbers = [
            0u64,
            1,
            2,
            3,
            63,
            64,
            65,
            255,
            HUGE_FRAMES - 1,
            HUGE_FRAMES,
            HUGE_FRAMES + 1,
            GIANT_FRAMES,
            GIANT_FRAMES + 1,
            1 << 52,
            1 << 63,
            (1 << 63) + 1,
            u64::MAX - 1,
            u64::MAX,
        ];
        for count in numbers {
            for align in numbers {
                for order in [Order::PAGE, Order::HUGE, Order::GIANT] {
                    for request in [
                        Request::new(order),
                        Request::new(order).movable(),
                        Request::new(order).on(NodeId(7)),
                        Request::new(order)
                            .only_zone(ZoneKind::Dma)
                            .only_on(NodeId(u16::MAX)),
                        Request::new(order).no_drain(),
                    ] {
                        if let Ok(range) = frames.allocate_frames(count, align, request) {
                            assert_eq!(range.count(), count);
                            frames.free_frames(range).unwrap();
                        }
                        if let Ok(range) = cpu.allocate_frames(count, align, request) {
                            assert_eq!(range.count(), count);
                            cpu.free_frames(range).unwrap();
                        }
                    }
                }
            }
        }
        cpu.drain().unwrap();
        assert_eq!(frames.statistics(), free);
        for start in numbers.into_iter().chain([
            (1 << 52) - HUGE_FRAMES,
            u64::MAX - (HUGE_FRAMES - 1),
            u64::MAX - HUGE_FRAMES,
        ]) {
            for order in (0..=Order::GIANT.get()).filter_map(Order::new) {
                let frame = Frame::new(start);
                let _ = frames.is_allocated(frame);
                for frame in [frame, Frame::new(start & !(order.frames() - 1))] {
                    let range = FrameRange::block(frame, order);
                    let owned = frame.is_aligned(order)
                        && range.is_some_and(|range| frames.allocate_range(range).is_ok());
                    if owned {
                        frames.free(frame, order).unwrap();
                    }
                    assert!(frames.free(frame, order).is_err());
                    assert!(cpu.free(frame, order).is_err());
                    assert!(frames.free_bulk(&[frame, frame], order).is_err());
                }
            }
            for end in numbers {
                if let Some(range) = FrameRange::new(start, end) {
                    if frames.allocate_range(range).is_ok() {
                        frames.free_frames(range).unwrap();
                    }
                    assert!(range.is_empty() || frames.free_frames(range).is_err());
                    assert!(range.is_empty() || cpu.free_frames(range).is_err());
                    if let Ok(isolation) = frames.isolate(range) {
                        let _ = isolation.first_in_use();
                        let _ = isolation.frames_in_use();
                        let _ = isolation.take().map(|range| {
                            for segment in frames.layout().segments() {
                                frames.free_frames(segment.frames.intersect(range)).unwrap();
                            }
                        });
                    }
                    frames.validate().unwrap();
                    assert_eq!(frames.statistics(), free);
                }
            }
        }
        // All of it, and back, in any way.
        for order in (0..=Order::GIANT.get()).rev().filter_map(Order::new) {
            for movable in [false, true] {
                let request = if movable {
                    Request::new(order).movable()
                } else {
                    Request::new(order)
                };
                let mut all = Vec::new();
                while let Ok(frame) = cpu.allocate(request) {
                    all.push(frame);
                }
                for frame in all {
                    cpu.free(frame, order).unwrap();
                }
            }
            cpu.drain().unwrap();
            assert_eq!(frames.statistics(), free, "{order}");
            frames.validate().unwrap();
        }
        let mut pages = [Frame::new(0); 1000];
        let count = frames.allocate_bulk(page(), &mut pages).unwrap();
        frames.free_bulk(&pages[..count], Order::PAGE).unwrap();
        assert_eq!(frames.allocate_bulk(page(), &mut []), Ok(0));
        drop(cpu);
        assert_eq!(frames.statistics(), free);
    }
}
