//! A CPU's cache on machines where its node has no memory, or none for some requests.

use crate::kit;

use firstlight::addr::{Frame, Order};
use firstlight::early::EarlyFlags;
use firstlight::frames::{AllocError, Frames, Request};
use firstlight::layout::LayoutPolicy;
use firstlight::node::{NodeId, ZoneKind};
use kit::{GIANT_BYTES, GIB, Machine, page, range};

fn node_of(frames: &Frames<'_>, frame: Frame) -> NodeId {
    let mut extents = frames.layout().segments();
    let extent = extents.find(|extent| extent.frames.contains(frame));
    extent.unwrap().node
}

/// Node 1 has movable memory only.
fn movable_node() -> Machine {
    Machine {
        memory: vec![
            (0, range(4 * GIANT_BYTES, 8 * GIANT_BYTES), EarlyFlags::NONE),
            (
                1,
                range(8 * GIANT_BYTES, 12 * GIANT_BYTES),
                EarlyFlags::HOTPLUG,
            ),
        ],
        policy: Some(LayoutPolicy {
            movable_node: true,
            ..LayoutPolicy::DEFAULT
        }),
        ..Machine::default()
    }
}

#[test]
fn a_cpu_allocates_every_order_from_the_nearest_node() {
    let frames = movable_node().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(1)).unwrap();
    for order in (0..=Order::GIANT.get()).filter_map(Order::new) {
        // It stays where it is, but may lie anywhere.
        let request = Request::new(order).zone(ZoneKind::Movable);
        let found = cpu.allocate(request).unwrap();
        assert_eq!(node_of(&frames, found), NodeId(1), "{order}");
    }
}

#[test]
fn movable_pages_come_from_the_cpu_s_own_node() {
    let frames = movable_node().frames_with_cpus(1);
    let free = frames.statistics();
    let mut cpu = frames.cpu(0, NodeId(1)).unwrap();
    assert_eq!(cpu.home(), NodeId(0));
    for order in [Order::PAGE, Order::HUGE] {
        let request = Request::new(order);
        let of_kernel = cpu.allocate(request).unwrap();
        let of_user = cpu.allocate(request.movable()).unwrap();
        assert_eq!(node_of(&frames, of_kernel), NodeId(0));
        assert_eq!(node_of(&frames, of_user), NodeId(1));
        let before = cpu.cached_frames();
        cpu.free(of_user, order).unwrap();
        cpu.free(of_kernel, order).unwrap();
        // Each into its list, for the next request of its kind.
        assert_eq!(cpu.cached_frames(), before + 2 * order.frames());
        assert_eq!(cpu.allocate(request.movable()), Ok(of_user));
        assert_eq!(cpu.allocate(request), Ok(of_kernel));
        cpu.free(of_user, order).unwrap();
        cpu.free(of_kernel, order).unwrap();
    }
    cpu.close().unwrap();
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}

/// Of node 0 only the lists of unmovable blocks are filled.
#[test]
fn movable_pages_of_another_node_are_not_cached() {
    let frames = movable_node().frames_with_cpus(1);
    let free = frames.statistics();
    let mut cpu = frames.cpu(0, NodeId(1)).unwrap();
    for order in [Order::PAGE, Order::HUGE, Order::new(3).unwrap()] {
        let request = Request::new(order);
        let on_node_0 = request.movable().only_on(NodeId(0));
        let foreign = frames.allocate(on_node_0).unwrap();
        // From here on the CPU knows the memory around it.
        let of_kernel = cpu.allocate(request).unwrap();
        cpu.free(of_kernel, order).unwrap();
        let before = cpu.cached_frames();
        cpu.free(foreign, order).unwrap();
        assert_eq!(cpu.cached_frames(), before, "{order}");
        assert!(cpu.free(foreign, order).is_err());
        let of_user = cpu.allocate(request.movable()).unwrap();
        assert_eq!(node_of(&frames, of_user), NodeId(1));
        cpu.free(of_user, order).unwrap();
    }
    cpu.close().unwrap();
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}

/// Node 1 has no memory: node 0 is nearest to it, then 2; nearest to node 0 is 3.
fn without_memory() -> Machine {
    let memory = [(0, 4), (2, 5), (3, 6)];
    Machine {
        memory: memory
            .map(|(node, gib)| (node, range(gib * GIB, (gib + 1) * GIB), EarlyFlags::NONE))
            .to_vec(),
        distances: vec![
            10, 12, 50, 20, //
            12, 10, 15, 40, //
            50, 15, 10, 20, //
            20, 40, 20, 10,
        ],
        ..Machine::default()
    }
}

#[test]
fn an_exhausted_home_falls_back_to_the_node_nearest_to_the_cpu() {
    let frames = without_memory().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(1)).unwrap();
    assert_eq!(cpu.home(), NodeId(0));
    let of_home = page().only_on(NodeId(0));
    while frames.allocate(of_home).is_ok() {}
    let found = cpu.allocate(page()).unwrap();
    assert_eq!(node_of(&frames, found), NodeId(2));
    let at_home = cpu.allocate(of_home).unwrap_err();
    assert_eq!(
        at_home,
        AllocError::OutOfMemory {
            request: of_home,
            frames: 1,
            align_frames: 1,
            held_by_cpus: 0,
            in_work: 0,
        }
    );
}

#[test]
fn out_of_memory_on_every_node_reports_the_request() {
    let frames = without_memory().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(1)).unwrap();
    let request = Request::new(Order::GIANT);
    while cpu.allocate(request).is_ok() {}
    let refused = cpu.allocate(request).unwrap_err();
    assert!(
        matches!(refused, AllocError::OutOfMemory { request: reported, .. } if reported == request)
    );
    assert!(refused.to_string().contains("on any node in zone Normal"));
}
