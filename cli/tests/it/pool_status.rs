//! `firstlight pool status`: the daemon's rows as a table and as a document.

use crate::common;
use crate::common::schema;

use firstlight_pool::protocol::{
    Counters, Gauges, Label, LeaseId, LeaseRow, MOST_REQUEST_BYTES, Misses, PageSize, PoolRow,
    QuotaOf, QuotaRow, Reply, Request, Status, TakeTimes, packet,
};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
};
use std::path::Path;
use std::thread;

/// `pool status` with further arguments.
fn told(socket: &Path, further: &[&str]) -> (i32, String, String) {
    let socket = socket.to_str().expect("a plain name");
    let mut arguments = vec!["pool", "status", "--socket", socket];
    arguments.extend(further);
    common::told(&arguments)
}

fn status() -> Status {
    Status {
        daemon_pid: 812,
        uptime_ms: 61_000,
        pools: vec![PoolRow {
            page: PageSize::Huge,
            node: Some(1),
            size_class_bytes: 8 << 30,
            wanted_slabs: 4,
            clean_slabs: 2,
            filling_slabs: 1,
            unknown_slabs: 0,
            allocated_slabs: 1,
            clean_bytes: 16 << 30,
            dirty_bytes: 0,
            allocated_bytes: 8 << 30,
            hole_bytes: 3 << 30,
            refilled_bytes: 1 << 30,
            trouble: Some("too few\x1b[2J pages".into()),
        }],
        leases: vec![LeaseRow {
            lease: Some(LeaseId::new("17-3").expect("a name")),
            bytes: 8 << 30,
            page: PageSize::Huge,
            node: Some(1),
            pid: 4711,
            uid: 64055,
            age_ms: 900,
            label: Some(Label::new("web\u{1b}[2J")),
            grant: None,
        }],
        counters: Counters {
            takes: 100,
            top_ups: 1,
            denied: 1,
            misses: Misses {
                no_class: 2,
                ..Misses::default()
            },
            zeroed_bytes: 24 << 30,
            zeroing_ns: 2_000_000_000,
            take_times: Some(TakeTimes {
                p50_ns: 21_000,
                p99_ns: 40_000,
                max_ns: 41_000,
                count: 100,
                ..TakeTimes::default()
            }),
            ..Counters::default()
        },
        quotas: vec![QuotaRow {
            of: QuotaOf::Cgroup,
            name: "/machine\u{1b}".into(),
            most_bytes: Some(32 << 30),
            charged_bytes: 8 << 30,
            held_bytes: 6 << 30,
            owed_bytes: 2 << 30,
        }],
        ..Status::default()
    }
}

/// That of a daemon that has just begun: one slab is being filled, another topped up for its first client.
fn first() -> Status {
    let all = status();
    Status {
        pools: vec![PoolRow {
            clean_slabs: 0,
            clean_bytes: 1 << 30,
            hole_bytes: 0,
            refilled_bytes: 0,
            trouble: None,
            ..all.pools[0].clone()
        }],
        counters: Counters {
            takes: 1,
            take_times: Some(TakeTimes {
                p50_ns: 182_100,
                p99_ns: 182_100,
                max_ns: 182_100,
                count: 1,
                ..TakeTimes::default()
            }),
            ..Counters::default()
        },
        gauges: Gauges {
            topping_up_slabs: 1,
            ..Gauges::default()
        },
        ..Status::default()
    }
}

/// A daemon that answers every request of one connection with `status`.
fn serve(path: &Path, status: fn() -> Status) {
    let address = SocketAddrUnix::new(path).expect("a short name");
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None).expect("a socket");
    bind(&socket, &address).expect("a free name");
    listen(&socket, 8).expect("it listens");
    thread::spawn(move || {
        while let Ok(connection) = accept(&socket) {
            while let Ok(packet) = packet::receive(&connection, MOST_REQUEST_BYTES, 0) {
                let request = Request::decode(&packet.message).expect("a request");
                assert_eq!(request.operation(), "status");
                let message = Reply::Status(Box::new(status())).encode().expect("small");
                packet::send(&connection, &message, &[]).expect("the client listens");
            }
        }
    });
}

#[test]
fn a_status_is_a_table_or_a_document() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("pool.sock");
    serve(&socket, status);
    let (code, text, _) = told(&socket, &[]);
    assert_eq!(code, 0);
    for expected in [
        "firstlight pool: 16 GiB clean, 8 GiB allocated, up 1 min 1 s",
        "note: 2M pages, node 1: too few [2J pages",
        "  wanted  clean  filling  allocated  clean bytes  allocated bytes  holes  refilled\n",
        "     2M     1  8 GiB       4      2        1          1       16 GiB            8 GiB  3 GiB     1 GiB",
        "  taken by pid    uid     age    label\n",
        "   17-3  8 GiB     2M     1          4711  64055  900 ms  web?[2J\n",
        "quota of",
        "32 GiB    8 GiB  6 GiB  2 GiB",
        "100 leases allocated (1 after a top-up), 0 ended; refused: 2 of a size that is not kept, 1 over a quota",
        "allocating one took the daemon 21.0 us (p50), 40.0 us (p99), 41.0 us (slowest)",
        "24 GiB zeroed in 2.0 s, slabs being filled not counted",
    ] {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
    let (_, text, _) = told(&socket, &["--json"]);
    let document = schema::document(text.as_bytes());
    assert_eq!(document["schema"], "firstlight.pool-status/3");
    assert_eq!(document["pools"][0]["clean_slabs"], 2);
    assert_eq!(document["leases"][0]["lease"], "17-3");
}

#[test]
fn a_first_pool_is_shown_without_what_it_does_not_have_yet() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("pool.sock");
    serve(&socket, first);
    let (code, text, _) = told(&socket, &[]);
    assert_eq!(code, 0);
    for expected in [
        "  1 of the allocated being topped up: a client waits, and has no lease yet\n",
        "  1 lease allocated (0 after a top-up), 0 ended; none refused\n",
        "  allocating it took the daemon 182.1 us\n",
    ] {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
    for none in ["unknown", "dirty", "holes", "refilled", "zeroed", "p99"] {
        assert!(!text.contains(none), "{none} is in:\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
}

#[test]
fn no_daemon_is_one_clear_message() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("no-daemon.sock");
    let (code, text, stderr) = told(&socket, &["--json"]);
    assert_eq!(code, 10);
    assert!(
        stderr.starts_with("error: no pool answers at /"),
        "{stderr}"
    );
    assert!(
        stderr.contains("`firstlight pool serve` starts one"),
        "{stderr}"
    );
    let document = schema::document(text.as_bytes());
    assert_eq!(document["schema"], "firstlight.error/1");
    assert_eq!(document["exit_code"], 10);
}
