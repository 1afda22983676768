//! What a guest gives back while it runs, and how much the daemon puts back. The
//! test plays the VMM, which punches what its guest reports to be free.

use super::guest::{Guest, Parts};
use super::kit::{Daemon, M, free_pages, huge_pages, mapped, take_soon, until};
use firstlight_pool::os::hugepages::SetAside;
use firstlight_pool::os::mapping::Mapping;
use firstlight_pool::os::memory_file;
use firstlight_pool::os::need::skip;
use firstlight_pool::protocol::PoolRow;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

/// Pages of a slab.
const PAGES: u64 = 8;

fn config(class: &str) -> String {
    format!(
        "fill = {{ rate = \"0\", pause_at_pressure = 0, refill_rate = \"0\", refill_after_s = 0 }}\n\
         [[class]]\nsize = \"16M\"\nslabs = 1\n{class}\n"
    )
}

fn row(daemon: &Daemon) -> PoolRow {
    daemon.status().pools[0].clone()
}

fn give_back(memory: impl AsFd, pages: &[u64]) {
    for page in pages {
        memory_file::punch(memory.as_fd(), page * 2 * M, 2 * M).unwrap();
    }
}

/// Time for the daemon to do what it should not.
fn several_looks() {
    thread::sleep(Duration::from_millis(2500));
}

fn write(guest: &mut Mapping, pages: impl IntoIterator<Item = u64>) {
    for page in pages {
        guest.write(usize::try_from(page * 2 * M).unwrap() + 77, b"mine");
    }
}

/// The process of a daemon that maps clients' files.
fn mapper(daemon: &Daemon) -> Option<u32> {
    // Each of its threads has children of its own.
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let lists = threads
        .flatten()
        .map(|thread| thread.path().join("children"));
    let children: String = lists
        .filter_map(|list| std::fs::read_to_string(list).ok())
        .collect();
    children.split_whitespace().find_map(|child| {
        let name = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        (name.trim() == "mapper").then(|| child.parse().unwrap())
    })
}

