//! Lives of the daemon, played from one seed: clients of users with all kinds of limits, on one
//! node or two, in some lives hundreds of them; a clock that jumps, pages that run out, a machine
//! that is short of memory, work that is slow, interrupted or fails, a journal that cannot be
//! written, a service manager that forgets, a daemon that is stopped, or killed between any two
//! actions, and started again.
//!
//! - `world.rs`: what outlives the daemon; `users.rs`: whose limits hold for whom;
//! - `daemon.rs` carries the machine's actions out on that; `restart.rs` has the next daemon take
//!   it over;
//! - `life.rs`, `happenings.rs`, `grants.rs`: what happens;
//! - `books.rs` counts, without the machine, what is to be charged to each account;
//! - `checks.rs` says what is always true, and is asked after each step; `replies.rs` what each
//!   reply may be.
//!
//! A failure prints its seed, and the shortest life with the fewest kinds of faults that still
//! fails.
//!
//! `FIRSTLIGHT_SIMULATE_SECONDS` plays that long (`make simulate`), `FIRSTLIGHT_SEED` one life.

mod books;
mod checks;
mod daemon;
mod grants;
mod happenings;
mod life;
mod replies;
mod restart;
mod users;
mod world;

use life::{Faults, Life};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Lives that are played where no time is given.
const LIVES: u64 = 300;

/// A life to be played.
#[derive(Debug, Clone, Copy)]
struct Plan {
    seed: u64,
    steps: usize,
    faults: Faults,
}

impl Plan {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            steps: usize::MAX,
            faults: Faults::ALL,
        }
    }

    /// Plays it: how many steps, or after how many what was not true.
    fn play(self) -> Result<usize, (usize, String)> {
        let mut life = Life::new(self.seed, self.faults);
        let played = catch_unwind(AssertUnwindSafe(|| life.play(self.steps)));
        match played {
            Ok(()) => Ok(life.steps()),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
                Err((life.steps(), text.unwrap_or_default()))
            }
        }
    }

    /// The shortest life, with the fewest kinds of faults, that still fails.
    fn shrink(mut self) -> (Self, String) {
        let mut why = String::new();
        if let Err((steps, text)) = self.play() {
            (self.steps, why) = (steps.min(self.steps), text);
        }
        for fault in Faults::ALL.each() {
            let less = Self {
                faults: self.faults.without(fault),
                steps: usize::MAX,
                ..self
            };
            if let Err((steps, text)) = less.play() {
                why = text;
                self = Self { steps, ..less };
            }
        }
        (self, why)
    }
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

#[test]
fn lives_from_seeds() {
    // What fails is reported once, at the end; what fails in other tests meanwhile, as ever.
    let (here, before) = (std::thread::current().id(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() != here {
            before(panic);
        }
    }));
    let one = setting("FIRSTLIGHT_SEED");
    let seconds = setting("FIRSTLIGHT_SIMULATE_SECONDS");
    let begin = Instant::now();
    let goes_on = |lives: u64| match (one, seconds) {
        (Some(_), _) => lives < 1,
        (_, Some(seconds)) => begin.elapsed() < Duration::from_secs(seconds),
        _ => lives < LIVES,
    };
    let (mut lives, mut steps) = (0, 0);
    let mut failed = None;
    while goes_on(lives) && failed.is_none() {
        let plan = Plan::new(one.unwrap_or(lives));
        match plan.play() {
            Ok(played) => steps += played,
            Err(_) => failed = Some(plan),
        }
        lives += 1;
    }
    let spent = begin.elapsed();
    let failed = failed.map(|plan| (plan.seed, plan.shrink()));
    let _ = std::panic::take_hook();
    if let Some((seed, (plan, why))) = failed {
        panic!(
            "FIRSTLIGHT_SEED={seed}, found in {spent:?}: {why}\n\
             It fails after {} steps with {:?}.",
            plan.steps, plan.faults
        );
    }
    eprintln!("{lives} lives, {steps} steps in {spent:?}");
}
