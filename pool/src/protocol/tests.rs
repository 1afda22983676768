//! Messages survive the way there, and only messages do.

use super::packet::{self, PacketError};
use super::*;
use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

fn refused(message: &str) -> String {
    Request::decode(message.as_bytes())
        .expect_err(message)
        .to_string()
}

#[test]
fn a_take_is_what_the_documentation_shows() {
    let take = Take {
        bytes: 8 << 30,
        node: Some(1),
        page: Some(PageSize::Huge),
        max_topup_ms: 50,
        topup_if_faster: false,
        label: Some(Label::new("web-1")),
    };
    let message = Request::Take(take.clone()).encode().expect("small");
    assert_eq!(
        String::from_utf8(message).expect("JSON"),
        r#"{"v":2,"op":"take","bytes":8589934592,"node":1,"page":"2M","max_topup_ms":50,"label":"web-1"}"#
    );
    let short = br#"{"op":"take","bytes":1,"v":2,"node":null}"#;
    let expected = Take {
        bytes: 1,
        node: None,
        page: None,
        max_topup_ms: 0,
        topup_if_faster: false,
        label: None,
    };
    assert_eq!(Request::decode(short), Ok(Request::Take(expected)));
}

#[test]
fn what_is_wrong_with_a_request_is_said() {
    let table = [
        ("", "expected one JSON object"),
        ("[]", "expected one JSON object"),
        (r#"{"v":2,"op":"drain"} {}"#, "expected one JSON object"),
        (r#"{"op":"drain"}"#, "\"v\" is missing, version 2"),
        (r#"{"v":1,"op":"drain"}"#, "\"v\" is 1, version 2"),
        (r#"{"v":"1","op":"drain"}"#, "\"v\" is \"1\""),
        (r#"{"v":2}"#, "\"op\" is missing, expected take, give"),
        (r#"{"v":2,"op":"keep"}"#, "\"op\" is \"keep\""),
        (
            r#"{"v":2,"op":"drain","now":true}"#,
            "drain: unknown field `now`",
        ),
        (r#"{"v":2,"op":"take"}"#, "take: missing field `bytes`"),
        (
            r#"{"v":2,"op":"take","bytes":0}"#,
            "`bytes` is 0, expected 1 to",
        ),
        (
            r#"{"v":2,"op":"take","bytes":-1}"#,
            "take: invalid value: integer `-1`",
        ),
        (
            r#"{"v":2,"op":"take","bytes":9007199254740992}"#,
            "expected 1 to 9007199254740991",
        ),
        (
            r#"{"v":2,"op":"take","bytes":1,"page":"4K"}"#,
            "unknown variant `4K`",
        ),
        (
            r#"{"v":2,"op":"take","bytes":1,"node":4294967296}"#,
            "take: invalid value",
        ),
        (
            r#"{"v":2,"op":"give","lease":"a/b"}"#,
            "give: no lease has this name",
        ),
        (
            r#"{"v":2,"op":"give","lease":""}"#,
            "give: no lease has this name",
        ),
        (
            r#"{"v":2,"op":"revoke","grant":"../grant-00000abc-1"}"#,
            "revoke: no grant has this name",
        ),
        (
            r#"{"v":2,"op":"revoke","grant":"grant-00000abc-01"}"#,
            "revoke: no grant has this name",
        ),
        (
            r#"{"v":2,"op":"grant","page":"2M","size_class_bytes":1,"uses":0}"#,
            "grant: `uses` is 0, expected 1 or more",
        ),
    ];
    for (message, expected) in table {
        let seen = refused(message);
        assert!(seen.contains(expected), "{message}: {seen}");
    }
    let long = format!(r#"{{"v":2,"op":"{}"}}"#, "x".repeat(MOST_REQUEST_BYTES));
    assert!(refused(&long).contains("at most 4096 are allowed"));
    let nested = "[".repeat(MOST_REQUEST_BYTES);
    assert!(refused(&nested).contains("expected one JSON object"));
    let shown = refused(&format!(r#"{{"v":2,"op":"{}"}}"#, "é".repeat(500)));
    assert!(shown.chars().count() < 150, "{shown}");
}

#[test]
fn a_label_is_short_and_harmless_whatever_was_sent() {
    let long = "é".repeat(100);
    let table = [
        ("web 1", "web 1"),
        ("größe-λ", "größe-λ"),
        ("\u{1b}]0;x\u{7}\r\n\t", "?]0;x????"),
        ("\"'`$&<>\\", "????????"),
        ("a\u{202e}b\u{200b}c\u{2028}\u{9b}", "a?b?c??"),
        ("a\u{115f}b\u{3164}c\u{ffa0}\u{1160}", "a?b?c??"),
        ("", ""),
        (&long, &"é".repeat(32)),
    ];
    for (sent, expected) in table {
        assert_eq!(Label::new(sent).as_str(), expected, "{sent:?}");
        let take = serde_json::json!({"v": 2, "op": "take", "bytes": 1, "label": sent});
        let read = Request::decode(take.to_string().as_bytes());
        let label = Some(Label::new(expected));
        assert_eq!(
            read,
            Ok(Request::Take(Take {
                label,
                ..Take::of(1)
            })),
            "{sent:?}"
        );
    }
    // What Unicode calls ignorable.
    let unseen = [
        0xad..=0xad,
        0x34f..=0x34f,
        0x61c..=0x61c,
        0x115f..=0x1160,
        0x17b4..=0x17b5,
        0x180b..=0x180f,
        0x200b..=0x200f,
        0x202a..=0x202e,
        0x2060..=0x206f,
        0x3164..=0x3164,
        0xfe00..=0xfe0f,
        0xfeff..=0xfeff,
        0xffa0..=0xffa0,
        0xfff0..=0xfff8,
        0x1bca0..=0x1bca3,
        0x1d173..=0x1d17a,
        0xe0000..=0xe0fff,
    ];
    for one in unseen.into_iter().flatten().filter_map(char::from_u32) {
        assert_eq!(Label::new(&one.to_string()).as_str(), "?", "{one:?}");
    }
    let row = r#"{"lease":null,"bytes":1,"page":"2M","node":null,"pid":1,"uid":1,"age_ms":1,"label":"a\u001b"}"#;
    let row: LeaseRow = serde_json::from_str(row).expect("of a daemon that cleans nothing");
    assert_eq!(row.label, Some(Label::new("a?")));
    let short = "x".repeat(Label::MOST_BYTES - 1);
    assert_eq!(
        Label::new(&format!("{short}é")).as_str(),
        short,
        "no half of a character"
    );
    assert!(refused(r#"{"v":2,"op":"take","bytes":1,"label":5}"#).contains("invalid type"));
}

#[test]
fn replies_of_a_later_daemon_are_read() {
    let later = br#"{"v":2,"ok":false,"code":"too-warm","message":"later","since":3}"#;
    let refusal = Refusal::new(RefusalCode::Unknown, "later");
    assert_eq!(Reply::decode(later), Ok(Reply::Refused(refusal)));
    for wrong in [
        r#"{"v":2,"op":"give"}"#,
        r#"{"v":2,"ok":1,"op":"give"}"#,
        r#"{"v":2,"ok":true,"op":"gave"}"#,
        r#"{"v":2,"ok":false}"#,
        r#"{"v":2,"ok":true,"op":"take","lease":"1"}"#,
    ] {
        assert!(Reply::decode(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn a_status_has_a_bounded_number_of_rows() {
    let row = LeaseRow {
        lease: Some(LeaseId::new("x".repeat(LeaseId::MOST_BYTES)).expect("a name")),
        bytes: MOST_NUMBER,
        page: PageSize::Transparent,
        node: Some(u32::MAX),
        pid: u32::MAX,
        uid: u32::MAX,
        age_ms: MOST_NUMBER,
        label: Some(Label::new(&"x".repeat(1000))),
        grant: Some(GrantId {
            prefix: u32::MAX,
            number: u64::MAX,
        }),
    };
    let pool = PoolRow {
        page: PageSize::Transparent,
        node: Some(u32::MAX),
        size_class_bytes: MOST_NUMBER,
        wanted_slabs: u32::MAX,
        clean_slabs: u32::MAX,
        filling_slabs: u32::MAX,
        allocated_slabs: u32::MAX,
        unknown_slabs: u32::MAX,
        clean_bytes: MOST_NUMBER,
        dirty_bytes: MOST_NUMBER,
        allocated_bytes: MOST_NUMBER,
        hole_bytes: MOST_NUMBER,
        refilled_bytes: MOST_NUMBER,
        trouble: None,
    };
    let quota = QuotaRow {
        of: QuotaOf::Cgroup,
        // No character of a name takes more in JSON.
        name: "\u{1}".repeat(MOST_QUOTA_NAME),
        most_bytes: Some(MOST_NUMBER),
        charged_bytes: MOST_NUMBER,
        held_bytes: MOST_NUMBER,
        owed_bytes: MOST_NUMBER,
    };
    let grant = GrantRow {
        grant: GrantId {
            prefix: u32::MAX,
            number: u64::MAX,
        },
        label: Some(Label::new(&"x".repeat(1000))),
        page: PageSize::Transparent,
        node: Some(u32::MAX),
        size_class_bytes: MOST_NUMBER,
        uses: u32::MAX,
        charged_slabs: u32::MAX,
        held_slabs: u32::MAX,
    };
    // What the machine sends: quotas and grants beside a hundred others, or as many of the others as allowed.
    let beside = Status {
        pools: vec![pool.clone(); 100],
        quotas: vec![quota; MOST_QUOTA_ROWS],
        grants: vec![grant; MOST_GRANT_ROWS],
        ..Status::default()
    };
    Reply::Status(Box::new(beside)).encode().expect("they fit");
    let mut status = Status {
        pools: vec![pool; 100],
        leases: vec![row.clone(); MOST_STATUS_ROWS],
        ..Status::default()
    };
    let full = Reply::Status(Box::new(status.clone()));
    let message = full.encode().expect("as many rows as allowed fit");
    assert_eq!(Reply::decode(&message), Ok(full));
    status.leases.push(row);
    let error = Reply::Status(Box::new(status))
        .encode()
        .expect_err("one too many");
    assert!(error.to_string().contains("201 rows, expected at most 200"));
}

fn page() -> impl Strategy<Value = PageSize> {
    prop::sample::select(&PageSize::ALL[..])
}

fn request() -> impl Strategy<Value = Request> {
    let node = || prop::option::of(any::<u32>());
    prop_oneof![
        (
            1..=MOST_NUMBER,
            node(),
            prop::option::of(page()),
            any::<u32>(),
            any::<bool>(),
            prop::option::of(".*".prop_map(Label::from))
        )
            .prop_map(
                |(bytes, node, page, max_topup_ms, topup_if_faster, label)| Request::Take(Take {
                    bytes,
                    node,
                    page,
                    max_topup_ms,
                    topup_if_faster,
                    label,
                })
            ),
        "[A-Za-z0-9._-]{1,64}".prop_map(|name| Request::Give(Give {
            lease: LeaseId::new(name).expect("a name")
        })),
        any::<[u32; 4]>().prop_map(|[skip_pools, skip_leases, skip_quotas, skip_grants]| {
            Request::Status(StatusQuery {
                skip_pools,
                skip_leases,
                skip_quotas,
                skip_grants,
            })
        }),
        (page(), node(), 1..=MOST_NUMBER, any::<u32>()).prop_map(
            |(page, node, size_class_bytes, slabs)| Request::Resize(Resize {
                page,
                node,
                size_class_bytes,
                slabs,
            })
        ),
        (any::<Option<bool>>(), proptest::option::of(0..=MOST_NUMBER))
            .prop_map(|(on, rate)| Request::Fill(FillChange { on, rate })),
        Just(Request::Drain),
        (
            page(),
            node(),
            1..=MOST_NUMBER,
            1..=u32::MAX,
            prop::option::of(".*".prop_map(Label::from))
        )
            .prop_map(|(page, node, size_class_bytes, uses, label)| {
                Request::Grant(GrantRequest {
                    page,
                    node,
                    size_class_bytes,
                    uses,
                    label,
                })
            }),
        any::<(u32, u64)>().prop_map(|(prefix, number)| {
            let grant = GrantId { prefix, number };
            Request::Revoke(Revoke { grant })
        }),
    ]
}

proptest! {
    #[test]
    fn requests_survive_the_way_there(request in request()) {
        let message = request.encode().expect("in range");
        prop_assert!(message.len() <= MOST_REQUEST_BYTES);
        prop_assert_eq!(Request::decode(&message), Ok(request));
    }

    #[test]
    fn broken_requests_are_no_panic(request in request(), at in any::<usize>(), byte in any::<u8>()) {
        let mut message = request.encode().expect("in range");
        let at = at % message.len();
        message[at] = byte;
        let _ = Request::decode(&message);
        let _ = Reply::decode(&message);
        message.truncate(at);
        prop_assert!(Request::decode(&message).is_err());
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .expect("a pair of sockets")
}

#[test]
fn descriptors_arrive_in_order_and_open() {
    let (ours, theirs) = pair();
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let (other, _) = pair();
    packet::send(&ours, b"two", &[writer.as_fd(), other.as_fd()]).expect("room in the socket");
    drop(writer);
    let packet = packet::receive(&theirs, 8, TAKE_DESCRIPTORS).expect("a packet");
    assert_eq!(packet.message, b"two");
    let mut descriptors = packet.descriptors.into_iter();
    let mut first = File::from(descriptors.next().expect("the first"));
    first.write_all(b"x").expect("the pipe is open");
    drop(first);
    let mut seen = String::new();
    reader.read_to_string(&mut seen).expect("the end");
    assert_eq!(seen, "x");
    assert_eq!(descriptors.count(), 1);
}

#[test]
fn what_comes_with_descriptors_is_not_received_where_none_may_come() {
    let (ours, theirs) = pair();
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    packet::send(&ours, b"first", &[]).expect("room");
    packet::send(&ours, b"second", &[writer.as_fd()]).expect("room");
    drop(writer);
    let first = packet::receive_plain(&theirs, 8).expect("a message");
    assert_eq!(first, b"first");
    for _ in 0..2 {
        let error = packet::receive_plain(&theirs, 8).expect_err("it has a descriptor");
        assert!(
            matches!(error, PacketError::Descriptors { most: 0 }),
            "{error}"
        );
    }
    drop(theirs);
    assert_eq!(
        reader.read(&mut [0]).expect("the end"),
        0,
        "closed with the socket"
    );

    let (ours, theirs) = pair();
    packet::send(&ours, &[b'x'; 9], &[]).expect("room");
    packet::send(&ours, &[b'y'; 8], &[]).expect("room");
    let error = packet::receive_plain(&theirs, 8).expect_err("cut");
    assert!(matches!(error, PacketError::TooLong { most: 8 }), "{error}");
    assert_eq!(
        packet::receive_plain(&theirs, 8).expect("the next"),
        [b'y'; 8]
    );
    drop(ours);
    let error = packet::receive_plain(&theirs, 8).expect_err("the end");
    assert!(matches!(error, PacketError::Closed), "{error}");
}

#[test]
fn what_is_too_much_is_refused_and_closed() {
    let (ours, theirs) = pair();
    packet::send(&ours, &[b'x'; 9], &[]).expect("room");
    let error = packet::receive(&theirs, 8, 0).expect_err("cut");
    assert!(matches!(error, PacketError::TooLong { most: 8 }), "{error}");

    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    packet::send(&ours, b"x", &[writer.as_fd()]).expect("room");
    drop(writer);
    let error = packet::receive(&theirs, 8, 0).expect_err("a descriptor too many");
    assert!(
        matches!(error, PacketError::Descriptors { most: 0 }),
        "{error}"
    );
    assert_eq!(reader.read(&mut [0]).expect("the end"), 0);

    let many = [ours.as_fd(); packet::MOST_DESCRIPTORS + 1];
    packet::send(&ours, b"x", &many).expect_err("more than is ever sent");
    packet::send(&ours, b"", &[]).expect_err("looks like the end");
    drop(ours);
    let error = packet::receive(&theirs, 8, 0).expect_err("the end");
    assert!(matches!(error, PacketError::Closed), "{error}");
}

/// Every message that `docs/pool-protocol.md` shows.
fn documented() -> Vec<String> {
    let text = include_str!("../../../docs/pool-protocol.md");
    let blocks = text.split("```json\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap_or("").lines());
    let mut messages: Vec<String> = Vec::new();
    for line in lines {
        match messages.last_mut().filter(|_| !line.starts_with('{')) {
            Some(message) => message.push_str(line),
            None => messages.push(line.into()),
        }
    }
    messages
}

#[test]
fn the_documentation_shows_messages() {
    let seen: Vec<bool> = documented()
        .iter()
        .map(|message| {
            let bytes = message.as_bytes();
            if message.contains("\"ok\":") {
                let reply =
                    Reply::decode(bytes).unwrap_or_else(|error| panic!("{message}: {error}"));
                let again = reply.encode().expect("small");
                let parsed = |bytes: &[u8]| -> serde_json::Value {
                    serde_json::from_slice(bytes).expect("JSON")
                };
                assert_eq!(
                    parsed(&again),
                    parsed(bytes),
                    "no field is left out: {message}"
                );
                true
            } else {
                Request::decode(bytes).unwrap_or_else(|error| panic!("{message}: {error}"));
                false
            }
        })
        .collect();
    assert_eq!(
        seen.iter().filter(|reply| !**reply).count(),
        8,
        "each request once"
    );
    assert_eq!(
        seen.iter().filter(|reply| **reply).count(),
        9,
        "each reply, and a refusal"
    );
}
