//! Requests for zeros.
//!
//! *Lists hold memory of unknown content only*: a CPU writes to what it frees, and half a list is
//! taken at a time for requests of any kind. So a request for zeros goes past the lists as long as
//! a short search finds memory that is known to be zero, and zeroes a cached block otherwise.

use super::Cpu;
use crate::addr::Frame;
use crate::frames::error::AllocError;
use crate::frames::request::Request;
use crate::frames::word::Known;
use crate::frames::word::geometry::HUGE_ORDER;

impl Cpu<'_, '_> {
    /// A block of zeros.
    // By itself: others would save registers for it.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_zeroed(&mut self, request: Request) -> Result<Frame, AllocError> {
        let plain = request.of_any_content();
        if request.order().get() > HUGE_ORDER || !self.serves(&plain) {
            return self.allocate_shared(request);
        }
        let (nodes, source) = (
            &self.shared.nodes,
            &self.sources[request.mobility() as usize],
        );
        if let Some(found) = nodes.allocate_known(source.node, source.zone, &request) {
            nodes.prepare(&[found], request.order());
            return Ok(found);
        }
        // Other nodes, the kernel's hook and the caches of others are left to the request that
        // follows.
        let here = plain.on(source.node).this_node_only();
        if let Ok(start) = self.allocate(here.attempt())
            && (self.shared.nodes).serve_zeroed(start, &request, &Known::new(false))
        {
            return Ok(start);
        }
        self.allocate_shared(request)
    }
}
