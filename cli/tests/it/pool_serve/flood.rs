//! Users that take more than their share of connections and of the daemon's time.

use super::kit::{Daemon, another_user, is_root, take, until, user_of_group};
use firstlight_pool::client::{Client, ClientError};
use firstlight_pool::os::{need::skip, passrights};
use firstlight_pool::protocol::{
    MOST_REPLY_BYTES, RefusalCode, Reply, Request, StatusQuery, packet, packet::PacketError,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Signal;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Users that a quota names, and others that none does.
const TENANTS: [u32; 4] = [65_001, 65_002, 65_003, 65_004];
const LATE_TENANT: u32 = 65_005;
const STRANGERS: [u32; 4] = [65_011, 65_012, 65_013, 65_014];

/// A daemon to whose socket any user may connect: a cgroup has a quota.
fn open_pool(limits: &str) -> Option<Daemon> {
    pool_with(
        limits,
        "[[quota]]\ncgroup = \"/no such cgroup\"\nbytes = \"2M\"\n",
    )
}

fn pool(limits: &str) -> Option<Daemon> {
    pool_with(limits, "")
}

fn pool_with(limits: &str, more: &str) -> Option<Daemon> {
    if !super::kit::is_root() {
        return None;
    }
    let quotas: String = TENANTS
        .iter()
        .chain([&LATE_TENANT])
        .map(|uid| format!("[[quota]]\nuid = {uid}\nbytes = \"2M\"\n"))
        .collect();
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).expect("as many descriptors as may be had");
    let daemon = Daemon::start(&format!(
        "limits = {{ {limits} }}\nfill = {{ rate = \"0\" }}\n\
         [[class]]\npage = \"thp\"\nsource = \"memfd\"\nsize = \"2M\"\nslabs = 1\n{quotas}{more}"
    ));
    // The socket is in a folder that only root may pass.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(daemon.path(), open).unwrap();
    Some(daemon)
}

pub(crate) fn connect(socket: &Path) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let end = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let end = end.expect("a socket");
    let address = SocketAddrUnix::new(socket).unwrap();
    rustix::net::connect(&end, &address).expect("the daemon accepts");
    end
}

/// Opens `count` connections as `uid` and leaves them idle.
fn idle(daemon: &Daemon, uid: u32, count: usize) -> Vec<OwnedFd> {
    let socket = daemon.socket();
    another_user(uid, || (0..count).map(|_| connect(&socket)).collect())
}

fn is_served(daemon: &Daemon) -> Result<(), String> {
    let served = Client::connect(&daemon.socket()).and_then(|mut pool| pool.status());
    served.map(drop).map_err(|error| error.to_string())
}

fn status(end: &OwnedFd) {
    let request = Request::Status(StatusQuery::default()).encode().unwrap();
    packet::send(end, &request, &[]).unwrap();
}

fn reply(end: &OwnedFd) -> Reply {
    let packet = packet::receive(end, MOST_REPLY_BYTES, 0).unwrap();
    Reply::decode(&packet.message).unwrap()
}

#[test]
fn users_that_may_not_allocate_hold_no_connection() {
    let Some(daemon) = open_pool("") else { return };
    let open: Vec<_> = STRANGERS
        .iter()
        .map(|uid| idle(&daemon, *uid, 256))
        .collect();
    assert_eq!(is_served(&daemon), Ok(()), "root is refused");
    let mut heard = 0;
    for end in open.iter().flatten() {
        // Those that leave many refusals unread are closed without a word.
        let packet = match packet::receive(end, MOST_REPLY_BYTES, 0) {
            Err(PacketError::Closed) => continue,
            packet => packet.unwrap(),
        };
        heard += 1;
        let Ok(Reply::Refused(refusal)) = Reply::decode(&packet.message) else {
            panic!("a user that may not allocate was served");
        };
        // With many connections it hears of that first.
        let codes = [RefusalCode::Denied, RefusalCode::Busy];
        assert!(codes.contains(&refusal.code), "{refusal:?}");
    }
    assert!(heard >= 64, "{heard}");
    // The client shows the refusal, although its request finds the connection closed.
    let socket = daemon.socket();
    let shown = another_user(STRANGERS[0], || {
        Client::connect(&socket).unwrap().status().unwrap_err()
    });
    assert!(shown.to_string().contains("denied"), "{shown}");
}

