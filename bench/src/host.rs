//! The host, in words; without it figures have no meaning.

use std::fs::read_to_string;

fn read(path: &str) -> String {
    read_to_string(path).unwrap_or_default()
}

/// Processor, CPUs, memory, kernel.
#[must_use]
pub fn line() -> String {
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("?".into(), |rest| {
            rest.trim_start_matches([' ', '\t', ':']).to_owned()
        })
    };
    let (cpu, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let is_virtual = cpu
        .lines()
        .any(|line| line.starts_with("flags") && line.contains(" hypervisor"));
    let machine = if is_virtual {
        " of a virtual machine"
    } else {
        ""
    };
    format!(
        "{}, {cpus} CPUs{machine}, {} of memory, Linux {}",
        field(&cpu, "model name"),
        field(&memory, "MemTotal"),
        read("/proc/sys/kernel/osrelease").trim(),
    )
}

/// Its load, the mean of a minute.
#[must_use]
pub fn load() -> String {
    let load = read("/proc/loadavg");
    load.split(' ').next().unwrap_or("?").to_owned()
}
