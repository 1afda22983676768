//! Workers on real memory files; none of them needs privileges.

use super::*;
use crate::os::mapping::Mapping;
use crate::os::memory_file;
use crate::os::need::skip;
use crate::os::pressure::Gauge;
use crate::protocol::PageSize;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const BYTES: u64 = 8 << 20;
/// What is asked for at once: a huge page.
const BATCH_BYTES: u64 = 2 << 20;

fn file() -> Arc<OwnedFd> {
    let first = memory_file::unnamed(c"test", None).unwrap();
    let file = memory_file::own_opening(first).unwrap();
    memory_file::set_length(&file, BYTES).unwrap();
    Arc::new(file)
}

fn job(file: &Arc<OwnedFd>, work: Work) -> Job<u32> {
    Job::new(7, Arc::clone(file), work)
}

const FILL: Work = Work::Fill {
    page: PageSize::Transparent,
    start: 0,
    end: BYTES,
    deadline: None,
};

const IN_PLACE: Work = Work::ZeroInPlace { bytes: BYTES };

fn policy(pace: Option<Pace>) -> Policy {
    Policy {
        cpus: Vec::new(),
        nice: None,
        background: pace.map(Arc::new),
        shared: false,
        node: None,
        batch_bytes: 1 << 20,
        mapper: Arc::default(),
    }
}

/// Lets a worker do the job and waits for its end.
fn run(policy: Policy, job: Job<u32>) -> Done<u32> {
    let (tell, told) = mpsc::channel();
    let worker = Worker::alone(policy, move |done| tell.send(done).unwrap()).unwrap();
    worker.send(job).unwrap();
    told.recv().unwrap()
}

fn no_pressure(rate: Option<u64>) -> Pace {
    Pace::new(
        rate,
        BATCH_BYTES,
        Arc::new(Watch::new(None, Gauge::of_machine())),
    )
}

#[test]
fn filled_from_end_to_end_with_zeros() {
    let file = file();
    let job = job(&file, FILL);
    let progress = Arc::clone(&job.done_bytes);
    let done = run(policy(Some(no_pressure(None))), job);
    done.result.unwrap();
    assert_eq!((done.ticket, done.zeroed_bytes), (7, BYTES));
    assert_eq!(progress.load(Ordering::Relaxed), BYTES);
    assert_eq!(memory_file::held_bytes(&file).unwrap(), BYTES);
    assert!(done.zeroing_ns > 0);
}

#[test]
fn only_the_missing_part_is_filled_and_no_byte_of_the_rest_changes() {
    let file = file();
    let length = usize::try_from(BYTES).unwrap();
    let mut mapping = Mapping::new(&file, 0, length).unwrap();
    mapping.write(12_345, b"kept");
    let before = memory_file::held_bytes(&file).unwrap();
    let work = Work::Fill {
        page: PageSize::Transparent,
        start: 3 << 20, // in the middle of a batch
        end: (5 << 20) + 4096,
        deadline: None,
    };
    let done = run(policy(None), job(&file, work));
    done.result.unwrap();
    assert_eq!(done.zeroed_bytes, (2 << 20) + 4096);
    assert_eq!(mapping.first_nonzero(), Some(12_345));
    let after = memory_file::held_bytes(&file).unwrap();
    assert!(
        after - before >= done.zeroed_bytes && after < BYTES,
        "{before} {after}"
    );
}

#[test]
fn what_is_not_wanted_any_more_stops() {
    let file = file();
    let stopped = job(&file, FILL);
    stopped.cancel.store(true, Ordering::Relaxed);
    let done = run(policy(Some(no_pressure(None))), stopped);
    assert_eq!(done.result.unwrap_err().kind(), io::ErrorKind::Interrupted);
    assert_eq!(memory_file::held_bytes(&file).unwrap(), 0);
}

