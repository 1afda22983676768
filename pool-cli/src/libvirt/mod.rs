//! `firstlight pool libvirt`: which domains of libvirt take their memory from the pool.

mod virsh;

use crate::daemon::Daemon;
use crate::failure::Failure;
use crate::output::Output;
use crate::text::bytes;
use clap::{Args, Subcommand};
use firstlight_pool::libvirt::{Domain, DomainError};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use virsh::Virsh;

/// Have domains of libvirt take their memory from the pool
///
/// A domain does so when its <emulator> is firstlight-qemu-system-x86_64, which becomes
/// the QEMU beside it. Nothing else of its definition changes; where libvirt has it keep
/// huge pages of its own, those are not used. Without the pool it starts as before.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    command: Change,
}

#[derive(Subcommand)]
enum Change {
    /// From its next start on a domain's memory is the pool's
    #[command(after_help = EXAMPLES)]
    Enable(Target),
    /// From its next start on a domain has the kernel's memory, as before
    #[command(after_help = EXAMPLES)]
    Disable(Target),
    /// Show whether a domain is enabled, and what of the pool it has
    #[command(after_help = EXAMPLES)]
    Status(Target),
}

#[derive(Args)]
struct Target {
    /// The domain: its name, number or UUID
    domain: String,
    /// The connection, as virsh names it [default: virsh's]
    #[arg(long, value_name = "URI")]
    connect: Option<String>,
    #[command(flatten)]
    daemon: Daemon,
}

const EXAMPLES: &str = "\
Examples:
  firstlight pool libvirt enable demo && virsh start demo
  firstlight pool libvirt status demo
  firstlight pool libvirt disable demo --connect qemu:///system

What a start did is in the domain's log, /var/log/libvirt/qemu/demo.log. The daemon's socket
and what to do without memory: /etc/firstlight/client.toml.

Exit codes: see firstlight --help";

/// Where libvirt keeps the process ids of the system's domains.
const PIDS: &str = "/run/libvirt/qemu";

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Record {
    schema: &'static str,
    domain: String,
    enabled: bool,
    emulator: String,
    /// The emulator before, if it changed.
    before: Option<String>,
    /// Bytes of the pool that it runs on; `null` if it does not run, or where that is not known.
    pool_bytes: Option<u64>,
    running: bool,
    notes: Vec<String>,
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let target = match &options.command {
        Change::Enable(target) | Change::Disable(target) | Change::Status(target) => target,
    };
    let virsh = Virsh {
        connect: target.connect.as_deref(),
    };
    let xml = virsh.definition(&target.domain)?;
    let as_it_was =
        |error: DomainError| Failure::Pool(format!("{} is left as it is: {error}", target.domain));
    let domain = Domain::read(&xml).map_err(as_it_was)?;
    let changed = match &options.command {
        Change::Enable(_) => domain.enabled().map_err(as_it_was)?,
        Change::Disable(_) => domain.disabled(),
        Change::Status(_) => None,
    };
    let mut notes = Vec::new();
    if let Some(changed) = &changed {
        change(&virsh, target, changed)?;
        if virsh.fact(&target.domain, "Managed save")? == "yes" {
            notes.push(
                "its saved state starts with the emulator it was saved with; virsh \
                 managedsave-remove drops it"
                    .into(),
            );
        }
    }
    let now = Domain::read(changed.as_ref().unwrap_or(&xml)).map_err(as_it_was)?;
    if now.is_enabled() {
        notes.extend(now.notes().iter().cloned());
    }
    let running = virsh.fact(&target.domain, "State")? == "running";
    let pool_bytes = match pool_bytes(target, now.name()) {
        Ok(bytes) => bytes.filter(|_| running),
        Err(error) => {
            notes.push(error.to_string());
            None
        }
    };
    let record = Record {
        schema: "firstlight.pool-libvirt/1",
        domain: now.name().into(),
        enabled: now.is_enabled(),
        emulator: now.emulator().display().to_string(),
        before: changed
            .is_some()
            .then(|| domain.emulator().display().to_string()),
        pool_bytes,
        running,
        notes,
    };
    output.print(&record, report)
}

/// Defines `xml`, if libvirt would start what it names.
fn change(virsh: &Virsh<'_>, target: &Target, xml: &str) -> Result<(), Failure> {
    let left = |reason: String| {
        let domain = &target.domain;
        Err(Failure::Pool(format!(
            "{domain} is left as it is: {reason}"
        )))
    };
    if virsh.fact(&target.domain, "Persistent")? != "yes" {
        return left("it is gone when it ends, so no next start would use a change".into());
    }
    let wanted = Domain::read(xml).map_err(Failure::pool)?;
    let emulator = wanted.emulator();
    if !emulator.exists() {
        return left(format!(
            "there is no {}; the package has it in /usr/bin, elsewhere make a link of that name to \
             firstlight",
            emulator.display()
        ));
    }
    virsh.define(xml)?;
    let defined = virsh.definition(&target.domain)?;
    match Domain::read(&defined) {
        Ok(now) if now.emulator() == emulator => Ok(()),
        _ => Err(Failure::Pool(format!(
            "libvirt took the definition of {} without its emulator {}: see virsh dumpxml",
            target.domain,
            emulator.display()
        ))),
    }
}

/// What the pool has allocated to the process of the domain called `name`.
fn pool_bytes(target: &Target, name: &str) -> Result<Option<u64>, Failure> {
    let pid = fs::read_to_string(Path::new(PIDS).join(format!("{name}.pid")));
    let pid: Option<u32> = pid.ok().and_then(|text| text.trim().parse().ok());
    let status = target.daemon.connect()?.status()?;
    Ok(pid.map(|pid| {
        let leases = status.leases.iter().filter(|lease| lease.pid == pid);
        leases.map(|lease| lease.bytes).sum()
    }))
}

fn report(record: &Record) -> String {
    let state = if record.enabled {
        "enabled"
    } else {
        "disabled"
    };
    let domain = &record.domain;
    let mut page = match &record.before {
        Some(before) => format!("{domain}: {state}, {before} became {}\n", record.emulator),
        None => format!("{domain}: {state}, {}\n", record.emulator),
    };
    if record.before.is_some() && record.running {
        let _ = writeln!(page, "  it runs on as it is; its next start uses this");
    }
    match record.pool_bytes {
        Some(0) => page.push_str("  runs on no memory of the pool\n"),
        Some(some) => {
            let _ = writeln!(page, "  runs on {} of the pool", bytes(some));
        }
        None => {}
    }
    for note in &record.notes {
        let _ = writeln!(page, "  note: {note}");
    }
    page
}
