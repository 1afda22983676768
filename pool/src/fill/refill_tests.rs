//! Pages put back into real memory files while a guest uses them.

use super::*;
use crate::os::hugepages::{self, SetAside};
use crate::os::mapping::Mapping;
use crate::os::memory_file;
use crate::os::need::skip;
use crate::os::pressure::Gauge;
use crate::protocol::PageSize;
use crate::store::mount::Mount;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const PAGE: u64 = 2 << 20;
const PAGES: u64 = 8;
const BYTES: u64 = PAGES * PAGE;

/// A whole slab without a name, on huge pages set aside where it says so.
fn slab(page: PageSize) -> Arc<OwnedFd> {
    let huge = (page == PageSize::Huge).then_some(PAGE);
    filled(memory_file::unnamed(c"test", huge).unwrap(), page)
}

/// A whole slab in a mount.
fn slab_of_mount(page: PageSize) -> Option<Arc<OwnedFd>> {
    let mount = Mount::new(page, 2 * BYTES).inspect_err(|error| skip("root", error));
    Some(filled(mount.ok()?.create("slab", 0o600).unwrap(), page))
}

fn filled(file: OwnedFd, page: PageSize) -> Arc<OwnedFd> {
    memory_file::set_length(&file, BYTES).unwrap();
    match page {
        PageSize::Huge => memory_file::allocate(&file, 0, BYTES).unwrap(),
        _ => memory_file::populate(&file, 0, usize::try_from(BYTES).unwrap()).unwrap(),
    }
    Arc::new(file)
}

fn huge_pages(pages: u64) -> Option<SetAside> {
    SetAside::new(PAGE, pages)
        .inspect_err(|error| skip("hugepages", error))
        .ok()
}

fn free_pages() -> u64 {
    let counts = hugepages::counts(Path::new(hugepages::SYS), PAGE, None);
    counts.unwrap().unwrap().free_pages
}

fn mapped(file: &OwnedFd) -> Mapping {
    Mapping::new(file, 0, usize::try_from(BYTES).unwrap()).unwrap()
}

/// Pages for a slab, and the one that is left to guests.
fn pages_of_slab() -> Option<SetAside> {
    huge_pages(PAGES + 1)
}

/// As a VMM does for a guest that says it does not use them.
fn give_back(file: &OwnedFd, pages: &[u64]) {
    for page in pages {
        memory_file::punch(file, page * PAGE, PAGE).unwrap();
    }
}

fn missing(file: &OwnedFd) -> u64 {
    (BYTES - memory_file::held_bytes(file).unwrap()) / PAGE
}

fn all(page: PageSize, tenure: &Arc<Tenure>) -> Refill {
    Refill {
        page,
        bytes: BYTES,
        reserve: Vec::new(),
        most_pages: PAGES,
        new_pages: PAGES,
        tenure: Arc::clone(tenure),
        scan: Arc::default(),
    }
}

fn policy() -> Policy {
    Policy {
        background: Some(Arc::new(Pace::new(
            None,
            1,
            Arc::new(Watch::new(None, Gauge::of_machine())),
        ))),
        shared: true,
        ..Policy::default()
    }
}

fn run(file: &Arc<OwnedFd>, refill: Refill) -> Done<()> {
    run_by(policy(), file, refill)
}

fn run_by(policy: Policy, file: &Arc<OwnedFd>, refill: Refill) -> Done<()> {
    let (tell, told) = mpsc::channel();
    let tell = move |done| tell.send(done).unwrap();
    let worker = Worker::alone(policy, tell).unwrap();
    let job = Job {
        cancel: refill.tenure.ended(),
        ..Job::new((), Arc::clone(file), Work::Refill(refill))
    };
    worker.send(job).unwrap();
    told.recv().unwrap()
}

