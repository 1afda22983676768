//! The client beside a daemon that answers whatever a test says.

use firstlight_pool::client::{Client, ClientError};
use firstlight_pool::protocol::{
    Drained, Label, Lease, LeaseId, LeaseRow, MOST_REPLY_BYTES, MOST_REQUEST_BYTES,
    MOST_STATUS_ROWS, PageSize, Refusal, RefusalCode, Reply, Request, Status, Take, packet,
};
use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::{self, JoinHandle};

/// A client, and a daemon that hands each request to `answer` until it hangs up.
fn beside(
    mut answer: impl FnMut(Request) -> Option<(Vec<u8>, Vec<OwnedFd>)> + Send + 'static,
) -> (Client, JoinHandle<()>) {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).expect("sockets");
    let daemon = thread::spawn(move || {
        while let Ok(packet) = packet::receive(&theirs, MOST_REQUEST_BYTES, 0) {
            let request = Request::decode(&packet.message).expect("the client speaks the protocol");
            let Some((message, descriptors)) = answer(request) else {
                return;
            };
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            packet::send(&theirs, &message, &descriptors).expect("the client listens");
        }
    });
    (Client::new(ours), daemon)
}

fn memory(bytes: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("slab", MemfdFlags::CLOEXEC).expect("a file");
    rustix::fs::ftruncate(&file, bytes).expect("a size");
    file
}

fn lease(bytes: u64) -> Lease {
    Lease {
        lease: LeaseId::new("1-1").expect("a name"),
        bytes,
        page: PageSize::Transparent,
        node: None,
        align_bytes: 2 << 20,
        topped_up_bytes: 0,
    }
}

const TAKE: Take = Take {
    bytes: 4096,
    node: None,
    page: None,
    max_topup_ms: 0,
    topup_if_faster: false,
    label: None,
};

#[test]
fn what_is_taken_is_memory_with_a_lease_pipe() {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut writer = Some(OwnedFd::from(writer));
    let (mut client, daemon) = beside(move |request| {
        assert_eq!(request, Request::Take(TAKE));
        let message = Reply::Take(lease(8192)).encode().expect("small");
        Some((
            message,
            vec![memory(8192), writer.take().expect("one take")],
        ))
    });
    let allocated = client.take(TAKE).expect("allocated");
    assert_eq!(allocated.lease, lease(8192));
    assert_eq!(
        File::from(allocated.memory)
            .metadata()
            .expect("a file")
            .len(),
        8192
    );
    drop(client);
    daemon.join().expect("the daemon is content");
    drop(allocated.lease_pipe);
    assert_eq!(
        reader.read(&mut [0]).expect("the end"),
        0,
        "no other copy is left"
    );
}

/// Such a daemon refuses each field that it does not know, and goes on listening.
#[test]
fn a_daemon_from_before_labels_allocates_without_one() {
    for is_of_before in [true, false] {
        let mut seen = Vec::new();
        let (mut client, daemon) = beside(move |request| {
            let Request::Take(take) = request else {
                panic!("{request:?}")
            };
            seen.push(take.label.is_some());
            if is_of_before && take.label.is_some() {
                let text = "take: unknown field `label`, expected one of `bytes`, `node`";
                let refusal = Refusal::new(RefusalCode::BadRequest, text);
                return Some((Reply::Refused(refusal).encode().expect("small"), vec![]));
            }
            let asked: &[bool] = if is_of_before {
                &[true, false]
            } else {
                &[true]
            };
            assert_eq!(seen, asked);
            let message = Reply::Take(lease(8192)).encode().expect("small");
            Some((message, vec![memory(8192), memory(0)]))
        });
        let label = Some(Label::new("web"));
        client.take(Take { label, ..TAKE }).expect("allocated");
        drop(client);
        daemon.join().expect("the daemon is content");
    }
    // What is wrong besides is refused once more.
    let (mut client, _daemon) = beside(|_| {
        let refusal = Refusal::new(RefusalCode::BadRequest, "no such node");
        Some((Reply::Refused(refusal).encode().expect("small"), vec![]))
    });
    let label = Some(Label::new("web"));
    let error = client.take(Take { label, ..TAKE }).expect_err("refused");
    assert!(matches!(error, ClientError::Refused(refusal) if refusal.message == "no such node"));
}

