//! What comes from a guest is any bytes at all.

mod fake_qemu;

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

#[test]
fn outcome_and_exit_status_belong_together() {
    for outcome in Outcome::ALL {
        let status = outcome.exit_status();
        assert_eq!(Outcome::of_exit_status(status), Some(outcome));
        let line = format!(r#"{{"event":"end","outcome":"{}"}}"#, outcome.name());
        assert_eq!(Events::read(line.as_bytes(), b"").outcome(), Some(outcome));
    }
    let statuses = Outcome::ALL.map(Outcome::exit_status);
    assert_eq!(statuses, [85, 87, 89, 91, 93]);
    assert_eq!(Outcome::of_exit_status(0), None);
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
