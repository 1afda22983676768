//! Which end of a Linux is a good one: [`judge`]. And which death is not its own:
//! [`patched_to_death`].

use std::process::ExitStatus;

use super::error::Misdeed;
use super::heard::How;
use crate::boot_log::is_oops;
use crate::log::Line;

/// What a Linux without an initial file system ends with, once memory is up.
const NO_ROOT: &str = "Unable to mount root fs";
pub(crate) const PANIC: &str = "Kernel panic - not syncing";
/// The last line of a kernel that panicked and was told not to restart.
pub(crate) const HALTED: &str = "---[ end Kernel panic";
/// Lines behind the head of an oops that still belong to it.
const OOPS_LINES: usize = 80;

/// Whether the boot went as it should: a kernel without an initial file system
/// panics for want of one; one that has it switches the machine off or restarts
/// it, or says the word that was waited for.
///
/// # Errors
/// What it did instead.
pub fn judge(
    lines: &[Line<'_>],
    how: How,
    status: ExitStatus,
    has_initrd: bool,
) -> Result<(), Misdeed> {
    let panic = lines.iter().find(|line| line.text.contains(PANIC));
    if let Some(panic) = panic {
        return if panic.text.contains(NO_ROOT) && !has_initrd {
            Ok(())
        } else {
            Err(Misdeed::Panicked(panic.text.to_string()))
        };
    }
    match how {
        How::Until => Ok(()),
        How::Hung(silence) => Err(Misdeed::Hung(silence.as_secs())),
        How::Flooded(bytes) => Err(Misdeed::Flooded(bytes as u64)),
        // Whoever asked to stop is told so elsewhere.
        How::Interrupted(_) => Err(Misdeed::Died(status.code())),
        How::Exited if status.success() && lines.iter().any(|line| says_goodbye(&line.text)) => {
            Ok(())
        }
        How::Exited => Err(Misdeed::Died(status.code())),
    }
}

/// What a kernel prints when it was asked to switch off or restart.
pub(crate) fn says_goodbye(text: &str) -> bool {
    [
        "reboot: Power down",
        "reboot: Restarting system",
        "reboot: System halted",
    ]
    .iter()
    .any(|start| text.starts_with(start))
}

/// Why an emulator let the kernel die, if it did; `cpus` is how many it has.
///
/// On a busy host the timer of an emulated machine stands still while the kernel counts its
/// interrupts; with several CPUs see [`patched_to_death`].
///
/// ```
/// use firstlight_lab::boot::linux_end::died_of_the_emulator;
/// let lines = firstlight_lab::log::lines(
///     b"[    0.036] Kernel panic - not syncing: IO-APIC + timer doesn't work!",
/// );
/// assert!(died_of_the_emulator(&lines, 1).is_some());
/// ```
#[must_use]
pub fn died_of_the_emulator(lines: &[Line<'_>], cpus: u32) -> Option<String> {
    const NO_TIMER: &str = "IO-APIC + timer doesn't work";
    let no_timer = |line: &&Line<'_>| line.text.contains(PANIC) && line.text.contains(NO_TIMER);
    if let Some(line) = lines.iter().find(no_timer) {
        return Some(format!("the emulated timer stood still: {}", line.text));
    }
    // Only another CPU can meet an instruction that is half replaced.
    (cpus > 1).then(|| patched_to_death(lines)).flatten()
}

/// Why the kernel died while it changed its own code, if it did: an emulator may
/// run an instruction that another of its CPUs is just replacing, where a
/// processor would not. QEMU 7.2 does so now and then, Linux 6.12 with several
/// CPUs meets it.
///
/// ```
/// use firstlight_lab::boot::linux_end::patched_to_death;
/// let lines = firstlight_lab::log::lines(b"[    0.700] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI");
/// assert!(patched_to_death(&lines).is_some());
/// ```
#[must_use]
pub fn patched_to_death(lines: &[Line<'_>]) -> Option<String> {
    const PATCHERS: [&str; 7] = [
        "int3",
        "text_poke",
        "jump_label",
        "static_key",
        "static_call",
        "alternative",
        "smp_text",
    ];
    let head = lines.iter().position(|line| is_oops(&line.text))?;
    let oops = lines.get(head..)?.iter().take(OOPS_LINES);
    let patches = oops
        .map(|line| &*line.text)
        .take_while(|text| !text.contains("[ end trace"))
        .any(|text| PATCHERS.iter().any(|word| text.contains(word)));
    let text = &lines.get(head)?.text;
    patches.then(|| format!("Linux died while it changed its own code, under emulation: {text}"))
}
