//! A machine whose firmware is UEFI: what the loader hands over ([`Uefi`]), firmware's screen,
//! and the way out, by which the result reaches the stick: it is left in firmware's variables
//! and the machine is reset; the loader, started again, writes it.

use core::sync::atomic::{AtomicBool, Ordering};

use firstlight::addr::{PhysAddr, PhysRange};
use firstlight::clock::Frequency;
use firstlight::events::Events;
use firstlight::firmware::PhysRead;
use firstlight::firmware::acpi::BootTimes;
use firstlight::firmware::efi;
use firstlight::firmware::pvh::StartInfo;
use firstlight::map::MapEntry;
use firstlight::start::{BootSizes, BootSlots};
use firstlight_image::merged::{BOOT_SERVICES, is_cached, merged};
use firstlight_image::record::{Cut, LINE_BYTES, Printable};
use firstlight_image::screen::CodeBuffers;
use firstlight_wire::handover::{self, Handover, HandoverError, Screen, Storage, View};
use firstlight_wire::parts::store;
use firstlight_wire::{Event, Outcome};
use spin::{Mutex, Once};

use super::{acpi, times};
use crate::arch::frame_buffer::FrameBuffer;
use crate::arch::runtime::{Services, on_own_stack};
use crate::arch::{self, DirectMap, cpus, ticks};
use crate::console::{self, Console, correction, note};
use crate::{report, storage};

/// Nodes that lists in the loader's memory have space for.
const NODES: usize = 256;

/// What the loader looks for in the image's file.
#[used]
#[unsafe(link_section = ".note.firstlight")]
static NOTE: [u8; 28] = handover::NOTE;

/// The loader's hand-over, once there is one.
static FOUND: Once<Uefi> = Once::new();

/// What the loader hands over.
#[derive(Clone, Copy)]
pub(crate) struct Uefi {
    view: View<'static>,
    /// ACPI's root pointer.
    root: Option<PhysAddr>,
    command_line: &'static [u8],
}

