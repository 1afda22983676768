//! Requests that name a zone: that one and those below it, or that one alone.

use crate::kit;

use firstlight::addr::{Frame, Order, PAGE_BYTES};
use firstlight::frames::{AllocError, Frames, Request};
use firstlight::node::{NodeId, ZoneKind};
use kit::{HUGE_BYTES, HUGE_FRAMES, MIB, Machine, range};

/// Memory in zones DMA, DMA32 and Normal.
fn pc() -> Frames<'static> {
    let machine = Machine {
        policy: Some(kit::ZONES_OF_HUGES),
        ..Machine::new(&[
            (0, range(MIB, 512 * HUGE_BYTES)),
            (0, range(2048 * HUGE_BYTES, 2560 * HUGE_BYTES)),
        ])
    };
    machine.frames_with_cpus(1)
}

fn zone_of(frame: Frame) -> ZoneKind {
    match frame.get() * PAGE_BYTES {
        start if start < 8 * HUGE_BYTES => ZoneKind::Dma,
        start if start < 2048 * HUGE_BYTES => ZoneKind::Dma32,
        _ => ZoneKind::Normal,
    }
}

/// Blocks until there are no more.
fn all(mut allocate: impl FnMut() -> Result<Frame, AllocError>) -> Vec<Frame> {
    std::iter::from_fn(|| allocate().ok()).collect()
}

#[test]
fn an_exhausted_only_zone_falls_back_to_no_other() {
    for zone in [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal] {
        for order in [Order::PAGE, Order::new(3).unwrap(), Order::HUGE] {
            let frames = pc();
            let request = Request::new(order).only_zone(zone);
            let found = all(|| frames.allocate(request));
            assert!(!found.is_empty());
            assert!(found.iter().all(|&frame| zone_of(frame) == zone));
            let reported = frames.allocate(request).unwrap_err().to_string();
            assert!(
                reported.contains(&format!("zone {zone} itself")),
                "{reported}"
            );
            // All that is left lies elsewhere: below, if that will do, or above.
            let below = all(|| frames.allocate(Request::new(order).zone(zone)));
            assert!(below.iter().all(|&frame| zone_of(frame) < zone));
            assert_eq!(below.is_empty(), zone == ZoneKind::Dma);
            frames.validate().unwrap();
        }
    }
}

#[test]
fn a_cpu_allocates_from_the_only_zone_whatever_it_caches() {
    let frames = pc();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let page = cpu.allocate(Request::new(Order::PAGE)).unwrap();
    assert_eq!(zone_of(page), ZoneKind::Normal);
    assert!(cpu.cached_frames() > 0);
    for (order, zone) in [
        (Order::PAGE, ZoneKind::Normal),
        (Order::PAGE, ZoneKind::Dma32),
        (Order::HUGE, ZoneKind::Dma32),
        (Order::PAGE, ZoneKind::Dma),
    ] {
        let request = Request::new(order).only_zone(zone);
        for _ in 0..100 {
            assert_eq!(zone_of(cpu.allocate(request).unwrap()), zone);
        }
    }
    let movable = Request::new(Order::PAGE).movable();
    assert!(
        cpu.allocate(movable.only_zone(ZoneKind::Movable)).is_err(),
        "there is none"
    );
    let dma32 = cpu.allocate(movable.only_zone(ZoneKind::Dma32)).unwrap();
    assert_eq!(zone_of(dma32), ZoneKind::Dma32);
    cpu.close().unwrap();
    frames.validate().unwrap();
}

#[test]
fn a_range_lies_in_the_only_zone() {
    let frames = pc();
    let frames_wanted = 50 * HUGE_FRAMES;
    for zone in [ZoneKind::Dma32, ZoneKind::Normal] {
        let request = Request::new(Order::PAGE).only_zone(zone);
        let range = frames.allocate_frames(frames_wanted, 1, request).unwrap();
        assert_eq!(zone_of(range.start()), zone);
    }
    let dma = Request::new(Order::PAGE).only_zone(ZoneKind::Dma);
    let reported = frames
        .allocate_frames(frames_wanted, 1, dma)
        .unwrap_err()
        .to_string();
    assert!(reported.contains("zone DMA itself"), "{reported}");
}
