//! The way from firmware to the image. All that can fail is done before boot services end.

mod error;
mod machine;
mod memory;
mod processor;
mod result;
mod start_info;
mod stick;

use core::time::Duration;

use error::StartError;
use firstlight::start::BootSizes;
use firstlight_image_uefi::result::Next;
use firstlight_image_uefi::{place, words};
use firstlight_wire::handover::{HEAD_BYTES, Handover, Storage};
use memory::Pages;
use processor::{Code, Image};
use stick::Stick;
use uefi::boot::{self, MemoryType};
use uefi::mem::memory_map::{MemoryMap, MemoryMapOwned};
use uefi::runtime::{self, ResetType};
use uefi::{Status, println};

/// Descriptors by which the map may still grow, until boot services have ended.
const MORE_DESCRIPTORS: usize = 64;
/// With more descriptors than this the image's own lists may be too small.
const FEW_DESCRIPTORS: usize = 400;
/// Most nodes of the image.
const NODES: usize = 256;
/// The word of a test: the image's own place is taken.
const OCCUPIED: &[u8] = b"test=occupied";
/// Why a run ends is shown for so long.
const SHOWN: Duration = Duration::from_secs(30);

/// Starts the image, or brings its result to the stick.
pub(crate) fn run() -> Status {
    let entered_ticks = processor::ticks();
    // A long run is no hang. Firmware without a watchdog refuses.
    let _ = boot::set_watchdog_timer(0, 0x1_0000, None);
    let error = match prepare(entered_ticks) {
        Ok(ready) => ready.start(),
        Err(error) => error,
    };
    println!("firstlight: {error}");
    println!("firstlight: the machine was not changed");
    pause(SHOWN);
    if processor::has_hypervisor() {
        runtime::reset(ResetType::SHUTDOWN, Status::LOAD_ERROR, None);
    }
    Status::LOAD_ERROR
}

/// Time to read what is on the screen; a virtual machine's log is read later.
fn pause(time: Duration) {
    if !processor::has_hypervisor() {
        boot::stall(time);
    }
}

/// All that the image gets, in memory that stays.
struct Ready {
    start_info: Pages,
    module: Pages,
    handover: Handover,
    entry: u64,
    code: Code,
}

fn prepare(entered_ticks: u64) -> Result<Ready, StartError> {
    let mut stick = Stick::open()?;
    let next = result::bring(&mut stick);
    let shown = match next {
        Next::Run | Next::Unkept => None,
        Next::Off => Some(Duration::from_secs(10)),
        Next::Kept => Some(SHOWN),
    };
    if let Some(time) = shown {
        println!("firstlight: the machine is switched off");
        pause(time);
        runtime::reset(ResetType::SHUTDOWN, Status::SUCCESS, None);
    }
    let file = stick.image()?;
    let line = words(&stick.words()?);
    if line.len() > firstlight_image_uefi::MOST_WORDS_BYTES {
        return Err(StartError::Words { bytes: line.len() });
    }
    if let Some(kind) = processor::confidential() {
        return Err(StartError::Confidential(kind));
    }
    let image = Image::parse(&file)?;
    image.check_handover()?;
    if line
        .split(|byte| *byte == b' ')
        .any(|word| word == OCCUPIED)
    {
        // Kept until the end, as firmware's own memory would be.
        let _ = Pages::at(image.range.start, 1);
    }
    let place = load(&image)?;
    let entry = image.entry - image.range.start + place;
    let read_ticks = processor::ticks();

    let map = memory_map()?;
    let descriptors = map.len() + MORE_DESCRIPTORS;
    let module_bytes = HEAD_BYTES + descriptors * map.meta().desc_size;
    let module = Pages::new("the memory map", module_bytes, MemoryType::LOADER_DATA)?;
    let storage = match descriptors > FEW_DESCRIPTORS {
        true => Some(storage(descriptors)?),
        false => None,
    };
    let tree = machine::tree();
    let start_info = start_info::start_info(&line, machine::rsdp(), &module, tree)?;
    let code = Code::new()?;
    // Last: all that can fail before boot services end has not.
    let keeps_results = match next {
        Next::Unkept => {
            println!("firstlight: this run's result is shown on the screen alone");
            false
        }
        _ => stick.mark_run(),
    };
    let screen = machine::screen();
    println!(
        "firstlight: image at {place:#x}, {} descriptors, {}; \"{}\"",
        map.len(),
        screen.map_or("no frame buffer", |_| "a frame buffer"),
        line.escape_ascii(),
    );
    Ok(Ready {
        start_info,
        module,
        handover: Handover {
            entered_ticks,
            read_ticks,
            exited_ticks: 0,
            system_table: machine::system_table(),
            keeps_results,
            screen,
            storage,
            descriptor_bytes: 0,
        },
        entry,
        code,
    })
}

fn memory_map() -> Result<MemoryMapOwned, StartError> {
    boot::memory_map(MemoryType::LOADER_DATA).map_err(|error| StartError::Memory {
        what: "the memory map",
        bytes: 0,
        status: error.status(),
    })
}

/// Puts the image where it is linked, or at the highest 2 MiB that are free and in its reach.
fn load(image: &Image<'_>) -> Result<u64, StartError> {
    let map = memory_map()?;
    let free = map
        .entries()
        .filter(|entry| entry.ty == MemoryType::CONVENTIONAL)
        .map(|entry| {
            let bytes = entry.page_count.saturating_mul(4096);
            entry.phys_start..entry.phys_start.saturating_add(bytes)
        });
    let bytes = usize::try_from(image.range.end - image.range.start).unwrap_or(usize::MAX);
    let reach = image.reach();
    for place in place::places(&image.range, free, reach) {
        // Firmware may have taken it meanwhile.
        if let Ok(mut pages) = Pages::at(place, bytes) {
            image.write(place, pages.bytes_mut())?;
            processor::written(pages.bytes_mut());
            return Ok(place);
        }
    }
    Err(StartError::NoPlace { bytes, reach })
}

/// Memory for lists as long as the map needs; a descriptor may become two regions.
fn storage(descriptors: usize) -> Result<Storage, StartError> {
    let ranges = 2 * descriptors;
    let bytes = BootSizes::new(ranges, NODES).bytes();
    let pages = Pages::new("lists for the memory map", bytes, MemoryType::LOADER_DATA)?;
    Ok(Storage {
        start: pages.address(),
        bytes: bytes as u64,
        ranges: u32::try_from(ranges).unwrap_or(u32::MAX),
    })
}

impl Ready {
    /// Ends boot services and enters the image; comes back with an error if the map is not one.
    fn start(mut self) -> StartError {
        // SAFETY: nothing of boot services is in use: files are closed, and what the image gets
        // is in pages that stay.
        let map = unsafe { boot::exit_boot_services(Some(MemoryType::LOADER_DATA)) };
        self.handover.exited_ticks = processor::ticks();
        let meta = map.meta();
        self.handover.descriptor_bytes = u32::try_from(meta.desc_size).unwrap_or(u32::MAX);
        let bytes = map.buffer().get(..meta.map_size).unwrap_or_default();
        match self.handover.write(bytes, self.module.bytes_mut()) {
            // SAFETY: the image is loaded, what it gets is written, boot services have ended.
            Ok(_) => unsafe { self.code.enter(self.start_info.address(), self.entry) },
            // There is no screen any more; another start shows what was marked.
            Err(_) => runtime::reset(ResetType::COLD, Status::LOAD_ERROR, None),
        }
    }
}
