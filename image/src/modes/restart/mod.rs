//! `restart=warm`: guests get memory, `preserve_bytes=` in all, and fill it with a pattern. Then
//! the image hands that memory over, restarts itself without firmware, and checks every byte
//! (with `preserve_every=` a page in so many bytes).
//!
//! | file | contents |
//! |---|---|
//! | `leave` | the kernel that hands over: guests, table, the end of everything else |
//! | `arrive` | the kernel after it: what it took over, checked and freed |
//! | `pattern` | what guests' memory holds |
//! | `damage` | what goes wrong on purpose, with `restart_damage=` |

mod arrive;
mod damage;
mod leave;
mod pattern;

use firstlight_wire::Outcome;

use crate::arch::restart;
use crate::machine::Machine;
use crate::processors::Processors;

/// Hands over, or checks what was handed over; the first does not return if it can be done.
pub(super) fn run(machine: &Machine, processors: &mut Processors) -> Outcome {
    match restart::count() {
        0 => leave::run(machine, processors),
        _ => arrive::run(machine, processors),
    }
}
