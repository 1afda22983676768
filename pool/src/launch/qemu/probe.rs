//! Command lines that start no guest: QEMU shows something and ends, or waits for questions
//! about itself. Management software sends them to learn what a QEMU can do.

use super::options::{self, Given};
use super::properties::{Properties, split};
use std::ffi::OsString;

/// Options whose value is a text or a path and has no properties.
const PLAIN: &[&str] = &[
    "append",
    "kernel",
    "initrd",
    "dtb",
    "bios",
    "pidfile",
    "D",
    "L",
    "hda",
    "hdb",
    "hdc",
    "hdd",
    "fda",
    "fdb",
    "cdrom",
    "pflash",
    "mtdblock",
    "sd",
    "incoming",
    "loadvm",
    "runas",
    "chroot",
    "mem-path",
    "readconfig",
    "uuid",
    "k",
];

/// Whether `arguments` start no guest.
pub(in crate::launch) fn is_probe(arguments: &[OsString]) -> bool {
    let given = options::read(arguments);
    let shows = given.iter().any(|option| {
        let by_name = ["h", "help", "version", "audio-help"].contains(&option.name);
        let asks = !PLAIN.contains(&option.name) && option.value.is_some_and(is_question);
        by_name || asks
    });
    // The last `-machine` decides.
    let mut machines = given.iter().filter_map(machine_type);
    shows || machines.next_back().is_some_and(|kind| kind == "none")
}

/// `help` or `?`, by itself or as a property, is a question about the option.
fn is_question(value: &str) -> bool {
    !value.starts_with('{')
        && split(value)
            .iter()
            .any(|part| part == "help" || part == "?")
}

fn machine_type(option: &Given<'_>) -> Option<String> {
    let value = option
        .value
        .filter(|_| matches!(option.name, "machine" | "M"))?;
    Properties::read(value, "type").ok()?.get("type")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_about_qemu_are_told_from_guests() {
        for (line, expected) in [
            ("-version", true),
            ("--help", true),
            (
                "-S -no-user-config -nodefaults -nographic -machine none,accel=kvm:tcg -daemonize",
                true,
            ),
            ("-M none", true),
            ("-machine type=none", true),
            ("-cpu help", true),
            ("-machine q35 -device virtio-net-pci,help", true),
            ("-machine ?", true),
            ("-machine none -machine q35 -m 1G", false),
            ("-machine q35,accel=tcg -m 1G", false),
            ("-name none -append help=1 -m 1G", false),
            ("-append -version -m 1G", false),
            ("-append help -m 1G", false),
            ("-initrd a,help -m 1G", false),
            ("-drive file=/d/a,,help,format=raw -m 1G", false),
            ("-drive file=/d/a,help", true),
            (
                "-object {\"qom-type\":\"memory-backend-ram\",\"id\":\"a,help,b\",\"size\":1} -m 1G",
                false,
            ),
            ("disk.img", false),
            ("", false),
        ] {
            let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(is_probe(&arguments), expected, "{line}");
        }
    }
}