impl Uefi {
    /// The first module that is a hand-over; none by any other loader.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(crate) fn find(memory: DirectMap, info: &StartInfo) -> Result<Option<Self>, HandoverError> {
        // A list that cannot be read is reported where it is reserved.
        let modules = info.modules(&memory).ok().into_iter().flatten();
        let bytes = modules
            .filter_map(|module| memory.read(PhysRange::with_size(module.start, module.bytes)?));
        for bytes in bytes {
            if let Some(view) = View::read(bytes)? {
                let text = info.command_line(&memory).ok().flatten();
                return Ok(Some(Self {
                    view,
                    root: info.rsdp,
                    command_line: text.unwrap_or_default(),
                }));
            }
        }
        Ok(None)
    }

    fn handover(self) -> Handover {
        self.view.handover
    }

    fn descriptor_bytes(self) -> usize {
        usize::try_from(self.handover().descriptor_bytes).unwrap_or(usize::MAX)
    }

    /// Firmware's memory map, neighbours that are alike made one; `None` if it is none, which `View` has checked.
    pub(crate) fn map_entries(self) -> Option<impl Iterator<Item = MapEntry> + Clone> {
        let descriptors = efi::descriptors(self.view.map, self.descriptor_bytes()).ok()?;
        Some(merged(descriptors))
    }

    pub(crate) fn storage(self) -> Option<Storage> {
        self.handover().storage
    }

    /// Lists of the way up in memory of the loader, where the map is long.
    pub(crate) fn slots(self) -> Option<BootSlots<'static>> {
        let storage = self.storage()?;
        let sizes = BootSizes::new(usize::try_from(storage.ranges).ok()?, NODES);
        let range = PhysRange::with_size(storage.start, storage.bytes)?;
        // SAFETY: the loader allocated it for this alone, and it is reserved before any memory
        // is allocated.
        let bytes = unsafe { DirectMap::place(range) }?;
        // SAFETY: any bytes may be seen as uninitialised ones; nothing else uses them.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) };
        BootSlots::carve(bytes, sizes).ok()
    }

    /// Where firmware's services are and what they use, with each whether it is memory that may be cached; some use
    /// memory of boot services, too.
    fn services(self) -> impl Iterator<Item = (PhysRange, bool)> + Clone {
        let descriptors = self.view.map.chunks_exact(self.descriptor_bytes());
        descriptors.filter_map(|descriptor| {
            let word = |at: usize| {
                let bytes = descriptor.get(at..)?.first_chunk()?;
                Some(u64::from_le_bytes(*bytes))
            };
            let kind = u32::from_le_bytes(*descriptor.first_chunk()?);
            let attributes = word(32)?;
            let is_used = BOOT_SERVICES.contains(&kind) || attributes & efi::RUNTIME != 0;
            let range = || PhysRange::with_size(word(8)?, word(24)?.checked_mul(4096)?);
            is_used.then(|| Some((range()?, is_cached(kind, attributes))))?
        })
    }

    fn screen(self) -> Option<Screen> {
        self.handover().screen
    }

    /// What is no memory and is used later, firmware's services and its screen, as far as it is not mapped from
    /// the start. All of it has to be mapped. `is_cached` asks for what may be cached, or for the rest; where page
    /// tables do not say that, all of it may.
    pub(crate) fn used_later(self, is_cached: bool) -> impl Iterator<Item = PhysRange> {
        let screen = self
            .screen()
            .and_then(|screen| screen.checked().ok())
            .and_then(|screen| PhysRange::with_size(screen.address, screen.bytes));
        let used = self.services().chain(screen.map(|range| (range, false)));
        used.filter(move |(range, cached)| {
            let is_asked = (*cached || !DirectMap::TYPES_IN_TABLES) == is_cached;
            is_asked && range.end() > DirectMap::TABLES_BELOW
        })
        .map(|(range, _)| range)
    }

    /// Whether `range` is no memory that this image could allocate.
    fn is_no_memory(self, range: PhysRange) -> bool {
        let mut memory = self
            .map_entries()
            .into_iter()
            .flatten()
            .filter(|entry| entry.kind.is_memory())
            .filter_map(|entry| PhysRange::with_size(entry.start, entry.bytes));
        !memory.any(|memory| memory.overlaps(range))
    }

    /// When firmware did what, by its performance table, if it has one. Where memory is that this image
    /// could allocate, other content may be by now: nothing is read there.
    fn boot_times(self, memory: DirectMap) -> Option<BootTimes> {
        let kept = move |range| match self.is_no_memory(range) {
            true => memory.read(range),
            false => None,
        };
        acpi::boot_times(kept, self.root?)
    }

    /// The screen, if it is mapped by now.
    fn frame_buffer(self) -> Option<FrameBuffer> {
        let screen = self.screen()?;
        let range = PhysRange::with_size(screen.address, screen.bytes)?;
        if !self.is_no_memory(range) {
            return None;
        }
        // SAFETY: no memory is there by firmware's map; only the console writes there.
        unsafe { FrameBuffer::new(screen) }
    }
}

/// Notes that firmware is UEFI, and when its loader did what. Called first of all, so that a
/// failure on the way up shows on the screen and reaches the stick.
pub(crate) fn install(found: Uefi, events: &mut Events<'_>) {
    let found = FOUND.call_once(|| found);
    times::note_stamps(found.handover(), events);
    console::keep_events();
}

/// The screen, as soon as it is mapped.
pub(crate) fn frame_buffer() -> Option<FrameBuffer> {
    FOUND.get()?.frame_buffer()
}

/// Reports the time before the entry, and a screen that cannot be used. Called once all memory is up.
pub(crate) fn report(memory: DirectMap, clock: Option<Frequency>, events: &mut Events<'_>) {
    let Some(found) = FOUND.get() else { return };
    if let Some(boot_times) = found.boot_times(memory) {
        times::report(boot_times, clock, events);
    }
    times::report_stamps(found.handover());
    match (found.screen(), found.frame_buffer()) {
        (_, Some(_)) => {}
        (None, None) => note("firmware has no frame buffer: the screen shows nothing"),
        (Some(screen), None) => match screen.checked() {
            Err(error) => correction(error),
            Ok(screen) => correction(format_args!(
                "frame buffer at {:#x}, {} bytes: memory is there, or it is beyond this processor's addresses; not used",
                screen.address, screen.bytes
            )),
        },
    }
}

/// Called where a run ends before it reports anything: what is known by then reaches the stick. On
/// another CPU than the first, which may be recording, without phases and milestones.
// Not inlined: fault stacks are small.
#[inline(never)]
pub(crate) fn report_early(console: &mut Console) {
    let Some(found) = FOUND.get() else { return };
    let mut bytes = [0; LINE_BYTES];
    let words = Printable(found.command_line);
    let command_line = Cut::text(&mut bytes, format_args!("{words}"));
    console.event(&report::first(command_line));
    if let Some((clock, source)) = console.clock() {
        let hz = clock.hz();
        console.event(&Event::Clock { hz, source });
    }
    if cpus::current() != 0 {
        return;
    }
    // SAFETY: this CPU records, and does nothing else any more.
    for stamp in unsafe { storage::recorded() } {
        console.event(&report::outgoing(stamp));
    }
}

