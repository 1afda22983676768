//! The kernel's lock for an `epoll` that is in another: the machine has one, and any process can hold it for
//! as long as it likes. The daemon's serving thread needs it for nothing.

use super::held_page::{HeldPage, PAGE};
use super::kit::{Daemon, another_user, is_root, take, until};
use firstlight_pool::client::Client;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

const USER: u32 = 1234;

const POOL: &str = "
    fill = { rate = \"0\" }
    [[class]]
    page = \"thp\"
    source = \"memfd\"
    size = \"2M\"
    slabs = 2
    [[quota]]
    uid = 1234
    bytes = \"2M\"
";

/// Processes of the whole machine wait for it: let go of soon, also by a test that fails.
struct Held {
    page: HeldPage,
    threads: Vec<JoinHandle<()>>,
}

impl Held {
    /// One thread has an `epoll` and waits for the page that its event goes to. Another puts that `epoll` into a second
    /// one: it has the machine's lock, and waits for the first.
    fn new() -> Self {
        let page = HeldPage::new();
        let address = page.address();
        let data = || EventData::new_u64(0);
        let inner = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let outer = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let ready = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        epoll::add(&inner, &ready, data(), EventFlags::IN).unwrap();
        let theirs = inner.try_clone().unwrap();
        let waits = thread::spawn(move || {
            let page = std::ptr::with_exposed_provenance_mut::<epoll::Event>(address);
            let events = PAGE / size_of::<epoll::Event>();
            // SAFETY: a page of this process for as long as it lives, of zeros once it is there.
            let page = unsafe { std::slice::from_raw_parts_mut(page, events) };
            epoll::wait(&theirs, page, None).unwrap();
            drop(ready);
        });
        page.until_asked_for();
        let (tell, told) = mpsc::channel();
        let holds = thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            epoll::add(&outer, &inner, data(), EventFlags::IN).unwrap();
        });
        let held = Self {
            page,
            threads: vec![waits, holds],
        };
        let thread = told.recv().unwrap().as_raw_nonzero();
        let stat = format!("/proc/self/task/{thread}/stat");
        until("the lock is held", || {
            std::fs::read_to_string(&stat).unwrap().contains(") D ")
        });
        held
    }

    fn end(mut self) {
        self.page.let_go();
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

#[test]
fn the_lock_that_the_machine_has_for_nested_epolls_keeps_no_client_waiting() {
    if !is_root() {
        return;
    }
    let mut daemon = Daemon::start(POOL);
    daemon.until_clean(2);
    let mut open = daemon.connect();
    let socket = daemon.socket();
    let (tell, told) = mpsc::channel();
    let held = Held::new();
    let asks = thread::spawn(move || {
        tell.send(open.status().unwrap().leases.len()).unwrap();
        // Its pipe is waited for, too.
        let taken = open.take(take(1)).unwrap();
        tell.send(open.status().unwrap().leases.len()).unwrap();
        open.give(taken.lease.lease).unwrap();
        // The first connection of a user, and another one.
        for user in [USER, 0] {
            another_user(user, || {
                let mut new = Client::connect(&socket).unwrap();
                tell.send(new.status().unwrap().leases.len()).unwrap();
            });
        }
    });
    let leases = (0..4).map(|_| told.recv_timeout(Duration::from_secs(20)));
    let leases: Result<Vec<_>, _> = leases.collect();
    held.end();
    assert_eq!(leases, Ok(vec![0, 1, 0, 0]), "it waits for the lock");
    asks.join().unwrap();
    assert_eq!(daemon.stop(), 0);
}

fn is_epoll(descriptor: &Path) -> bool {
    std::fs::read_link(descriptor).is_ok_and(|file| file.as_os_str() == "anon_inode:[eventpoll]")
}

#[test]
fn no_epoll_of_the_daemon_is_in_another() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start(POOL);
    let mut root = daemon.connect();
    let socket = daemon.socket();
    let mut other = another_user(USER, || Client::connect(&socket).unwrap());
    root.status().unwrap();
    other.status().unwrap();
    let process = PathBuf::from(format!("/proc/{}", daemon.pid()));
    let folder = process.join("fd");
    let files = std::fs::read_dir(&folder).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut watched: Vec<PathBuf> = Vec::new();
    for file in files.filter(|file| is_epoll(file)) {
        let info = process.join("fdinfo").join(file.file_name().unwrap());
        let info = std::fs::read_to_string(info).unwrap();
        let targets = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
        let numbers = targets.map(|line| line.split_whitespace().next().unwrap().to_owned());
        watched.extend(numbers.map(|number| folder.join(number)));
    }
    assert!(watched.len() >= 2, "one of each user: {watched:?}");
    let nested: Vec<_> = watched.iter().filter(|file| is_epoll(file)).collect();
    assert!(nested.is_empty(), "{nested:?}");
}