/// Where any user may connect, because a cgroup has a quota, a list of former rules would keep the group's members out.
#[test]
fn a_list_of_former_rules_keeps_no_member_out() {
    if !is_root() {
        return;
    }
    let class = "[[class]]\npage = \"thp\"\nsource = \"memfd\"\nsize = \"2M\"\nslabs = 1\n";
    let daemon = Daemon::start(&format!("access = {{ observers = \"65200\" }}\n{class}"));
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(daemon.path(), open).unwrap();
    let socket = daemon.socket();
    let sees = |group| {
        user_of_group(TENANTS[0], group, || {
            Client::connect(&socket).is_ok_and(|mut pool| pool.status().is_ok())
        })
    };
    assert!(sees(65200), "an observer");
    assert!(!sees(65201), "a stranger");
    let quota = "[[quota]]\ncgroup = \"/no such cgroup\"\nbytes = \"2M\"\n";
    super::kit::write_config(
        daemon.path(),
        &format!("access = {{ group = \"65201\" }}\n{class}{quota}"),
    );
    daemon.signal(Signal::HUP);
    until("a member of the group is served", || sees(65201));
}

/// The kernel lets those connect that the rules name, and the rules of now.
#[test]
fn users_that_no_rule_names_do_not_reach_the_daemon() {
    let Some(daemon) = pool("") else { return };
    let socket = daemon.socket();
    let connects = |uid| {
        another_user(uid, || {
            Client::connect(&socket).and_then(|mut p| p.status())
        })
    };
    connects(TENANTS[0]).unwrap();
    let before = daemon.status().counters.denied;
    let refused = connects(STRANGERS[0]).unwrap_err();
    if daemon.status().counters.denied > before {
        return skip("acl", refused);
    }
    assert!(
        refused.to_string().contains("may not use the pool"),
        "{refused}"
    );
    // Nor does the group of the daemon, where no rule names one.
    user_of_group(STRANGERS[0], 0, || Client::connect(&socket)).unwrap_err();
    let mut kept = another_user(TENANTS[0], || Client::connect(&socket)).unwrap();
    kept.status().unwrap();
    for (more, stranger) in [
        (
            format!("[[quota]]\nuid = {}\nbytes = \"2M\"\n", STRANGERS[0]),
            true,
        ),
        (
            format!("[[quota]]\ngroup = \"{}\"\nbytes = \"2M\"\n", STRANGERS[0]),
            true,
        ),
        (
            format!("access = {{ observers = \"{}\" }}\n", STRANGERS[0]),
            true,
        ),
        (String::new(), false),
    ] {
        super::kit::write_config(daemon.path(), &more);
        daemon.signal(rustix::process::Signal::HUP);
        until("the rules are others", || {
            connects(STRANGERS[0]).is_ok() == stranger
        });
        connects(TENANTS[0]).unwrap_err();
        // It was connected before.
        kept.status().unwrap_err();
    }
}

#[test]
fn users_with_all_connections_keep_out_neither_root_nor_another_user() {
    let Some(daemon) = pool("") else { return };
    let open: Vec<_> = TENANTS.iter().map(|uid| idle(&daemon, *uid, 256)).collect();
    assert_eq!(is_served(&daemon), Ok(()), "root is refused");
    let socket = daemon.socket();
    let late = another_user(LATE_TENANT, || Client::connect(&socket).unwrap().status());
    assert!(late.is_ok(), "{late:?}");
    drop(open);
}

