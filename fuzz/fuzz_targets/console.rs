//! The ear on a real machine's console: any bytes in chunks of any size become the same boots,
//! and no line is in two of them.
#![no_main]

use std::time::Duration;

use firstlight_lab::console::{Boot, Cutter, MOST_LINE_BYTES, Splitter, record};
use libfuzzer_sys::fuzz_target;

/// The boots of `bytes`, which come in chunks of `chunk`; lines that came in all.
fn boots(bytes: &[u8], chunk: usize) -> (Vec<Boot>, usize) {
    let at = Duration::from_secs(1);
    let mut cutter = Cutter::default();
    let mut splitter = Splitter::new(vec!["login:".into()]);
    let (mut boots, mut lines) = (Vec::new(), Vec::new());
    for chunk in bytes.chunks(chunk) {
        cutter.push(at, chunk, |line| lines.push(line));
        assert!(cutter.begun().len() <= MOST_LINE_BYTES);
    }
    lines.extend(cutter.finish(at));
    let count = lines.len();
    for line in lines {
        assert!(line.bytes.len() <= MOST_LINE_BYTES && !line.bytes.contains(&b'\n'));
        boots.extend(splitter.push(line));
    }
    boots.extend(splitter.close("the end"));
    assert!(splitter.close("again").is_none());
    (boots, count)
}

fuzz_target!(|data: &[u8]| {
    let (chunk, bytes) = data.split_first().unwrap_or((&0, &[]));
    let (whole, count) = boots(bytes, bytes.len().max(1));
    assert!(whole.iter().map(|boot| boot.lines.len()).sum::<usize>() <= count);
    let in_chunks = boots(bytes, usize::from(*chunk) + 1);
    assert!(
        (&whole, count) == (&in_chunks.0, in_chunks.1),
        "chunks change boots"
    );
    for boot in &whole {
        let Ok(record) = record(boot, "tty") else {
            continue;
        };
        assert_eq!(record.log.len(), boot.lines.len());
        let host = record.host.as_ref().expect("it was heard");
        assert_eq!(host.lines_ns.len(), record.log.len());
        let phases = &record.phases;
        assert!(phases.iter().all(|phase| phase.start_ns <= phase.end_ns));
    }
});
