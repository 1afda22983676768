//! Grants as processes meet them: folders that are mounted elsewhere, other users, kills and restarts.

use super::flood::{connect, is_one_share};
use super::kit::{Daemon, M, another_user, is_root, random, rounds, take, until, write_config};
use crate::common::schema;
use firstlight_pool::client::{Allocated, Client, ClientError};
use firstlight_pool::os::need::skip;
use firstlight_pool::protocol::{
    FillChange, GrantId, GrantRequest, GrantRow, Granted, Label, MOST_GRANTS, MOST_REPLY_BYTES,
    PageSize, Refusal, RefusalCode, Reply, packet,
};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// No rule names it.
pub(super) const HOLDER: u32 = 65_051;
/// A quota does.
const TENANT: u32 = 65_052;

const POOL: &str = "
    fill = { rate = \"0\" }
    limits = { connections = 400, connections_per_user = 40, unread_s = 1 }
    [[class]]
    page = \"thp\"
    source = \"memfd\"
    size = \"2M\"
    slabs = 3
    [[quota]]
    uid = 65052
    bytes = \"2M\"
";

pub(super) fn daemon() -> Daemon {
    let daemon = Daemon::start(POOL);
    daemon.until_clean(3);
    daemon
}

pub(super) const REQUEST: GrantRequest = GrantRequest {
    page: PageSize::Transparent,
    node: None,
    size_class_bytes: 2 * M,
    uses: 1,
    label: None,
};

pub(super) fn grant(daemon: &Daemon, uses: u32) -> Granted {
    let label = Some(Label::new("ns/pod"));
    let request = GrantRequest {
        uses,
        label,
        ..REQUEST
    };
    daemon.connect().grant(request).unwrap()
}

fn open_to_all(folder: &Path) {
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, open).unwrap();
}

fn rows(daemon: &Daemon) -> Vec<GrantRow> {
    daemon.status().grants
}

/// What a user gets by a socket.
fn taken(uid: u32, socket: &Path) -> Result<Allocated, ClientError> {
    another_user(uid, || Client::connect(socket)?.take(take(1)))
}