/// It is there before the first client, and has the filling's CPUs and weight; without `refill` there is none.
#[test]
fn the_process_that_maps_clients_files_starts_with_the_daemon() {
    let with = |class: &str| {
        let class = format!("page = \"thp\"\nsource = \"memfd\"\n{class}");
        let text = config(&class).replace(
            "rate = \"0\", pause",
            "rate = \"0\", cpus = \"0\", nice = 7, pause",
        );
        let daemon = Daemon::start(&text);
        daemon.until_clean(1);
        daemon
    };
    assert_eq!(mapper(&with("")), None);
    let daemon = with("refill = \"4M\"");
    until("it is set up", || mapper(&daemon).is_some());
    let first = mapper(&daemon).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{first}/status")).unwrap();
    let cpus = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    assert_eq!(cpus.map(str::trim), Some("0"));
    let stat = std::fs::read_to_string(format!("/proc/{first}/stat")).unwrap();
    // The 19th field; the second, a name, ends with a bracket.
    assert_eq!(
        stat.rsplit(") ").next().unwrap().split(' ').nth(16),
        Some("7")
    );
    // Its files are its own: the socket, the kernel's counts of huge pages, and nothing of a client's.
    let open = std::fs::read_dir(format!("/proc/{first}/fd")).unwrap();
    let names = open
        .flatten()
        .map(|file| std::fs::read_link(file.path()).unwrap());
    let (counts, others): (Vec<_>, Vec<_>) =
        names.partition(|name| name.starts_with("/sys/kernel/mm/hugepages"));
    let sizes =
        ["2048kB", "1048576kB"].map(|size| format!("/sys/kernel/mm/hugepages/hugepages-{size}"));
    let sizes = sizes.iter().filter(|size| std::fs::exists(size).unwrap());
    assert_eq!(
        (counts.len(), others.len()),
        (3 * sizes.count(), 3),
        "{counts:?}, {others:?}"
    );
    // A guest is refilled by another one where it was killed.
    let allocated = take_soon(&daemon, 16 * M);
    let mut guest = mapped(&allocated.memory, 16 * M);
    write(&mut guest, 0..PAGES);
    let pid = rustix::process::Pid::from_raw(first.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    give_back(&allocated.memory, &[1, 2]);
    until("both pages are back", || {
        row(&daemon).refilled_bytes == 4 * M
    });
    assert!(mapper(&daemon).is_some_and(|another| another != first));
}

fn puts_back(source: &str) {
    let Some(_pages) = huge_pages(PAGES + 2) else {
        return;
    };
    let mut daemon = Daemon::start(&config(&format!("refill = \"4M\"\nsource = \"{source}\"")));
    daemon.until_clean(1);
    let allocated = take_soon(&daemon, 16 * M);
    let mut guest = mapped(&allocated.memory, 16 * M);
    write(&mut guest, 0..PAGES);
    let free = free_pages();

    daemon.while_stopped(|| give_back(&allocated.memory, &[1, 2, 4, 5]));
    until("two of four pages are back", || {
        let row = row(&daemon);
        (row.hole_bytes, row.refilled_bytes) == (4 * M, 4 * M)
    });
    several_looks();
    assert_eq!(row(&daemon).refilled_bytes, 4 * M, "no more than it may");
    assert_eq!(free_pages(), free + 2, "the host has the others");

    // Its guest has them at once, zeroed, and the rest is as it was.
    assert_eq!(guest.first_nonzero(), Some(77));
    write(&mut guest, [1, 2]);
    assert_eq!(free_pages(), free + 2, "no page of the kernel's");

    // Used and given back, they are the first to be put back.
    give_back(&allocated.memory, &[2]);
    until("it is put back again", || {
        row(&daemon).refilled_bytes == 6 * M
    });
    assert_eq!(row(&daemon).hole_bytes, 4 * M);
    // What a guest takes in the middle of a look for more may be mistaken for a page that was put back.
    several_looks();

    // When the guest takes what is missing, what it gives back then is put back.
    // Both at once: with one of them missing still, it would be put back itself.
    daemon.while_stopped(|| write(&mut guest, [4, 5]));
    until("nothing is missing", || row(&daemon).hole_bytes == 0);
    daemon.while_stopped(|| give_back(&allocated.memory, &[6, 7]));
    until("others are put back", || {
        row(&daemon).refilled_bytes == 10 * M
    });

    // The lease ends, and all of it goes back, mapped or not.
    give_back(&allocated.memory, &[0, 3]);
    let kept = allocated.memory.try_clone().unwrap();
    daemon
        .connect()
        .give(allocated.lease.lease.clone())
        .unwrap();
    drop(allocated);
    daemon.until_clean(1);
    several_looks();
    assert_eq!(memory_file::held_bytes(&kept).unwrap(), 0);
    assert_eq!(row(&daemon).hole_bytes, 0);
    drop((guest, kept));
    assert_eq!(daemon.stop(), 0);
    assert_eq!(free_pages(), free + PAGES);
}

#[test]
fn pages_are_put_back_into_a_file_of_a_mount() {
    puts_back("mount");
}

#[test]
fn pages_are_put_back_into_a_file_without_a_name() {
    puts_back("memfd");
}

#[test]
fn pages_of_1_gib_are_put_back_as_a_whole() {
    const G: u64 = 1 << 30;
    let pages = match SetAside::new(G, 2) {
        Ok(pages) => pages,
        Err(error) => return skip("giantpages", error),
    };
    let mut daemon = Daemon::start(
        "fill = { rate = \"0\", pause_at_pressure = 0, refill_rate = \"0\", refill_after_s = 0 }\n\
         [[class]]\npage = \"1G\"\nsize = \"2G\"\nslabs = 1\nrefill = \"1G\"\n",
    );
    daemon.until_clean(1);
    let allocated = take_soon(&daemon, 2 * G);
    assert_eq!(allocated.lease.align_bytes, G);
    let mut guest = mapped(&allocated.memory, 2 * G);
    let second = usize::try_from(G).unwrap();
    guest.write(77, b"mine");
    guest.write(second + 77, b"mine");
    memory_file::punch(&allocated.memory, 0, 2 * G).unwrap();
    until("one is put back", || row(&daemon).refilled_bytes == G);
    assert_eq!(memory_file::held_bytes(&allocated.memory).unwrap(), G);
    let mut seen = [1; 100];
    guest.read(0, &mut seen);
    assert_eq!(seen, [0; 100]);
    assert_eq!(memory_file::held_bytes(&allocated.memory).unwrap(), G);
    drop((guest, allocated));
    assert_eq!(daemon.stop(), 0);
    drop(pages);
}

#[test]
fn where_it_is_not_wanted_or_too_early_nothing_is_put_back() {
    let Some(_pages) = huge_pages(PAGES) else {
        return;
    };
    let off = config("");
    let later = config("refill = \"4M\"").replace("after_s = 0", "after_s = 3600");
    for config in [off, later] {
        let daemon = Daemon::start(&config);
        daemon.until_clean(1);
        let allocated = take_soon(&daemon, 16 * M);
        give_back(&allocated.memory, &[0, 7]);
        until("it is seen", || row(&daemon).hole_bytes == 4 * M);
        several_looks();
        assert_eq!(row(&daemon).refilled_bytes, 0);
        assert_eq!(row(&daemon).hole_bytes, 4 * M);
    }
}

#[test]
fn want_of_huge_pages_is_told() {
    let Some(_pages) = huge_pages(PAGES + 1) else {
        return;
    };
    let daemon = Daemon::start(&config("refill = \"4M\""));
    daemon.until_clean(1);
    let allocated = take_soon(&daemon, 16 * M);
    // Whatever is free, and what the guest gives back, another process takes.
    let other = memory_file::unnamed(c"other", Some(2 * M)).unwrap();
    let wanted = (free_pages() + 1) * 2 * M;
    memory_file::set_length(&other, wanted).unwrap();
    give_back(&allocated.memory, &[3]);
    let mut taken = false;
    until("it says what it lacks", || {
        // The daemon may come first: then the guest gives that one back too.
        taken = taken || memory_file::allocate(&other, 0, wanted).is_ok();
        if !taken {
            give_back(&allocated.memory, &[3]);
            return false;
        }
        let trouble = row(&daemon).trouble.unwrap_or_default();
        trouble.contains("nothing is put back for guests")
    });
    drop(other);
    until("it is put back then", || row(&daemon).hole_bytes == 0);
    assert_eq!(row(&daemon).trouble, None);
}

/// What a page costs its guest when it comes back to it, printed and not
/// asserted: `FIRSTLIGHT_REFAULT_PAGES=512` and `--nocapture` for a GiB.
#[test]
fn what_was_put_back_takes_no_page_of_the_kernels() {
    let pages = u64::from(super::kit::rounds("FIRSTLIGHT_REFAULT_PAGES", 16));
    let Some(_pages) = huge_pages(pages + 1) else {
        return;
    };
    let size = pages * 2 * M;
    for (refill, drawn) in [("0", pages), (&*size.to_string(), 0)] {
        let config = config(&format!("refill = {refill}")).replace("16M", &size.to_string());
        let mut daemon = Daemon::start(&config);
        daemon.until_clean(1);
        let allocated = take_soon(&daemon, size);
        let mut guest = mapped(&allocated.memory, size);
        guest.populate().unwrap();
        let all: Vec<u64> = (0..pages).collect();
        give_back(&allocated.memory, &all);
        let is_ready = |row: PoolRow| (row.hole_bytes, row.refilled_bytes) == (0, size);
        until("it is as it should be", || {
            let row = row(&daemon);
            if drawn > 0 {
                row.hole_bytes == size
            } else {
                is_ready(row)
            }
        });
        let free = free_pages();
        let mut touches_ns: Vec<_> = all
            .iter()
            .map(|page| {
                let begin = Instant::now();
                write(&mut guest, [*page]);
                begin.elapsed().as_nanos()
            })
            .collect();
        assert_eq!(free - free_pages(), drawn);
        touches_ns.sort_unstable();
        let at = |percent: usize| touches_ns[(touches_ns.len() - 1) * percent / 100];
        eprintln!(
            "refill = {refill}: {pages} pages touched in {} us; a page {} ns (half), {} ns (99 of 100), {} ns (slowest)",
            touches_ns.iter().sum::<u128>() / 1000,
            at(50),
            at(99),
            at(100)
        );
        drop((guest, allocated));
        assert_eq!(daemon.stop(), 0);
    }
}

/// Three times a real guest takes most of its memory and gives it back, while
/// pages are put back: it never finds a byte that is not its own.
#[test]
fn a_real_guest_gives_back_and_finds_its_reserve_put_back() {
    let Some(parts) = Parts::find() else { return };
    let Some(_pages) = huge_pages(256) else {
        return;
    };
    let free = free_pages();
    let config = config("refill = \"64M\"").replace("16M", "512M");
    let mut daemon = Daemon::start(&config);
    daemon.until_clean(1);
    let mut guest = Guest::start(&parts, &daemon, "512M");
    for round in 1..=2 {
        until("it has given back, and has some of it again", || {
            let row = row(&daemon);
            row.hole_bytes > 128 * M && row.refilled_bytes >= round * 32 * M
        });
        guest.tell("take 320", "took 320 with 0 wrong");
        guest.tell("check", "kept with 0 wrong");
        guest.tell("leave", "left");
    }
    until("the host has most of it", || {
        row(&daemon).hole_bytes > 128 * M
    });
    guest.tell("check", "kept with 0 wrong");
    guest.end();
    until("the lease ends", || daemon.status().leases.is_empty());
    assert_eq!(daemon.stop(), 0);
    assert_eq!(free_pages(), free);
}