fn puts_back(page: PageSize) {
    let file = slab(page);
    let mut guest = mapped(&file);
    let at = |page: u64| usize::try_from(page * PAGE).unwrap() + 12_345;
    for page in 0..PAGES {
        guest.write(at(page), b"mine");
    }
    give_back(&file, &[1, 4, 6, 7]);
    assert_eq!(missing(&file), 4);
    let tenure = Arc::default();
    let some = Refill {
        reserve: vec![0, 6],
        scan: Arc::new(Scan::from(0, 4)),
        most_pages: 3,
        new_pages: 1,
        ..all(page, &tenure)
    };
    // Of the reserve what is missing, then one other, from where it was left off.
    let done = run(&file, some.clone());
    done.result.unwrap();
    assert_eq!(
        (done.refilled_pages, done.zeroed_bytes),
        (vec![6, 4], 2 * PAGE)
    );
    assert_eq!(missing(&file), 2);
    let done = run(&file, all(page, &tenure));
    done.result.unwrap();
    assert_eq!(done.refilled_pages, [1, 7]);
    let done = run(&file, all(page, &tenure));
    done.result.unwrap();
    assert_eq!((done.refilled_pages, done.zeroed_bytes), (vec![], 0));
    // What it had is there, what it gave back is zero.
    let mut seen = [0; 4];
    for page in 0..PAGES {
        guest.read(at(page), &mut seen);
        let given = [1, 4, 6, 7].contains(&page);
        assert_eq!(&seen, if given { &[0; 4] } else { b"mine" }, "page {page}");
    }
    let most = Refill {
        reserve: vec![1, 4, 6, 7],
        most_pages: 3,
        new_pages: 0,
        ..all(page, &tenure)
    };
    give_back(&file, &[0, 1, 4, 6, 7]);
    assert_eq!(run(&file, most.clone()).refilled_pages, [1, 4, 6]);
    assert_eq!(run(&file, most.clone()).refilled_pages, [7]);
    assert_eq!(
        run(&file, most).refilled_pages,
        [0; 0],
        "not of the reserve"
    );
    // And nothing after the lease, nor where the file is not what it was.
    memory_file::set_length(&file, PAGE).unwrap();
    let error = run(&file, all(page, &tenure)).result.unwrap_err();
    assert!(error.to_string().contains("shorter"), "{error}");
    assert_eq!(memory_file::held_bytes(&file).unwrap(), PAGE);
    tenure.end();
    let done = run(&file, all(page, &tenure));
    assert_eq!(done.result.unwrap_err().kind(), io::ErrorKind::Interrupted);
}

#[test]
fn holes_get_zeroed_pages_and_nothing_else_changes() {
    puts_back(PageSize::Transparent);
}

#[test]
fn holes_of_huge_pages_get_zeroed_pages_and_nothing_else_changes() {
    let Some(_pages) = pages_of_slab() else {
        return;
    };
    puts_back(PageSize::Huge);
}

#[test]
fn what_was_put_back_costs_its_guest_no_page_of_the_kernels() {
    let Some(_pages) = pages_of_slab() else {
        return;
    };
    let file = slab(PageSize::Huge);
    let mut guest = mapped(&file);
    guest.populate().unwrap();
    let free = free_pages();
    give_back(&file, &[2, 3, 5]);
    assert_eq!(free_pages(), free + 3, "the host has them");
    let done = run(&file, all(PageSize::Huge, &Arc::default()));
    assert_eq!(done.refilled_pages, [2, 3, 5]);
    assert_eq!(free_pages(), free);
    for page in [2, 3, 5] {
        guest.write(usize::try_from(page * PAGE).unwrap(), b"again");
    }
    assert_eq!(free_pages(), free);
    assert_eq!(missing(&file), 0);
}

