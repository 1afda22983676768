//! A kernel that keeps some calls of the daemon waiting for as long as the test likes: the beginning of threads, as while
//! a process is moved between cgroups, and the files that say who connected.

use super::flood::{connect, serving_time};
use super::grants::REQUEST;
use super::held_page::{HeldPage, PAGE};
use super::kit::{Daemon, M, another_user, is_root, take, until};
use firstlight_pool::client::{Client, ClientError};
use firstlight_pool::os::seccomp::{Call, Watcher};
use firstlight_pool::os::threads::READY;
use firstlight_pool::protocol::{PageSize, RefusalCode, Resize};
use rustix::fs::RawDir;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Where the process has the end at which its calls arrive.
const LISTENER: i32 = 100;

/// Instructions of the filter.
const LENGTH: u16 = 5;

/// Has a command wait for its [`Watcher`] each time that it makes one of these calls.
fn watch(command: &mut Command, calls: [libc::c_long; 2]) {
    let code = |parts: u32| u16::try_from(parts).unwrap();
    let load = code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS);
    let equal = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
    let answer = code(libc::BPF_RET | libc::BPF_K);
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let call = |number: libc::c_long| u32::try_from(number).unwrap();
    let mut filter: [libc::sock_filter; LENGTH as usize] = [
        step(load, 0, 0, 0),
        step(equal, call(calls[0]), 2, 0),
        step(equal, call(calls[1]), 1, 0),
        step(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
        step(answer, libc::SECCOMP_RET_USER_NOTIF, 0, 0),
    ];
    let install = move || {
        let program = libc::sock_fprog {
            len: LENGTH,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: integers only, but for the program and its instructions, which the kernel reads and which live
        // until the call returns.
        let done = unsafe {
            let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
            let mode = libc::SECCOMP_SET_MODE_FILTER;
            let may = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
            let listener = libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program);
            // None is -1, of which there is no copy.
            may && libc::dup2(i32::try_from(listener).unwrap_or(-1), LISTENER) == LISTENER
        };
        if done {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: between fork and exec it makes three system calls and allocates nothing.
    unsafe { command.pre_exec(install) };
}

/// While this is locked those of a process's calls wait that are meant.
fn gate(child: &Child, is_meant: impl Fn(&Call) -> bool + Send + 'static) -> Arc<Mutex<()>> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
    let listener = pidfd_getfd(&process, LISTENER, PidfdGetfdFlags::empty()).unwrap();
    let watcher = Watcher::new(listener);
    let gate = Arc::new(Mutex::new(()));
    let ours = Arc::clone(&gate);
    thread::spawn(move || {
        let watcher = Arc::new(watcher);
        while let Ok(Some(call)) = watcher.next_call() {
            if !is_meant(&call) {
                watcher.pass(&call).unwrap();
                continue;
            }
            let (watcher, ours) = (Arc::clone(&watcher), Arc::clone(&ours));
            thread::spawn(move || {
                drop(ours.lock());
                watcher.pass(&call).unwrap();
            });
        }
    });
    gate
}

const SLABS: u32 = 40;

const POOL: &str = "
    fill = { rate = \"0\" }
    [[class]]
    page = \"thp\"
    source = \"memfd\"
    size = \"2M\"
    slabs = 40
";

#[test]
fn where_no_thread_begins_the_serving_thread_waits_for_none() {
    let (daemon, may_begin) = Daemon::prepared(
        POOL,
        |command| watch(command, [libc::SYS_clone, libc::SYS_clone3]),
        |child| gate(child, |_| true),
    );
    daemon.until_clean(SLABS);
    let mut more = take(3 * M);
    more.max_topup_ms = 60_000;
    let held = may_begin.lock().unwrap();
    let (tell, told) = mpsc::channel();
    let mut open = daemon.connect();
    thread::spawn(move || {
        let mut taken = Vec::new();
        let refusal = loop {
            match open.take(more.clone()) {
                Ok(allocated) => taken.push(allocated),
                Err(ClientError::Refused(refusal)) => break refusal,
                Err(error) => panic!("{error}"),
            }
        };
        let status = open.status().unwrap();
        tell.send((taken, refusal, status)).unwrap();
    });
    let told = told.recv_timeout(Duration::from_secs(20));
    drop(held);
    let (taken, refusal, status) = told.expect("it waits for a thread");
    // Each thread that was ready, but for those that fill, close and read.
    assert!(
        (READY / 2..=READY).contains(&taken.len()),
        "{}",
        taken.len()
    );
    assert_eq!(refusal.code, RefusalCode::Busy, "{refusal:?}");
    let clean = status.pools[0].clean_slabs;
    assert_eq!(usize::try_from(clean).unwrap() + taken.len(), 40, "used up");
    until("threads begin again", || {
        let mut more = take(3 * M);
        more.max_topup_ms = 60_000;
        daemon.connect().take(more).is_ok()
    });
}

/// The name of the thread that makes a call; of one that is gone, none.
fn thread_name(call: &Call) -> String {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", call.thread));
    name.unwrap_or_default().trim_end().to_owned()
}

/// A daemon that looks up the cgroup of each connection, and what holds these look-ups.
fn that_looks_up_peers() -> (Daemon, Arc<Mutex<()>>) {
    let config = format!("{POOL}[[quota]]\ncgroup = \"/none\"\nbytes = \"2M\"\n");
    Daemon::prepared(
        &config,
        |command| watch(command, [libc::SYS_openat; 2]),
        |child| gate(child, |call| thread_name(call) == "peers"),
    )
}

/// As many connections as wait to be looked up, of four users.
#[test]
fn users_whose_connections_are_looked_up_keep_out_neither_root_nor_another_user() {
    const OF_A_USER: u32 = 64;
    if !is_root() {
        return;
    }
    let (daemon, may_look) = that_looks_up_peers();
    let mut open = daemon.connect();
    open.status().unwrap();
    let held = may_look.lock().unwrap();
    let socket = daemon.socket();
    let connect = || Client::connect(&socket).unwrap();
    let mut waiting = Vec::new();
    let mut turned_away = || open.status().unwrap().counters.turned_away;
    for user in 1001..=1004 {
        another_user(user, || {
            waiting.extend((0..OF_A_USER).map(|_| connect()));
        });
    }
    assert_eq!(turned_away(), 0, "each has a place");
    // One of the others' gives way.
    let mut other = another_user(1005, connect);
    until("it is accepted", || turned_away() == 1);
    let mut root = connect();
    // Behind root's.
    let mut last = another_user(1004, connect);
    until("it is accepted", || turned_away() == 2);
    drop(held);
    let refused = |client: &mut Client| match client.status() {
        Err(ClientError::Refused(refusal)) => Some(refusal.code),
        Ok(_) => None,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(refused(&mut root), None);
    assert_eq!(refused(&mut other), Some(RefusalCode::Denied));
    assert_eq!(refused(&mut last), Some(RefusalCode::Busy));
}

/// Any process that may list a folder can keep all waiting that look for a name in it: of `/proc`, `/sys` and `/etc`.
#[test]
fn no_thread_that_clients_wait_for_looks_for_a_file() {
    // `open` names no folder, and has its path where the others have that.
    looks_for_no_file([libc::SYS_open; 2], |_| true);
    let is_by_path = |folder: u32| folder.cast_signed() == libc::AT_FDCWD;
    looks_for_no_file([libc::SYS_openat, libc::SYS_statx], is_by_path);
}

fn looks_for_no_file(calls: [libc::c_long; 2], is_by_path: fn(u32) -> bool) {
    let is_meant = move |call: &Call| {
        let is_apart = matches!(&*thread_name(call), "peers" | "subuid");
        is_by_path(call.descriptor) && !is_apart
    };
    let has_nodes = Path::new("/sys/devices/system/node/node0").exists();
    let node = has_nodes.then_some(0);
    let config = match node {
        Some(node) => format!("{POOL}node = {node}"),
        None => POOL.to_owned(),
    };
    let (mut daemon, may_look) = Daemon::prepared(
        &config,
        |command| watch(command, calls),
        |child| gate(child, is_meant),
    );
    daemon.until_clean(SLABS);
    let socket = daemon.socket();
    let held = may_look.lock().unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut open = Client::connect(&socket).unwrap();
        let mut more = take(3 * M);
        more.max_topup_ms = 60_000;
        let taken = [take(M), more].map(|wish| open.take(wish).unwrap());
        for taken in taken {
            open.give(taken.lease.lease).unwrap();
        }
        let resize = Resize {
            page: PageSize::Transparent,
            node,
            size_class_bytes: 2 * M,
            slabs: SLABS,
        };
        // Of a class that there is.
        if is_root() {
            open.resize(resize).unwrap();
        }
        until("all are clean again", || {
            open.status().unwrap().pools[0].clean_slabs == SLABS
        });
        tell.send(())
    });
    let told = told.recv_timeout(Duration::from_secs(20));
    drop(held);
    assert_eq!(told, Ok(()), "a thread looks for a file");
    assert_eq!(daemon.stop(), 0);
}

/// Strangers of whom it is not known yet that they are.
#[test]
fn strangers_that_wait_to_be_looked_up_get_one_share_of_the_daemon() {
    if !is_root() {
        return;
    }
    let (daemon, may_look) = that_looks_up_peers();
    daemon.until_clean(SLABS);
    let held = may_look.lock().unwrap();
    let socket = daemon.socket();
    let (begin, before) = (Instant::now(), serving_time(&daemon));
    let connections = another_user(1001, || {
        let mut connections = 0_u64;
        while begin.elapsed() < Duration::from_secs(3) {
            drop(connect(&socket));
            connections += 1;
        }
        connections
    });
    let (wall, spent) = (begin.elapsed(), serving_time(&daemon) - before);
    // A look-up that is held has the gate, too, beside the thread that holds them and this one.
    assert!(Arc::strong_count(&may_look) > 2, "none waits");
    drop(held);
    eprintln!("{connections} connections, {spent:?} of {wall:?}");
    assert!(connections > 100, "{connections}");
    assert!(spent < wall / 4, "{spent:?} of {wall:?}");
}

/// Its client may still have the kernel tell what is done to it (inotify).
#[test]
fn what_a_client_had_is_closed_by_another_thread() {
    let theirs = Arc::new(AtomicU64::new(0));
    let held = Arc::clone(&theirs);
    let (daemon, may_change) = Daemon::prepared(
        POOL,
        |command| watch(command, [libc::SYS_ftruncate; 2]),
        |child| {
            let serving = child.id();
            gate(child, move |call| {
                let file = format!("/proc/{serving}/fd/{}", call.descriptor);
                let file = std::fs::metadata(file).map(|file| file.ino());
                call.thread == serving && file.is_ok_and(|file| file == held.load(Relaxed))
            })
        },
    );
    daemon.until_clean(SLABS);
    let mut open = daemon.connect();
    let taken = open.take(take(M)).unwrap();
    let inode = rustix::fs::fstat(&taken.memory).unwrap().st_ino;
    theirs.store(inode, Relaxed);
    let files = PathBuf::from(format!("/proc/{}/fd", daemon.pid()));
    let has_it = move || {
        let files = files.read_dir().unwrap().flatten();
        let mut files = files.filter_map(|file| std::fs::metadata(file.path()).ok());
        files.any(|file| file.ino() == inode)
    };
    assert!(has_it());
    let held = may_change.lock().unwrap();
    open.give(taken.lease.lease).unwrap();
    drop((taken.memory, taken.lease_pipe));
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        until("it is closed", || !has_it());
        tell.send(open.status().unwrap().leases.len())
    });
    let told = told.recv_timeout(Duration::from_secs(20));
    drop(held);
    assert_eq!(told, Ok(0), "the serving thread changes the file");
}

