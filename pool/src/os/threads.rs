//! Threads that are begun before they are needed, by a thread of their own.
//!
//! The kernel begins no thread while a process is moved between cgroups, which any process may do to itself where
//! it has a cgroup of its own. A thread that others wait for must not wait for that: it takes one that is ready,
//! or hears that none is.

use super::background;
use rustix::thread::set_name;
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
#[cfg(test)]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Threads that are ready at first, where they can be had, and at most after that.
pub const READY: usize = 32;

/// Where fewer are, others are begun.
const LEAST: usize = 24;

/// Of these, so many are left to what cannot wait.
const RESERVED: usize = READY / 2;

/// Before another attempt where no thread could be had.
const PAUSE: Duration = Duration::from_millis(50);

struct Task {
    name: CString,
    run: Box<dyn FnOnce() + Send>,
    /// Whether its thread is as before once it is done.
    is_plain: bool,
}

#[derive(Default)]
struct State {
    /// Threads that have no task, or are about to take one that cannot wait.
    idle: usize,
    /// Each of these has a thread.
    now: VecDeque<Task>,
    /// These wait for one.
    later: VecDeque<Task>,
    /// The last attempt to begin one failed.
    fails: bool,
    is_over: bool,
}

impl State {
    /// Threads without a task.
    fn free(&self) -> usize {
        self.idle - self.now.len()
    }

    fn next(&mut self) -> Option<Task> {
        // One that has just begun may not be counted yet.
        let is_spare = self.free() > RESERVED || self.fails && self.free() > 0;
        let later = || is_spare.then(|| self.later.pop_front()).flatten();
        self.now.pop_front().or_else(later)
    }

