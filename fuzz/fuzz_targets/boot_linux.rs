//! The log of a booted Linux: any bytes, no panic; what is told of memory agrees
//! with itself, and so do the times.
#![no_main]

use firstlight_lab::boot::linux_end;
use firstlight_lab::boot_log;
use firstlight_lab::log::lines;
use firstlight_lab::record::Record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut record = Record::new("boot", "wall");
    boot_log::tell(data, &mut record);
    for pair in record.phases.windows(2) {
        assert_eq!(pair[0].end_ns, pair[1].start_ns);
    }
    assert!(
        record
            .phases
            .iter()
            .all(|phase| 0 < phase.start_ns && phase.start_ns < phase.end_ns)
    );
    let milestones = &record.milestones;
    let times = [
        milestones.layout_ns,
        milestones.first_frame_ns,
        milestones.all_allocatable_ns,
        milestones.cpus_started_ns,
    ];
    assert!(times.iter().all(|ns| *ns != Some(0)));
    for zone in &record.zones {
        let node = record.nodes.iter().find(|node| node.node == zone.node);
        let node = node.expect("a zone is on a node");
        let end = zone.start_frame + zone.spanned_frames;
        assert!(node.start_frame <= zone.start_frame && end <= node.end_frame);
        assert!(zone.present_frames <= node.present_frames);
    }
    let lines = lines(data);
    let oops = boot_log::oops(&lines).is_some();
    assert!(oops || linux_end::patched_to_death(&lines).is_none());
});
