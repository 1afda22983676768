//! The file that a run left on a stick, as a record: [`record_of_result`].

use super::events::{Event, Events, Outcome};
use super::tell;
use crate::record::{Kernel, Record};

/// Why a file is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    /// A line that is no event; which, and why not.
    #[error("{0}; expected the events of a run, one a line, as in result.jsonl on the stick")]
    Line(String),
    /// No event at all.
    #[error("no events in it; expected those of a run, as in result.jsonl on the stick")]
    Empty,
}

/// The record of a run on a machine with UEFI, from the content of `result.jsonl`, or of the QR
/// code on its screen. `name` is the file's.
///
/// ```
/// use firstlight_lab::boot::record_of_result;
/// let text = b"{\"event\":\"clock\",\"hz\":1000,\"source\":\"cpuid\"}\n\
///              {\"event\":\"milestone\",\"name\":\"entry\",\"ticks\":2}\n\
///              {\"event\":\"end\",\"outcome\":\"ok\"}\n";
/// let record = record_of_result("result.jsonl", text).unwrap();
/// assert_eq!(record.milestones.entry_ns, Some(2_000_000));
/// ```
///
/// # Errors
/// [`ResultError`]. How the run ended is a note of the record.
pub fn record_of_result(name: &str, content: &[u8]) -> Result<Record, ResultError> {
    let mut events = Events::read(content, b"");
    let whole = content.iter().rposition(|byte| *byte == b'\n');
    if let (true, Some(end)) = (events.rubbish.is_some(), whole) {
        // A line without its end, as where the file is cut; one that is whole is read above.
        events = Events::read(&content[..=end], b"");
    }
    if let Some(rubbish) = &events.rubbish {
        return Err(ResultError::Line(rubbish.to_string()));
    }
    if events.list.is_empty() {
        return Err(ResultError::Empty);
    }
    let mut record = Record::new("boot", "wall");
    record.source.kind = "image".into();
    record.source.name = name.into();
    record.source.map = "the memory map that UEFI handed to the image".into();
    record.source.nodes = "firmware's tables, as the image read them".into();
    record.source.kernel = Some(Kernel {
        kind: "image".into(),
        release: None,
        file: None,
        initrd: None,
    });
    tell::tell(&events, &mut record);
    if !events
        .list
        .iter()
        .any(|event| matches!(event, Event::Start { .. }))
    {
        record
            .notes
            .push("the file begins after the run did: its first line is missing".into());
    }
    match events.outcome() {
        Some(Outcome::Ok) => {}
        Some(outcome) => record
            .notes
            .push(format!("the run ended: {}", outcome.name())),
        None => record
            .notes
            .push("the file ends before the run did: something cut it".into()),
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_run_ended_is_a_note() {
        let record = |text: &str| record_of_result("a", text.as_bytes());
        let ended = record("{\"event\":\"end\",\"outcome\":\"machine\"}\n").unwrap();
        assert!(ended.notes.contains(&"the run ended: machine".into()));
        let milestone = "{\"event\":\"milestone\",\"name\":\"entry\",\"ticks\":2}\n";
        let cut = record(&format!("{milestone}{{\"event\":")).unwrap();
        assert!(cut.notes.last().unwrap().contains("ends before"));
        assert!(cut.notes.iter().any(|note| note.contains("begins after")));
        let wrong = record(&format!("{milestone}{{\"event\":\n"));
        assert!(matches!(wrong, Err(ResultError::Line(line)) if line.starts_with("line 2 ")));
        assert!(matches!(record("{\"event\":"), Err(ResultError::Line(_))));
        let qr = record(&format!(
            "{milestone}{{\"event\":\"end\",\"outcome\":\"ok\"}}"
        ))
        .unwrap();
        assert!(!qr.notes.iter().any(|note| note.contains("ends before")));
        let cut = record("{\"event\":\"milestone\",\"name\":\"entry\",\"ticks\":2}\n").unwrap();
        assert!(cut.notes.last().unwrap().contains("ends before"));
        assert_eq!(record("\n\n"), Err(ResultError::Empty));
    }
}
