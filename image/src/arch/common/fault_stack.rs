//! What a CPU has of its own besides its stack, where the processor needs no more: [`Own`].

use core::ptr::from_mut;

/// Size of a stack for faults: the report of one needs two buffers of several KiB. `entry.s` has the
/// first CPU's.
pub(crate) const FAULT_STACK_BYTES: usize = 16384;

/// A stack for faults. Above it is what `traps.s` needs before it has a frame: two registers, which no
/// frame in use may hold, because a marker that nothing answers is an exception within the report.
#[repr(C, align(16))]
pub(crate) struct Own {
    fault_stack: [u8; FAULT_STACK_BYTES],
    first_registers: [u64; 2],
}

impl Own {
    pub(crate) const fn new() -> Self {
        Self {
            fault_stack: [0; FAULT_STACK_BYTES],
            first_registers: [0; 2],
        }
    }

    /// Where the stack begins, below the registers: stacks grow downwards.
    pub(crate) fn end(&mut self) -> *mut u8 {
        let begin = from_mut(self).cast::<u8>();
        begin.wrapping_add(core::mem::offset_of!(Self, first_registers))
    }
}
