//! A kernel on Firstlight's frame allocator, to copy from. Entry, log and end are `boot`'s; here is what a kernel does
//! for its memory: it maps all of it with tables from early memory, starts the allocator, and puts a heap on it.
#![no_std]
#![no_main]

extern crate alloc;

mod boot;
mod check;
mod cpu;
mod heap;

use core::fmt::Display;

use firstlight_boot::firmware::pvh::StartInfo;
use firstlight_boot::start::{Boot, StartError, StaticStorage};
use firstlight_frames::addr::{PhysAddr, PhysRange};
use firstlight_frames::early::EarlyMemory;
use firstlight_frames::frames::Frames;
use firstlight_frames::platform::DirectMap;
use firstlight_frames::x86_64::PageTableFrames;
use spin::Once;
use x86_64::VirtAddr;
use x86_64::structures::paging::mapper::{MapToError, Mapper};
use x86_64::structures::paging::{OffsetPageTable, PageTableFlags, PhysFrame, Size2MiB};

/// The storage of the way up: 128 ranges, one node.
static STORAGE: StaticStorage<128, 1> = StaticStorage::new();

/// All memory, at its own address.
// SAFETY: `map_all` maps all of it before the first use, and what is in use is reserved; one layout is used with it;
// only what was allocated is freed.
static DIRECT: DirectMap = unsafe { DirectMap::new(0) };

/// The allocator, once memory is there.
pub static FRAMES: Once<Frames<'static>> = Once::new();

/// Why there is no memory.
#[derive(Debug)]
enum Stop {
    Start(StartError),
    Map(MapToError<Size2MiB>),
}

impl<E: Into<StartError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Start(error.into())
    }
}

/// `boot.s` comes here, with the address of the loader's start info.
#[unsafe(no_mangle)]
extern "C" fn kernel(start_info: u64) -> ! {
    match memory(PhysAddr::new(start_info)) {
        Ok(frames) => boot::end(check::all(FRAMES.call_once(|| frames))),
        Err(Stop::Start(error)) => println!("memory: {error}"),
        Err(Stop::Map(error)) => println!("memory: a page cannot be mapped: {error:?}"),
    }
    boot::end(false)
}

/// From what the loader says to the allocator.
fn memory(start_info: PhysAddr) -> Result<Frames<'static>, Stop> {
    let info = StartInfo::read(&boot::read, start_info)?;
    let modules = info.modules(&boot::read)?;
    let modules = modules.filter_map(|module| PhysRange::with_size(module.start, module.bytes));
    let boot = Boot {
        command_line: info.command_line(&boot::read)?.unwrap_or_default(),
        reserved: &[(boot::image(), "kernel, its stack and first page tables")],
        ..Boot::new(info.map_entries(&boot::read)?)
    };
    let mut log = |seen: &dyn Display| println!("memory: {seen}");
    let early = boot.early(STORAGE.take()?, &mut log)?.with_early(|early| {
        early.reserve_all(modules.map(|module| (module, "module")))?;
        map_all(early)
    })?;
    Ok(Frames::build(early.layout(&mut log)?, &DIRECT)?)
}

/// Maps memory to itself from where `boot.s` ended, in pages of 2 MiB.
fn map_all(early: &mut EarlyMemory<'_>) -> Result<(), Stop> {
    let huge =
        |address: u64| PhysFrame::<Size2MiB>::containing_address(x86_64::PhysAddr::new(address));
    let flags = PageTableFlags::PRESENT | PageTableFlags::WRITABLE;
    early.set_limit(PhysAddr::new(boot::MAPPED)); // a table is written before it maps anything
    // SAFETY: the one call; all tables are mapped to themselves.
    let mut tables = unsafe { OffsetPageTable::new(boot::page_tables(), VirtAddr::zero()) };
    let mut next = huge(boot::MAPPED);
    let after = |next: PhysFrame<Size2MiB>, early: &EarlyMemory<'_>| {
        let next = next.start_address().as_u64();
        let range = early
            .memory()
            .iter()
            .map(|region| region.range)
            .find(|range| range.end().get() > next)?;
        Some(huge(range.start().get().max(next)))
    };
    while let Some(frame) = after(next, early) {
        // SAFETY: the tables stay for ever, and no other code frees frames.
        let mut frames = unsafe { PageTableFrames::new(&mut *early) };
        // SAFETY: nothing is mapped there, and no reference is made but by owners of frames.
        let mapped = unsafe { tables.identity_map(frame, flags, &mut frames) };
        mapped.map_err(Stop::Map)?.ignore(); // no CPU has looked there before
        next = frame + 1;
    }
    Ok(())
}
