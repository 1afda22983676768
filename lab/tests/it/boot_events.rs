//! What comes from a guest is any bytes at all.

use crate::fake_qemu;

use fake_qemu::EVENTS;
use firstlight_lab::boot::events::{Event, Events, MARK, MOST_EVENT_BYTES, MOST_EVENTS, Outcome};
use proptest::prelude::*;

#[test]
fn every_event_of_the_image_is_known_but_the_later_ones() {
    let events = Events::read(EVENTS.as_bytes(), b"");
    assert_eq!(events.rubbish, None);
    let unknown = events.list.iter().filter(|event| **event == Event::Unknown);
    assert_eq!(unknown.count(), 1);
    assert_eq!(events.list.len(), EVENTS.lines().count());
    assert_eq!(events.raw.len(), events.list.len());
}

/// The image's side of the interface borrows, the reader's owns; the bytes between
/// them are the same type's.
#[test]
fn an_event_is_read_as_it_was_written() {
    type Written = firstlight_wire::Event<&'static str, &'static [u8]>;
    let written = [
        Written::Start {
            schema: firstlight_wire::SCHEMA,
            version: "0.1.0",
            command_line: "a \"quoted\" word",
        },
        Written::Node {
            node: 1,
            domain: 7,
            cpus: 2,
            start_frame: 3,
            end_frame: 9,
            present_frames: 5,
            distances: &[10, 20],
        },
        Written::Selftest(firstlight_wire::Selftest {
            cpus: 1,
            allocated_blocks: 2,
            freed_blocks: 2,
            all_frames: 4,
            failures: 0,
        }),
        Written::Descriptors(firstlight_wire::Descriptors {
            mode: "lazy",
            writer: "words",
            descriptor_bytes: 64,
            sections: 8,
            ready_sections: 7,
            touched_sections: 6,
            worked_sections: 1,
            written_bytes: 5,
            zeroed_bytes: Some(3),
            reserved_bytes: 4,
            checked_frames: 3,
            wrong_frames: 2,
        }),
        Written::End {
            outcome: Outcome::CheckFailed,
        },
    ];
    let lines = written.map(|event| serde_json::to_string(&event).unwrap());
    let events = Events::read(lines.join("\n").as_bytes(), b"");
    assert_eq!(events.rubbish, None);
    let read = events.list.iter();
    let again: Vec<_> = read
        .map(|event| serde_json::to_string(event).unwrap())
        .collect();
    assert_eq!(again, lines);
    assert!(!events.list.contains(&Event::Unknown));
    assert_eq!(events.outcome(), Some(Outcome::CheckFailed));
}

#[test]
fn outcome_and_exit_status_belong_together() {
    for outcome in Outcome::ALL {
        let status = outcome.exit_status();
        assert_eq!(Outcome::of_exit_status(status), Some(outcome));
        let line = format!(r#"{{"event":"end","outcome":"{}"}}"#, outcome.name());
        assert_eq!(Events::read(line.as_bytes(), b"").outcome(), Some(outcome));
    }
}

#[test]
fn the_first_rubbish_is_told_and_nothing_after_it() {
    let port = b"{\"event\":\"note\",\"text\":\"one\"}\n\n  \r\n\xff\xfe\x1b[2Jjunk\n{\"event\":\"note\",\"text\":\"two\"}\n";
    let events = Events::read(port, b"");
    assert_eq!(events.list.len(), 1);
    let rubbish = events.rubbish.unwrap();
    assert_eq!(rubbish.line, 4);
    assert!(rubbish.text.ends_with("junk"), "{rubbish}");
    assert!(!rubbish.text.contains('\u{1b}'));
}

#[test]
fn texts_are_shown_without_control_characters_and_kept_as_they_came() {
    let port = r#"{"event":"note","text":"a\u001b[31mb\tc"}"#;
    let events = Events::read(port.as_bytes(), b"");
    let text = "ab c".to_owned();
    assert_eq!(events.list, [Event::Note { text }]);
    assert_eq!(events.raw[0]["text"], "a\u{1b}[31mb\tc");
}

#[test]
fn nothing_comes_after_the_end() {
    let end = "{\"event\":\"end\",\"outcome\":\"ok\"}\n";
    let events = Events::read(end.repeat(2).as_bytes(), b"");
    assert_eq!(events.rubbish.unwrap().line, 2);
}

#[test]
fn length_and_number_are_bounded() {
    let note = |bytes: usize| {
        format!(
            "{{\"event\":\"note\",\"text\":\"{}\"}}\n",
            "x".repeat(bytes)
        )
    };
    let events = Events::read(note(MOST_EVENT_BYTES).as_bytes(), b"");
    let rubbish = events.rubbish.unwrap();
    assert!(
        rubbish.why.contains("bytes") && rubbish.text.len() < 100,
        "{rubbish}"
    );
    let many = note(1).repeat(MOST_EVENTS + 1);
    let events = Events::read(many.as_bytes(), b"");
    assert_eq!(events.list.len(), MOST_EVENTS);
    assert_eq!(events.rubbish.unwrap().line, MOST_EVENTS + 1);
    // Deeper than anybody nests.
    let deep = "[".repeat(10_000);
    assert!(Events::read(deep.as_bytes(), b"").rubbish.is_some());
}

#[test]
fn numbers_stay_within_a_machine() {
    let node = |end: &str| {
        format!(
            r#"{{"event":"node","node":0,"domain":0,"cpus":1,"start_frame":0,"end_frame":{end},"present_frames":1}}"#
        )
    };
    for (end, fine) in [
        ("1099511627776", true),
        ("1099511627777", false),
        ("18446744073709551616", false),
        ("1.5", false),
        ("-1", false),
        ("null", false),
    ] {
        let events = Events::read(node(end).as_bytes(), b"");
        assert_eq!(
            events.rubbish.is_none(),
            fine,
            "{end}: {:?}",
            events.rubbish
        );
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        Just(b"\n".to_vec()),
        Just(MARK.as_bytes().to_vec()),
        proptest::sample::select(EVENTS.lines().collect::<Vec<_>>())
            .prop_map(|line| line.as_bytes().to_vec()),
        Just(b"{\"event\":\"end\",\"outcome\":\"ok\"}".to_vec()),
    ];
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// Whatever comes: no panic, every line read is either an event or the rubbish,
    /// and what may be shown has no control characters.
    #[test]
    fn any_bytes_are_read(port in bytes(), log in bytes()) {
        let events = Events::read(&port, &log);
        prop_assert_eq!(events.list.len(), events.raw.len());
        if let Some(rubbish) = &events.rubbish {
            prop_assert!(!rubbish.to_string().chars().any(char::is_control));
        } else {
            let lines = port.split(|byte| *byte == b'\n');
            let said = lines.filter(|line| !line.trim_ascii().is_empty()).count();
            prop_assert!(events.list.len() >= said);
        }
    }
}
