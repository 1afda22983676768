//! Work that lives in the caches: [`Neighbour`].

use firstlight_figures::random::Random;
use firstlight_host::reserve::Reservation;
use std::io;
use std::time::Instant;

const LINE_WORDS: usize = 8;

/// A cycle through all lines of a working set, in random order: each load waits for the one
/// before it, so a line that was pushed out costs all of its way back.
pub(super) struct Neighbour {
    memory: Reservation,
    lines: usize,
}

impl Neighbour {
    /// A working set of `bytes`, on huge pages.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let mut memory = Reservation::huge(bytes)?;
        let lines = bytes / (8 * LINE_WORDS);
        let mut order: Vec<usize> = (0..lines).collect();
        Random::new(1).shuffle(&mut order);
        let (chunks, _) = memory.as_mut_slice().as_chunks_mut::<8>();
        let following = order.iter().cycle().skip(1);
        for (line, next) in order.iter().zip(following) {
            chunks[line * LINE_WORDS] = next.to_ne_bytes();
        }
        Ok(Self { memory, lines })
    }

    /// Reads each line once; nanoseconds.
    pub(super) fn pass(&mut self) -> f64 {
        let (chunks, _) = self.memory.as_mut_slice().as_chunks::<8>();
        let begin = Instant::now();
        let mut line = 0;
        for _ in 0..self.lines {
            line = usize::from_ne_bytes(chunks[line * LINE_WORDS]);
        }
        let ns = begin.elapsed().as_secs_f64() * 1e9;
        // A cycle ends where it began, unless a line was written by others.
        assert_eq!(std::hint::black_box(line), 0, "the working set changed");
        ns
    }
}
