//! The command `firstlight-pool`: the daemon, its exporter, and what their users run; under a
//! name such as `firstlight-qemu-system-x86_64` the emulator of libvirt's domains.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use firstlight_pool::libvirt::qemu_of;
use firstlight_pool_cli::emulator;
use firstlight_pool_cli::output::{self, Output};
use firstlight_pool_cli::{Problem, Program, Subcommands, bench, manual, named};
use std::process::ExitCode;

/// Memory that is zeroed before a virtual machine asks for it
#[derive(Parser)]
#[command(name = "firstlight-pool", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Arguments {
    #[command(flatten)]
    output: output::Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Pool(Subcommands),
    Bench(bench::Options),
    #[command(hide = true)]
    Manual(manual::Options),
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  2  wrong usage
  3  the output cannot be written
  4  the program failed its own checks: please report it
  5  the pool cannot do what was asked
  8  the daemon refuses
  9  its configuration is missing or wrong
  10  no daemon answers";

/// What `firstlight-pool(1)` has besides.
const CONTENTS: manual::Contents<'static> = manual::Contents {
    groups: &[],
    examples: "\
echo 4096 > /proc/sys/vm/nr_hugepages                        # 8 GiB in huge pages of 2 MiB
firstlight-pool serve --config /etc/firstlight/pool.toml &   # keeps slabs of them zeroed
firstlight-pool run --memory 2G -- qemu-system-x86_64 ...    # a machine that starts on one
",
    see_also: &[("pool.toml", "5"), ("firstlight", "1")],
};

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if let Some(qemu) = words.next().and_then(|name| qemu_of(name.as_ref())) {
        let mut output = Output::plain();
        let failure = emulator::run(&qemu, words.collect(), &mut output);
        output.failure(&failure);
        return ExitCode::from(failure.exit_code());
    }
    let program = Program::Pool;
    let matches = named(Arguments::command(), program).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let mut output = Output::new(&arguments.output, program);
    let result = match arguments.command {
        Command::Pool(command) => command.run(program, &mut output),
        Command::Bench(options) => bench::run(&options, program, &mut output),
        Command::Manual(options) => {
            let command = named(Arguments::command(), program);
            manual::write(&options, command, &CONTENTS)
                .and_then(|()| manual::write_configuration(&options))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.exit_code() == 0 => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}
