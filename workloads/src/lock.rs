//! The yardstick's spin lock, [`Lock`], and memory that no cache line shares,
//! [`Line`].

use core::hint::spin_loop;
use spin::mutex::{SpinMutex, SpinMutexGuard};

/// On cache lines of its own: a pair, because processors prefetch the second.
#[derive(Debug)]
#[repr(align(128))]
pub struct Line<T>(pub T);

/// Iterations of the spin loop after which the holder probably has no CPU: far more
/// than a running holder needs.
const PATIENCE: u32 = 1 << 10;

/// A test-and-test-and-set lock.
///
/// Where there are more threads than CPUs, the holder may not be running, and spinning
/// would keep it from running. A long wait therefore yields the CPU, in a way that only
/// the platform knows.
#[derive(Debug)]
pub struct Lock<T> {
    value: Line<SpinMutex<T>>,
    give_way: fn(),
}

impl<T> Lock<T> {
    /// Around `value`. `give_way` yields the CPU to another thread; where each has its
    /// own, [`spin_loop`] will do.
    ///
    /// ```
    /// use firstlight_workloads::lock::Lock;
    /// let lock = Lock::new(7, std::thread::yield_now);
    /// *lock.lock() += 1;
    /// assert_eq!(*lock.lock(), 8);
    /// ```
    pub fn new(value: T, give_way: fn()) -> Self {
        let value = Line(SpinMutex::new(value));
        Self { value, give_way }
    }

    /// Waits until it is free.
    #[inline]
    pub fn lock(&self) -> SpinMutexGuard<'_, T> {
        let mut spins = 0;
        loop {
            if let Some(guard) = self.value.0.try_lock_weak() {
                return guard;
            }
            while self.value.0.is_locked() {
                spin_loop();
                spins += 1;
                if spins == PATIENCE {
                    spins = 0;
                    (self.give_way)();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn a_long_wait_yields_the_cpu() {
        static GAVE_WAY: AtomicUsize = AtomicUsize::new(0);
        let lock = Lock::new(1, || {
            GAVE_WAY.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
        });
        *lock.lock() += 1;
        assert_eq!(GAVE_WAY.load(Ordering::Relaxed), 0, "it was free");
        let begun = Barrier::new(2);
        thread::scope(|scope| {
            let held = lock.lock();
            let waiting = scope.spawn(|| {
                begun.wait();
                *lock.lock()
            });
            begun.wait();
            // A lock that only spins never gets here.
            while GAVE_WAY.load(Ordering::Relaxed) < 3 {
                thread::yield_now();
            }
            drop(held);
            assert_eq!(waiting.join().expect("it does not panic"), 2);
        });
    }
}
