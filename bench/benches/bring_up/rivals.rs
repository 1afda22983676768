//! Allocators from the Rust registry as contestants, and the floor of every
//! allocator that begins with a descriptor for each page: a memset.
//!
//! Each gets the free ranges of the machine's layout; finding them is not timed.
//! `firstlight_bench::rivals` calls them.

use std::marker::PhantomData;

use firstlight::addr::{Frame, Order};
use firstlight_bench::machine::{GIB, Machine};
use firstlight_bench::rivals;
use firstlight_host::meminfo::available_bytes;
use firstlight_host::reserve::Reservation;
use firstlight_workloads::Cpu;

use crate::contest::{Contestant, Sample, Setup, measure};

const PAGE: usize = firstlight::addr::PAGE_BYTES as usize;

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("64-bit addresses")
}

/// Bytes resident of a reservation, to print.
fn resident(space: Option<&Reservation>) -> String {
    let bytes = space.and_then(|space| space.resident_bytes().ok());
    bytes.map_or("?".into(), |bytes| {
        format!("{:.1} MiB resident", bytes as f64 / 1048576.0)
    })
}

/// `buddy_system_allocator`.
pub(crate) struct BuddySystem;

impl Contestant for BuddySystem {
    fn name(&self) -> &'static str {
        "buddy_system_allocator"
    }

    fn refresh(&mut self, _: &Machine) {}

    fn run(&mut self, setup: &Setup<'_>) -> Sample {
        measure(setup.task, || rivals::BuddySystem::new(setup.free))
    }

    fn written(&self) -> String {
        "tree nodes on the heap".into()
    }
}

/// `free-list`.
pub(crate) struct Ranges;

impl Contestant for Ranges {
    fn name(&self) -> &'static str {
        "free-list"
    }

    fn refresh(&mut self, _: &Machine) {}

    fn run(&mut self, setup: &Setup<'_>) -> Sample {
        measure(setup.task, || rivals::Ranges::new(setup.free))
    }

    fn written(&self) -> String {
        "16 B a range, in the value".into()
    }
}

/// `bitmap-allocator` of type `B`.
pub(crate) struct Bitmap<B> {
    space: Option<Reservation>,
    bits: PhantomData<B>,
}

pub(crate) type Bitmap1T = Bitmap<rivals::Bitmap1T>;
pub(crate) type Bitmap16T = Bitmap<rivals::Bitmap16T>;

impl<B> Default for Bitmap<B> {
    fn default() -> Self {
        Self {
            space: None,
            bits: PhantomData,
        }
    }
}

impl<B: rivals::ZeroIsEmpty> Contestant for Bitmap<B> {
    fn name(&self) -> &'static str {
        "bitmap-allocator"
    }

    fn left_out(&self, machine: &Machine) -> Option<String> {
        let most = B::CAP as u64 * PAGE as u64;
        (machine.end_bytes() > most).then(|| {
            let bytes = size_of::<B>() as u64 * machine.end_bytes().div_ceil(most);
            format!(
                "its largest useful type ends at {} TiB; one more level would write {} GiB",
                most / (1024 * GIB),
                bytes / GIB
            )
        })
    }

    fn refresh(&mut self, _: &Machine) {
        self.space = Reservation::new(size_of::<B>()).ok();
    }

    fn run(&mut self, setup: &Setup<'_>) -> Sample {
        let space = self.space.as_mut().expect("address space");
        measure(setup.task, || {
            rivals::Bitmap::<B>::new(space, setup.free).expect("excused otherwise")
        })
    }

    fn written(&self) -> String {
        resident(self.space.as_ref())
    }
}

/// `buddy-slab-allocator`.
#[derive(Default)]
pub(crate) struct BuddySlab {
    space: Option<Reservation>,
}

/// Descriptors of larger machines would take 12 GiB and more.
const BUDDY_SLAB_MOST_BYTES: u64 = 1024 * GIB;

impl Contestant for BuddySlab {
    fn name(&self) -> &'static str {
        "buddy-slab-allocator"
    }

    fn left_out(&self, machine: &Machine) -> Option<String> {
        (machine.end_bytes() > BUDDY_SLAB_MOST_BYTES).then(|| {
            let bytes = machine.frames() * 12;
            format!(
                "writes {} GiB of descriptors, more than this test takes",
                bytes / GIB
            )
        })
    }

    fn refresh(&mut self, machine: &Machine) {
        self.space = Reservation::new(size(machine.end_bytes())).ok();
    }

    fn run(&mut self, setup: &Setup<'_>) -> Sample {
        let space = self.space.as_mut().expect("address space");
        measure(setup.task, || {
            rivals::BuddySlab::new(space, setup.free).expect("address space for all memory")
        })
    }

    fn written(&self) -> String {
        resident(self.space.as_ref())
    }
}

/// Writing `BYTES` for each page, the least work of an allocator that begins with a
/// descriptor for each. It allocates nothing.
#[derive(Default)]
pub(crate) struct Memset<const BYTES: usize> {
    descriptors: Vec<u8>,
}

struct Nothing;

impl Cpu for Nothing {
    fn allocate(&mut self, _: Order) -> Option<Frame> {
        None
    }

    fn free(&mut self, _: Frame, _: Order) -> bool {
        false
    }
}

impl<const BYTES: usize> Contestant for Memset<BYTES> {
    fn name(&self) -> &'static str {
        match BYTES {
            64 => "memset of 64 B a page",
            _ => "memset of 8 B a page",
        }
    }

    fn left_out(&self, machine: &Machine) -> Option<String> {
        let bytes = machine.frames() * BYTES as u64;
        let held = self.descriptors.len() as u64;
        let available = available_bytes().unwrap_or(0);
        (bytes > (available + held) / 2 || bytes > 8 * GIB)
            .then(|| format!("{} GiB of descriptors, too much for this host", bytes / GIB))
    }

    fn refresh(&mut self, machine: &Machine) {
        // One memory for all times, after one touch, in huge pages as a
        // kernel would have it: the floor, warm.
        if self.descriptors.is_empty() {
            let bytes = size(machine.frames()) * BYTES;
            self.descriptors.reserve_exact(bytes);
            let start = self.descriptors.as_mut_ptr();
            let lead = start.align_offset(PAGE);
            // SAFETY: whole pages inside what was just allocated; the advice
            // changes no content. A kernel may refuse it, which slows us only.
            let _ = unsafe {
                let bytes = bytes.saturating_sub(lead) / PAGE * PAGE;
                libc::madvise(start.add(lead).cast(), bytes, libc::MADV_HUGEPAGE)
            };
            self.descriptors.resize(bytes, 1);
        }
    }

    fn run(&mut self, setup: &Setup<'_>) -> Sample {
        measure(setup.task, || {
            self.descriptors.fill(0);
            std::hint::black_box(&mut self.descriptors);
            Nothing
        })
    }

    fn written(&self) -> String {
        format!("{:.1} MiB", self.descriptors.len() as f64 / 1048576.0)
    }
}
