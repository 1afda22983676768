//! `firstlight stick`: a file to copy onto a USB stick that starts our image on a machine whose
//! firmware is UEFI; what is on it is the [lab's](firstlight_lab::stick).

use crate::boot::Boots;
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, ValueEnum};
use firstlight_lab::boot::{BootError, Processor};
use firstlight_lab::stick::{Programs, Stick};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Name and version of the document.
const SCHEMA: &str = "firstlight.stick/1";

/// Make a USB stick that runs Firstlight on a real machine, started by UEFI
///
/// The file has a partition table and FAT32 on it; copied onto a stick, it starts our image,
/// which brings up the machine's memory and leaves the result on the stick. It touches no disk.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The file to write, 64 MiB
    #[arg(long, short, value_name = "FILE", default_value = "stick.img")]
    output: PathBuf,
    /// Words of the image's command line; on the stick they are in firstlight/cmdline.txt
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    append: String,
    /// Only for machines with this processor; without, one stick starts both
    #[arg(long, value_enum)]
    arch: Option<Arch>,
    /// The file of the image for the processor of --arch (without: x86_64), instead of the one beside this program
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// The file of the UEFI loader for that processor, likewise
    #[arg(long, value_name = "FILE")]
    loader: Option<PathBuf>,
}

/// Processors that sticks are for.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Arch {
    /// That of PCs
    #[value(name = "x86_64")]
    X86_64,
    /// Arm's, of 64 bits
    Aarch64,
}

const EXAMPLES: &str = "\
Examples:
  firstlight stick --append selftest                   stick.img, to be copied onto a stick
  sudo dd if=stick.img of=/dev/sdX bs=4M conv=fsync    where sdX is the stick: all on it is lost
  firstlight up --result /media/stick/firstlight/result.jsonl   what the run found

Exit codes: see firstlight --help";

/// What was written.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Written<'w> {
    schema: &'static str,
    file: &'w Path,
    bytes: u64,
    words: &'w str,
}

fn programs((loader, image): &(PathBuf, PathBuf)) -> Programs<'_> {
    Programs { loader, image }
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let path = &options.output;
    if path.exists() && !path.is_file() {
        return Err(Failure::Usage(format!(
            "--output {}: expected a file; a stick is written by dd (see --help), which says what it writes to",
            path.display()
        )));
    }
    let boots = Boots::silent()?;
    let is_named = options.image.is_some() || options.loader.is_some();
    let only = options.arch.or(is_named.then_some(Arch::X86_64));
    let files = |arch: Arch, processor| -> Result<Option<(PathBuf, PathBuf)>, Failure> {
        if only.is_some_and(|only| only != arch) {
            return Ok(None);
        }
        let image = options.image.clone();
        let image = image.map_or_else(|| boots.image(processor), Ok)?;
        let loader = options.loader.clone();
        let loader = loader.map_or_else(|| boots.loader(processor), Ok)?;
        Ok(Some((loader, image)))
    };
    let x86_64 = files(Arch::X86_64, Processor::X86_64)?;
    let aarch64 = files(Arch::Aarch64, Processor::Aarch64)?;
    let stick = Stick {
        x86_64: x86_64.as_ref().map(programs),
        aarch64: aarch64.as_ref().map(programs),
        words: &options.append,
    };
    let failed = |error| Failure::Boot(BootError::Stick(error));
    stick.write(path).map_err(failed)?;
    let bytes = path
        .metadata()
        .map_err(|error| Failure::unreadable(path, &error))?
        .len();
    let written = Written {
        schema: SCHEMA,
        file: path,
        bytes,
        words: options.append.trim(),
    };
    output.print(&written, |written| {
        let file = written.file.display();
        format!(
            "{file}: {} MiB; copy it onto a stick, which loses all that is on it:\n  sudo dd if={file} of=/dev/sdX bs=4M conv=fsync\n",
            written.bytes >> 20
        )
    })
}
