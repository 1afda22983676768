//! The daemon is killed at random moments: no slab is allocated twice, no client's
//! memory is touched, no huge page is lost.

use super::kit::{Daemon, free_pages, huge_pages, mapped, random, rounds, take, until};
use firstlight_pool::client::{Allocated, Client};
use firstlight_pool::os::mapping::Mapping;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Memory a client holds: no other may have the same, or change it.
struct Held {
    inode: (u64, u64),
    memory: Mapping,
    mark: [u8; 8],
    _allocated: Allocated,
}

impl Held {
    /// Takes a slab, looks at all of it, and marks it.
    fn take(socket: &Path, mark: u64) -> Option<Self> {
        let mut pool = Client::connect(socket).ok()?;
        let allocated = pool.take(take(1)).ok()?;
        let stat = rustix::fs::fstat(&allocated.memory).unwrap();
        let mut memory = mapped(&allocated.memory, allocated.lease.bytes);
        assert_eq!(
            memory.first_nonzero(),
            None,
            "allocated with another client's bytes"
        );
        let mark = mark.to_ne_bytes();
        memory.write(0, &mark);
        memory.write(memory.bytes() - 8, &mark);
        Some(Self {
            inode: (stat.st_dev, stat.st_ino),
            memory,
            mark,
            _allocated: allocated,
        })
    }

    fn is_untouched(&self) -> bool {
        let (mut first, mut last) = ([0; 8], [0; 8]);
        self.memory.read(0, &mut first);
        self.memory.read(self.memory.bytes() - 8, &mut last);
        first == self.mark && last == self.mark
    }
}

/// Takes and lets go, in a thread of its own, until told to stop.
fn take_on(
    socket: PathBuf,
    stop: Arc<AtomicBool>,
    all: Arc<Mutex<Vec<Held>>>,
) -> thread::JoinHandle<u64> {
    thread::spawn(move || {
        let mut taken = 0;
        while !stop.load(Ordering::Relaxed) {
            match Held::take(&socket, taken + 1) {
                Some(held) => {
                    taken += 1;
                    let mut all = all.lock().unwrap();
                    let twice = all.iter().any(|other| other.inode == held.inode);
                    assert!(!twice, "allocated twice: {:?}", held.inode);
                    all.push(held);
                    if all.len() > 3 {
                        let gone = all.remove(0);
                        assert!(
                            gone.is_untouched(),
                            "another process changed what was allocated"
                        );
                    }
                }
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
        taken
    })
}

fn crash(source: &str, kills: u32) {
    let Some(_pages) = huge_pages(24) else { return };
    let free = free_pages();
    let mut random = random();
    let mut daemon = Daemon::start(&format!(
        "fill = {{ rate = \"0\", batch = \"2M\" }}\n[[class]]\nsize = \"4M\"\nslabs = 3\nsource = \"{source}\"\n\
         [[class]]\nsize = \"2M\"\nslabs = 3\nsource = \"{source}\"\n"
    ));
    let stop = Arc::new(AtomicBool::new(false));
    let all: Arc<Mutex<Vec<Held>>> = Arc::default();
    let client = take_on(daemon.socket(), Arc::clone(&stop), Arc::clone(&all));
    for _ in 0..kills {
        // From before it listens to well into allocating.
        let most_us = if random.below(3) == 0 { 5_000 } else { 80_000 };
        let after = Duration::from_micros(random.below(most_us) as u64);
        thread::sleep(after);
        daemon.kill();
        assert!(!client.is_finished(), "the client saw what must not be");
        daemon.start_again();
    }
    daemon.until_it_answers();
    // On a slow host none of the killed ones may have come so far.
    until("a slab is allocated", || !all.lock().unwrap().is_empty());
    stop.store(true, Ordering::Relaxed);
    let taken = client.join().expect("the client saw what must not be");
    assert!(taken > 0, "nothing was ever allocated");
    eprintln!("{source}: {kills} kills, {taken} slabs allocated");
    {
        let mut all = all.lock().unwrap();
        assert!(all.iter().all(Held::is_untouched));
        all.clear();
    }
    // Everything is either clean or free again; at the end, all is free.
    daemon.until_clean(3);
    let pools = daemon.status().pools;
    until("the other pool is full too", || {
        daemon.status().pools[1].clean_slabs == 3
    });
    assert_eq!(pools.len(), 2);
    until("no huge page is lost", || free - free_pages() == 3 * 2 + 3);
    assert_eq!(daemon.stop(), 0);
    until("all huge pages are back", || free_pages() == free);
}

#[test]
fn killed_at_random_moments_with_slabs_in_a_mount() {
    crash("mount", rounds("FIRSTLIGHT_CRASHES", 30) / 2);
}

#[test]
fn killed_at_random_moments_with_slabs_without_a_name() {
    crash("memfd", rounds("FIRSTLIGHT_CRASHES", 30) / 2);
}

#[test]
fn a_client_goes_on_when_the_daemon_is_killed() {
    let Some(_pages) = huge_pages(4) else { return };
    let free = free_pages();
    let mut daemon = Daemon::start("[[class]]\nsize = \"2M\"\nslabs = 2\n");
    daemon.until_clean(1);
    let held = Held::take(&daemon.socket(), 7).unwrap();
    daemon.kill();
    daemon.start_again();
    daemon.until_it_answers();
    // With the one that is still allocated, that is all the pool keeps.
    daemon.until_clean(1);
    assert!(held.is_untouched());
    assert_eq!(free - free_pages(), 2);
    drop(held);
    daemon.until_clean(2);
    until("the kernel took it back", || free - free_pages() == 2);
}
