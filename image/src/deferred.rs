//! Page descriptors that are written once the other CPUs run: [`write_deferred`].

use firstlight::addr::FrameRange;
use firstlight::frames::Frames;
use firstlight::node::NodeId;
use firstlight::parallel::{Chunking, Job, WorkRange, Worker};
use firstlight_image::words::{Mode, Regression};
use firstlight_wire::{DeferredWork, Event};

use crate::console::{event, note};
use crate::descriptors::Descriptors;
use crate::lists::list;
use crate::machine::Machine;
use crate::processors::{Processors, StartedCpus};

/// Writes the descriptors that the mode defers, on all CPUs; false if there are none.
pub(crate) fn write_deferred(machine: &Machine, processors: &mut Processors) -> bool {
    let Some((mode, descriptors)) = &machine.hooks.descriptors else {
        return false;
    };
    // A sweep times the writing itself.
    let sweep = machine.words.mode == Mode::Sweep;
    let Some(part) = mode.behind_boot().filter(|_| !sweep) else {
        return false;
    };
    let descriptors = descriptors.read();
    let frames = &machine.frames;
    let one_thread = machine.words.regress(Regression::OneThread);
    let cpus = if one_thread { 1 } else { processors.started() };
    let mut nodes = processors.nodes();
    let workers = list(frames, cpus, |_| {
        Worker::new(nodes.next().map_or_else(NodeId::default, |(_, node)| node))
    });
    drop(nodes);
    let (Some(ranges), Some(workers)) = (work_ranges(frames, &descriptors), workers) else {
        note("no memory for the lists of deferred descriptors: written when touched");
        return false;
    };
    let job = Job::sections(Chunking::Stealing);
    match descriptors.describe_with(
        part,
        |_| true,
        &job,
        &mut (ranges, workers),
        &StartedCpus::new(processors),
    ) {
        Ok(report) => {
            event(&Event::DeferredWork(DeferredWork {
                threads: report.threads.into(),
                chunks: report.chunks,
            }));
            true
        }
        Err(error) => {
            note(format_args!(
                "deferred descriptors: {error}; written when touched"
            ));
            false
        }
    }
}

/// The list of work ranges that writing `descriptors` needs.
pub(crate) fn work_ranges(
    frames: &Frames<'_>,
    descriptors: &Descriptors,
) -> Option<&'static mut [WorkRange]> {
    list(frames, descriptors.work_ranges(), |_| {
        WorkRange::new(NodeId::default(), FrameRange::EMPTY)
    })
}