/// Users whose connections all have a reply that they leave unread keep no other out.
#[test]
fn a_connection_with_an_unread_reply_gives_way_to_another_user() {
    let Some(daemon) = pool("connections = 32, connections_per_user = 16, unread_s = 600") else {
        return;
    };
    let ask = Request::Status(StatusQuery::default()).encode().unwrap();
    let open: Vec<_> = TENANTS[..2]
        .iter()
        .flat_map(|uid| idle(&daemon, *uid, 15))
        .collect();
    for end in &open {
        rustix::io::ioctl_fionbio(end, true).unwrap();
    }
    // Until the daemon's answers fill one way, and requests the other.
    until("none takes more", || {
        let sent = open
            .iter()
            .filter(|end| packet::send(end, &ask, &[]).is_ok());
        sent.count() == 0
    });
    let socket = daemon.socket();
    until("another user is served", || {
        another_user(LATE_TENANT, || {
            Client::connect(&socket).and_then(|mut pool| pool.status())
        })
        .is_ok()
    });
}

/// What a user was sent and does not read is the daemon's memory, also once its connection is closed.
#[test]
fn a_closed_connection_keeps_its_place_until_its_replies_are_read() {
    let Some(daemon) = pool("connections = 64, connections_per_user = 4, unread_s = 1") else {
        return;
    };
    let ask = Request::Status(StatusQuery::default()).encode().unwrap();
    let lazy = idle(&daemon, TENANTS[0], 4);
    for end in &lazy {
        rustix::io::ioctl_fionbio(end, true).unwrap();
    }
    until("all are hung up on", || {
        let would_block = |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        let asks = |end| packet::send(end, &ask, &[]).map_err(would_block);
        lazy.iter().all(|end| asks(end) == Err(false))
    });
    let socket = daemon.socket();
    let is_served = |uid| {
        another_user(uid, || {
            let served = Client::connect(&socket).and_then(|mut pool| pool.status());
            match served {
                Ok(_) => true,
                Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::Busy => false,
                Err(error) => panic!("{error}"),
            }
        })
    };
    assert!(!is_served(TENANTS[0]), "its replies are read");
    assert!(is_served(TENANTS[1]), "another user is refused");
    let replies = std::iter::from_fn(|| packet::receive(&lazy[0], MOST_REPLY_BYTES, 0).ok());
    let bytes: usize = replies.map(|reply| reply.message.len()).sum();
    assert!((1..16 << 10).contains(&bytes), "{bytes} were unread");
    until("a place is free", || is_served(TENANTS[0]));
}

/// Beside twenty connections that hang up, which take less than a turn may, one that requests a slab is heard in its
/// user's first turn: of another user's hundred requests none but those before it sees no slab taken.
#[test]
fn connections_that_hung_up_are_closed_with_the_next_request_of_their_user() {
    const MANY: usize = 100;
    let Some(daemon) = pool("") else { return };
    daemon.until_clean(1);
    let hung_up = idle(&daemon, TENANTS[0], 20);
    let taker = idle(&daemon, TENANTS[0], 1).remove(0);
    let others = idle(&daemon, TENANTS[1], MANY);
    let request = Request::Take(take(1)).encode().unwrap();
    daemon.while_stopped(|| {
        drop(hung_up);
        packet::send(&taker, &request, &[]).unwrap();
        others.iter().for_each(status);
    });
    let sees_none = |end: &&OwnedFd| match reply(end) {
        Reply::Status(status) => status.counters.takes == 0,
        reply => panic!("{reply:?}"),
    };
    let before = others.iter().filter(sees_none).count();
    assert!(
        before <= 2,
        "{before} of {MANY} requests of another user came first"
    );
}

