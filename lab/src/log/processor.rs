//! Which processor a kernel runs on: [`Processor`].

use super::kernel_log::KernelLog;
use super::kernel_rows::Processor;
use super::line::Line;

/// Reads `line` if it says which processor there is.
pub(super) fn read(line: &Line<'_>, log: &mut KernelLog) -> bool {
    // 32-bit Arm has no number in brackets.
    let first = line
        .text
        .strip_prefix("Booting Linux on physical CPU 0x")
        .is_some_and(|rest| rest.ends_with(']') && rest.contains(" [0x"));
    if first {
        log.processor = Processor::Arm64;
    }
    first
}

/// What a release such as `6.1.0-56-cloud-arm64` says.
pub(super) fn of_release(release: &str) -> Option<Processor> {
    let words = release.split(['-', '.', '_', '+']);
    let arm = words
        .filter(|word| matches!(*word, "arm64" | "aarch64"))
        .count();
    (arm > 0).then_some(Processor::Arm64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::read;

    #[test]
    fn an_arm_machine_is_known_by_its_first_line_or_its_release() {
        for (text, expected) in [
            (
                "Booting Linux on physical CPU 0x0000000000 [0x411fd070]",
                Processor::Arm64,
            ),
            ("Booting Linux on physical CPU 0x0", Processor::X86_64),
            (
                "Linux version 6.1.0-56-cloud-arm64 (x@y) #1 SMP",
                Processor::Arm64,
            ),
            (
                "Linux version 5.14.0-427.el9.aarch64 (x@y) #1 SMP",
                Processor::Arm64,
            ),
            (
                "Linux version 6.1.0-55-cloud-amd64 (x@y) #1 SMP",
                Processor::X86_64,
            ),
        ] {
            assert_eq!(read(text.as_bytes()).processor, expected, "{text}");
        }
    }
}
