//! Threads over all operations of the allocator, with an owner's mark on every frame, while memory
//! comes and goes.
//!
//! Every few seconds all threads meet: everything is recounted, and frames free, held and
//! cached must add up to the memory there is. Some seconds of it run with the other tests;
//! `make stress MINUTES=120` runs it for as long as requested. To add an operation, add a row to
//! [`OPERATIONS`]; to add a machine, one to [`machines`].

mod coming;
mod worker;
mod yard;

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant, SystemTime};

use firstlight::addr::Order;
use worker::{OPERATIONS, Worker};
use yard::{Yard, machines};

/// Rounds on one machine, before all is freed and the next machine's turn.
const MEETINGS: u32 = 3;

/// Until when threads run, and what then.
#[derive(Clone, Copy)]
struct Round {
    end: Instant,
    free_all: bool,
}

/// Where all threads meet.
struct Meeting {
    barrier: Barrier,
    round: Mutex<Round>,
    over: AtomicBool,
}

/// Ends the program when a thread stops on a failed check: the others would wait for it.
struct EndWith(u64);

impl Drop for EndWith {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!(
                "stress: FAILED; FIRSTLIGHT_STRESS_SEED={} repeats the choices",
                self.0
            );
            exit(101);
        }
    }
}

fn setting(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |value| value.parse().expect("a number"))
}

/// One machine's turn: threads work and meet. Counts of all operations.
fn turn(yard: &Yard, threads: usize, seed: u64, each: Duration) -> Vec<u64> {
    let meeting = Meeting {
        barrier: Barrier::new(threads + 1),
        round: Mutex::new(Round {
            end: Instant::now() + each,
            free_all: false,
        }),
        over: AtomicBool::new(false),
    };
    let done = Mutex::new(vec![0; OPERATIONS.len()]);
    std::thread::scope(|scope| {
        for index in 0..threads {
            let (meeting, done) = (&meeting, &done);
            scope.spawn(move || {
                let _end = EndWith(seed);
                let mut worker = Worker::new(yard, index, seed);
                while !meeting.over.load(Relaxed) {
                    let round = *meeting.round.lock().unwrap();
                    worker.run(round);
                    meeting.barrier.wait();
                    meeting.barrier.wait();
                }
                let mut sum = done.lock().unwrap();
                sum.iter_mut()
                    .zip(worker.done)
                    .for_each(|(sum, done)| *sum += done);
            });
        }
        let _end = EndWith(seed);
        for count in 1..=MEETINGS {
            meeting.barrier.wait();
            let last = count == MEETINGS;
            let orders = u64::from(Order::HUGE.get()) + 1;
            let order = u8::try_from((seed + u64::from(count)) % orders).unwrap();
            let order = Order::new(order).unwrap();
            yard.check(last, order);
            *meeting.round.lock().unwrap() = Round {
                end: Instant::now() + each,
                free_all: count + 1 == MEETINGS,
            };
            meeting.over.store(last, Relaxed);
            meeting.barrier.wait();
        }
    });
    done.into_inner().unwrap()
}

fn stress(seconds: u64, each: Duration) {
    let threads = usize::try_from(setting("FIRSTLIGHT_STRESS_THREADS", 4)).unwrap();
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let seed = setting("FIRSTLIGHT_STRESS_SEED", now.as_secs());
    let _end = EndWith(seed);
    let (begin, yards) = (Instant::now(), machines(threads));
    let mut done = vec![0; OPERATIONS.len()];
    let mut turns = 0;
    while turns < yards.len() as u64 || begin.elapsed() < Duration::from_secs(seconds) {
        let yard = &yards[usize::try_from(turns).unwrap() % yards.len()];
        let more = turn(yard, threads, seed + turns * 1000, each);
        done.iter_mut()
            .zip(more)
            .for_each(|(sum, more)| *sum += more);
        turns += 1;
        let (all, elapsed) = (done.iter().sum::<u64>(), begin.elapsed().as_secs());
        println!(
            "stress: {elapsed:5} s, {}: {all} operations, all well",
            yard.name
        );
    }
    for ((_, name, _), count) in OPERATIONS.iter().zip(&done) {
        println!("stress: {count:12} {name}");
    }
    for yard in &yards {
        let changes = yard.changes.load(Relaxed);
        println!(
            "stress: {changes:12} times memory came or went, {}",
            yard.name
        );
        println!(
            "stress: {:12} isolations taken, {}",
            yard.isolated.load(Relaxed),
            yard.name
        );
        assert!(changes > 0 || cfg!(miri));
    }
    println!(
        "stress: {} operations of {threads} threads, {} checkpoints, {} s, seed {seed}",
        done.iter().sum::<u64>(),
        turns * u64::from(MEETINGS),
        begin.elapsed().as_secs()
    );
}

#[test]
fn some_seconds_of_everything_at_once() {
    stress(0, Duration::from_millis(if cfg!(miri) { 1 } else { 600 }));
}

#[test]
#[ignore = "minutes: make stress"]
fn for_the_requested_time() {
    stress(
        setting("FIRSTLIGHT_STRESS_SECONDS", 60),
        Duration::from_secs(2),
    );
}
