//! `cost SHAPE PAIRS`: so many pairs of an allocation and its free. Its instructions under valgrind, with more and with
//! fewer pairs, are what a pair costs with the features it is built with: `features.sh`.

use std::error::Error;
use std::mem::MaybeUninit;

use firstlight::addr::{FrameRange, Order, PhysRange};
use firstlight::frames::{CpuCell, CpuSlot, Frames, PerCpu, Request};

/// One thread alone.
struct Alone(&'static Frames<'static>, CpuCell);

// SAFETY: there is one thread, and the cell stays where it is.
unsafe impl PerCpu for Alone {
    fn with_cell<R>(&self, call: impl FnOnce(&CpuCell) -> R) -> R {
        call(&self.1)
    }

    fn frames(&self) -> &'static Frames<'static> {
        self.0
    }

    fn cpu(&self) -> usize {
        0
    }
}

static SLOTS: [CpuSlot; 1] = [const { CpuSlot::new() }; 1];

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let usage = "cost page|shared-page|shared-huge PAIRS";
    let (shape, pairs) = words.next().zip(words.next()).ok_or(usage)?;
    let pairs: u64 = pairs.parse()?;
    let span = FrameRange::new(0, 1 << 18).ok_or("a GiB")?;
    let bytes = usize::try_from(Frames::bytes_for(span, 8).ok_or("too large")?)?;
    let tables = vec![MaybeUninit::uninit(); bytes].leak();
    let frames: &_ = Box::leak(Box::new(Frames::over(span, tables)?.with_cpus(&SLOTS)));
    frames.add(PhysRange::new(1 << 20, 1 << 30).ok_or("a range")?)?;
    let alone: &_ = Box::leak(Box::new(Alone(frames, CpuCell::new())));
    // A page stays in use: a pair neither splits a huge frame nor merges it.
    frames.allocate(Request::new(Order::PAGE))?;
    match shape.as_str() {
        "page" => repeat(pairs, || {
            let page = alone.allocate(Request::new(Order::PAGE))?;
            Ok(alone.free(page, Order::PAGE)?)
        }),
        "shared-page" => repeat(pairs, || pair(frames, Order::PAGE)),
        "shared-huge" => repeat(pairs, || pair(frames, Order::HUGE)),
        _ => Err(usage.into()),
    }
}

fn pair(frames: &Frames<'_>, order: Order) -> Result<(), Box<dyn Error>> {
    let block = frames.allocate(Request::new(order))?;
    Ok(frames.free(block, order)?)
}

fn repeat(pairs: u64, pair: impl Fn() -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    (0..pairs).try_for_each(|_| pair())
}
