//! Threads beside each other: the pages they hold, and their end.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use firstlight::addr::{Frame, Order, PhysRange};
use firstlight::frames::{Cpu, Request};

/// Ends what looks at it, also when a check fails.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The next of some numbers that look random; the upper bits do so most.
pub(crate) fn random(state: u64) -> u64 {
    state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1)
}

/// Which pages of a range are held, by any thread.
pub(crate) struct Held {
    first: Frame,
    pages: Vec<AtomicBool>,
}

impl Held {
    /// None of them.
    pub(crate) fn new(range: PhysRange) -> Self {
        let frames = range.inner_frames();
        let pages = (0..frames.count()).map(|_| AtomicBool::new(false));
        Self {
            first: frames.start(),
            pages: pages.collect(),
        }
    }

    /// A block's pages, and the number of its first; none and `None` if it lies elsewhere.
    fn pages(&self, frame: Frame, order: Order) -> (Option<usize>, &[AtomicBool]) {
        let page = frame.get().checked_sub(self.first.get());
        let page = page.map(|page| usize::try_from(page).expect("a page of a test"));
        let count = usize::try_from(order.frames()).expect("a block of a test");
        let pages = page.and_then(|page| self.pages.get(page..page + count));
        (page.filter(|_| pages.is_some()), pages.unwrap_or_default())
    }

    /// Allocates a block that no thread holds; with the number of its first page, if that is in the
    /// range.
    pub(crate) fn allocate(
        &self,
        cpu: &mut Cpu<'_, '_>,
        request: Request,
    ) -> Option<(Frame, Option<usize>)> {
        let frame = cpu.allocate(request).ok()?;
        let (page, pages) = self.pages(frame, request.order());
        for page in pages {
            assert!(!page.swap(true, Relaxed), "{frame} is held");
        }
        Some((frame, page))
    }

    /// Allocates, frees and drains until `done`, as `dice` fall: `request` says for what, `check` looks
    /// at each block in the range, by the number of its first page. In the end it holds nothing.
    pub(crate) fn churn(
        &self,
        cpu: &mut Cpu<'_, '_>,
        seed: u64,
        done: &AtomicBool,
        request: impl Fn(u64, Order) -> Request,
        check: impl Fn(Request, Frame, usize),
    ) {
        let orders = [
            Order::PAGE,
            Order::PAGE,
            Order::new(3).expect("an order"),
            Order::HUGE,
        ];
        let (mut kept, mut state) = (Vec::new(), seed);
        while !done.load(Relaxed) {
            state = random(state);
            let dice = state >> 33;
            if dice.is_multiple_of(16) {
                // Threads hold nothing now and then, so that DIMMs can go.
                for (frame, order) in kept.drain(..) {
                    self.free(cpu, frame, order);
                }
                cpu.drain().expect("nothing is wrong with it");
                std::thread::yield_now();
                continue;
            }
            let order = orders[dice as usize / 16 % 4];
            let request = request(dice, order);
            let Some((frame, page)) = self.allocate(cpu, request) else {
                continue;
            };
            if let Some(page) = page {
                check(request, frame, page);
            }
            kept.push((frame, order));
        }
        // Others allocate for as long as they have not seen the end.
        for (frame, order) in kept {
            self.free(cpu, frame, order);
        }
    }

    /// Frees a block, which others may hold from then on.
    pub(crate) fn free(&self, cpu: &mut Cpu<'_, '_>, frame: Frame, order: Order) {
        for page in self.pages(frame, order).1 {
            assert!(page.swap(false, Relaxed), "{frame} is not held");
        }
        cpu.free(frame, order).expect("it is allocated");
    }
}
