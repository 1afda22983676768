//! `firstlight predict`: how long a machine will take, from its description; the formulas are
//! the [lab's](firstlight_lab::predict).

use crate::failure::Failure;
use crate::output::{FAINT, HEADING, Output};
use crate::published;
use crate::report::Page;
use crate::text::{Align, plural};
use clap::Args;
use clap::builder::PossibleValuesParser;
use firstlight_bench::machine::{Shape, ShapeError};
use firstlight_lab::file;
use firstlight_lab::log;
use firstlight_lab::predict::{Checked, Expected, Machine, Prediction, predict};
use firstlight_lab::published::TABLES;
use firstlight_lab::up::no_map;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Say how long Linux and the engine will take on a machine, and how sure that is
///
/// The rates are fitted to the published boots of six machines; the range is where nine of
/// ten of their rows lie. --check shows each row and which are within 20 %.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A kernel log that shows the machine
    #[arg(required_unless_present_any = ["shape", "published"])]
    log: Option<PathBuf>,
    /// A synthetic machine: memory=SIZE[,nodes=N][,cpus=N]
    #[arg(long, value_name = "SHAPE", value_parser = shape, conflicts_with = "log")]
    shape: Option<Shape>,
    /// Threads a node; else all of its CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Show how the published rows are predicted
    #[arg(long)]
    check: bool,
    /// Instead print what others published, with its sources; all tables, or =NAME
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, conflicts_with_all = ["log", "shape", "threads", "check"], value_parser = PossibleValuesParser::new(TABLES.map(|table| table.0)))]
    published: Option<Option<String>>,
}

const EXAMPLES: &str = "\
Examples:
  firstlight predict boot.log
  firstlight predict --shape memory=4T,nodes=8,cpus=256
  firstlight predict --shape memory=768G,nodes=2,cpus=104 --check
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
    let machine = match (&options.shape, &options.log) {
        (Some(shape), _) => {
            let mut nodes: BTreeMap<_, u64> = BTreeMap::new();
            for (node, _, bytes) in shape.memory_rows() {
                let sum = nodes.entry(node).or_default();
                *sum = sum.saturating_add(bytes);
            }
            Machine::new(nodes.into_values(), shape.cpus)
        }
        (None, Some(path)) => {
            let content = file::read(path)?;
            let machine = Machine::of_log(&log::read(&content));
            machine
                .ok_or_else(|| Failure::Machine(no_map(&path.display().to_string(), &content)))?
        }
        (None, None) => return Err(Failure::Usage("expected a log or --shape".into())),
    };
    let prediction = predict(machine, options.threads);
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
        "Linux 6.1, 6.12",
        "milliseconds, and where nine of ten would lie",
    );
    let row = |row: &Expected| {
        let (low, high) = row.range_ms;
        vec![
            row.phase.to_owned(),
            format!("{:.1}", row.ms),
            format!("{low:.1} .. {high:.1}"),
        ]
    };
    let columns = [Align::Left, Align::Right, Align::Right];
    page.table(
        &columns,
        &prediction.linux.iter().map(row).collect::<Vec<_>>(),
    );
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
        let mut rows = vec![
            ["machine", "threads", "", "published", "predicted", ""]
                .map(String::from)
                .to_vec(),
        ];
        rows.extend(published.rows.iter().map(row));
        let columns = [
            Align::Left,
            Align::Right,
            Align::Left,
            Align::Right,
            Align::Right,
            Align::Left,
        ];
        page.table(&columns, &rows);
    }
    page.text
}
