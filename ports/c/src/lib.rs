//! Firstlight's frame allocator for kernels written in C.
//!
//! `cargo build` makes a static library of this; `firstlight.h` beside it is generated from the
//! same comments. *Every function checks its arguments, returns a code, and leaves the state as
//! it was on an error.* Nothing unwinds into C: a panic would be a bug of the library, and stops
//! the processor on an invalid instruction.
//!
//! | module | what it is |
//! |---|---|
//! | `error` | the codes, and their text |
//! | `request` | which block is wanted |
//! | `frames` | the allocator: create, add, adopt, allocate, free |
//! | `cpu` | a CPU's cache in front of it |
//! | `drain` | what other CPUs cache |
//! | `statistics` | what is free |
//! | `check` | pointers and addresses from C, checked |
#![no_std]
#![expect(
    non_camel_case_types,
    reason = "the types have their names of the C interface"
)]

mod check;
mod cpu;
mod drain;
mod error;
mod frames;
mod request;
mod statistics;

/// A panic is a bug of this library: an invalid instruction, which a kernel's handler of
/// exceptions shows with its address.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: raises an exception, and nothing else.
        unsafe {
            core::arch::asm!("ud2", options(nomem, nostack));
        }
        core::hint::spin_loop();
    }
}
