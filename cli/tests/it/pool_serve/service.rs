//! Under a service manager: its socket, its notifications, its store of files.

use super::kit::{Daemon, M, free_pages, huge_pages, take, take_soon, until, write_config};
use super::manager::{Manager, activated};
use firstlight_pool::client::Client;
use firstlight_pool::protocol::{Request, packet};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const POOL: &str = "
    fill = { rate = \"0\" }
    [[class]]
    page = \"thp\"
    source = \"memfd\"
    size = \"2M\"
    slabs = 2
";

#[test]
fn it_says_when_it_is_ready_and_alive_and_about_to_end() {
    let manager = Manager::new();
    let variables = [
        ("NOTIFY_SOCKET", &*manager.variable()),
        ("WATCHDOG_USEC", "100000"),
    ];
    let mut daemon = Daemon::with_variables("", &variables);
    manager.until(&["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
    assert_eq!(daemon.stop(), 0);
    manager.until(&["STOPPING=1"]);
}

/// Its socket is full of what others sent: only the answer of a lease waits, which the manager is to have first.
#[test]
fn no_client_waits_for_a_manager_that_does_not_read() {
    let manager = Manager::new();
    let variables = [
        ("NOTIFY_SOCKET", &*manager.variable()),
        ("WATCHDOG_USEC", "100000"),
    ];
    let daemon = Daemon::with_variables(POOL, &variables);
    daemon.until_clean(2);
    manager.until(&["READY=1", "FDNAME=slab-", "FDNAME=slab-"]);
    let (answer, answers) = mpsc::channel();
    let took = |hangs_up| {
        let (socket, answer) = (daemon.socket(), answer.clone());
        thread::spawn(move || {
            if hangs_up {
                let end = requested(&socket);
                thread::sleep(Duration::from_millis(200));
                return drop(end);
            }
            let taken = Client::connect(&socket).unwrap().take(take(2 * M));
            answer.send(taken.unwrap()).unwrap();
        })
    };
    manager.while_deaf(|| {
        let both = [took(false), took(true)];
        let (tell, told) = mpsc::channel();
        let socket = daemon.socket();
        let asks = thread::spawn(move || {
            let leases = || Client::connect(&socket).unwrap().status().unwrap().leases;
            until("both leases are there", || leases().len() == 2);
            tell.send(()).unwrap();
            // Some ticks later.
            thread::sleep(Duration::from_millis(300));
            leases();
            tell.send(()).unwrap();
        });
        for _ in 0..2 {
            let told = told.recv_timeout(Duration::from_secs(20));
            assert!(told.is_ok(), "it waits for the manager");
        }
        asks.join().unwrap();
        let [_, hung_up] = both;
        hung_up.join().unwrap();
        let answered = answers.recv_timeout(Duration::from_millis(300));
        assert!(
            answered.is_err(),
            "it was answered before the manager had the lease"
        );
    });
    let taken = answers.recv_timeout(Duration::from_secs(300)).unwrap();
    until("the client that hung up has no lease", || {
        daemon.status().leases.len() == 1
    });
    until("the manager has one lease", || {
        let kept = manager.kept();
        let leases = kept.iter().filter(|name| name.starts_with("lease-"));
        leases.count() == 1
    });
    manager.until(&["WATCHDOG=1", "WATCHDOG=1"]);
    drop(taken);
}

/// A connection that has requested memory and reads no answer.
fn requested(socket: &Path) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let end = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let end = end.unwrap();
    rustix::net::connect(&end, &SocketAddrUnix::new(socket).unwrap()).unwrap();
    let request = Request::Take(take(2 * M)).encode().unwrap();
    packet::send(&end, &request, &[]).unwrap();
    end
}

#[test]
fn clean_files_are_kept_over_a_crash() {
    let manager = Manager::new();
    let mut daemon = Daemon::with_variables(POOL, &[("NOTIFY_SOCKET", &manager.variable())]);
    manager.until(&["FDNAME=slab-", "FDNAME=slab-"]);
    daemon.kill();
    // And something that is no slab at all comes along.
    manager.keep("slab-77", tempfile::tempfile().unwrap());
    write_config(
        daemon.path(),
        &POOL.replace("rate = \"0\"", "rate = 1, batch = 1"),
    );
    manager.reverse();
    manager.start_again(&mut daemon);
    let status = daemon.status();
    assert_eq!(status.pools[0].clean_slabs, 2);
    assert_eq!(status.counters.zeroed_bytes, 0);
    // Under new names, of which none is the old one of another.
    assert_eq!(manager.kept().len(), 2, "{:?}", manager.kept());
}

#[test]
fn a_file_that_was_allocated_is_clean_for_no_later_daemon() {
    let manager = Manager::new();
    let mut daemon = Daemon::with_variables(POOL, &[("NOTIFY_SOCKET", &manager.variable())]);
    manager.until(&["FDNAME=slab-", "FDNAME=slab-"]);
    let names: Vec<_> = manager
        .kept()
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    let first = take_soon(&daemon, 2 * M);
    let copy = first.memory.try_clone().unwrap();
    daemon.kill();
    // The manager did not hear that one of them is clean no more.
    for name in names {
        manager.keep(&name, copy.try_clone().unwrap());
    }
    write_config(
        daemon.path(),
        &POOL.replace("rate = \"0\"", "rate = 1, batch = 1"),
    );
    manager.start_again(&mut daemon);
    let next = daemon.connect().take(take(1)).unwrap();
    let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
    assert_ne!(inode(&next.memory), inode(&first.memory));
}

#[test]
fn slabs_of_a_mount_that_no_other_process_sees_outlive_the_daemon() {
    let Some(_pages) = huge_pages(6) else { return };
    let free = free_pages();
    let config = "keep_on_stop = true\nfill = { rate = \"0\" }\n\
                  [[class]]\nsize = \"4M\"\nslabs = 3\nsource = \"mount\"\n";
    let manager = Manager::new();
    let mut daemon = Daemon::with_variables(config, &[("NOTIFY_SOCKET", &manager.variable())]);
    daemon.until_clean(3);
    for pid in ["self".to_owned(), daemon.pid().to_string()] {
        let mounts = std::fs::read_to_string(format!("/proc/{pid}/mounts")).unwrap();
        let folder = daemon.path().display().to_string();
        assert!(!mounts.contains(&folder), "{mounts}");
    }
    assert_eq!(daemon.stop(), 0);
    let kept = manager.kept();
    assert_eq!(kept, ["slab-0", "slab-1", "slab-2"]);
    assert_eq!(free - free_pages(), 6);
    write_config(daemon.path(), &config.replace("rate = \"0\"", "rate = 1"));
    manager.start_again(&mut daemon);
    let status = daemon.status();
    assert_eq!(
        (status.pools[0].clean_slabs, status.counters.zeroed_bytes),
        (3, 0)
    );
    daemon.kill();
    drop(manager);
    until("the kernel has all of them", || free_pages() == free);
}

#[test]
fn a_socket_from_the_manager_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("theirs.sock");
    let Some(_child) = activated(folder.path(), &socket, POOL) else {
        return;
    };
    assert!(
        !folder.path().join("pool.sock").exists(),
        "it made one of its own"
    );
}
