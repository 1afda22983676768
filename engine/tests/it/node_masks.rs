//! Requests among some nodes.

use crate::kit::{GIB, Machine, page, range};
use firstlight::addr::{Frame, Order};
use firstlight::early::EarlyFlags;
use firstlight::frames::{AllocError, Exhausted, Frames, Hooks, Request};
use firstlight::node::{NodeId, NodeMask, ZoneKind};
use std::sync::Mutex;

/// A GiB on each of four nodes; nearest to node 0 is 3, then 1, then 2.
fn four_nodes() -> Machine {
    Machine {
        memory: (0..4_u16)
            .map(|node| {
                let start = (4 + u64::from(node)) * GIB;
                (node, range(start, start + GIB), EarlyFlags::NONE)
            })
            .collect(),
        distances: vec![
            10, 30, 40, 20, //
            30, 10, 20, 40, //
            40, 20, 10, 30, //
            20, 40, 30, 10,
        ],
        ..Machine::default()
    }
}

fn among(nodes: &[u16]) -> NodeMask {
    NodeMask::of_bits(nodes.iter().map(|node| 1 << node).sum()).unwrap()
}

fn node_of(frame: Frame) -> u16 {
    u16::try_from(frame.addr().get() / GIB - 4).unwrap()
}

/// The node of each block until a request fails, and its error.
fn served(mut allocate: impl FnMut() -> Result<Frame, AllocError>) -> (Vec<u16>, AllocError) {
    let mut nodes = Vec::new();
    loop {
        match allocate() {
            Ok(frame) => nodes.push(node_of(frame)),
            Err(error) => return (nodes, error),
        }
    }
}

fn in_order(mut nodes: Vec<u16>) -> Vec<u16> {
    nodes.dedup();
    nodes
}

#[test]
fn the_nodes_of_a_mask_serve_by_their_distance_and_no_others() {
    let huge = Request::new(Order::HUGE);
    // The preferred node is one of them, or not; none is preferred.
    for (request, order) in [
        (huge.on(NodeId(0)).among(among(&[0, 1, 3])), vec![0, 3, 1]),
        (huge.among(among(&[1, 2])).on(NodeId(0)), vec![1, 2]),
        (huge.on(NodeId(2)).among(among(&[0, 3])), vec![3, 0]),
        (huge.among(among(&[3])), vec![3]),
        (huge.movable().among(among(&[1, 3, 60])), vec![3, 1]),
    ] {
        let machine = four_nodes();
        let frames = machine.frames();
        let (singly, error) = served(|| frames.allocate(request));
        assert_eq!(in_order(singly.clone()), order, "{request:?}");
        assert!(matches!(error, AllocError::OutOfMemory { request: of, .. } if of == request));

        let frames = machine.frames();
        let rows = served(|| {
            let row = frames.allocate_frames(700, 1, request);
            row.map(|row| row.start())
        });
        assert_eq!(in_order(rows.0), order, "{request:?}");

        let frames = machine.frames();
        let mut blocks = vec![Frame::new(0); 4 * 512];
        let count = frames.allocate_bulk(request, &mut blocks).unwrap();
        let bulk: Vec<_> = blocks[..count]
            .iter()
            .map(|block| node_of(*block))
            .collect();
        assert_eq!(bulk, singly, "{request:?}");
    }
}

#[test]
fn a_cpu_serves_from_its_lists_what_may_come_from_their_node() {
    for order in [Order::PAGE, Order::HUGE] {
        let frames = four_nodes().frames_with_cpus(1);
        let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
        let request = Request::new(order);
        // Lists of node 0 that are full.
        let held = [0; 64].map(|_| cpu.allocate(request).unwrap());
        held.iter()
            .for_each(|&block| cpu.free(block, order).unwrap());
        assert!(cpu.cached_frames() > 0);
        for (nodes, expected) in [(&[0, 2][..], 0), (&[1, 2], 1), (&[3], 3), (&[2], 2)] {
            let found = cpu.allocate(request.among(among(nodes))).unwrap();
            assert_eq!(node_of(found), expected, "{nodes:?}");
            let row = cpu
                .allocate_frames(3, 1, request.among(among(nodes)))
                .unwrap();
            assert_eq!(node_of(row.start()), expected, "{nodes:?}");
        }
        let in_two = request.on(NodeId(2)).among(among(&[0, 2]));
        assert_eq!(node_of(cpu.allocate(in_two).unwrap()), 2);
        let (nodes, _) = served(|| cpu.allocate(request.among(among(&[0, 1]))));
        // Of pages, at last what is left in the lists, too.
        assert!(nodes.iter().all(|&node| node < 2));
        assert_eq!(in_order(nodes)[..2], [0, 1]);
    }
}

#[test]
fn a_mask_without_a_node_of_the_machine_is_refused() {
    let frames = four_nodes().frames();
    let none = page().among(among(&[7, 63]));
    let refused = AllocError::NoSuchNode {
        node: NodeId(7),
        nodes: 4,
    };
    assert_eq!(frames.allocate(none), Err(refused));
    assert_eq!(frames.allocate_frames(3, 1, none), Err(refused));
    // Nor does a mask make a preferred node one that is there.
    let beyond = page().on(NodeId(9)).among(among(&[0]));
    let refused = frames.allocate(beyond).unwrap_err();
    assert!(matches!(
        refused,
        AllocError::NoSuchNode {
            node: NodeId(9),
            ..
        }
    ));
}

#[test]
fn an_error_names_the_nodes() {
    let frames = four_nodes().frames();
    let request = Request::new(Order::GIANT).only_zone(ZoneKind::Dma);
    for (request, place) in [
        (
            request.among(among(&[0, 2])),
            "on any of nodes 0, 2 in zone DMA itself",
        ),
        (
            request.on(NodeId(1)).among(among(&[0, 2])),
            "on any of nodes 0, 2, nearest to node 1 in zone DMA itself",
        ),
        (
            request.only_on(NodeId(1)).on(NodeId(2)),
            "on node 2 or any other in zone DMA itself",
        ),
    ] {
        let error = frames.allocate(request).unwrap_err().to_string();
        assert!(error.ends_with(place), "{error}");
    }
}

/// Which nodes the kernel is told are exhausted.
#[derive(Default)]
struct Told(Mutex<Vec<Exhausted>>);

impl Hooks for Told {
    fn exhausted(&self, _: &Request, what: Exhausted) -> bool {
        self.0.lock().unwrap().push(what);
        false
    }
}

#[test]
fn a_request_begins_on_the_nearest_node_of_its_mask() {
    let told = Told::default();
    let frames: Frames<'_> = four_nodes().frames().with_hooks(&told);
    let request = Request::new(Order::HUGE).among(among(&[1, 2]));
    while frames.allocate(request).is_ok() {}
    let told = told.0.into_inner().unwrap();
    let (first, all) = (Exhausted::Node(NodeId(1)), Exhausted::All(NodeId(1)));
    assert_eq!(told[0], first);
    assert_eq!(told[told.len() - 2..], [first, all]);
}
