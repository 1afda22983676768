//! Clients that do not keep to the protocol: answered or dropped, and no other client notices.

use super::kit::{Daemon, take, until};
use super::manager::activated_by;
use firstlight_pool::client::Client;
use firstlight_pool::os::need::skip;
use firstlight_pool::os::passrights;
use firstlight_pool::protocol::{
    MOST_REPLY_BYTES, RefusalCode, Reply, Request, StatusQuery, packet,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

const POOL: &str = "
    fill = { rate = \"0\" }
    limits = { connections = 400, connections_per_user = 300, unread_s = 1 }
    [[class]]
    page = \"thp\"
    source = \"memfd\"
    size = \"2M\"
    slabs = 2
";

fn connect(socket: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let end = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(&end, &SocketAddrUnix::new(socket)?)?;
    Ok(end)
}

fn refusal(socket: &OwnedFd) -> RefusalCode {
    let packet = packet::receive(socket, MOST_REPLY_BYTES, 2).unwrap();
    match Reply::decode(&packet.message).unwrap() {
        Reply::Refused(refusal) => refusal.code,
        other => panic!("{other:?}"),
    }
}

fn is_served(daemon: &Daemon) {
    daemon.until_clean(1);
    let mut pool = daemon.connect();
    let allocated = pool.take(take(1)).unwrap();
    pool.give(allocated.lease.lease).unwrap();
}

#[test]
fn rubbish_is_answered_and_the_connection_lives() {
    let daemon = Daemon::start(POOL);
    let rude = connect(&daemon.socket()).unwrap();
    let whole = br#"{"v":2,"op":"take","bytes":1}"#;
    let halves = (1..whole.len()).map(|length| whole[..length].to_vec());
    let others = [
        vec![0; 4096],
        vec![b'['; 4096],
        b"{\"v\":2,\"op\":\"take\",\"bytes\":-1}".to_vec(),
        b"{\"v\":2,\"op\":\"take\",\"bytes\":1e300}".to_vec(),
        b"{\"v\":1,\"op\":\"take\",\"bytes\":1}".to_vec(),
        b"{\"v\":2,\"op\":\"take\",\"bytes\":1,\"root\":true}".to_vec(),
        b"{\"v\":2,\"op\":\"resize\",\"page\":\"2M\",\"size_class_bytes\":3,\"slabs\":1}".to_vec(),
        b"{\"v\":2,\"op\":\"resize\",\"page\":\"2M\",\"size_class_bytes\":2097152,\"slabs\":4294967295}".to_vec(),
        b"\xff\xfe".to_vec(),
    ];
    for message in halves.chain(others) {
        packet::send(&rude, &message, &[]).unwrap();
        assert_eq!(
            refusal(&rude),
            RefusalCode::BadRequest,
            "{:?}",
            String::from_utf8_lossy(&message)
        );
    }
    packet::send(&rude, br#"{"v":2,"op":"give","lease":"0-1"}"#, &[]).unwrap();
    assert_eq!(refusal(&rude), RefusalCode::UnknownLease);
    is_served(&daemon);
}

/// A socket whose last copy takes an hour to close, and its far end.
fn lingering(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    sockopt::set_socket_linger(&near, Some(Duration::from_secs(3600))).unwrap();
    near.set_nonblocking(true).unwrap();
    let noise = [7; 1 << 16];
    while near.write(&noise).is_ok() {}
    (near, far)
}

/// The daemon would close the last copy of each, and wait for its far end.
#[test]
fn descriptors_that_take_an_hour_to_close_keep_nobody_waiting() {
    let daemon = Daemon::on_an_older_kernel(POOL);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut far_ends = Vec::new();
    let mut ours = Vec::new();
    let mut send = |end: &OwnedFd, message: &[u8]| {
        let (near, far) = lingering(&listener);
        packet::send(end, message, &[near.as_fd()]).unwrap();
        far_ends.push(far);
        // Whoever closes it last waits: the daemon, or this thread.
        ours.push(std::thread::spawn(|| drop(near)));
    };
    for message in [
        &br#"{"v":2,"op":"give","lease":"0-1"}"#[..],
        br#"{"v":2,"op":"status"}"#,
        b"no message",
        &[b' '; 5000],
    ] {
        let [rude, silent] = [(); 2].map(|()| connect(&daemon.socket()).unwrap());
        send(&rude, message);
        send(&silent, message);
        drop(silent);
        assert_eq!(refusal(&rude), RefusalCode::BadRequest);
        assert!(packet::receive(&rude, 100, 0).is_err(), "hung up");
        is_served(&daemon);
    }
    // It ends as fast as without.
    let last = connect(&daemon.socket()).unwrap();
    send(&last, b"nobody reads this");
    drop(last);
    drop(daemon);
    drop(far_ends);
    for thread in ours {
        thread.join().unwrap();
    }
}

#[test]
fn too_much_at_once_ends_the_connection() {
    let daemon = Daemon::on_an_older_kernel(POOL);
    for (message, descriptors) in [
        (vec![b' '; 5000], 0),
        (b"{}".to_vec(), 1),
        (b"{}".to_vec(), 4),
    ] {
        let rude = connect(&daemon.socket()).unwrap();
        let file = tempfile::tempfile().unwrap();
        let files = vec![file.as_fd(); descriptors];
        packet::send(&rude, &message, &files).unwrap();
        assert_eq!(refusal(&rude), RefusalCode::BadRequest);
        assert!(packet::receive(&rude, 100, 0).is_err(), "hung up");
    }
    is_served(&daemon);
    // None of the files stayed open over there.
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    assert!(open.count() < 40);
}

/// Linux 6.16 and later refuse them in the daemon's place, before it has accepted the connection too.
#[test]
fn no_descriptor_reaches_the_daemon() {
    let daemon = Daemon::start(POOL);
    let probe = connect(&daemon.socket()).unwrap();
    if passrights::refuse(&probe).is_err() {
        return skip("passrights", "this kernel lets all descriptors through");
    }
    let file = tempfile::tempfile().unwrap();
    let question = Request::Status(StatusQuery::default()).encode().unwrap();
    let mut rude = None;
    daemon.while_stopped(|| {
        let end = connect(&daemon.socket()).unwrap();
        packet::send(&end, &question, &[file.as_fd()]).unwrap_err();
        packet::send(&end, &question, &[]).unwrap();
        rude = Some(end);
    });
    let rude = rude.unwrap();
    packet::receive(&rude, MOST_REPLY_BYTES, 0).unwrap();
    packet::send(&rude, &question, &[file.as_fd()]).unwrap_err();
    // What is too long ends it all the same.
    packet::send(&rude, &[b' '; 5000], &[]).unwrap();
    assert_eq!(refusal(&rude), RefusalCode::BadRequest);
    assert!(packet::receive(&rude, 100, 0).is_err(), "hung up");
    is_served(&daemon);
}

/// The manager's own socket refuses none until a daemon has it: what came before is looked at.
#[test]
fn a_descriptor_that_was_sent_before_the_daemon_started_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("activated.sock");
    let file = tempfile::tempfile().unwrap();
    let question = Request::Status(StatusQuery::default()).encode().unwrap();
    let mut early = None;
    let first = || {
        // The socket's file is there before anybody listens.
        until("the manager listens", || {
            early = connect(&socket).ok();
            early.is_some()
        });
        let end = early.as_ref().unwrap();
        packet::send(end, &question, &[file.as_fd()]).unwrap();
    };
    let Some(_child) = activated_by(folder.path(), &socket, POOL, first) else {
        return;
    };
    let early = early.unwrap();
    assert_eq!(refusal(&early), RefusalCode::BadRequest);
    assert!(packet::receive(&early, 100, 0).is_err(), "hung up");
    let late = connect(&socket).unwrap();
    if passrights::refuse(&late).is_err() {
        return skip("passrights", "this kernel lets all descriptors through");
    }
    packet::send(&late, &question, &[file.as_fd()]).unwrap_err();
    packet::send(&late, &question, &[]).unwrap();
    packet::receive(&late, MOST_REPLY_BYTES, 0).unwrap();
}

#[test]
fn a_thousand_connections_are_limited_and_cost_no_other_client() {
    let daemon = Daemon::start(POOL);
    daemon.until_clean(1);
    let mut open = Vec::new();
    let mut busy = 0;
    while open.len() + busy < 1000 {
        let Ok(end) = connect(&daemon.socket()) else {
            break;
        };
        packet::send(&end, br#"{"v":2,"op":"status"}"#, &[]).ok();
        let answer = packet::receive(&end, MOST_REPLY_BYTES, 0).unwrap();
        match Reply::decode(&answer.message).unwrap() {
            Reply::Refused(refusal) => {
                assert_eq!(refusal.code, RefusalCode::Busy);
                busy += 1;
            }
            _ => open.push(end),
        }
    }
    assert!(
        open.len() >= 399 && open.len() <= 400,
        "{} open, {busy} refused",
        open.len()
    );
    assert_eq!(open.len() + busy, 1000);
    drop(open);
    until("there is room again", || {
        Client::connect(&daemon.socket()).unwrap().status().is_ok()
    });
    is_served(&daemon);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from_and_dropped() {
    let daemon = Daemon::start(POOL);
    let lazy = connect(&daemon.socket()).unwrap();
    rustix::io::ioctl_fionbio(&lazy, true).unwrap();
    let ask = Request::Status(StatusQuery::default()).encode().unwrap();
    // Until the daemon's answers fill one way, and our questions the other.
    until("both ways are full", || {
        packet::send(&lazy, &ask, &[]).is_err()
    });
    is_served(&daemon);
    until(
        "it is hung up on",
        || matches!(packet::send(&lazy, &ask, &[]), Err(error) if error.kind() != std::io::ErrorKind::WouldBlock),
    );
    is_served(&daemon);
}

#[test]
fn memory_whose_reply_is_not_read_comes_back() {
    let daemon = Daemon::start(POOL);
    daemon.until_clean(2);
    let gone = connect(&daemon.socket()).unwrap();
    let ask = Request::Take(take(1)).encode().unwrap();
    packet::send(&gone, &ask, &[]).unwrap();
    packet::send(&gone, &ask, &[]).unwrap();
    until("both are allocated", || daemon.status().counters.takes == 2);
    drop(gone);
    until("both are back", || daemon.status().counters.returns == 2);
    daemon.until_clean(2);
}