#[test]
fn an_idle_connection_is_closed_unless_it_holds_a_lease() {
    let Some(daemon) = pool("idle_s = 1") else {
        return;
    };
    daemon.until_clean(1);
    let socket = daemon.socket();
    let (mut client, lease) = another_user(TENANTS[0], || {
        let mut client = Client::connect(&socket).unwrap();
        let lease = client.take(take(1)).unwrap();
        (client, lease)
    });
    let end = idle(&daemon, TENANTS[0], 1).remove(0);
    let closed = packet::receive(&end, 100, 0);
    assert!(matches!(closed, Err(PacketError::Closed)), "{closed:?}");
    assert_eq!(client.status().unwrap().leases.len(), 1);
    drop(lease);
}

#[test]
fn of_1000_clients_at_once_each_gets_memory_or_hears_when_to_come_again() {
    const CLIENTS: usize = 1000;
    const SLABS: u32 = 200;
    let daemon = Daemon::start(&format!(
        "fill = {{ rate = \"0\" }}\n\
         [[class]]\npage = \"thp\"\nsource = \"memfd\"\nsize = \"2M\"\nslabs = {SLABS}\n"
    ));
    daemon.until_clean(SLABS);
    let socket = daemon.socket();
    let start = std::sync::Barrier::new(CLIENTS);
    let client = || {
        start.wait();
        let begin = Instant::now();
        let taken = Client::connect(&socket).and_then(|mut pool| pool.take(take(1)));
        (begin.elapsed(), taken)
    };
    let answers: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let served = answers.iter().filter(|(_, taken)| taken.is_ok()).count();
    assert_eq!(served, SLABS as usize, "each slab went to one client");
    for (_, taken) in &answers {
        match taken {
            Ok(_) => {}
            Err(ClientError::Refused(refusal)) => {
                let codes = [RefusalCode::Empty, RefusalCode::Busy];
                assert!(codes.contains(&refusal.code), "{refusal:?}");
                let told = refusal.retry_after_ms.is_some();
                assert_eq!(told, refusal.code == RefusalCode::Busy, "nothing is filled");
            }
            Err(error) => panic!("a client was left alone: {error}"),
        }
    }
    let mut times: Vec<_> = answers.iter().map(|(time, _)| *time).collect();
    times.sort();
    eprintln!(
        "p50 {:?}, slowest {:?}",
        times[CLIENTS / 2],
        times[CLIENTS - 1]
    );
}

/// Processor time that the daemon has used.
fn processor_time(daemon: &Daemon) -> Duration {
    time_of(&format!("/proc/{}/stat", daemon.pid()))
}

/// Of it, that of the thread that serves.
pub(super) fn serving_time(daemon: &Daemon) -> Duration {
    let pid = daemon.pid();
    time_of(&format!("/proc/{pid}/task/{pid}/stat"))
}

fn time_of(path: &str) -> Duration {
    let stat = std::fs::read_to_string(path).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.map(|field| field.parse::<u64>().unwrap()).sum();
    // In hundredths of a second, whatever the kernel counts in.
    Duration::from_millis(ticks * 10)
}

/// Connects as fast as it goes until `stop`, as a user that may do nothing, and leaves so many messages behind.
fn strangers(socket: &Path, messages: usize, stop: &AtomicBool) -> u64 {
    another_user(STRANGERS[0], || {
        let mut connections = 0;
        while !stop.load(Ordering::Relaxed) {
            let end = connect(socket);
            let _ = rustix::io::ioctl_fionbio(&end, true);
            let sent = (0..messages).map(|_| packet::send(&end, b"x", &[]));
            let _ = sent.take_while(Result::is_ok).count();
            connections += 1;
        }
        connections
    })
}

/// Users that may do nothing get an eighth of a CPU together, and waking up for them costs
/// about as much again.
#[test]
fn strangers_together_get_one_share_of_the_daemon() {
    for messages in [0, 1000] {
        let Some(daemon) = open_pool("") else { return };
        daemon.until_clean(1);
        let bare = passrights::refuse(connect(&daemon.socket())).is_ok();
        if messages > 0 && !bare {
            // What they sent is closed by a thread of its own there.
            return skip("passrights", "descriptors pass to the daemon's socket");
        }
        let socket = daemon.socket();
        is_one_share(&daemon, |stop| strangers(&socket, messages, stop));
    }
}

