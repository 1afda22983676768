//! A boot that went well, as a record: what was asked for, what the guest said, and
//! apart from it what the host did.

use std::path::Path;
use std::time::Duration;

use super::accelerator::Choice;
use super::command::{Launch, Ports};
use super::events::Events;
use super::heard::Heard;
use super::machine::{Clock, System};
use super::request::Request;
use super::tell;
use crate::boot_log;
use crate::gaps;
use crate::log::{self, Line};
use crate::record::{Asked, DimmSlots, Host, Kernel, Marker, Power, Record};

/// What a record is made from besides what was heard.
#[derive(Debug)]
pub(super) struct Circumstances<'c> {
    pub(super) request: &'c Request,
    pub(super) launch: &'c Launch<'c>,
    pub(super) qemu: &'c Path,
    pub(super) qemu_version: Option<String>,
    pub(super) choice: Choice,
    pub(super) attempts: u64,
    pub(super) retried_because: Option<String>,
}

/// The command to repeat a boot by hand: the log comes to the terminal.
pub(super) fn command(qemu: &Path, launch: &Launch<'_>) -> Vec<String> {
    let arguments = launch.arguments(&Ports::terminal());
    let words = arguments
        .iter()
        .map(|word| word.to_string_lossy().into_owned());
    [qemu.display().to_string()]
        .into_iter()
        .chain(words)
        .collect()
}

/// All that came of a boot.
pub(super) fn record(heard: &Heard, events: &Events, around: Circumstances<'_>) -> Record {
    let (request, launch) = (around.request, around.launch);
    let machine = launch.machine;
    let mut record = Record::new("boot", machine.clock.name());
    let path = |path: &Path| path.display().to_string();
    let kind = match launch.system {
        System::Linux => "linux",
        System::Image => "image",
    };
    record.source.kind = kind.into();
    record.source.name = request.kernel.as_deref().map_or(String::new(), path);
    record.source.command_line = launch.command_line();
    let file = request.kernel.as_deref().or(request.image.as_deref());
    record.source.kernel = Some(Kernel {
        kind: kind.into(),
        release: None,
        file: file.map(path),
        initrd: request.initrd.as_deref().map(path),
    });
    record.machine.asked = Some(Asked {
        board: machine.board.name().into(),
        memory_bytes: machine.memory_mib.saturating_mul(1 << 20),
        nodes: machine.nodes.into(),
        cpus: machine.cpus.into(),
        firmware: machine.firmware.name().into(),
        balloon: machine.balloon,
        hotplug: machine.hotplug.map(|hotplug| DimmSlots {
            slots: hotplug.slots,
            max_memory_bytes: hotplug.max_memory_mib.saturating_mul(1 << 20),
        }),
    });
    match launch.system {
        System::Linux => boot_log::tell(&heard.log, &mut record),
        System::Image => {
            record.source.map = "the memory map the image was started with".into();
            record.source.nodes = "firmware's tables, as the image read them".into();
            tell::tell(events, &mut record);
        }
    }
    record.log = lines(&heard.log);
    let mut messages = log::lines(&heard.log);
    let mut host = host(heard, around);
    host.lines_ns.truncate(record.log.len());
    host.lines_ns.resize(record.log.len(), host.wall_ns);
    if launch.system == System::Linux && machine.clock == Clock::Wall {
        host.before_clock_ns = before_clock(&messages, &host.lines_ns);
        messages = log::heard(&messages, &host.lines_ns);
        boot_log::tell_heard(&messages, &mut record);
    }
    record.gaps = gaps::longest(&messages, &record.phases);
    record.host = Some(host);
    record
}

/// When the guest's clock was zero, by its first line with a time that was not printed
/// later than it was said: the earliest of what each line says.
fn before_clock(messages: &[Line<'_>], lines_ns: &[u64]) -> Option<u64> {
    let start = log::clock_start(messages);
    let messages = messages.get(start..)?.iter();
    let zero = messages.filter_map(|line| {
        let stamp_ns = line.stamp_ns.filter(|ns| *ns > 0)?;
        let heard_ns = lines_ns.get(line.number.checked_sub(1)?)?;
        heard_ns.checked_sub(stamp_ns)
    });
    zero.min()
}

/// The log as it came, but for line ends and what is no UTF-8.
fn lines(log: &[u8]) -> Vec<String> {
    let lines = log.split(|byte| *byte == b'\n');
    let mut lines: Vec<String> = lines
        .map(|line| String::from_utf8_lossy(line.trim_ascii_end()).into_owned())
        .collect();
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

fn host(heard: &Heard, around: Circumstances<'_>) -> Host {
    let markers = heard.markers.iter().map(|(code, at)| Marker {
        code: *code,
        name: Marker::name_of(*code),
        wall_ns: nanoseconds(*at),
    });
    Host {
        name: host_name(),
        console: None,
        accelerator: around.choice.accelerator.name().into(),
        accelerator_reason: around.choice.reason,
        qemu_version: around.qemu_version,
        command: command(around.qemu, around.launch),
        attempts: around.attempts,
        retried_because: around.retried_because,
        power: Power::of_host(),
        exit_status: heard.status.code(),
        wall_ns: nanoseconds(heard.wall),
        first_output_ns: heard.first_output.map(nanoseconds),
        lines_ns: heard.line_ends.iter().copied().map(nanoseconds).collect(),
        before_clock_ns: None,
        markers: markers.collect(),
    }
}

/// What Slurm calls this host, or the host itself.
pub(crate) fn host_name() -> String {
    let system = || {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    };
    std::env::var("SLURMD_NODENAME").unwrap_or_else(|_| system())
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
