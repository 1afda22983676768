//! The other CPUs: each has an [`Area`] with its stack, is started by [`cpu::Starter`], and
//! then sleeps until there is work in its mailbox.
//!
//! A late CPU is not waited for: it joins when it has started, and runs the work of
//! later calls.

use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use firstlight::addr::{Order, PAGE_BYTES, PhysRange};
use firstlight::clock::Frequency;

use super::sole;
use crate::arch::cpu::{self, Starter};
use crate::arch::{relax, ticks};

pub(crate) use crate::arch::cpu::{FIRST_PAGE_END, own_id};

/// Most CPUs, the first one among them.
pub(crate) const MOST: usize = 1024;
/// Size of a CPU's area: 64 KiB with pages of any size, most of it stack.
pub(crate) const AREA_ORDER: Order = match Order::new((64 * 1024 / PAGE_BYTES).ilog2() as u8) {
    Some(order) => order,
    None => Order::PAGE,
};

/// A CPU's own memory. `entry.s` uses the first two fields.
#[repr(C)]
pub(crate) struct Area {
    /// Firmware's number of the CPU.
    pub(crate) id: u64,
    stack_end: u64,
    /// 1 once the CPU has started, [`REFUSED`] where it does not; stored Release, pairs with the
    /// Acquire before work.
    joined: AtomicU32,
    number: u32,
    /// When it started; written before `joined`.
    joined_ticks: AtomicU64,
    /// Work for it, or null; stored Release, pairs with the Acquire of its CPU.
    mailbox: AtomicPtr<Job<'static>>,
    /// Used by this CPU alone, also while others read the fields above.
    own: UnsafeCell<cpu::Own>,
}

const _: () = assert!(core::mem::offset_of!(Area, stack_end) == 8);

/// What `joined` is where firmware does not start the CPU.
const REFUSED: u32 = 2;

/// Work for several CPUs, on the stack of the caller, which waits for it.
struct Job<'w> {
    work: &'w (dyn Fn(usize) + Sync),
    /// CPUs that are not done; lowered Release, pairs with the Acquire of the caller.
    left: AtomicUsize,
    waiter_id: u64,
}

/// The areas, by number minus one; written before their CPU starts.
static AREAS: [AtomicPtr<Area>; MOST - 1] = [const { AtomicPtr::new(null_mut()) }; MOST - 1];

/// Where `entry.s` finds the areas, and how many, if firmware hands a CPU that starts no value.
#[unsafe(export_name = "cpu_table")]
static TABLE: &[AtomicPtr<Area>; MOST - 1] = &AREAS;
#[unsafe(export_name = "cpu_table_len")]
static LEN: AtomicU32 = AtomicU32::new(0);

/// Number of the CPU this runs on; the first is 0.
pub(crate) fn current() -> usize {
    // SAFETY: null on the first CPU, on others their area, which is never freed.
    unsafe { cpu::area().as_ref() }.map_or(0, |area| area.number as usize)
}

/// The CPUs besides the first one.
pub(crate) struct Cpus {
    starter: Starter,
}

impl Area {
    /// Whether its CPU has started.
    #[cfg(target_arch = "x86_64")]
    pub(in crate::arch) fn has_started(&self) -> bool {
        self.joined.load(Ordering::Acquire) == 1
    }
}

impl Cpus {
    /// No others yet. `page`, below [`FIRST_PAGE_END`] if there is such a limit, is where they
    /// will begin.
    ///
    /// # Safety
    /// The page has no other use, now or later. Called once.
    pub(crate) unsafe fn new(page: PhysRange) -> Self {
        Self {
            // SAFETY: the caller's promise.
            starter: unsafe { Starter::new(page) },
        }
    }

    /// Whether a CPU with this id can be started at all.
    pub(crate) fn can_reach(&self, id: u64) -> bool {
        self.starter.can_reach(id)
    }

    /// Whether a CPU with this id was added.
    pub(crate) fn has(&self, id: u64) -> bool {
        Self::areas().any(|area| area.id == id)
    }

    /// Prepares a CPU; `area` is its memory, of order [`AREA_ORDER`]. None if there is no slot left.
    ///
    /// # Safety
    /// The memory is mapped and has no other use, now or later.
    pub(crate) unsafe fn add(&mut self, id: u64, area: PhysRange) -> Option<usize> {
        let at = LEN.load(Ordering::Relaxed);
        let slot = AREAS.get(at as usize)?;
        let place = area.start().get() as *mut Area;
        // SAFETY: large enough (asserted below), aligned to its size, ours.
        unsafe {
            place.write(Area {
                id,
                stack_end: area.end().get(),
                joined: AtomicU32::new(0),
                number: at + 1,
                joined_ticks: AtomicU64::new(0),
                mailbox: AtomicPtr::new(null_mut()),
                own: UnsafeCell::new(cpu::Own::new()),
            });
        }
        slot.store(place, Ordering::Release);
        LEN.store(at + 1, Ordering::Release);
        Some(at as usize + 1)
    }

