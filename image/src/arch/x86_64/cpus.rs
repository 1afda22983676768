//! The other CPUs: each has an [`Area`] with its stack, is started by
//! INIT-SIPI-SIPI, and then waits, halted, for work in its mailbox.
//!
//! Nobody waits for a CPU that is late: it joins when it comes, and gets the
//! work that is given out after that.

use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use firstlight::addr::{Order, PhysRange};
use firstlight::clock::Frequency;
use x86_64::VirtAddr;
use x86_64::instructions::interrupts;
use x86_64::registers::model_specific::GsBase;

use super::segments::{Segments, WAKE_VECTOR};
use super::{apic, relax, ticks, vector};

/// Most CPUs, the first one among them.
pub(crate) const MOST: usize = 1024;
/// What a CPU's area takes from the frame allocator: 64 KiB, its stack most of it.
pub(crate) const AREA_ORDER: Order = match Order::new(4) {
    Some(order) => order,
    None => Order::PAGE,
};

/// How long after INIT a CPU may be started (the 10 ms of the first
/// multiprocessor PCs are long over), and how long a start may take before it is
/// asked a second time.
const AFTER_INIT_NS: u64 = 100_000;
const AFTER_STARTUP_NS: u64 = 200_000;

/// What a CPU has of its own. `entry.s` knows the first two fields.
#[repr(C)]
struct Area {
    apic_id: u32,
    /// 1 once the CPU has come; Release by it, Acquire by who gives it work.
    joined: AtomicU32,
    stack_end: u64,
    number: u32,
    /// When it came; written before `joined`.
    joined_ticks: AtomicU64,
    /// Work for it, or null. Release by who gives, Acquire by the CPU.
    mailbox: AtomicPtr<Job<'static>>,
    /// Used by this CPU alone, also while others look at the fields above.
    segments: UnsafeCell<Segments>,
}

const _: () = assert!(core::mem::offset_of!(Area, stack_end) == 8);

/// Work for several CPUs, on the stack of who waits for it.
struct Job<'w> {
    work: &'w (dyn Fn(usize) + Sync),
    /// CPUs that are not done. Release by each, Acquire by who waits.
    left: AtomicUsize,
    waiter_apic_id: u32,
}

/// The areas, by number minus one; read by `entry.s`, written before its CPU starts.
static AREAS: [AtomicPtr<Area>; MOST - 1] = [const { AtomicPtr::new(null_mut()) }; MOST - 1];

/// Where `entry.s` finds the areas, and how many.
#[unsafe(export_name = "cpu_table")]
static TABLE: &[AtomicPtr<Area>; MOST - 1] = &AREAS;
#[unsafe(export_name = "cpu_table_len")]
static LEN: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    static trampoline: u8;
    static trampoline_end: u8;
}

/// Number of the CPU this runs on; the first is 0.
pub(crate) fn current() -> usize {
    let area = GsBase::read().as_ptr::<Area>();
    // SAFETY: zero on the first CPU, on others their area, which stays.
    unsafe { area.as_ref() }.map_or(0, |area| area.number as usize)
}

/// This CPU's APIC id.
pub(crate) fn own_id() -> u32 {
    apic::own_id()
}

/// The CPUs there are besides the first one.
pub(crate) struct Cpus {
    trampoline_page: u64,
}

impl Cpus {
    /// No others yet. `page`, below 1 MiB, is where they will begin.
    ///
    /// # Safety
    /// The page belongs to nobody else, now and later. Called once.
    pub(crate) unsafe fn new(page: PhysRange) -> Self {
        let start = page.start().get();
        let (from, to) = (&raw const trampoline, &raw const trampoline_end);
        // SAFETY: the code is shorter than a page, the page is ours and mapped.
        unsafe {
            core::ptr::copy_nonoverlapping(from, start as *mut u8, to as usize - from as usize);
        }
        apic::silence_old_controllers();
        apic::enable();
        interrupts::enable();
        Self {
            trampoline_page: start,
        }
    }

    /// Whether a CPU with this id can be started at all.
    pub(crate) fn can_reach(&self, apic_id: u32) -> bool {
        apic::can_reach(apic_id)
    }

    /// Whether a CPU with this id was added.
    pub(crate) fn has(&self, apic_id: u32) -> bool {
        Self::areas().any(|area| area.apic_id == apic_id)
    }

    /// Prepares a CPU; `area` is its memory, of order [`AREA_ORDER`]. None if there is no slot left.
    ///
    /// # Safety
    /// The memory is mapped and belongs to nobody else, now and later.
    pub(crate) unsafe fn add(&mut self, apic_id: u32, area: PhysRange) -> Option<usize> {
        let at = LEN.load(Ordering::Relaxed);
        let slot = AREAS.get(at as usize)?;
        let place = area.start().get() as *mut Area;
        // SAFETY: large enough (asserted below), aligned to its size, ours.
        unsafe {
            place.write(Area {
                apic_id,
                joined: AtomicU32::new(0),
                stack_end: area.end().get(),
                number: at + 1,
                joined_ticks: AtomicU64::new(0),
                mailbox: AtomicPtr::new(null_mut()),
                segments: UnsafeCell::new(Segments::new()),
            });
        }
        slot.store(place, Ordering::Release);
        LEN.store(at + 1, Ordering::Release);
        Some(at as usize + 1)
    }

