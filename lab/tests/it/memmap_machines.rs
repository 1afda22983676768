//! Two machines whose logs tell how long descriptors took, `30` and `35` of
//! `testdata/machines`: the figures are Linux's, the ranges are what the logs say.

use crate::common;

use std::fs;
use std::sync::Mutex;

use firstlight::addr::FrameRange;
use firstlight::layout::SECTION_FRAMES;
use firstlight::node::NodeId;
use firstlight::parallel::{Alone, Chunking, Job, WorkRange, Worker, run};
use firstlight_lab::log::{KernelLog, read};

fn log(number: &str) -> KernelLog {
    let folder = fs::read_dir(common::testdata().join("machines")).unwrap();
    let mut paths = folder.map(|entry| entry.unwrap().path());
    let path = paths.find(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(number)
    });
    read(&fs::read(path.unwrap()).unwrap())
}

/// The machine of the report of slower boots, as `engine/tests/it/memmap_machine/mod.rs`
/// lays it out: its log has the same figures, on the good and on the bad kernel.
#[test]
fn model_30_the_reporting_machine_is_the_one_that_is_tested() {
    let pages: Vec<_> = log("30").zone_pages.iter().map(|row| row.pages).collect();
    assert_eq!(pages, [1_445_888, 89_391_104, 1_445_888, 89_391_104]);
    // What the zone spans follows from its memmap; 12 GiB of it are a hole.
    let spanned = 89_391_104 + (12 << 18);
    assert_eq!(1_445_888, (spanned * 64u64).div_ceil(4096));
}

/// Nodes of 14 to 61 GB, numbered to 215: the deferred pages of each, one CPU
/// for each second of them.
#[test]
fn model_35_uneven_nodes_are_all_described_under_both_chunkings() {
    let rows = log("35").deferred;
    let pages: Vec<_> = rows.iter().map(|row| row.pages.unwrap()).collect();
    assert_eq!(rows.len(), 5);
    assert!(rows.iter().any(|row| row.node == 215));
    for chunking in [Chunking::Padata, Chunking::Stealing] {
        let mut start = 0;
        let mut ranges: Vec<_> = rows
            .iter()
            .map(|row| {
                start = (start + SECTION_FRAMES).next_multiple_of(SECTION_FRAMES);
                let frames = FrameRange::new(start, start + row.pages.unwrap()).unwrap();
                start = frames.end().get();
                WorkRange::new(NodeId(u16::try_from(row.node).unwrap()), frames)
            })
            .collect();
        let workers = ranges.iter().step_by(2);
        let mut workers: Vec<_> = workers.map(|range| Worker::new(range.node())).collect();
        let done = Mutex::new(Vec::new());
        let work = |chunk: FrameRange| done.lock().unwrap().push(chunk);
        let job = Job::sections(chunking);
        let report = run(&job, &mut ranges, &mut workers, &Alone, &work).unwrap();
        assert_eq!(report.frames, pages.iter().sum::<u64>(), "{chunking:?}");
        let done = done.into_inner().unwrap();
        for range in &ranges {
            let inside = done.iter().filter(|chunk| range.frames().covers(**chunk));
            let frames: u64 = inside.clone().map(|chunk| chunk.count()).sum();
            assert_eq!(frames, range.frames().count(), "{chunking:?}");
            let whole_sections = |chunk: &&FrameRange| {
                let end = chunk.end();
                end == range.frames().end() || end.get().is_multiple_of(SECTION_FRAMES)
            };
            assert!(inside.clone().all(|chunk| whole_sections(&chunk)));
            // Linux: one thread of the node, so one piece.
            if chunking == Chunking::Padata {
                assert_eq!(inside.count(), 1);
            }
        }
        let total: u64 = done.iter().map(|chunk| chunk.count()).sum();
        assert_eq!(total, report.frames, "{chunking:?}");
    }
}