    fn lacks_any(&self) -> bool {
        self.free() < LEAST + self.later.len()
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is a task.
    tasks: Condvar,
    /// Fewer threads than there should be are ready.
    lacking: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.next() {
                state.idle -= 1;
                if state.lacks_any() {
                    self.lacking.notify_one();
                }
                drop(state);
                let _ = set_name(&task.name);
                (task.run)();
                let _ = set_name(c"ready");
                state = self.lock();
                if !task.is_plain || state.idle >= READY {
                    return;
                }
                state.idle += 1;
            } else if state.is_over {
                return;
            } else {
                let changed = self.tasks.wait(state);
                state = changed.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Sees to it that enough are ready.
    fn begin_all(self: &Arc<Self>, mut begin: impl FnMut(Arc<Self>) -> io::Result<()>) {
        let mut state = self.lock();
        while !state.is_over {
            if !state.lacks_any() {
                let changed = self.lacking.wait(state);
                state = changed.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            drop(state);
            let begun = begin(Arc::clone(self));
            state = self.lock();
            state.fails = begun.is_err();
            if begun.is_ok() {
                state.idle += 1;
                self.tasks.notify_one();
            } else {
                self.tasks.notify_all();
                let paused = self.lacking.wait_timeout(state, PAUSE);
                state = paused.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

fn begin(shared: Arc<Shared>) -> io::Result<()> {
    let begun = thread::Builder::new().name("ready".into());
    let work = move || {
        // The thread that begins it may have more weight.
        let _ = background::run_nicely(0);
        shared.work();
    };
    begun.spawn(work).map(drop)
}

/// Where threads are taken.
pub struct Threads(Arc<Shared>);

impl Threads {
    /// Begins [`READY`] threads, or as many as there can be, and one that begins others in their place.
    ///
    /// # Errors
    /// There is not even one.
    pub fn new() -> io::Result<Self> {
        Self::with(begin)
    }

    fn with(
        mut begin: impl FnMut(Arc<Shared>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let threads = Self(Arc::default());
        for number in 0..READY {
            match begin(Arc::clone(&threads.0)) {
                Ok(()) => threads.0.lock().idle += 1,
                Err(error) if number == 0 => return Err(error),
                Err(_) => break,
            }
        }
        let shared = Arc::clone(&threads.0);
        thread::Builder::new()
            .name("threads".into())
            .spawn(move || {
                // As threads that clients wait for: one that is lacking is waited for.
                let _ = background::run_before_others();
                shared.begin_all(begin);
            })?;
        Ok(threads)
    }

    /// Those that are ready, and no others while there are to be no more.
    #[cfg(test)]
    pub(crate) fn no_more() -> (Self, Arc<AtomicBool>) {
        let (mut begun, are_more) = (0, Arc::new(AtomicBool::new(false)));
        let may_begin = Arc::clone(&are_more);
        let begin = move |shared| {
            if begun >= READY && !may_begin.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            begun += 1;
            begin(shared)
        };
        (Self::with(begin).unwrap(), are_more)
    }

    /// Runs a task at once on a thread that is ready, and ends with it.
    ///
    /// # Errors
    /// None is.
    pub fn start(&self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.free() == 0 {
            return Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                "no thread is ready",
            ));
        }
        state.now.push_back(task(name, false, run));
        self.0.tasks.notify_one();
        Ok(())
    }

    /// Runs a task, which leaves its thread as it was, as soon as there is a thread that nothing else will need first.
    pub fn start_soon(&self, name: &str, run: impl FnOnce() + Send + 'static) {
        let mut state = self.0.lock();
        state.later.push_back(task(name, true, run));
        self.0.tasks.notify_one();
        if state.lacks_any() {
            self.0.lacking.notify_one();
        }
    }
}

fn task(name: &str, is_plain: bool, run: impl FnOnce() + Send + 'static) -> Task {
    Task {
        name: CString::new(name).unwrap_or_default(),
        run: Box::new(run),
        is_plain,
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.tasks.notify_all();
        self.0.lacking.notify_all();
    }
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Threads").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::time::Instant;

    const SOON: Duration = Duration::from_secs(60);

    /// Tasks that end when this is dropped.
    struct Held(Vec<mpsc::Sender<()>>);

    impl Held {
        /// So many, or as many as there are threads for.
        fn of(threads: &Threads, most: usize) -> Self {
            let mut held = Self(Vec::new());
            while held.0.len() < most && held.another(threads) {}
            held
        }

        fn another(&mut self, threads: &Threads) -> bool {
            let (go_on, goes_on) = mpsc::channel::<()>();
            let holds = move || {
                let _ = goes_on.recv();
            };
            let is_begun = threads.start("held", holds).is_ok();
            self.0.extend(is_begun.then_some(go_on));
            is_begun
        }
    }

    #[test]
    fn a_thread_that_cannot_begin_keeps_no_task_waiting_that_has_one() {
        let (let_begin, may_begin) = mpsc::channel::<()>();
        let mut begun = 0;
        let threads = Threads::with(move |shared| {
            if begun >= READY {
                // As where a process is moved between cgroups.
                let _ = may_begin.recv();
            }
            begun += 1;
            begin(shared)
        })
        .unwrap();
        // What may wait leaves enough of them to what may not.
        let (tell, told) = mpsc::channel();
        let tells = |number: usize| {
            let tell = tell.clone();
            threads.start_soon("tells", move || tell.send(number).unwrap());
        };
        let held = Held::of(&threads, READY - RESERVED - 1);
        tells(1);
        assert_eq!(told.recv_timeout(SOON), Ok(1));
        let mut more = Held::of(&threads, 1);
        tells(2);
        let waits = told.recv_timeout(Duration::from_millis(20));
        assert_eq!(waits, Err(RecvTimeoutError::Timeout));
        while more.another(&threads) {}
        assert_eq!(held.0.len() + more.0.len(), READY, "each was there");
        let error = threads.start("none", || ()).unwrap_err();
        assert_eq!(error.to_string(), "no thread is ready");
        for _ in 0..=READY + 1 {
            let_begin.send(()).unwrap();
        }
        assert_eq!(told.recv_timeout(SOON), Ok(2));
        let (begin, mut last) = (Instant::now(), Held(Vec::new()));
        while last.0.len() < RESERVED {
            assert!(begin.elapsed() < SOON, "no other begins");
            if !last.another(&threads) {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn where_no_other_can_be_had_the_last_ones_do_what_may_wait() {
        let (threads, _) = Threads::no_more();
        let held = Held::of(&threads, READY - 1);
        let (tell, told) = mpsc::channel();
        for number in 0..3 {
            let tell = tell.clone();
            threads.start_soon("tells", move || tell.send(number).unwrap());
            assert_eq!(told.recv_timeout(SOON), Ok(number));
        }
        drop(held);
        let fails = Threads::with(|_| Err(io::ErrorKind::WouldBlock.into()));
        assert!(fails.is_err());
    }

    #[test]
    fn no_thread_is_left_of_threads_that_are_needed_no_more() {
        let (tell, told) = mpsc::channel::<()>();
        let threads = Threads::with(move |shared| {
            let tell = tell.clone();
            let works = move || {
                shared.work();
                drop(tell);
            };
            thread::Builder::new().spawn(works).map(drop)
        })
        .unwrap();
        drop(threads);
        let begin = Instant::now();
        assert_eq!(told.recv_timeout(SOON), Err(RecvTimeoutError::Disconnected));
        assert!(begin.elapsed() < SOON);
    }
}
