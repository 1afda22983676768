//! The yardstick's spin lock, [`Lock`], and memory that no cache line shares,
//! [`Line`].

use core::hint::spin_loop;
use spin::mutex::{SpinMutex, SpinMutexGuard};

/// On cache lines of its own, the neighbour that the processor fetches included.
#[derive(Debug)]
#[repr(align(128))]
pub struct Line<T>(pub T);

/// Looks at a lock before its holder is taken to have lost its CPU: far more than
/// one that runs lets others wait.
const PATIENCE: u32 = 1 << 10;

/// A test-and-test-and-set lock.
///
/// Where threads have to share CPUs, its holder may be one that is not running;
/// whoever spins then keeps it from running. So who has looked in vain for long
/// gives way, in a manner that only the platform knows.
#[derive(Debug)]
pub struct Lock<T> {
    value: Line<SpinMutex<T>>,
    give_way: fn(),
}

impl<T> Lock<T> {
    /// Around `value`. `give_way` lets another thread have this CPU; where each has
    /// its own, [`spin_loop`] will do.
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
        let mut looks = 0;
        loop {
            if let Some(guard) = self.value.0.try_lock_weak() {
                return guard;
            }
            while self.value.0.is_locked() {
                spin_loop();
                looks += 1;
                if looks == PATIENCE {
                    looks = 0;
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
    fn who_waits_in_vain_gives_way() {
        static GAVE_WAY: AtomicUsize = AtomicUsize::new(0);
        let lock = Lock::new(1, || {
            GAVE_WAY.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
        });
        *lock.lock() += 1;
        assert_eq!(GAVE_WAY.load(Ordering::Relaxed), 0, "nobody had it");
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
