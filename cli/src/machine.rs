//! The machine of `layout` and `blocks`: a kernel log, or a shape; and as which kernel.

use crate::failure::Failure;
use clap::Args;
use firstlight_bench::machine::{Shape, ShapeError};
use firstlight_figures::size;
use firstlight_lab::file;
use firstlight_lab::linux::{Flavour, LayoutInput, PluggedMemory};
use firstlight_lab::log;
use firstlight_lab::up::no_map;
use std::path::PathBuf;

/// Where the machine comes from.
#[derive(Args)]
pub(crate) struct Source {
    /// A kernel log
    #[arg(required_unless_present = "shape")]
    log: Option<PathBuf>,
    /// A synthetic machine: memory=SIZE[,nodes=N][,cpus=N]
    #[arg(long, value_name = "SHAPE", value_parser = named_shape, conflicts_with = "log")]
    shape: Option<(Shape, String)>,
    /// Which kernel: firstlight, linux-6.1 or linux-6.12
    #[arg(long = "as", value_name = "KERNEL", default_value_t = Flavour::Firstlight)]
    pub(crate) kernel: Flavour,
    /// CPUs of the machine, instead of the number the log names
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cpus: Option<u32>,
    /// Whether the processor says that there is a hypervisor; else as firmware's name in the log says, no for a shape
    #[arg(long, value_name = "yes|no", value_parser = yes_or_no)]
    hypervisor: Option<bool>,
    /// Memory plugged in after the boot; the node is 0 if none is named. It has memory blocks, and is in no other row
    #[arg(long, value_name = "SIZE@ADDRESS[,node=N]", value_parser = plugged)]
    plug: Vec<PluggedMemory>,
}

fn named_shape(text: &str) -> Result<(Shape, String), ShapeError> {
    Ok((text.parse()?, text.to_owned()))
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("expected yes or no".into()),
    }
}

fn plugged(text: &str) -> Result<PluggedMemory, String> {
    let expected = "expected SIZE@ADDRESS[,node=N], such as 4G@0x140000000,node=1";
    let (range, node) = match text.split_once(",node=") {
        Some((range, node)) => (range, node.parse().map_err(|_| expected)?),
        None => (text, 0),
    };
    let (bytes, start) = range.split_once('@').ok_or(expected)?;
    let bytes = size::parse(bytes).map_err(|error| error.to_string())?;
    let start = match start.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).map_err(|_| expected)?,
        None => size::parse(start).map_err(|_| expected)?,
    };
    let last = bytes
        .checked_sub(1)
        .and_then(|more| start.checked_add(more));
    Ok(PluggedMemory {
        node,
        start,
        last: last.ok_or(expected)?,
    })
}

impl Source {
    /// The machine, and what it is called.
    pub(crate) fn input(&self) -> Result<(String, LayoutInput), Failure> {
        let (name, mut input) = match (&self.shape, &self.log) {
            (Some((shape, text)), _) => (text.clone(), of_shape(shape)),
            (None, Some(path)) => {
                let content = file::read(path)?;
                let name = path.display().to_string();
                let log = log::read(&content);
                let mut input = LayoutInput::from_log(&log);
                if input.map.is_empty() {
                    return Err(Failure::Machine(no_map(&name, &content)));
                }
                for problem in &log.problems {
                    input.notices.push(problem);
                }
                input.notices.more_by(log.more_problems);
                (name, input)
            }
            (None, None) => return Err(Failure::Usage("expected a log or --shape".into())),
        };
        input.cpu_count = self.cpus.unwrap_or(input.cpu_count);
        input.hypervisor = self.hypervisor.unwrap_or(input.hypervisor);
        input.plugged.clone_from(&self.plug);
        input.plugged.sort_by_key(|one| one.start);
        Ok((name, input))
    }
}

fn of_shape(shape: &Shape) -> LayoutInput {
    let mut input = LayoutInput {
        map: shape.map(),
        cpu_count: shape.cpus,
        ..LayoutInput::default()
    };
    for (node, start, bytes) in shape.memory_rows() {
        input.add_memory(
            node.into(),
            node.into(),
            (start, start + (bytes - 1)),
            false,
        );
    }
    for node in shape.cpu_nodes() {
        input.count_cpu(node.into(), node.into());
    }
    input
}