#[test]
fn without_pages_it_says_so_and_keeps_what_it_has_done() {
    let Some(_pages) = huge_pages(PAGES) else {
        return;
    };
    let file = slab(PageSize::Huge);
    give_back(&file, &[2, 3, 5]);
    // Another process takes all but two, of which one is left to guests.
    let other = memory_file::unnamed(c"other", Some(PAGE)).unwrap();
    let taken = (free_pages() - 2) * PAGE;
    memory_file::set_length(&other, taken).unwrap();
    memory_file::allocate(&other, 0, taken).unwrap();
    let done = run(&file, all(PageSize::Huge, &Arc::default()));
    assert_eq!(done.refilled_pages, [2]);
    assert_eq!(done.result.unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn a_slab_is_emptied_behind_the_page_under_way_and_no_other_is_begun() {
    let file = slab(PageSize::Transparent);
    let tenure: Arc<Tenure> = Arc::default();
    let (begun, has_begun) = mpsc::channel();
    let (finish, may_finish) = mpsc::channel::<()>();
    let (its_tenure, its_file) = (Arc::clone(&tenure), Arc::clone(&file));
    let step = thread::spawn(move || {
        its_tenure.during(|| {
            begun.send(()).unwrap();
            may_finish.recv().unwrap();
            memory_file::held_bytes(&its_file).unwrap()
        })
    });
    has_begun.recv().unwrap();
    tenure.end();
    let (tell, emptied) = mpsc::channel();
    let report = move |done: Done<()>| tell.send(done.result).unwrap();
    let prompt = Worker::alone(Policy::default(), report).unwrap();
    let empty = Job {
        after: Some(Arc::clone(&tenure)),
        ..Job::new((), Arc::clone(&file), Work::Empty)
    };
    prompt.send(empty).unwrap();
    // Time to do what it should not.
    thread::sleep(Duration::from_millis(50));
    finish.send(()).unwrap();
    assert_eq!(step.join().unwrap(), Some(BYTES), "it was there to the end");
    emptied.recv().unwrap().unwrap();
    assert_eq!(memory_file::held_bytes(&file).unwrap(), 0);
    assert_eq!(tenure.during(|| ()), None);
}

#[test]
fn one_that_is_stopped_puts_one_page_back_whenever_that_was() {
    let file = slab(PageSize::Transparent);
    give_back(&file, &[1, 2]);
    for (page, left) in [(1, 1), (2, 0)] {
        let refill = all(PageSize::Transparent, &Arc::default());
        refill.scan.stop();
        let done = run(&file, refill);
        done.result.unwrap();
        assert_eq!((done.refilled_pages, missing(&file)), (vec![page], left));
    }
}

#[test]
fn a_turn_that_waits_for_its_pace_ends_where_it_is_stopped_and_says_how_far_it_is() {
    let file = slab(PageSize::Transparent);
    give_back(&file, &[1, 2, 5]);
    // One page, and then none ever.
    let watch = Watch::new(None, Gauge::of_machine());
    let pace = Arc::new(Pace::new(Some(0), PAGE, Arc::new(watch)));
    let turn = |looked, is_stopped| {
        let refill = Refill {
            reserve: vec![0, 5, 7],
            scan: Arc::new(Scan::from(looked, 0)),
            ..all(PageSize::Transparent, &Arc::default())
        };
        let scan = Arc::clone(&refill.scan);
        if is_stopped {
            scan.stop();
        }
        let policy = Policy {
            background: Some(Arc::clone(&pace)),
            ..policy()
        };
        let done = run_by(policy, &file, refill);
        done.result.unwrap();
        (done.refilled_pages, scan.ended_early())
    };
    assert_eq!(turn(0, true), (vec![5], Some((2, 0))));
    assert_eq!(turn(2, true), (vec![], Some((2, 0))));
    pace.set_rate(None);
    assert_eq!(turn(2, true), (vec![1], Some((3, 2))));
    assert_eq!(turn(3, false), (vec![2], None));
    assert_eq!((turn(0, true), missing(&file)), ((vec![], None), 0));
}

/// The end of a lease, in the middle of everything, some hundred times: a process that
/// settles and empties has the last word.
fn ends(page: PageSize, rounds: u32) {
    for round in 0..rounds {
        let file = slab(page);
        give_back(&file, &[0, 1, 2, 3, 4, 5, 6, 7]);
        let tenure: Arc<Tenure> = Arc::default();
        let (refill, worker_file) = (all(page, &tenure), Arc::clone(&file));
        let (tell, told) = mpsc::channel();
        let report = move |done: Done<()>| tell.send(done.refilled_pages.len()).unwrap();
        let worker = Worker::alone(policy(), report).unwrap();
        let job = Job {
            cancel: tenure.ended(),
            ..Job::new((), worker_file, Work::Refill(refill))
        };
        worker.send(job).unwrap();
        let wait_for = u64::from(round) % (PAGES + 1);
        while missing(&file) > PAGES - wait_for {
            thread::sleep(Duration::from_micros(20));
        }
        tenure.end();
        let (tell_emptied, emptied) = mpsc::channel();
        let report = move |done: Done<()>| tell_emptied.send(done.result).unwrap();
        let prompt = Worker::alone(Policy::default(), report).unwrap();
        let empty = Job {
            after: Some(tenure),
            ..Job::new((), Arc::clone(&file), Work::Empty)
        };
        prompt.send(empty).unwrap();
        emptied.recv().unwrap().unwrap();
        assert_eq!(memory_file::held_bytes(&file).unwrap(), 0, "at once");
        told.recv().unwrap();
        assert_eq!(memory_file::held_bytes(&file).unwrap(), 0, "and for good");
    }
}

#[test]
fn nothing_is_put_back_after_the_lease() {
    ends(PageSize::Transparent, 50);
    let Some(_pages) = pages_of_slab() else {
        return;
    };
    ends(PageSize::Huge, 100);
}

/// Nothing of a client's file is mapped here: without the process for that nothing is put back.
#[test]
fn a_clients_file_is_mapped_by_the_mapper_alone() {
    let is_put_back = |page| {
        let file = slab(page);
        give_back(&file, &[1, 2]);
        let command = [OsString::from("/there is no such program")];
        let policy = Policy {
            mapper: Arc::new(Mapper::by(&command, &Policy::default())),
            ..policy()
        };
        let done = run_by(policy, &file, all(page, &Arc::default()));
        assert_eq!(done.result.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(missing(&file), 2);
    };
    is_put_back(PageSize::Transparent);
    let Some(_pages) = huge_pages(PAGES) else {
        return;
    };
    is_put_back(PageSize::Huge);
}

/// A guest that gives two pages back and takes one of them, again and again while pages are put back, with no page
/// of the machine to spare: every byte it wrote stays, every byte it gave back is zero, and it lives.
fn notices_nothing(file: &Arc<OwnedFd>, page_size: PageSize) {
    let tenure: Arc<Tenure> = Arc::default();
    let (refill, worker_file) = (all(page_size, &tenure), Arc::clone(file));
    let turns = Arc::new(AtomicU64::new(0));
    let made = Arc::clone(&turns);
    let worker = thread::spawn(move || {
        loop {
            let done = run(&worker_file, refill.clone());
            made.fetch_add(done.refilled_pages.len() as u64, Ordering::Relaxed);
            match done.result {
                Ok(()) => {}
                // One page is free: that is left to the guest.
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
                Err(_) => return,
            }
        }
    });
    let mut guest = mapped(file);
    let mut seen = [1; 8];
    let (last, taken) = (PAGES - 1, PAGES - 1);
    // As many as it takes a worker beside other tests to put some back.
    let is_enough = |round: &u64| *round >= 2000 && turns.load(Ordering::Relaxed) > 0;
    for round in (0..2_000_000).take_while(|round| !is_enough(round)) {
        let page = round * 5 % taken;
        let at = usize::try_from(page * PAGE).unwrap();
        let middle = at + (1 << 20);
        give_back(file, &[last, page]);
        if round % 3 == 0 {
            thread::yield_now();
        }
        guest.read(middle, &mut seen);
        assert_eq!(u64::from_le_bytes(seen), 0, "round {round}");
        guest.write(middle, &round.to_le_bytes());
        // Those written in the last rounds are as they were left.
        for back in 0..taken.min(round + 1) {
            let earlier = round - back;
            let at = usize::try_from(earlier * 5 % taken * PAGE).unwrap() + (1 << 20);
            guest.read(at, &mut seen);
            assert_eq!(u64::from_le_bytes(seen), earlier, "round {round}");
        }
    }
    tenure.end();
    worker.join().unwrap();
    assert!(
        turns.load(Ordering::Relaxed) > 0,
        "it put pages back meanwhile"
    );
}

#[test]
fn a_guest_that_uses_its_memory_meanwhile_notices_nothing() {
    let Some(_pages) = huge_pages(PAGES) else {
        return;
    };
    notices_nothing(&slab(PageSize::Huge), PageSize::Huge);
}

#[test]
fn a_guest_that_uses_the_memory_of_a_mount_meanwhile_notices_nothing() {
    for page in [PageSize::Huge, PageSize::Transparent] {
        let Some(_pages) = huge_pages(PAGES) else {
            return;
        };
        let Some(file) = slab_of_mount(page) else {
            return;
        };
        notices_nothing(&file, page);
    }
}