#[test]
fn a_deadline_that_has_passed_ends_it() {
    let file = file();
    let work = Work::Fill {
        page: PageSize::Transparent,
        start: 0,
        end: BYTES,
        deadline: Some(Instant::now()),
    };
    let done = run(policy(None), job(&file, work));
    assert_eq!(done.result.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(done.zeroed_bytes, 0);
}

#[test]
fn at_a_rate_of_nothing_only_the_first_burst_is_filled() {
    let file = file();
    let slow = job(&file, FILL);
    let (cancel, progress) = (Arc::clone(&slow.cancel), Arc::clone(&slow.done_bytes));
    let (tell, told) = mpsc::channel();
    let policy = policy(Some(no_pressure(Some(0))));
    let worker = Worker::alone(policy, move |done| tell.send(done).unwrap()).unwrap();
    worker.send(slow).unwrap();
    while progress.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
    cancel.store(true, Ordering::Relaxed);
    let done = told.recv().unwrap();
    assert_eq!(done.zeroed_bytes, BATCH_BYTES);
}

#[test]
fn pressure_pauses_until_it_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let figures = folder.path().join("memory");
    let says = |percent: &str| {
        std::fs::write(
            &figures,
            format!("some avg10={percent} avg60=0 avg300=0 total=0\n"),
        )
    };
    says("10.00").unwrap();
    let gauge = Gauge::of_files(&figures, "/nonexistent");
    let watch = Arc::new(Watch::new(Some(10.0), gauge));
    watch.read();
    assert!(watch.is_paused());
    let pace = Arc::new(Pace::new(None, 1 << 20, Arc::clone(&watch)));
    let policy = Policy {
        background: Some(Arc::clone(&pace)),
        ..policy(None)
    };
    let file = file();
    let (tell, told) = mpsc::channel();
    let worker = Worker::alone(policy, move |done| tell.send(done).unwrap()).unwrap();
    worker.send(job(&file, FILL)).unwrap();
    let nothing = told.recv_timeout(Duration::from_millis(200));
    assert!(nothing.is_err(), "{nothing:?}");
    assert_eq!(memory_file::held_bytes(&file).unwrap(), 0);
    says("9.99").unwrap();
    assert!(watch.is_paused(), "it was not read again");
    watch.read();
    told.recv().unwrap().result.unwrap();
    assert!(!watch.is_paused());
    assert_eq!(memory_file::held_bytes(&file).unwrap(), BYTES);
}

#[test]
fn turned_off_nothing_is_filled_until_it_is_turned_on() {
    let pace = Arc::new(no_pressure(None));
    pace.turn(false);
    let policy = Policy {
        background: Some(Arc::clone(&pace)),
        ..policy(None)
    };
    let file = file();
    let (tell, told) = mpsc::channel();
    let worker = Worker::alone(policy, move |done| tell.send(done).unwrap()).unwrap();
    worker.send(job(&file, FILL)).unwrap();
    let nothing = told.recv_timeout(Duration::from_millis(200));
    assert!(nothing.is_err(), "{nothing:?}");
    assert_eq!(memory_file::held_bytes(&file).unwrap(), 0);
    pace.turn(true);
    told.recv().unwrap().result.unwrap();
    assert_eq!(memory_file::held_bytes(&file).unwrap(), BYTES);
}

#[test]
fn emptied_files_hold_nothing_and_zeroed_ones_are_zero() {
    let file = file();
    let length = usize::try_from(BYTES).unwrap();
    let mut mapping = Mapping::new(&file, 0, length).unwrap();
    mapping.write(5, b"secret");
    mapping.write(length - 6, b"secret");
    let done = run(policy(None), job(&file, IN_PLACE));
    done.result.unwrap();
    assert_eq!(mapping.first_nonzero(), None);
    assert_eq!(memory_file::held_bytes(&file).unwrap(), BYTES);
    run(policy(None), job(&file, Work::Empty)).result.unwrap();
    assert_eq!(memory_file::held_bytes(&file).unwrap(), 0);
    let mode = rustix::fs::fstat(&file).unwrap().st_mode;
    assert_eq!(mode & 0o077, 0, "others may open it once more");
}

#[test]
fn what_the_kernel_zeroes_is_not_zeroed_again_in_place() {
    let file = file();
    let length = usize::try_from(BYTES).unwrap();
    let mut mapping = Mapping::new(&file, 0, length).unwrap();
    // Pages with holes of all lengths between them, at the ends of batches too.
    for at in [
        0,
        3 << 12,
        (1 << 20) - 4096,
        1 << 20,
        5 << 20,
        length - 4096,
    ] {
        mapping.write(at, b"secret");
    }
    let held = memory_file::held_bytes(&file).unwrap();
    assert!(held < BYTES);
    let done = run(policy(None), job(&file, IN_PLACE));
    done.result.unwrap();
    assert_eq!(mapping.first_nonzero(), None);
    assert_eq!(memory_file::held_bytes(&file).unwrap(), BYTES);
    assert_eq!((done.zeroed_bytes, done.zeroed_twice_bytes), (BYTES, 0));
}

