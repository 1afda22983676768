//! Requests for zeros.
//!
//! *Lists hold memory of unknown content only*: a CPU writes to what it frees, and half a list is
//! taken at a time for requests of any kind. So a request for zeros goes past the lists as long as
//! a short search finds huge frames that are known to be zero: one of them, or a page of one that the CPU
//! keeps to cut zero pages from. Otherwise a cached block is zeroed.

use super::Cpu;
use super::slot::CpuEvent;
use crate::addr::{Frame, Order};
use crate::frames::error::AllocError;
use crate::frames::request::Request;
use crate::frames::word::geometry::{HUGE_FRAMES, HUGE_ORDER};
use crate::frames::word::{IS_KEPT, Known};

impl Cpu<'_, '_> {
    /// A block of zeros.
    // By itself: others would save registers for it.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_zeroed(&mut self, request: Request) -> Result<Frame, AllocError> {
        let plain = request.of_any_content();
        if request.order().get() > HUGE_ORDER || !self.serves_among(&plain) {
            return self.allocate_shared(request);
        }
        if let Some(found) = self.allocate_known(&request) {
            return Ok(found);
        }
        // Other nodes, the kernel's hook and the caches of others are left to the request that
        // follows.
        let here = plain.only_on(self.sources[request.mobility() as usize].node);
        if let Ok(start) = self.allocate(here.attempt())
            && (self.shared.nodes).serve_zeroed(start, &request, &Known::new(false))
        {
            return Ok(start);
        }
        self.allocate_shared(request)
    }

    /// A page or a huge frame that is known to be zero.
    fn allocate_known(&mut self, request: &Request) -> Option<Frame> {
        if !IS_KEPT {
            return None;
        }
        let known = self.shared.nodes.known();
        let found = match request.order() {
            Order::PAGE => self.pop_zero(request, &known)?,
            order if order.get() == HUGE_ORDER => self.take_known_huge(request, &known)?,
            _ => return None,
        };
        // Or it is not zero, and the kernel zeroes nothing.
        let is_zero = self.shared.nodes.serve_zeroed(found, request, &known);
        is_zero.then_some(found)
    }

    /// The next page of the block that zero pages are cut from.
    fn pop_zero(&mut self, request: &Request, known: &Known) -> Option<Frame> {
        let (slot, mobility) = (self.slot(), request.mobility());
        let frames = u64::from(HUGE_FRAMES);
        let keeps_huge = self.lists.of(mobility).keeps_huge();
        if slot.zero(mobility) == 0 && keeps_huge && self.may_cache(request, frames) {
            let moving = slot.begin_move(frames);
            let noted = self.shared.nodes.known();
            if let Some(huge) = self.take_known_huge(request, &noted) {
                slot.count(CpuEvent::Refill);
                let lists = self.lists.of(mobility);
                lists.set_zero(slot, mobility, huge, noted.content(0));
            }
            slot.end_move(moving);
        }
        let (page, content) = self.lists.of(mobility).pop_zero(slot, mobility)?;
        known.note_all(content);
        Some(page)
    }

    /// Takes a huge frame that is known to be zero from where the lists are filled from.
    fn take_known_huge(&self, request: &Request, known: &Known) -> Option<Frame> {
        let (nodes, source) = (
            &self.shared.nodes,
            &self.sources[request.mobility() as usize],
        );
        let found = nodes.take_known_huge(source.node, source.zone, request, known)?;
        nodes.prepare(&[found], Order::HUGE);
        Some(found)
    }
}