/// A thread that lists a folder, and keeps its lock until the page is let go of.
struct Lister {
    page: HeldPage,
    thread: JoinHandle<()>,
}

impl Lister {
    fn named(name: &str, folder: &Path) -> Self {
        let folder = OwnedFd::from(std::fs::File::open(folder).unwrap());
        let page = HeldPage::new();
        let address = page.address();
        let thread = thread::Builder::new().name(name.into());
        let thread = thread.spawn(move || {
            let page = std::ptr::with_exposed_provenance_mut::<MaybeUninit<u8>>(address);
            // SAFETY: a page of this process for as long as it lives, which nothing else here reads or writes.
            let page = unsafe { std::slice::from_raw_parts_mut(page, PAGE) };
            let _ = RawDir::new(folder, page).next();
        });
        Self {
            page,
            thread: thread.unwrap(),
        }
    }

    fn end(mut self) {
        self.page.let_go();
        self.thread.join().unwrap();
    }
}

/// Whether a process's thread of this name waits in the kernel.
fn is_held(process: u32, name: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let stats = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")));
    let mut stats = stats.map(Result::unwrap_or_default);
    stats.any(|stat| stat.contains(&format!("({name}) D ")))
}

/// Where strangers may list the socket's folder they keep waiting who looks up a name in it.
#[test]
fn a_grant_is_made_where_no_name_of_the_socket_s_folder_is_looked_up() {
    let (daemon, may_look) = Daemon::prepared(
        POOL,
        |command| watch(command, [libc::SYS_openat; 2]),
        |child| {
            let serving = child.id();
            gate(child, move |call| {
                let folder = format!("/proc/{serving}/fd/{}", call.descriptor);
                let folder = std::fs::read_link(folder);
                call.thread == serving && folder.is_ok_and(|folder| folder.join("grants").exists())
            })
        },
    );
    daemon.until_clean(SLABS);
    let held = may_look.lock().unwrap();
    let (tell, told) = mpsc::channel();
    let socket = daemon.socket();
    thread::spawn(move || {
        let mut owner = Client::connect(&socket).unwrap();
        let granted = owner.grant(REQUEST).unwrap();
        let holder = Client::connect(Path::new(&granted.socket)).unwrap();
        owner.revoke(granted.grant).unwrap();
        tell.send(holder).map_err(drop)
    });
    let told = told.recv_timeout(Duration::from_secs(20));
    drop(held);
    told.expect("the serving thread looks for it");
}

