//! The stacks of the model checker's threads, used again and again.
//!
//! For each thread of each execution of a model the crate `generator`, on which loom stands, maps a stack, protects
//! its last page, and unmaps it. That was half of the models' time, and those of one process waited for each other
//! at it. In a test program built for loom these calls end here: a stack is kept by the OS thread that had it mapped, and
//! is the next one of its size. Only mappings with `MAP_STACK` are, which nobody else in the program makes by
//! these symbols: the C library calls its own. All else goes to the kernel.

extern crate std;

use core::cell::RefCell;
use core::ffi::{c_int, c_long, c_void};
use std::vec::Vec;

const MMAP: c_long = if cfg!(target_arch = "x86_64") { 9 } else { 222 };
const MPROTECT: c_long = if cfg!(target_arch = "x86_64") {
    10
} else {
    226
};
const MUNMAP: c_long = if cfg!(target_arch = "x86_64") {
    11
} else {
    215
};
const MAP_STACK: c_int = 0x2_0000;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// A stack with the guard below it.
#[derive(Clone, Copy)]
struct Stack {
    start: *mut c_void,
    bytes: usize,
    is_used: bool,
    is_guarded: bool,
}

/// Those that an OS thread had mapped: a handful, one for each thread that a model has at once.
#[derive(Default)]
struct Stacks(Vec<Stack>);

impl Stacks {
    fn used(&mut self, start: *mut c_void) -> Option<&mut Stack> {
        let mut all = self.0.iter_mut();
        all.find(|stack| stack.is_used && stack.start == start)
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        for stack in self.0.iter().filter(|stack| !stack.is_used) {
            // SAFETY: the mapping is this thread's own, and what was on the stack was dropped when it was given back.
            unsafe { syscall(MUNMAP, stack.start, stack.bytes) };
        }
    }
}

std::thread_local! {
    static STACKS: RefCell<Stacks> = const { RefCell::new(Stacks(Vec::new())) };
}

/// What `change` makes of this thread's stacks; `None` where they are gone.
fn with<R>(change: impl FnOnce(&mut Stacks) -> Option<R>) -> Option<R> {
    let changed = STACKS.try_with(|stacks| change(&mut *stacks.try_borrow_mut().ok()?));
    changed.ok().flatten()
}

/// The C library's `mmap`; a stack may be one that was unmapped before.
// SAFETY: the name is the C library's, with its contract: a new mapping, here for a stack of the size another had.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let is_stack = flags & MAP_STACK != 0 && at.is_null();
    let kept = with(|stacks| {
        let mut all = stacks.0.iter_mut();
        let stack = all.find(|stack| is_stack && !stack.is_used && stack.bytes == bytes)?;
        stack.is_used = true;
        Some(stack.start)
    });
    if let Some(start) = kept {
        return start;
    }
    // SAFETY: the caller's arguments, as it gave them.
    let made = unsafe { syscall(MMAP, at, bytes, protection, flags, file, offset) };
    let start = made as *mut c_void;
    if is_stack && made != -1 {
        let new = Stack {
            start,
            bytes,
            is_used: true,
            is_guarded: false,
        };
        let _ = with(|stacks| Some(stacks.0.push(new)));
    }
    start
}

/// The C library's `mprotect`; the guard of a stack that is used again is there already.
// SAFETY: the name is the C library's, with its contract: nothing is left out that was not done before.
#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(start: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    let was_guarded = with(|stacks| {
        let stack = stacks.used(start)?;
        Some(core::mem::replace(&mut stack.is_guarded, true))
    });
    if was_guarded == Some(true) {
        return 0;
    }
    // SAFETY: the caller's arguments, as it gave them.
    let result = unsafe { syscall(MPROTECT, start, bytes, protection) };
    result as c_int
}

/// The C library's `munmap`; a stack is kept.
// SAFETY: the name is the C library's, with its contract: who unmaps a stack does not use it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(start: *mut c_void, bytes: usize) -> c_int {
    let kept = with(|stacks| {
        let stack = stacks.used(start)?;
        if stack.bytes != bytes {
            return None;
        }
        stack.is_used = false;
        Some(())
    });
    if kept.is_some() {
        return 0;
    }
    // SAFETY: the caller's arguments, as it gave them.
    let result = unsafe { syscall(MUNMAP, start, bytes) };
    result as c_int
}

/// A stack comes back to the next thread of its size, with its guard, and to nobody while it is used.
#[test]
fn a_stack_that_was_unmapped_is_the_next_one() {
    const PRIVATE_STACK: c_int = 0x22 | MAP_STACK;
    const BYTES: usize = 5 << 12;
    // SAFETY: new mappings, which nobody but this test uses; each is unmapped once.
    unsafe {
        let map = || mmap(core::ptr::null_mut(), BYTES, 3, PRIVATE_STACK, -1, 0);
        let (first, second) = (map(), map());
        assert!(first != second && !first.is_null() && !second.is_null());
        assert_eq!(mprotect(first, 1 << 12, 0), 0);
        first.byte_add(BYTES - 1).cast::<u8>().write(7);
        assert_eq!(munmap(first, BYTES), 0);
        let third = map();
        assert_eq!(third, first);
        assert_eq!(third.byte_add(BYTES - 1).cast::<u8>().read(), 7);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let guard = std::format!("{:x}-{:x} ---p", third as usize, third as usize + 4096);
        assert_eq!(mprotect(third, 1 << 12, 0), 0);
        assert!(maps.contains(&guard), "{guard} is missing in {maps}");
        assert_eq!((munmap(second, BYTES), munmap(third, BYTES)), (0, 0));
    }
    // A thread's own are unmapped with it.
    let of_thread = std::thread::spawn(|| {
        // SAFETY: as above.
        unsafe {
            let start = mmap(core::ptr::null_mut(), 99 << 12, 3, PRIVATE_STACK, -1, 0);
            assert_eq!(munmap(start, 99 << 12), 0);
            start as usize
        }
    });
    let start = of_thread.join().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let whole = std::format!("{start:x}-{:x} ", start + (99 << 12));
    assert!(!maps.contains(&whole), "{whole} is still there: {maps}");
}
