//! The least cost of freeing random pages of 16 GiB, whatever the allocator: a locked step on a
//! page's bit, and another on its huge frame's count, in lines that all CPUs write.
//!
//! `cargo run --release -p firstlight-bench --example locked_words [THREADS]`. The figures of
//! `firstlight bench alloc --workload random-free` contain this, the check that the page
//! is allocated, and the per-CPU cache before it.
#![expect(clippy::print_stdout, reason = "it prints a table")]

use std::error::Error;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use firstlight_figures::random::Random;

const HUGE_FRAMES: usize = 512;
const HUGES: usize = 8192;
/// How many pages ahead lines are fetched, as the engine does.
const AHEAD: usize = 16;
const ROUNDS: usize = 7;

/// One bit a page.
#[repr(align(64))]
struct Row([AtomicU64; HUGE_FRAMES / 64]);

struct Words {
    rows: Vec<Row>,
    counts: Vec<AtomicU32>,
}

#[derive(Clone, Copy)]
struct Kind {
    counted: bool,
    fetched_ahead: bool,
}

impl Words {
    /// All pages held.
    fn new() -> Self {
        let row = |_| Row(std::array::from_fn(|_| AtomicU64::new(!0)));
        Self {
            rows: (0..HUGES).map(row).collect(),
            counts: (0..HUGES).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn free(&self, page: usize, kind: Kind) {
        let (huge, at) = (page / HUGE_FRAMES, page % HUGE_FRAMES);
        let bit = 1 << (at % 64);
        // Both use the old value, as an allocator does.
        let held = |word: u64| (word & bit != 0).then_some(word & !bit);
        let word = &self.rows[huge].0[at / 64];
        let freed = word.fetch_update(Ordering::Release, Ordering::Relaxed, held);
        assert!(freed.is_ok(), "double free of page {page}");
        if kind.counted {
            let more = |count| ((count as usize) < HUGE_FRAMES).then_some(count + 1);
            let counted = self.counts[huge].fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
            assert!(
                counted.is_ok(),
                "huge frame {huge} has more pages than it can have"
            );
        }
    }

    fn fetch(&self, page: usize, kind: Kind) {
        prefetch(&self.rows[page / HUGE_FRAMES]);
        if kind.counted {
            prefetch(&self.counts[page / HUGE_FRAMES]);
        }
    }

    fn give_all(&self, pages: &[usize], kind: Kind) {
        for (index, &page) in pages.iter().enumerate() {
            if kind.fetched_ahead
                && let Some(&next) = pages.get(index + AHEAD)
            {
                self.fetch(next, kind);
            }
            self.free(page, kind);
        }
    }
}

/// Prefetches a line that will be written.
fn prefetch<T>(word: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction changes no memory and cannot fault.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) word, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

/// Nanoseconds a page, all threads at once; the least of all rounds.
fn least_ns(pages: &[usize], threads: usize, kind: Kind) -> f64 {
    let each = pages.len().div_ceil(threads);
    let round = || {
        let (words, gate) = (Words::new(), Barrier::new(threads));
        let one = |pages: &[usize]| {
            gate.wait();
            let start = Instant::now();
            words.give_all(pages, kind);
            start.elapsed().as_secs_f64() * 1e9 / pages.len() as f64
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = pages
                .chunks(each)
                .map(|pages| scope.spawn(|| one(pages)))
                .collect();
            let times = workers.into_iter().filter_map(|thread| thread.join().ok());
            times.sum::<f64>() / threads as f64
        })
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), Box<dyn Error>> {
    let most = std::env::args().nth(1).map_or(Ok(2), |text| text.parse())?;
    let mut pages: Vec<usize> = (0..HUGES * HUGE_FRAMES).collect();
    Random::new(1).shuffle(&mut pages);
    println!(
        "| threads | bit | bit, fetched ahead | bit and count | bit and count, fetched ahead |"
    );
    println!("|---|---|---|---|---|");
    for threads in 1..=most {
        print!("| {threads} |");
        for counted in [false, true] {
            for fetched_ahead in [false, true] {
                let kind = Kind {
                    counted,
                    fetched_ahead,
                };
                print!(" {:.1} ns |", least_ns(&pages, threads, kind));
            }
        }
        println!();
    }
    Ok(())
}
