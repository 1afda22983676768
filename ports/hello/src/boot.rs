//! What a kernel has before it has memory: an entry, a log, an end. Nothing here knows the allocator.

use core::arch::global_asm;
use core::fmt::{self, Write};
use core::panic::PanicInfo;

use firstlight_frames::addr::PhysRange;
use x86_64::instructions::{hlt, port::Port};
use x86_64::structures::paging::PageTable;

global_asm!(include_str!("boot.s"), options(att_syntax));

/// The end of what `boot.s` maps to itself.
pub const MAPPED: u64 = 1 << 30;

/// Where the kernel lies, with its stack and the page tables it entered with.
pub fn image() -> PhysRange {
    unsafe extern "C" {
        static image_start: u8;
        static image_end: u8;
    }
    let (start, end) = (&raw const image_start, &raw const image_end);
    PhysRange::new(start.addr() as u64, end.addr() as u64).unwrap_or_default()
}

/// Memory that the loader wrote.
pub fn read(range: PhysRange) -> Option<&'static [u8]> {
    let start = usize::try_from(range.start().get()).ok()?;
    let bytes = usize::try_from(range.bytes()).ok()?;
    let is_mapped = start != 0 && range.end().get() <= MAPPED;
    // SAFETY: mapped to itself; what the loader wrote stays until memory is handed out, after the last use.
    is_mapped.then(|| unsafe {
        core::slice::from_raw_parts(core::ptr::with_exposed_provenance(start), bytes)
    })
}

/// The page table that the CPU walks, which `boot.s` wrote.
///
/// # Safety
/// Called once.
pub unsafe fn page_tables() -> &'static mut PageTable {
    unsafe extern "C" {
        static mut root: PageTable;
    }
    let table = &raw mut root;
    // SAFETY: mapped to itself, in the kernel's image; the caller has the only reference.
    unsafe { &mut *table }
}

/// The first serial port, as firmware leaves it.
pub struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the port is only written to.
        let put = |byte| unsafe { Port::<u8>::new(0x3f8).write(byte) };
        text.bytes().for_each(put);
        Ok(())
    }
}

#[macro_export]
macro_rules! println {
    ($($line:tt)*) => {{
        let _ = core::fmt::Write::write_fmt(&mut $crate::boot::Serial, format_args!("{}\n", format_args!($($line)*)));
    }};
}

/// Ends QEMU, with exit code 33 if all is well and 35 if not; stops a real machine.
pub fn end(is_well: bool) -> ! {
    // SAFETY: QEMU's `isa-debug-exit`, which the program that boots this provides, or no device.
    unsafe { Port::<u32>::new(0xf4).write(if is_well { 16 } else { 17 }) };
    loop {
        hlt();
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    println!("{info}");
    end(false)
}