    /// All that were added.
    fn areas() -> impl Iterator<Item = &'static Area> + Clone {
        let len = LEN.load(Ordering::Acquire) as usize;
        // SAFETY: the first `len` were written by `add` and stay.
        AREAS
            .iter()
            .take(len)
            .filter_map(|slot| unsafe { slot.load(Ordering::Acquire).as_ref() })
    }

    /// Starts CPUs `numbers`, and waits until all have come or `wait_ns` are over.
    pub(crate) fn start(&self, numbers: core::ops::Range<usize>, hz: Frequency, wait_ns: u64) {
        let wanted = || Self::areas().filter(|area| numbers.contains(&(area.number as usize)));
        let missing = || wanted().filter(|area| area.joined.load(Ordering::Acquire) == 0);
        let wait = |ns: u64| {
            let begin = ticks();
            while ticks().saturating_sub(begin) < hz.ticks(ns) && missing().next().is_some() {
                relax();
            }
        };
        wanted().for_each(|area| apic::init(area.apic_id));
        wait(AFTER_INIT_NS);
        wanted().for_each(|area| apic::startup(area.apic_id, self.trampoline_page));
        wait(AFTER_STARTUP_NS);
        // Once more for those that missed it; one that is up takes no notice.
        missing().for_each(|area| apic::startup(area.apic_id, self.trampoline_page));
        wait(wait_ns);
    }

    /// CPUs that have come so far, the first one among them.
    pub(crate) fn joined(&self) -> usize {
        1 + Self::areas()
            .filter(|area| area.joined.load(Ordering::Acquire) == 1)
            .count()
    }

    /// Whether the CPU with this number has come.
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

    /// When the last of those that have come came; none if nobody did.
    pub(crate) fn last_joined_ticks(&self) -> Option<u64> {
        let joined = Self::areas().filter(|area| area.joined.load(Ordering::Acquire) == 1);
        joined
            .map(|area| area.joined_ticks.load(Ordering::Relaxed))
            .max()
    }

    /// Runs `work` with the number of the CPU on those CPUs that have come and
    /// are `wanted`; returns when all are done, with their number.
    pub(crate) fn run(
        &mut self,
        wanted: &dyn Fn(usize) -> bool,
        work: &(dyn Fn(usize) + Sync),
    ) -> usize {
        let job = Job {
            work,
            left: AtomicUsize::new(0),
            waiter_apic_id: apic::own_id(),
        };
        // SAFETY: only the lifetime changes; nobody holds the job after this
        // function returns, because it waits until `left` is zero.
        let shared = (&raw const job).cast::<Job<'static>>().cast_mut();
        let mut count = 0;
        let ready = Self::areas().filter(|area| area.joined.load(Ordering::Acquire) == 1);
        for area in ready.filter(|area| wanted(area.number as usize)) {
            count += 1;
            job.left.fetch_add(1, Ordering::Relaxed);
            area.mailbox.store(shared, Ordering::Release);
            apic::interrupt(area.apic_id, WAKE_VECTOR);
        }
        if wanted(0) {
            count += 1;
            work(0);
        }
        sleep_until(|| job.left.load(Ordering::Acquire) == 0);
        count
    }
}

const _: () = assert!(size_of::<Area>() + 32 * 1024 <= AREA_ORDER.bytes() as usize);

/// Halts until `done`, which an interrupt announces.
fn sleep_until(done: impl Fn() -> bool) {
    loop {
        interrupts::disable();
        if done() {
            interrupts::enable();
            return;
        }
        // Interrupts come no sooner than the halt: none is missed.
        interrupts::enable_and_hlt();
    }
}

/// Called by `entry.s` on every other CPU, on its own stack.
#[unsafe(no_mangle)]
extern "C" fn other_cpu_main(area: *mut Area) -> ! {
    GsBase::write(VirtAddr::from_ptr(area));
    // SAFETY: nobody but this CPU ever uses its segments.
    unsafe { super::sole(UnsafeCell::raw_get(&raw const (*area).segments)).load() };
    apic::enable();
    vector::enable();
    // SAFETY: it was written by `add` and stays.
    let area = unsafe { &*area };
    area.joined_ticks.store(ticks(), Ordering::Relaxed);
    area.joined.store(1, Ordering::Release);
    loop {
        sleep_until(|| !area.mailbox.load(Ordering::Relaxed).is_null());
        let job = area.mailbox.swap(null_mut(), Ordering::Acquire);
        // SAFETY: who gave it waits until `left` is zero, and it is counted there.
        let Some(Job {
            work,
            left,
            waiter_apic_id,
        }) = (unsafe { job.as_ref() })
        else {
            continue;
        };
        let waiter = *waiter_apic_id;
        work(area.number as usize);
        // The job may be gone from here on.
        left.fetch_sub(1, Ordering::Release);
        apic::interrupt(waiter, WAKE_VECTOR);
    }
}