#[test]
fn a_lease_that_is_not_what_it_says_is_refused() {
    type Loan = (Lease, fn() -> Vec<OwnedFd>, &'static str);
    let table: [Loan; 4] = [
        (
            lease(2048),
            || vec![memory(8192), memory(0)],
            "4096 were asked for",
        ),
        (
            lease(8192),
            || vec![memory(4096), memory(0)],
            "is a file of 4096 bytes",
        ),
        (
            lease(8192),
            || vec![memory(8192)],
            "came with 1 descriptors",
        ),
        (
            lease(8192),
            || vec![memory(1), memory(1), memory(1)],
            "more than 2 descriptors",
        ),
    ];
    for (lease, descriptors, expected) in table {
        let (mut client, _daemon) = beside(move |_| {
            Some((
                Reply::Take(lease.clone()).encode().expect("small"),
                descriptors(),
            ))
        });
        let error = client.take(TAKE).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn refusals_and_nonsense_are_told_apart() {
    let refusal = Refusal::new(RefusalCode::Empty, "no slab of 8 GiB is ready");
    let (mut client, _daemon) = beside(move |request| {
        Some(match request {
            Request::Take(_) => (
                Reply::Refused(refusal.clone()).encode().expect("small"),
                vec![],
            ),
            Request::Give(_) => (b"\xff\xff".to_vec(), vec![]),
            Request::Drain => (Reply::Give.encode().expect("small"), vec![]),
            Request::Status(_) => (vec![b' '; MOST_REPLY_BYTES + 1], vec![]),
            Request::Resize(_) | Request::Fill(_) | Request::Grant(_) | Request::Revoke(_) => {
                return None;
            }
        })
    });
    let error = client.take(TAKE).expect_err("refused");
    assert!(matches!(&error, ClientError::Refused(refusal) if refusal.code == RefusalCode::Empty));
    assert_eq!(
        error.to_string(),
        "the pool refuses (empty): no slab of 8 GiB is ready"
    );
    let error = client
        .give(LeaseId::new("1").expect("a name"))
        .expect_err("nonsense");
    assert!(matches!(error, ClientError::Message(_)), "{error}");
    let error = client.status().expect_err("too long").to_string();
    assert!(error.contains("more than 131072 bytes"), "{error}");
    let error = client.drain().expect_err("another answer").to_string();
    assert!(
        error.contains("drain was answered as if it were give"),
        "{error}"
    );
}

#[test]
fn a_daemon_that_hangs_up_or_is_not_there_is_said_so() {
    let (mut client, daemon) = beside(|_| None);
    let error = client.drain().expect_err("hung up");
    assert!(matches!(error, ClientError::Closed), "{error}");
    daemon.join().expect("the daemon is content");
    let error = client.drain().expect_err("gone");
    assert!(matches!(error, ClientError::Closed), "{error}");

    let nowhere = Path::new("/nonexistent/pool.sock");
    let error = Client::connect(nowhere)
        .expect_err("no daemon is there")
        .to_string();
    assert!(
        error.starts_with("no pool answers at /nonexistent/pool.sock: "),
        "{error}"
    );
    let long = "x".repeat(200);
    Client::connect(Path::new(&long)).expect_err("no such address");
}

#[test]
fn a_long_status_comes_in_parts() {
    let rows: Vec<LeaseRow> = (0..2 * MOST_STATUS_ROWS + 7)
        .map(|number| LeaseRow {
            lease: Some(LeaseId::new(number.to_string()).expect("a name")),
            bytes: 1,
            page: PageSize::Huge,
            node: Some(0),
            pid: 1,
            uid: 0,
            age_ms: 0,
            label: None,
            grant: None,
        })
        .collect();
    let expected = rows.clone();
    let (mut client, _daemon) = beside(move |request| {
        let Request::Status(query) = request else {
            let drained = Drained {
                released_bytes: 0,
                allocated_slabs: 0,
            };
            return Some((Reply::Drain(drained).encode().expect("small"), vec![]));
        };
        let left = rows.get(query.skip_leases as usize..).unwrap_or_default();
        let part = &left[..left.len().min(MOST_STATUS_ROWS)];
        let status = Status {
            leases: part.to_vec(),
            more_leases: u32::try_from(left.len() - part.len()).expect("few"),
            ..Status::default()
        };
        Some((
            Reply::Status(Box::new(status)).encode().expect("it fits"),
            vec![],
        ))
    });
    let status = client.status().expect("all parts");
    assert_eq!(status.leases, expected);
    assert_eq!(status.more_leases, 0);

    let (mut client, _daemon) = beside(|_| {
        let status = Status {
            more_pools: 1,
            ..Status::default()
        };
        Some((
            Reply::Status(Box::new(status)).encode().expect("it fits"),
            vec![],
        ))
    });
    let error = client.status().expect_err("without end").to_string();
    assert!(error.contains("a status without end"), "{error}");
}