/// Whether firmware is UEFI, and its loader's hand-over is used.
pub(crate) fn is_firmware() -> bool {
    FOUND.get().is_some()
}

/// Whether a UEFI loader's hand-over was refused.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// A UEFI loader's hand-over cannot be used.
pub(super) fn refuse() {
    REFUSED.store(true, Ordering::Relaxed);
}

/// Whether a UEFI loader started the image, as only it does on a real machine.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_loader() -> bool {
    is_firmware() || REFUSED.load(Ordering::Relaxed)
}

/// Console and outcome on the way from one stack to another.
static LEAVING: Mutex<Option<(&'static mut Console, Outcome)>> = Mutex::new(None);

/// Leaves the result with firmware and resets the machine; where firmware does not keep it, a
/// QR code is what is left. `console` is seized.
pub(crate) fn leave(console: &'static mut Console, outcome: Outcome) -> ! {
    if let Some(mut leaving) = LEAVING.try_lock() {
        *leaving = Some((console, outcome));
    }
    arch::cpu::stop_others();
    // SAFETY: this is reached once: of the CPUs, only the one that reports the end comes here,
    // and its next fault ends in `firmware_failed`.
    unsafe { on_own_stack(leave_there) }
}

/// What is being asked of firmware: how the run ended, if so.
static ASKING: Mutex<Option<Outcome>> = Mutex::new(None);

/// Called where the CPU that ends the run has a fault on the way out: if firmware's code was
/// running, it is not called again, and what is left is the QR code.
pub(crate) fn firmware_failed() {
    let asking = ASKING.try_lock().and_then(|mut asking| asking.take());
    let Some(outcome) = asking else { return };
    let console = console::seize();
    console.line(
        ticks(),
        format_args!("a fault in firmware's own code: it does not keep the result"),
    );
    show(console);
    arch::end_by_host(outcome);
    arch::halt()
}

extern "C" fn leave_there() -> ! {
    let leaving = LEAVING.try_lock().and_then(|mut leaving| leaving.take());
    let Some((console, outcome)) = leaving else {
        // A second fault on the way out.
        arch::halt()
    };
    let found = FOUND.get();
    if let Some(mut asking) = ASKING.try_lock() {
        *asking = Some(outcome);
    }
    let services = found.and_then(|found| {
        // SAFETY: the ranges are firmware's own, reserved by its map; this image ends here. Where other CPUs could
        // not be stopped (aarch64), they go on in the image's memory.
        unsafe {
            Services::open(
                found.handover().system_table,
                found.services().map(|(range, _)| range),
            )
        }
    });
    let keeps = found.is_some_and(|found| found.handover().keeps_results);
    let kept = match &services {
        Some(services) if keeps => keep(services, console),
        _ => false,
    };
    // A fault from here on loses nothing that firmware keeps.
    if let Some(mut asking) = ASKING.try_lock() {
        *asking = None;
    }
    if !kept {
        show(console);
    }
    arch::end_by_host(outcome);
    match services {
        Some(services) if kept => services.reset(),
        _ => arch::halt(),
    }
}

/// Writes the kept events to firmware's variables, the first part last; whether all are there.
fn keep(services: &Services, console: &mut Console) -> bool {
    let parts = match store(console.kept(), |number, part| services.set(number, part)) {
        Ok(parts) => parts,
        Err(refused) => {
            console.line(
                ticks(),
                format_args!("{refused}; the result is shown here alone"),
            );
            return false;
        }
    };
    console.line(
        ticks(),
        format_args!(
            "{} bytes of results are left with firmware; the machine is reset and writes them to the stick",
            console.kept().len()
        ),
    );
    parts > 0
}

/// Shows the result for good.
fn show(console: &mut Console) {
    static BUFFERS: Mutex<CodeBuffers> = Mutex::new(CodeBuffers::new());
    let shown = BUFFERS
        .try_lock()
        .is_some_and(|mut buffers| console.code(&mut buffers));
    let text = match shown {
        true => "the QR code has the summary; the machine can be switched off",
        false => "the lines above are the result; the machine can be switched off",
    };
    console.line(ticks(), format_args!("{text}"));
}