#[test]
fn what_lies_behind_the_end_is_given_back_and_nothing_else() {
    let file = file();
    memory_file::populate(&file, 0, 4096).unwrap();
    memory_file::refill(&file, BYTES, 1 << 20).unwrap();
    run(policy(None), job(&file, Work::Shorten { bytes: BYTES }))
        .result
        .unwrap();
    let stat = rustix::fs::fstat(&file).unwrap();
    assert_eq!(u64::try_from(stat.st_size), Ok(BYTES));
    let held = memory_file::held_bytes(&file).unwrap();
    assert!((4096..1 << 20).contains(&held) || held == 2 << 20, "{held}");
}

/// What its client put or reserved behind the end would be promised for as long as the slab is used.
#[test]
fn what_lies_behind_the_end_goes_before_a_slab_is_zeroed_in_place() {
    let file = file();
    memory_file::refill(&file, BYTES, 2 << 20).unwrap();
    run(policy(None), job(&file, IN_PLACE)).result.unwrap();
    assert_eq!(memory_file::held_bytes(&file).unwrap(), BYTES);
}

/// The scheduling policy of this thread, as the kernel numbers them.
fn scheduling_policy() -> String {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    fields.into_iter().nth(38).unwrap().to_owned()
}

#[test]
fn no_worker_keeps_out_of_the_way_in_the_middle_of_a_page() {
    thread::spawn(|| {
        if !background::may_come_back() {
            skip("root", "a thread that got out of the way may not come back");
            return;
        }
        background::run_when_idle().unwrap();
        let during = batches::in_one_go(true, scheduling_policy);
        assert_eq!((during.as_str(), scheduling_policy().as_str()), ("0", "5"));
        assert_eq!(batches::in_one_go(false, scheduling_policy), "5");
    })
    .join()
    .unwrap();
}

#[test]
fn a_batch_goes_page_by_page_from_where_it_begins_to_where_it_ends() {
    for (at, bytes, step, parts) in [
        (0, 8, 4, vec![(0, 4), (4, 4)]),
        (0, 8, 8, vec![(0, 8)]),
        (3, 6, 4, vec![(3, 1), (4, 4), (8, 1)]),
        (4, 1, 4, vec![(4, 1)]),
        (4, 0, 4, vec![]),
        (u64::MAX - 1, 1, 4, vec![(u64::MAX - 1, 1)]),
    ] {
        let seen: Vec<_> = work::steps(at, bytes, step).collect();
        assert_eq!(seen, parts, "{at} {bytes} {step}");
    }
}

#[test]
fn a_file_that_another_process_holds_is_not_zeroed_in_place() {
    let file = file();
    let theirs = memory_file::reopen(&file).unwrap();
    let mut mapping = Mapping::new(&file, 0, 4096).unwrap();
    mapping.write(0, b"theirs");
    run(policy(None), job(&file, IN_PLACE)).result.unwrap_err();
    assert_eq!(mapping.first_nonzero(), Some(0));
    assert!(!run(policy(None), job(&file, Work::Empty)).is_alone);
    memory_file::set_length(&file, BYTES).unwrap();
    mapping.write(0, b"theirs");
    drop(theirs);
    let done = run(policy(None), job(&file, IN_PLACE));
    done.result.unwrap();
    assert!(done.is_alone);
    assert_eq!(mapping.first_nonzero(), None);
    memory_file::set_length(&file, BYTES / 2).unwrap();
    run(policy(None), job(&file, IN_PLACE)).result.unwrap_err();
}

#[test]
fn a_node_that_is_not_there_is_told() {
    let policy = Policy {
        node: Some(1023),
        ..policy(None)
    };
    let error = run(policy, job(&file(), FILL)).result.unwrap_err();
    assert!(error.to_string().contains("node 1023"), "{error}");
}
