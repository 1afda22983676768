//! From the first instructions to Rust: [`Handover`].

/// Values from the first instructions.
#[derive(Clone, Copy)]
pub(crate) struct Handover {
    /// Physical address of the loader's tables: PVH's start info, or a device tree.
    pub(crate) tables: u64,
    /// The counter of [`ticks`](crate::arch::ticks) at the first instruction.
    pub(crate) entry_ticks: u64,
}

/// Called by `entry.s` on the first CPU, on its stack, with translation on.
#[unsafe(no_mangle)]
extern "C" fn first_cpu_main(tables: u64, entry_ticks: u64) -> ! {
    crate::main(Handover {
        tables,
        entry_ticks,
    })
}
