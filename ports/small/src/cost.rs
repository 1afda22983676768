//! `cost SHAPE PAIRS`: so many pairs of an allocation and its free. Its instructions under valgrind, with more and with
//! fewer pairs, are what a pair costs with the features it is built with: `features.sh`.

use std::error::Error;
use std::mem::MaybeUninit;

use firstlight::addr::{FrameRange, Order, PhysRange};
use firstlight::frames::{CpuCache, Frames, PerCpu, Request};

/// One thread alone.
struct Alone(&'static Frames<'static>);

// SAFETY: there is one thread.
unsafe impl PerCpu for Alone {
    fn with_cache<R>(&self, call: impl FnOnce(&'static CpuCache) -> R) -> R {
        call(&CPUS[0])
    }

    fn frames(&self) -> &'static Frames<'static> {
        self.0
    }
}

static CPUS: [CpuCache; 1] = [CpuCache::new()];

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let usage = "cost page|shared-page|shared-huge PAIRS";
    let (shape, pairs) = words.next().zip(words.next()).ok_or(usage)?;
    let pairs: u64 = pairs.parse()?;
    let span = FrameRange::new(0, 1 << 18).ok_or("a GiB")?;
    let bytes = usize::try_from(Frames::bytes_for(span, 8).ok_or("too large")?)?;
    let tables = vec![MaybeUninit::uninit(); bytes].leak();
    let frames: &_ = Box::leak(Box::new(Frames::over(span, tables)?));
    frames.provide_cpus(&CPUS)?;
    frames.add(PhysRange::new(1 << 20, 1 << 30).ok_or("a range")?)?;
    let alone = Alone(frames);
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
