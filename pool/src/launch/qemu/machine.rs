//! The name that a machine gives its memory. Snapshots and migrations carry it, so memory of
//! the pool must have it too, or what was saved on the pool loads nowhere else.

use std::env::consts;
use std::ffi::OsStr;
use std::path::Path;

/// Emulated processors, machine types without their versions, and the name of their memory
/// (`default-ram-id` of QMP's `query-machines`).
const NAMES: [(&[&str], &[&str], &str); 10] = [
    (&["x86_64", "i386"], &["pc", "q35", "isapc"], "pc.ram"),
    (&["x86_64", "i386"], &["microvm"], "microvm.ram"),
    (&["aarch64", "arm"], &["virt"], "mach-virt.ram"),
    (&["aarch64"], &["sbsa-ref"], "sbsa-ref.ram"),
    (&["riscv64", "riscv32"], &["virt"], "riscv_virt_board.ram"),
    (&["riscv64", "riscv32"], &["spike"], "riscv.spike.ram"),
    (&["s390x"], &["s390-ccw-virtio"], "s390.ram"),
    (&["ppc64"], &["pseries"], "ppc_spapr.ram"),
    (&["ppc64"], &["powernv"], "pnv.ram"),
    (&["loongarch64"], &["virt"], "loongarch.ram"),
];

/// Machines of a command line that names none.
const DEFAULTS: [(&str, &str); 4] = [
    ("x86_64", "pc"),
    ("i386", "pc"),
    ("s390x", "s390-ccw-virtio"),
    ("ppc64", "pseries"),
];

/// The name of the memory of `machine` as `program` starts it; `None` where it is not known.
pub(super) fn ram_name(program: &OsStr, machine: Option<&str>) -> Option<&'static str> {
    let program = Path::new(program).file_name()?.to_str()?;
    // `qemu-kvm` and `kvm` start machines of this host's processor.
    let processor = match program.split_once("qemu-system-") {
        Some((_, name)) => name.split('.').next()?,
        None => consts::ARCH,
    };
    let machine = machine.or_else(|| {
        let default = DEFAULTS.iter().find(|(one, _)| *one == processor);
        default.map(|(_, machine)| *machine)
    })?;
    // `virt-7.2` is a version of `virt`, `pc-q35-7.2` one of `q35`.
    let is_version = |name: &&str| {
        let rest = machine.strip_prefix(*name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let mut names = NAMES.iter();
    let (_, _, name) = names.find(|(processors, machines, _)| {
        processors.contains(&processor) && machines.iter().any(is_version)
    })?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::ram_name;

    #[test]
    fn memory_is_named_by_processor_and_machine() {
        for (program, machine, expected) in [
            ("/usr/bin/qemu-system-x86_64", None, Some("pc.ram")),
            ("qemu-system-x86_64", Some("pc-q35-7.2"), Some("pc.ram")),
            ("qemu-system-i386", Some("isapc"), Some("pc.ram")),
            ("qemu-system-x86_64", Some("microvm"), Some("microvm.ram")),
            ("qemu-system-x86_64", Some("x-remote"), None),
            (
                "qemu-system-aarch64",
                Some("virt-8.0"),
                Some("mach-virt.ram"),
            ),
            ("qemu-system-aarch64", Some("virtual"), None),
            ("qemu-system-aarch64", None, None),
            (
                "qemu-system-riscv64",
                Some("virt"),
                Some("riscv_virt_board.ram"),
            ),
            ("qemu-system-s390x", None, Some("s390.ram")),
            ("qemu-system-m68k", Some("virt"), None),
        ] {
            assert_eq!(
                ram_name(program.as_ref(), machine),
                expected,
                "{program} {machine:?}"
            );
        }
    }
}
