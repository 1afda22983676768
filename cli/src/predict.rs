//! `firstlight predict`: how long a machine will take, from its description; the formulas are
//! the [lab's](firstlight_lab::predict).

use crate::failure::Failure;
use crate::output::{FAINT, HEADING, NOTE, Output};
use crate::published;
use crate::report::Page;
use crate::text::{head, plural};
use clap::Args;
use clap::builder::PossibleValuesParser;
use firstlight_bench::machine::{Shape, ShapeError};
use firstlight_lab::file;
use firstlight_lab::predict::{Checked, Expected, Machine, Outside, Prediction, predict, searches};
use firstlight_lab::published::TABLES;
use firstlight_lab::up::no_map;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Say how long Linux and the engine will take on a machine, and how sure that is
///
/// The rates are fitted to the published boots of six machines; the range is where nine of
/// ten of their rows lie, and wider where a machine is larger than these. --check shows each row and
/// which are within 20 %, and boots that nothing was fitted to. Of a log its own figures stand beside.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A kernel log that shows the machine
    #[arg(required_unless_present_any = ["shape", "published"])]
    log: Option<PathBuf>,
    /// A synthetic machine: memory=SIZE[,nodes=N][,cpus=N]
    #[arg(long, value_name = "SHAPE", value_parser = shape, conflicts_with = "log")]
    shape: Option<Shape>,
    /// A kernel log whose figures stand beside those predicted for --shape
    #[arg(long = "log", value_name = "LOG", requires = "shape")]
    beside: Option<PathBuf>,
    /// MiB of a memory block; else as Linux chooses it
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    block_mib: Option<u64>,
    /// The kernel's release: before 5.8 each memory block was found by a search; else the log's, or one of today
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    /// Threads a node; else all of its CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Show how the published rows are predicted
    #[arg(long)]
    check: bool,
    /// Instead print what others published, with its sources; all tables, or =NAME
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, conflicts_with_all = ["log", "shape", "threads", "check", "beside", "block_mib", "release"], value_parser = PossibleValuesParser::new(TABLES.map(|table| table.0)))]
    published: Option<Option<String>>,
}

const EXAMPLES: &str = "\
Examples:
  firstlight predict boot.log
  firstlight predict --shape memory=4T,nodes=8,cpus=256
  firstlight predict --shape memory=768G,nodes=2,cpus=104 --check
  firstlight predict --shape memory=2T,nodes=8,cpus=8 --block-mib 128 --release 5.7
  firstlight predict --shape memory=64G,nodes=2,cpus=2 --log boot.log
  firstlight predict --published=sparc-32t

Exit codes: see firstlight --help";

fn shape(text: &str) -> Result<Shape, ShapeError> {
    text.parse()
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    if let Some(wanted) = &options.published {
        return published::print(wanted.as_deref(), output);
    }
    let mut content = None;
    let mut machine = match (&options.shape, &options.log) {
        (Some(shape), _) => {
            let mut nodes: BTreeMap<_, u64> = BTreeMap::new();
            for (node, _, bytes) in shape.memory_rows() {
                let sum = nodes.entry(node).or_default();
                *sum = sum.saturating_add(bytes);
            }
            content = options.beside.as_deref().map(file::read).transpose()?;
            Machine::new(nodes.into_values(), shape.cpus)
        }
        (None, Some(path)) => {
            let log = content.insert(file::read(path)?);
            Machine::of_log(log)
                .ok_or_else(|| Failure::Machine(no_map(&path.display().to_string(), log)))?
        }
        (None, None) => return Err(Failure::Usage("expected a log or --shape".into())),
    };
    if let Some(mib) = options.block_mib {
        machine.block_mib = mib;
    }
    if let Some(release) = &options.release {
        machine.searches_blocks = searches(release);
    }
    let mut prediction = predict(machine, options.threads);
    if let Some(log) = content {
        prediction.put_beside(&log);
    }
    output.print(&prediction, |prediction| report(prediction, options.check))
}

fn report(prediction: &Prediction, check: bool) -> String {
    let mut page = Page::default();
    let machine = &prediction.machine;
    let gib: f64 = machine.node_gib.iter().sum();
    page.styled(
        HEADING,
        &format!(
            "firstlight predict: {gib:.0} GiB, {}, {}, {} a node",
            plural(machine.node_gib.len() as u64, "node"),
            plural(machine.cpus.into(), "CPU"),
            plural(prediction.threads.into(), "thread")
        ),
    );
    page.section(
        if machine.searches_blocks {
            "Linux before 5.8"
        } else {
            "Linux 6.1, 6.12"
        },
        "milliseconds, and where nine of ten would lie; what the log says",
    );
    let row = |row: &Expected| {
        let (low, high) = row.range_ms;
        vec![
            row.phase.to_owned(),
            format!("{:.1}", row.ms),
            format!("{low:.1} .. {high:.1}"),
            row.measured_ms
                .map_or(String::new(), |ms| format!("{ms:.1}")),
        ]
    };
    page.table(
        "<>>>",
        &prediction.linux.iter().map(row).collect::<Vec<_>>(),
    );
    for row in &prediction.linux {
        if let Some(beyond) = row.beyond {
            page.line(format!(
                "  {NOTE}note:{NOTE:#} {} is {beyond:.1} times what was fitted: its range is that much wider to both sides",
                row.phase
            ));
        }
    }
    page.section("The engine", "milliseconds");
    let engine = &prediction.engine;
    let (low, high) = engine.range_ms;
    page.line(format!(
        "  {}  {:.3}  {low:.3} .. {high:.3}",
        engine.phase, engine.ms
    ));
    let published = &prediction.published;
    page.line(format!(
        "\n  {FAINT}of {} published figures {} are predicted within 20 %{FAINT:#}",
        published.rows.len(),
        published.near
    ));
    if check {
        page.section("Published", "milliseconds");
        let row = |row: &Checked| {
            vec![
                row.machine.clone(),
                row.threads.to_string(),
                row.figure.to_owned(),
                format!("{:.1}", row.published_ms),
                format!("{:.1}", row.predicted_ms),
                if row.near {
                    ""
                } else {
                    "off by more than 20 %"
                }
                .to_owned(),
            ]
        };
        let mut rows = vec![head([
            "machine",
            "threads",
            "",
            "published",
            "predicted",
            "",
        ])];
        rows.extend(published.rows.iter().map(row));
        page.table("<><>><", &rows);
        page.section("Published, fitted to nothing", "milliseconds");
        for Outside {
            machine,
            published_ms,
            predicted_ms,
            range_ms: (low, high),
            inside,
            note,
        } in &published.outside
        {
            let inside = if *inside { "inside" } else { "outside" };
            page.line(format!(
                "  {machine}: {published_ms:.0}, predicted {predicted_ms:.0}, {inside} of {low:.0} .. {high:.0}: {note}"
            ));
        }
    }
    page.text
}