pub(super) fn refusal<T: std::fmt::Debug>(taken: Result<T, ClientError>) -> Refusal {
    match taken {
        Err(ClientError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// A folder that is mounted elsewhere, as into a container.
struct Mounted(PathBuf);

impl Mounted {
    /// Read-only; `None` where this process may mount nothing.
    fn new(folder: &str, at: PathBuf) -> Option<Self> {
        std::fs::create_dir(&at).unwrap();
        if let Err(error) = mount_bind(folder, &at) {
            skip("mount", error);
            return None;
        }
        let mounted = Self(at);
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        mount_remount(&mounted.0, flags, "").unwrap();
        Some(mounted)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("pool.sock")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A place that any user may reach.
pub(super) fn container() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    open_to_all(folder.path());
    folder
}

#[test]
fn a_mounted_folder_is_the_right_to_slabs_and_outlives_daemons() {
    if !is_root() {
        return;
    }
    let mut daemon = daemon();
    let granted = grant(&daemon, 1);
    let container = container();
    let place = container.path().join("firstlight");
    let Some(mounted) = Mounted::new(&granted.folder, place) else {
        return;
    };
    let socket = mounted.socket();
    // Without the mount none but the owner reaches it, also where the pool's own folder is open.
    open_to_all(daemon.path());
    assert!(matches!(
        taken(HOLDER, Path::new(&granted.socket)),
        Err(ClientError::NoDaemon { .. })
    ));
    let allocated = taken(HOLDER, &socket).unwrap();
    let second = refusal(taken(TENANT, &socket));
    assert_eq!(second.code, RefusalCode::Quota);
    assert!(second.message.ends_with(": 1 of 1"), "{second:?}");
    let lease = daemon.status().leases.remove(0);
    assert_eq!((lease.uid, lease.grant), (HOLDER, Some(granted.grant)));
    for kill in [true, false] {
        if kill {
            daemon.kill();
        } else {
            assert_eq!(daemon.stop(), 0);
        }
        daemon.start_again();
        daemon.until_it_answers();
        let row = rows(&daemon).remove(0);
        assert_eq!((row.grant, row.uses), (granted.grant, 1));
        assert_eq!((row.charged_slabs, row.held_slabs), (1, 1));
        let second = refusal(taken(HOLDER, &socket));
        assert_eq!(
            second.code,
            RefusalCode::Quota,
            "the mount has the new socket"
        );
    }
    // Its use is free once the slab is back.
    drop(allocated);
    let mut again = None;
    until("a use is free", || {
        again = taken(HOLDER, &socket).ok();
        again.is_some()
    });
    // Removed, though it is mounted.
    std::fs::remove_dir_all(&granted.folder).unwrap();
    until("the grant has ended", || rows(&daemon).is_empty());
    taken(HOLDER, &socket).unwrap_err();
    assert_eq!(daemon.status().leases.len(), 1, "its lease goes on");
    daemon.kill();
    daemon.start_again();
    daemon.until_it_answers();
    assert!(rows(&daemon).is_empty());
}

#[test]
fn a_holder_ends_and_sees_no_lease_but_its_grants() {
    if !is_root() {
        return;
    }
    let daemon = daemon();
    let (one, other) = (grant(&daemon, 1), grant(&daemon, 1));
    let mut holder = Client::connect(Path::new(&one.socket)).unwrap();
    let own = holder.take(take(2 * M)).unwrap();
    let of_other = Client::connect(Path::new(&other.socket))
        .unwrap()
        .take(take(1));
    let of_other = of_other.unwrap();
    let of_root = daemon.connect().take(take(1)).unwrap();
    let seen = holder.status().unwrap();
    assert!(
        seen.leases
            .iter()
            .map(|row| &row.lease)
            .eq([&Some(own.lease.lease.clone())])
    );
    assert!(seen.grants.iter().map(|row| row.grant).eq([one.grant]));
    for lease in [&of_other, &of_root] {
        let refused = refusal(holder.give(lease.lease.lease.clone()));
        assert_eq!(refused.code, RefusalCode::UnknownLease);
    }
    // Also this process' user may by this socket do nothing that root may.
    assert_eq!(refusal(holder.drain()).code, RefusalCode::Denied);
    assert_eq!(
        refusal(holder.revoke(other.grant)).code,
        RefusalCode::Denied
    );
    let change = FillChange::default();
    assert_eq!(refusal(holder.fill(change)).code, RefusalCode::Denied);
    let larger = refusal(holder.take(take(4 * M)));
    assert_eq!(larger.code, RefusalCode::BadRequest);
    holder.give(own.lease.lease).unwrap();
    assert_eq!(daemon.status().leases.len(), 2);
}

#[test]
fn revoking_hangs_up_and_leaves_leases_alone() {
    if !is_root() {
        return;
    }
    let daemon = daemon();
    let granted = grant(&daemon, 2);
    let socket = Path::new(&granted.socket);
    let mut holder = Client::connect(socket).unwrap();
    let allocated = holder.take(take(1)).unwrap();
    let said = firstlight(&daemon, &["revoke", &granted.grant.to_string()]);
    let expected = format!(
        "{} has ended; 1 slab of it out, until the leases end\n",
        granted.grant
    );
    assert_eq!(said, (0, expected));
    until("it is hung up on", || holder.status().is_err());
    until("its folder is removed", || {
        !Path::new(&granted.folder).exists()
    });
    Client::connect(socket).unwrap_err();
    let status = daemon.status();
    assert_eq!((status.grants.len(), status.leases.len()), (0, 1));
    drop(allocated);
    until("its slab is back", || daemon.status().leases.is_empty());
    let again = daemon.connect().revoke(granted.grant);
    assert_eq!(refusal(again).code, RefusalCode::UnknownGrant);
}

/// Exit code and output of a subcommand.
fn firstlight(daemon: &Daemon, words: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_firstlight"))
        .arg("pool")
        .args(words)
        .env("FIRSTLIGHT_POOL", daemon.socket())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), said)
}

#[test]
fn the_command_line_makes_one_that_a_client_takes_by() {
    if !is_root() {
        return;
    }
    let daemon = daemon();
    let words = [
        "grant", "--size", "2M", "--page", "thp", "--label", "ns/pod",
    ];
    let (code, said) = firstlight(&daemon, &words);
    assert_eq!(code, 0);
    let row = rows(&daemon).remove(0);
    let folder = row.grant.folder(&daemon.socket());
    let socket = folder.join("pool.sock");
    let expected = format!(
        "{}: 1 slab of 2 MiB, in {}\nFIRSTLIGHT_POOL={}\n",
        row.grant,
        folder.display(),
        socket.display()
    );
    assert_eq!((said, row.label), (expected, Some(Label::new("ns/pod"))));
    let (code, table) = firstlight(&daemon, &["status"]);
    assert_eq!(code, 0);
    assert!(
        table.contains(&row.grant.to_string()) && table.contains("ns/pod"),
        "{table}"
    );
    let ran = Command::new(env!("CARGO_BIN_EXE_firstlight"))
        .args(["pool", "run", "--memory", "2M", "--help"])
        .env("FIRSTLIGHT_POOL", &socket)
        .output();
    assert!(ran.unwrap().status.success());
    let words = ["grant", "--size", "2M", "--page", "thp", "--json"];
    let document = schema::document(firstlight(&daemon, &words).1.as_bytes());
    assert_eq!(document["schema"], "firstlight.pool-grant/1");
    let grant = document["grant"].as_str().unwrap();
    let said = firstlight(&daemon, &["revoke", grant, "--json"]).1;
    let document = schema::document(said.as_bytes());
    assert_eq!(document["schema"], "firstlight.pool-revoke/1");
    assert_eq!(document["held_slabs"], 0);
    let document = schema::document(firstlight(&daemon, &["status", "--json"]).1.as_bytes());
    assert_eq!(document["grants"][0]["label"], "ns/pod");
    for (words, expected) in [
        (&["--size", "4M", "--page", "thp"][..], 8),
        (&["--size", "2M", "--page", "thp", "--uses", "4"], 8),
        (&["--size", "2M", "--uses", "0"], 2),
    ] {
        let (code, _) = firstlight(&daemon, &[&["grant"], words].concat());
        assert_eq!(code, expected, "{words:?}");
    }
}

/// Sends something, and hears the refusal, if any is said before the end.
fn answer(end: &OwnedFd, message: &[u8]) -> Option<RefusalCode> {
    packet::send(end, message, &[]).ok()?;
    let packet = packet::receive(end, MOST_REPLY_BYTES, 2).ok()?;
    match Reply::decode(&packet.message).unwrap() {
        Reply::Refused(refusal) => Some(refusal.code),
        _ => None,
    }
}

#[test]
fn a_holder_that_does_not_keep_to_the_protocol_harms_no_other() {
    if !is_root() {
        return;
    }
    let daemon = daemon();
    let granted = grant(&daemon, 1);
    let socket = Path::new(&granted.socket);
    let rude = connect(socket);
    let whole = br#"{"v":2,"op":"take","bytes":1}"#;
    let halves = (1..whole.len()).map(|length| whole[..length].to_vec());
    for message in halves.chain([vec![0; 4096], vec![b'['; 4096], b"\xff\xfe".to_vec()]) {
        assert_eq!(answer(&rude, &message), Some(RefusalCode::BadRequest));
    }
    assert_eq!(answer(&rude, &[b' '; 5000]), Some(RefusalCode::BadRequest));
    assert!(packet::receive(&rude, 100, 0).is_err(), "hung up");
    // As many connections as a user may have, also where their replies are not read; no other has fewer for it.
    let mut open = Vec::new();
    for _ in 0..100 {
        let end = connect(socket);
        let _ = packet::send(&end, br#"{"v":2,"op":"status"}"#, &[]);
        open.push(end);
    }
    let turned_away = || daemon.status().counters.turned_away;
    until("the rest is turned away", || turned_away() >= 60);
    open_to_all(daemon.path());
    let allocated = taken(TENANT, &daemon.socket()).unwrap();
    drop((allocated, open));
    until("there is room again", || {
        Client::connect(socket).is_ok_and(|mut holder| holder.take(take(1)).is_ok())
    });
}

#[test]
fn a_grant_that_is_flooded_gets_one_share_of_the_daemon() {
    if !is_root() {
        return;
    }
    let daemon = daemon();
    let granted = grant(&daemon, 1);
    // Beside as many others as there may be, whose sockets it waits at too.
    let mut owner = daemon.connect();
    let all = std::iter::from_fn(|| owner.grant(REQUEST).ok()).count();
    assert!((1..MOST_GRANTS).contains(&all), "{all}");
    let socket = Path::new(&granted.socket);
    is_one_share(&daemon, |stop| {
        let mut connections = 0;
        while !stop.load(Ordering::Relaxed) {
            drop(connect(socket));
            connections += 1;
        }
        connections
    });
    // Of what it has connected some may wait to be closed.
    until("it is served", || taken(0, socket).is_ok());
}

/// What a process that makes, uses and ends grants was told.
#[derive(Default)]
struct Told {
    live: Vec<Granted>,
    ended: BTreeSet<GrantId>,
    held: Vec<(GrantId, Allocated)>,
    /// Of how many grants something was told.
    grants: u64,
}

impl Told {
    /// One round; what is not answered may have been done.
    fn go_on(&mut self, socket: &Path) -> Result<(), ClientError> {
        let mut owner = Client::connect(socket)?;
        let granted = owner.grant(REQUEST)?;
        self.grants += 1;
        self.live.push(granted);
        for granted in &self.live {
            let taken = Client::connect(Path::new(&granted.socket))?.take(take(1));
            if let Ok(allocated) = taken {
                let is_second = self.held.iter().any(|(grant, _)| *grant == granted.grant);
                assert!(!is_second, "two slabs by {}", granted.grant);
                self.held.push((granted.grant, allocated));
            }
        }
        if self.held.len() > 2 {
            self.held.remove(0);
        }
        if self.live.len() > 2 {
            let grant = self.live.remove(0).grant;
            owner.revoke(grant)?;
            self.ended.insert(grant);
        }
        Ok(())
    }
}

#[test]
fn grants_outlive_kills_at_random_moments_and_none_comes_back() {
    let mut random = random();
    let mut daemon = daemon();
    let socket = daemon.socket();
    let stop = AtomicBool::new(false);
    let told = thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut told = Told::default();
            while !stop.load(Ordering::Relaxed) {
                match told.go_on(&socket) {
                    Ok(()) => {}
                    // What was told to be there is unknown to no daemon.
                    Err(ClientError::Refused(refusal)) => {
                        assert_ne!(refusal.code, RefusalCode::UnknownGrant, "{refusal:?}");
                    }
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
            told
        });
        for _ in 0..rounds("FIRSTLIGHT_CRASHES", 30) / 2 {
            let most_us = if random.below(3) == 0 { 5_000 } else { 80_000 };
            thread::sleep(Duration::from_micros(random.below(most_us) as u64));
            daemon.kill();
            daemon.start_again();
        }
        daemon.until_it_answers();
        until("a grant is made", || !rows(&daemon).is_empty());
        stop.store(true, Ordering::Relaxed);
        client.join().expect("the client saw what must not be")
    });
    let Told {
        live, ended, held, ..
    } = &told;
    eprintln!("{} grants, {} ended", told.grants, ended.len());
    let all: BTreeSet<_> = rows(&daemon).iter().map(|row| row.grant).collect();
    for granted in live {
        assert!(all.contains(&granted.grant), "{} was lost", granted.grant);
        connect(Path::new(&granted.socket));
    }
    assert!(all.is_disjoint(ended), "{all:?} and {ended:?}");
    for (grant, _) in held {
        let leases = daemon.status().leases;
        let is_known = leases.iter().any(|lease| lease.grant == Some(*grant));
        assert!(is_known, "a slab is out by {grant}");
    }
    // Threads of their own remove the others.
    until("there are folders of grants that there are", || {
        let folders = std::fs::read_dir(daemon.path().join("grants")).unwrap();
        let folders = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let folders: BTreeSet<GrantId> = folders.map(|name| name.parse().unwrap()).collect();
        folders == all
    });
}

/// A quota that is reloaded away hangs up on strangers, and holders are none.
#[test]
fn another_configuration_changes_nothing_for_holders() {
    if !is_root() {
        return;
    }
    let (daemon, said) = Daemon::that_says(POOL);
    daemon.until_clean(3);
    let granted = grant(&daemon, 1);
    // As by a mount.
    let folders = Path::new(&granted.folder).ancestors().skip(1).take(3);
    folders.for_each(open_to_all);
    let holder = another_user(HOLDER, || Client::connect(Path::new(&granted.socket)));
    let mut holder = holder.unwrap();
    write_config(daemon.path(), &POOL.replace("65052", "65053"));
    daemon.signal(rustix::process::Signal::HUP);
    said.until("configuration read again");
    let kept = holder.take(take(1)).unwrap();
    drop(kept);
}