    /// All that were added.
    pub(in crate::arch) fn areas() -> impl Iterator<Item = &'static Area> + Clone {
        let len = LEN.load(Ordering::Acquire) as usize;
        // SAFETY: the first `len` were written by `add` and are never freed.
        AREAS
            .iter()
            .take(len)
            .filter_map(|slot| unsafe { slot.load(Ordering::Acquire).as_ref() })
    }

    /// Starts CPUs `numbers`, and waits until all have started or `wait_ns` are over.
    pub(crate) fn start(&self, numbers: core::ops::Range<usize>, hz: Frequency, wait_ns: u64) {
        let wanted = || Self::areas().filter(|area| numbers.contains(&(area.number as usize)));
        let missing = || wanted().filter(|area| area.joined.load(Ordering::Acquire) == 0);
        let wait = |ns: u64| {
            let begin = ticks();
            while ticks().saturating_sub(begin) < hz.ticks(ns) && missing().next().is_some() {
                relax();
            }
        };
        for (step, after_ns) in (0..).zip(Starter::STEPS) {
            for area in missing() {
                if !self.starter.step(step, area) {
                    area.joined.store(REFUSED, Ordering::Release);
                }
            }
            wait(after_ns);
        }
        wait(wait_ns);
    }

    /// CPUs that have started so far, the first one among them.
    pub(crate) fn joined(&self) -> usize {
        1 + Self::areas()
            .filter(|area| area.joined.load(Ordering::Acquire) == 1)
            .count()
    }

    /// Whether the CPU with this number has started.
    pub(crate) fn has_joined(&self, number: usize) -> bool {
        let area = Self::areas().find(|area| area.number as usize == number);
        area.is_some_and(|area| area.joined.load(Ordering::Acquire) == 1)
    }

    /// Numbers of those that have not.
    pub(crate) fn missing(&self) -> impl Iterator<Item = usize> {
        Self::areas()
            .filter(|area| area.joined.load(Ordering::Acquire) == 0)
            .map(|area| area.number as usize)
    }

    /// When the last one so far started, if any did.
    pub(crate) fn last_joined_ticks(&self) -> Option<u64> {
        let joined = Self::areas().filter(|area| area.joined.load(Ordering::Acquire) == 1);
        joined
            .map(|area| area.joined_ticks.load(Ordering::Relaxed))
            .max()
    }

    /// Runs `work` with the number of the CPU on those CPUs that have started and are
    /// `wanted`; returns how many, when all are done.
    pub(crate) fn run(
        &mut self,
        wanted: &dyn Fn(usize) -> bool,
        work: &(dyn Fn(usize) + Sync),
    ) -> usize {
        let job = Job {
            work,
            left: AtomicUsize::new(0),
            waiter_id: own_id(),
        };
        // SAFETY: only the lifetime changes; no CPU uses the job after this function
        // returns, because it waits until `left` is zero.
        let shared = (&raw const job).cast::<Job<'static>>().cast_mut();
        let mut count = 0;
        let ready = Self::areas().filter(|area| area.joined.load(Ordering::Acquire) == 1);
        for area in ready.filter(|area| wanted(area.number as usize)) {
            count += 1;
            job.left.fetch_add(1, Ordering::Relaxed);
            area.mailbox.store(shared, Ordering::Release);
            cpu::wake(area.id);
        }
        if wanted(0) {
            count += 1;
            work(0);
        }
        cpu::sleep_until(|| job.left.load(Ordering::Acquire) == 0);
        count
    }

    /// Stops all others for good; how many had started. They wait for a start as after a reset.
    pub(crate) fn stop(&mut self) -> usize {
        let stopped = AtomicUsize::new(0);
        let count = self.joined() - 1;
        let work = |_| {
            // The last access to memory of this CPU: the stack it is on may go.
            stopped.fetch_add(1, Ordering::Release);
            crate::arch::halt()
        };
        let job = Job {
            work: &work,
            left: AtomicUsize::new(0),
            waiter_id: own_id(),
        };
        // SAFETY: only the lifetime changes; this waits until no CPU uses the job any more.
        let shared = (&raw const job).cast::<Job<'static>>().cast_mut();
        for area in Self::areas().filter(|area| area.joined.load(Ordering::Acquire) == 1) {
            area.mailbox.store(shared, Ordering::Release);
            cpu::wake(area.id);
        }
        while stopped.load(Ordering::Acquire) < count {
            relax();
        }
        // Those that have not started are on their way, perhaps.
        Self::areas().for_each(|area| cpu::stop(area.id));
        count
    }
}

const _: () = assert!(size_of::<Area>() + 32 * 1024 <= AREA_ORDER.bytes() as usize);

/// Called by `entry.s` on every other CPU, on its own stack.
#[unsafe(no_mangle)]
extern "C" fn other_cpu_main(area: *mut Area) -> ! {
    // SAFETY: only this CPU ever uses its own part.
    unsafe {
        let own = sole(UnsafeCell::raw_get(&raw const (*area).own));
        cpu::enter(area, own);
    }
    // SAFETY: it was written by `add` and is never freed.
    let area = unsafe { &*area };
    area.joined_ticks.store(ticks(), Ordering::Relaxed);
    area.joined.store(1, Ordering::Release);
    loop {
        cpu::sleep_until(|| !area.mailbox.load(Ordering::Relaxed).is_null());
        let job = area.mailbox.swap(null_mut(), Ordering::Acquire);
        // SAFETY: the caller of `run` waits until `left` is zero, and this CPU is counted there.
        let Some(Job {
            work,
            left,
            waiter_id,
        }) = (unsafe { job.as_ref() })
        else {
            continue;
        };
        let waiter = *waiter_id;
        work(area.number as usize);
        // The job may be gone from here on.
        left.fetch_sub(1, Ordering::Release);
        cpu::wake(waiter);
    }
}
