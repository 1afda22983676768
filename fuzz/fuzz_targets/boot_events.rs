//! What a booted image says: any bytes on the port for events and in the log. No
//! panic, nothing skipped without a word, nothing in the record that a report
//! could stumble over.
#![no_main]

use firstlight_lab::boot::{self, events::Events};
use firstlight_lab::record::Record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let at = data
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(data.len());
    let (port, log) = data.split_at(at);
    let events = Events::read(port, log);
    assert_eq!(events.list.len(), events.raw.len());
    if events.rubbish.is_none() {
        let lines = port.split(|byte| *byte == b'\n');
        let said = lines.filter(|line| !line.trim_ascii().is_empty()).count();
        assert!(events.list.len() >= said);
    }
    let mut record = Record::new("boot", "wall");
    boot::tell(&events, &mut record);
    assert!(
        record
            .phases
            .iter()
            .all(|phase| phase.start_ns <= phase.end_ns)
    );
    assert!(
        record
            .regions
            .iter()
            .all(|region| region.start <= region.end)
    );
    assert!(
        record
            .nodes
            .iter()
            .all(|node| node.start_frame <= node.end_frame)
    );
    let texts = record.notes.iter().chain(&record.corrections);
    assert!(!texts.flat_map(|text| text.chars()).any(char::is_control));
});
