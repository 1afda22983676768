//! `firstlight-qemu-system-...`: this program under another name, as a domain of libvirt
//! names it for its emulator. It becomes the QEMU beside it, with the guest's memory from
//! the pool.
//!
//! libvirt passes no variables and reads what QEMU's standard error has into the domain's
//! log: settings come from a file, and each reason is a line there. A start that the pool
//! has nothing for, or whose command line is not understood, is QEMU's own, unless the settings
//! require the pool. Settings that are wrong may do so too: with them nothing is started.

use crate::Program;
use crate::failure::Failure;
use crate::output::Output;
use crate::start::{self, Terms};
use firstlight_pool::client::{SETTINGS, SOCKET_VARIABLE, Settings};
use firstlight_pool::launch::{Plan, STARTED, Start, label, program_path};
use firstlight_pool::libvirt::PREFIX;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What makes a start without the pool fail: a word of the settings.
const REQUIRE: &str = "`require = true` in client.toml";

/// Becomes `qemu`; returns only what stood in the way.
#[must_use]
pub fn run(qemu: &Path, arguments: Vec<OsString>, output: &mut Output) -> Failure {
    let qemu = match find(qemu) {
        Ok(qemu) => qemu,
        Err(failure) => return failure,
    };
    let program = qemu.as_os_str();
    let plan = match Plan::managed(program, &arguments) {
        Ok(None) => return become_qemu(program, arguments),
        Ok(Some(plan)) => start::check_nodes(plan.needs()).map(|()| plan),
        Err(error) => Err(Failure::pool(error)),
    };
    let settings = match Settings::read(Path::new(SETTINGS)) {
        Ok(settings) => settings,
        Err(error) => {
            return Failure::Config(format!(
                "{error}; this file may require the pool, so nothing is started: correct it, \
                 or remove it"
            ));
        }
    };
    match plan {
        Ok(plan) => {
            let socket = env::var_os(SOCKET_VARIABLE).filter(|name| !name.is_empty());
            let terms = Terms {
                socket: socket.map_or(settings.socket, PathBuf::from),
                page: None,
                topup: None,
                wait: settings.emulator.wait_s,
                require: settings.emulator.require,
                require_by: REQUIRE,
                body_to: None,
                label: label(program, &arguments),
            };
            start::start(Program::Pool, program, &plan, &terms, output)
        }
        Err(failure) if settings.emulator.require => failure,
        Err(failure) => {
            let ordinary = start::the_ordinary_way(REQUIRE);
            say(format_args!("{failure}; {ordinary}"));
            become_qemu(program, arguments)
        }
    }
}

/// The QEMU beside this program or, where there is none, that of `PATH`; not one that starts this
/// program again, which would go on for ever.
fn find(qemu: &Path) -> Result<PathBuf, Failure> {
    let beside = program_path(qemu.as_os_str());
    let elsewhere = || program_path(qemu.file_name()?);
    let found = beside.clone().or_else(elsewhere).ok_or_else(|| {
        Failure::Pool(format!(
            "cannot start {}: no such program; a {PREFIX}qemu-system-... starts the \
             qemu-system-... beside it, or that of PATH",
            qemu.display()
        ))
    })?;
    let file = |path: &Path| path.canonicalize().ok();
    let own = env::current_exe().ok().and_then(|own| file(&own));
    let is_own = own.is_some() && own == file(&found);
    if is_own || env::var_os(STARTED).is_some_and(|name| Path::new(&name) == found) {
        return Err(Failure::Pool(format!(
            "{0} is no QEMU but starts this program again: where QEMU was moved aside, say to \
             {0}.real, a link {PREFIX}{1}.real to this program starts that",
            found.display(),
            qemu.file_name().unwrap_or_default().to_string_lossy(),
        )));
    }
    if beside.is_none() {
        let (wanted, found) = (qemu.display(), found.display());
        say(format_args!(
            "there is no {wanted}; starting {found}, which PATH has"
        ));
    }
    Ok(found)
}

fn become_qemu(program: &OsStr, arguments: Vec<OsString>) -> Failure {
    let error = Start::new(program, arguments).exec();
    Failure::Pool(format!(
        "cannot start {}: {error}",
        program.to_string_lossy()
    ))
}

fn say(text: std::fmt::Arguments<'_>) {
    // The reader may be gone: no reason not to start.
    let _ = writeln!(io::stderr(), "firstlight: {text}");
}