/// Root behind a mount for reading can list its folder, and again while what removes the folder waits for that.
#[test]
fn a_grant_whose_folder_is_held_keeps_nobody_waiting() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start(POOL);
    daemon.until_clean(SLABS);
    let granted = daemon.connect().grant(REQUEST).unwrap();
    let folder = Path::new(&granted.folder);
    let is_served = || {
        let (tell, told) = mpsc::channel();
        let socket = daemon.socket();
        thread::spawn(move || {
            let mut owner = Client::connect(&socket).unwrap();
            let another = owner.grant(REQUEST).unwrap().grant;
            owner.revoke(another).unwrap();
            tell.send(owner.take(take(M)).is_ok())
        });
        let told = told.recv_timeout(Duration::from_secs(20));
        told == Ok(true)
    };
    let first = Lister::named("first", folder);
    first.page.until_asked_for();
    daemon.connect().revoke(granted.grant).unwrap();
    until("its socket cannot be removed", || {
        is_held(daemon.pid(), "door")
    });
    let while_socket = is_served();
    let second = Lister::named("second", folder);
    // It waits behind what removes the socket, and comes before what removes the folder.
    until("it waits", || is_held(std::process::id(), "second"));
    first.end();
    second.page.until_asked_for();
    until("its folder cannot be removed", || {
        is_held(daemon.pid(), "door")
    });
    let while_folder = is_served();
    second.end();
    assert_eq!((while_socket, while_folder), (true, true));
    until("the folder is removed", || {
        !folder.parent().unwrap().exists()
    });
}