/// Two threads that connect until `stop` get a quarter of a CPU at most, and keep out no other.
pub(super) fn is_one_share(daemon: &Daemon, flood: impl Fn(&AtomicBool) -> u64 + Sync) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let flood: Vec<_> = (0..2).map(|_| scope.spawn(|| flood(&stop))).collect();
        let (begin, before) = (Instant::now(), processor_time(daemon));
        thread::sleep(Duration::from_secs(2));
        assert_eq!(is_served(daemon), Ok(()));
        let (wall, spent) = (begin.elapsed(), processor_time(daemon) - before);
        stop.store(true, Ordering::Relaxed);
        let connections: u64 = flood.into_iter().map(|one| one.join().unwrap()).sum();
        eprintln!("{connections} connections, {spent:?} of {wall:?}");
        // However busy the machine is, it gets no more than it needs.
        assert!(spent < wall / 4, "{spent:?} of {wall:?}");
    });
}

/// What ends of leases cost is on the account of their user, with the slabs that are made in their place, and no more
/// where there are many others.
#[test]
fn a_user_that_takes_and_ends_gets_one_share_of_the_daemon() {
    if !is_root() {
        return;
    }
    // Filled beside whatever this machine does: the idle class waits for the last of it.
    let daemon = Daemon::start(&format!(
        "fill = {{ rate = \"0\", nice = 0 }}\n\
         [[class]]\npage = \"thp\"\nsource = \"mount\"\nsize = \"2M\"\nslabs = 400\n\
         [[quota]]\nuid = {}\nbytes = \"64M\"\n",
        TENANTS[0]
    ));
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(daemon.path(), open).unwrap();
    daemon.until_clean(400);
    let (begin, before) = (Instant::now(), serving_time(&daemon));
    let socket = daemon.socket();
    let takes = another_user(TENANTS[0], || {
        let mut client = Client::connect(&socket).unwrap();
        let mut takes = 0;
        while begin.elapsed() < Duration::from_secs(3) {
            takes += u64::from(client.take(take(1)).is_ok());
        }
        takes
    });
    let (wall, spent) = (begin.elapsed(), serving_time(&daemon) - before);
    eprintln!("{takes} takes, {spent:?} of {wall:?}");
    assert!(takes > 10, "{takes}");
    assert!(spent < wall / 4, "{spent:?} of {wall:?}");
}

/// Between two requests of a user that wait at the same time the daemon handles one of
/// another's, however many that one has.
#[test]
fn many_connections_of_one_user_get_one_share_of_the_daemon() {
    const CONNECTIONS: usize = 200;
    const REQUESTS: usize = 4;
    let Some(daemon) = pool("connections_per_user = 250") else {
        return;
    };
    let flood = idle(&daemon, TENANTS[0], CONNECTIONS);
    let others = idle(&daemon, TENANTS[1], 4);
    let requests = |end: &OwnedFd| match reply(end) {
        Reply::Status(seen) => seen.counters.requests,
        other => panic!("a user was refused: {other:?}"),
    };
    // Accepted, all of them.
    let accepted = flood.iter().chain(&others).map(|end| {
        status(end);
        requests(end)
    });
    let mut before = accepted.max().unwrap_or(0);
    daemon.while_stopped(|| {
        for end in &flood {
            (0..REQUESTS).for_each(|_| status(end));
        }
        others.iter().for_each(status);
    });
    let mut own: Vec<_> = others.iter().map(requests).collect();
    own.sort_unstable();
    for request in own {
        let between = request - before - 1;
        assert!(
            between <= 1,
            "{between} requests of another user came between"
        );
        before = request;
    }
    for _ in 0..REQUESTS {
        let mut replies = flood.iter().map(reply);
        assert!(replies.all(|reply| matches!(reply, Reply::Status(_))));
    }
}
