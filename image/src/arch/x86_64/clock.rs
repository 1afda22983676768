//! The frequency of the time stamp counter: from the hypervisor, else from the
//! processor, else measured beside a counter of known rate.

use firstlight::clock::{Calibration, ClockError, Frequency, Reference, Sample};
use raw_cpuid::CpuId;
use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::Msr;

use super::ticks;
use crate::firmware::Tables;

/// Length of a measurement.
const MEASURE_NS: u64 = 20_000_000;
/// Readings of a sample; the best counts.
const TRIES: u32 = 4;
/// A reference that has not finished by then stands still: so many ticks has the fastest
/// plausible counter (20 GHz) in a measurement. A reading takes between nanoseconds and
/// microseconds, so readings are not counted.
const PATIENCE_TICKS: u64 = MEASURE_NS * 20;
/// KVM's time structure is switched on by writing its address here.
const KVM_SYSTEM_TIME_MSR: u32 = 0x4b56_4d01;

const PIT_CHANNEL_0: u16 = 0x40;
const PIT_COMMAND: u16 = 0x43;

/// The frequency and its source.
///
/// # Errors
/// The last reference's, if none is usable.
pub(crate) fn frequency(tables: &Tables) -> Result<(Frequency, &'static str), ClockError> {
    if let Some(known) = from_cpuid() {
        return Ok((known, "cpuid"));
    }
    if let Some(known) = from_kvm() {
        return Ok((known, "kvmclock"));
    }
    if let Some(timer) = tables.rest.pm_timer {
        let mut port = Port::<u32>::new(timer.port);
        // SAFETY: the port is from firmware; reading any port except a device's data has
        // no effect, and a wrong port leads to a refused measurement at worst.
        let measured = measure(Reference::pm_timer(timer), || unsafe { port.read() });
        if let Ok(measured) = measured {
            return Ok((measured, "pm timer"));
        }
    }
    start_pit(0);
    measure(Reference::PIT, read_pit).map(|measured| (measured, "pit"))
}

/// The frequency in leaf 0x40000010 of hypervisors, or 0x15 of processors.
fn from_cpuid() -> Option<Frequency> {
    let cpuid = CpuId::new();
    let hypervisor = cpuid.get_hypervisor_info();
    if let Some(khz) = hypervisor.and_then(|info| info.tsc_frequency()) {
        return Frequency::from_khz(khz).ok();
    }
    let hz = cpuid.get_tsc_info().and_then(|info| info.tsc_frequency())?;
    Frequency::plausible(hz).ok()
}

/// KVM's time structure; the processor's version of it is all that is read.
#[repr(C, align(32))]
struct KvmTime {
    version: u32,
    pad: u32,
    ticks: u64,
    system_ns: u64,
    multiplier: u32,
    shift: i8,
    flags: u8,
    pad2: [u8; 2],
}

fn from_kvm() -> Option<Frequency> {
    let cpuid = CpuId::new();
    let hypervisor = cpuid.get_hypervisor_info()?;
    let is_kvm = hypervisor.identify() == raw_cpuid::Hypervisor::KVM;
    // The second generation of its clock: bit 3 of the features.
    let features = raw_cpuid::cpuid!(0x4000_0001).eax;
    if !is_kvm || features & 1 << 3 == 0 {
        return None;
    }
    static mut TIME: KvmTime = KvmTime {
        version: 0,
        pad: 0,
        ticks: 0,
        system_ns: 0,
        multiplier: 0,
        shift: 0,
        flags: 0,
        pad2: [0; 2],
    };
    let mut clock = Msr::new(KVM_SYSTEM_TIME_MSR);
    // SAFETY: KVM says that the register is there; it writes the structure while
    // bit 0 is set, and it is read as memory that changes, on this CPU alone.
    unsafe {
        clock.write(&raw const TIME as u64 | 1);
        let multiplier = (&raw const TIME.multiplier).read_volatile();
        let shift = (&raw const TIME.shift).read_volatile();
        clock.write(0);
        Frequency::from_pvclock(multiplier, shift).ok()
    }
}

/// Counts ticks beside `reference` for a while.
fn measure(
    reference: Reference,
    mut counter: impl FnMut() -> u32,
) -> Result<Frequency, ClockError> {
    let first = Sample::tightest(TRIES, ticks, &mut counter);
    let mut calibration = Calibration::new(reference, first);
    let mut now = first.ticks;
    while calibration.elapsed_ns() < MEASURE_NS && now - first.ticks < PATIENCE_TICKS {
        now = ticks();
        calibration.add(Sample {
            ticks: now,
            counter: counter(),
        })?;
    }
    calibration.add(Sample::tightest(TRIES, ticks, &mut counter))?;
    calibration.frequency()
}

/// Ends the turn of a CPU `hz` times a second where CPUs share the instruction clock: QEMU
/// changes to the next one at a timer's end. The interrupt is masked.
pub(crate) fn take_turns(hz: u32) {
    const PIT_HZ: u32 = 1_193_182;
    let count = PIT_HZ / hz.max(1);
    start_pit(u16::try_from(count.max(2)).unwrap_or(0));
}

/// Lets channel 0 count down from `count` again and again; 0 is 65,536.
fn start_pit(count: u16) {
    let [low, high] = count.to_le_bytes();
    // SAFETY: nothing else uses the timer, and its interrupt is masked.
    unsafe {
        Port::<u8>::new(PIT_COMMAND).write(0b0011_0100);
        Port::<u8>::new(PIT_CHANNEL_0).write(low);
        Port::<u8>::new(PIT_CHANNEL_0).write(high);
    }
}

fn read_pit() -> u32 {
    let mut data = Port::<u8>::new(PIT_CHANNEL_0);
    // SAFETY: as in `start_pit`; the count is latched, then read, low byte first.
    unsafe {
        Port::<u8>::new(PIT_COMMAND).write(0);
        let low = data.read();
        u32::from(u16::from_le_bytes([low, data.read()]))
    }
}
