//! Firstlight as a contestant.

use firstlight::addr::{Frame, Order};
use firstlight::frames::{Frames, Metadata, Request};
use firstlight_bench::machine::Machine;
use firstlight_host::metadata::MetadataSpace;
use firstlight_workloads::Cpu;

use crate::contest::{Contestant, Sample, Setup, measure};

/// The engine, its metadata in reserved address space.
#[derive(Default)]
pub(crate) struct Firstlight {
    /// Also allocates a page of every node, so that all have started.
    every_node: bool,
    space: Option<MetadataSpace>,
    metadata: Metadata,
}

impl Firstlight {
    /// Firstlight, measured until a page of every node has been allocated.
    pub(crate) fn every_node() -> Self {
        Self {
            every_node: true,
            ..Self::default()
        }
    }
}

/// All frames, borrowed by the workloads.
struct Up<'m>(Frames<'m>);

impl Cpu for Up<'_> {
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        self.0.allocate(Request::new(order)).ok()
    }

    fn free(&mut self, frame: Frame, order: Order) -> bool {
        self.0.free(frame, order).is_ok()
    }
}

impl Contestant for Firstlight {
    fn name(&self) -> &'static str {
        if self.every_node {
            "**firstlight**, a page from every node"
        } else {
            "**firstlight**"
        }
    }

    fn refresh(&mut self, machine: &Machine) {
        self.space = MetadataSpace::new(machine.metadata_bytes()).ok();
    }

    fn run(&mut self, setup: &Setup<'_>) -> Sample {
        let mut storage = setup.machine.storage();
        let layout = setup.machine.layout(&mut storage).expect("a sound machine");
        let space = self.space.as_mut().expect("address space");
        space.reset();
        let space = &*space;
        let (metadata, every_node) = (&mut self.metadata, self.every_node);
        measure(setup.task, || {
            let frames = Frames::build(layout, space).expect("space for tables");
            if every_node {
                for node in frames.layout().nodes() {
                    let page = Request::new(Order::PAGE).only_on(node.id);
                    let page = frames.allocate(page).expect("a page on each node");
                    frames.free(page, Order::PAGE).expect("it was allocated");
                }
            }
            *metadata = frames.metadata();
            Up(frames)
        })
    }

    fn written(&self) -> String {
        let Metadata {
            written_bytes,
            reserved_bytes,
            ..
        } = self.metadata;
        format!(
            "{written_bytes} B of {:.1} MiB reserved",
            reserved_bytes as f64 / 1048576.0
        )
    }
}
