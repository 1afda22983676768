//! The reader of kernel logs: any bytes, no panic, no row that does not come
//! from a line of the text.
#![no_main]

use firstlight_lab::log;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let log = log::read(data);
    // A lone carriage return may end a line too, and each message of JSON counts as one.
    let lines = 1 + data
        .iter()
        .filter(|byte| matches!(byte, b'\n' | b'\r' | b'{'))
        .count();
    for problem in &log.problems {
        assert!((1..=lines).contains(&problem.line), "{problem}");
        assert!(!problem.to_string().is_empty());
    }
    let rows = log
        .e820
        .iter()
        .chain(&log.user_map)
        .chain(&log.setup_data)
        .chain(&log.modified_map);
    for row in rows {
        assert!(row.span.start <= row.span.last && (1..=lines).contains(&row.line));
    }
    for row in &log.srat_memory {
        assert!(row.span.start <= row.span.last && (1..=lines).contains(&row.line));
    }
    for row in log.node_ranges.iter().chain(&log.node_data) {
        assert!(row.span.start <= row.span.last && (1..=lines).contains(&row.line));
    }
    let (_, rows) = log.memory_rows();
    assert!(rows.iter().all(|row| row.span.start <= row.span.last));
    assert_eq!(log, log::read(data), "the same text reads the same");
});
