//! Work on threads that stay on their CPU.
//!
//! [`on_cpus`] starts one thread for each CPU named, pins it, runs the work and
//! waits. A CPU the process may not use (a container's limits, an offline CPU)
//! is no error: the thread runs on any CPU, and its [`Outcome`] has the reason.

use std::io;
use std::mem;
use std::thread;

/// The result of one thread.
#[derive(Debug)]
pub struct Outcome<T> {
    /// The CPU it was to run on.
    pub cpu: u32,
    /// Whether the thread was pinned there, or why not.
    pub pinned: io::Result<()>,
    /// The value that the work returned.
    pub value: T,
}

/// Runs `work(index, cpu)` once for each of `cpus`, all at the same time, each
/// on a thread of its own pinned to that CPU; returns in the order of `cpus`.
///
/// A panic of the work is passed on.
///
/// ```
/// use firstlight_host::threads;
/// let cpus = threads::allowed_cpus()?;
/// let outcomes = threads::on_cpus(&cpus, |index, cpu| (index, cpu))?;
/// assert_eq!(outcomes.len(), cpus.len());
/// assert_eq!(outcomes[0].value, (0, cpus[0]));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// When a thread cannot be started. Those already started are joined, so the work
/// must not wait for all of them (a barrier) without a time limit.
pub fn on_cpus<T: Send>(
    cpus: &[u32],
    work: impl Fn(usize, u32) -> T + Sync,
) -> io::Result<Vec<Outcome<T>>> {
    let work = &work;
    thread::scope(|scope| {
        let mut handles = Vec::with_capacity(cpus.len());
        for (index, &cpu) in cpus.iter().enumerate() {
            let builder = thread::Builder::new().name(format!("cpu{cpu}"));
            handles.push(builder.spawn_scoped(scope, move || {
                let pinned = pin_current(cpu);
                Outcome {
                    cpu,
                    pinned,
                    value: work(index, cpu),
                }
            })?);
        }
        let join = |handle: thread::ScopedJoinHandle<'_, Outcome<T>>| {
            handle
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok(handles.into_iter().map(join).collect())
    })
}

/// Bits in one word of the kernel's CPU mask.
const WORD_BITS: usize = mem::size_of::<libc::c_ulong>() * 8;
/// Most CPUs that are looked up; Linux x86-64 is built for at most 8,192.
const MOST_CPUS: usize = 1 << 16;

/// Pins the calling thread to `cpu`.
///
/// # Errors
/// The operating system's refusal; `InvalidInput` for a CPU number above 65,535.
pub fn pin_current(cpu: u32) -> io::Result<()> {
    let cpu = usize::try_from(cpu).unwrap_or(usize::MAX);
    if cpu >= MOST_CPUS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut mask: Vec<libc::c_ulong> = vec![0; cpu / WORD_BITS + 1];
    mask[cpu / WORD_BITS] = 1 << (cpu % WORD_BITS);
    let bytes = mem::size_of_val(mask.as_slice());
    // SAFETY: the mask is `bytes` readable bytes; the kernel reads no more.
    // Thread 0 names the caller.
    let result = unsafe { libc::sched_setaffinity(0, bytes, mask.as_ptr().cast()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The CPUs this thread may run on, ascending.
///
/// # Errors
/// The operating system's refusal.
pub fn allowed_cpus() -> io::Result<Vec<u32>> {
    let mut words = 1024 / WORD_BITS;
    loop {
        let mut mask: Vec<libc::c_ulong> = vec![0; words];
        let bytes = mem::size_of_val(mask.as_slice());
        // SAFETY: the mask is `bytes` writable bytes; the kernel writes no
        // more and refuses with EINVAL when its own mask is longer.
        let result = unsafe { libc::sched_getaffinity(0, bytes, mask.as_mut_ptr().cast()) };
        if result >= 0 {
            let set = |cpu: &usize| mask[cpu / WORD_BITS] >> (cpu % WORD_BITS) & 1 == 1;
            return Ok((0..words * WORD_BITS)
                .filter(set)
                .filter_map(|cpu| u32::try_from(cpu).ok())
                .collect());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) || words * WORD_BITS >= MOST_CPUS {
            return Err(error);
        }
        words *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_thread_runs_once_on_its_cpu() {
        let cpus = allowed_cpus().unwrap();
        let ran = AtomicUsize::new(0);
        let outcomes = on_cpus(&cpus, |index, cpu| {
            ran.fetch_add(1, Ordering::Relaxed);
            (index, cpu, allowed_cpus().unwrap())
        })
        .unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), cpus.len());
        for (index, outcome) in outcomes.iter().enumerate() {
            assert!(outcome.pinned.is_ok());
            assert_eq!(outcome.value, (index, cpus[index], vec![cpus[index]]));
        }
    }

    #[test]
    fn a_refused_cpu_is_reported_and_the_work_still_runs() {
        let outcomes = on_cpus(&[65_535, u32::MAX], |index, _| index).unwrap();
        assert!(outcomes.iter().all(|outcome| outcome.pinned.is_err()));
        assert_eq!(outcomes[1].value, 1);
    }
}
