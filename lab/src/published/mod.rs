//! What others published, as data and in the form they published it in: [`TABLES`], [`machine`].
//!
//! The files are those of `testdata/published/`, each with its source.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A published table: its name and its file.
pub const TABLES: [(&str, &str); 5] = [
    (
        "deferred-threads",
        include_str!("../../published/deferred-threads.json"),
    ),
    (
        "regression-5.8",
        include_str!("../../published/regression-5.8.json"),
    ),
    (
        "memory-blocks",
        include_str!("../../published/memory-blocks.json"),
    ),
    (
        "pre-zeroing",
        include_str!("../../published/pre-zeroing.json"),
    ),
    ("sparc-32t", include_str!("../../published/sparc-32t.json")),
];

/// A machine on which deferred initialisation was measured with several threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// Its processor.
    pub cpu: String,
    /// The processor's family.
    pub generation: String,
    /// `bare metal` or `kvm guest`.
    pub platform: String,
    /// Nodes.
    pub nodes: u32,
    /// CPUs.
    pub cpus: u32,
    /// Memory of a node.
    pub gib_per_node: u32,
    /// A row a number of threads.
    pub rows: Vec<Threads>,
}

/// One number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Threads {
    /// Hundredths of a node's CPUs.
    pub percent_of_cpus: u32,
    /// Threads; 0: without the change that brought threads.
    pub threads: u32,
    /// The whole boot of the kernel.
    pub boot: Figure,
    /// Deferred initialisation, the slowest node.
    pub deferred: Figure,
}

/// Mean and deviation of some boots.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figure {
    /// Less time than the first row, in hundredths of that.
    pub speedup_percent: Option<f64>,
    /// Mean.
    pub mean_ms: f64,
    /// Standard deviation.
    pub stdev_ms: f64,
}

impl Machine {
    /// Its name here: the processor's family and the memory of a node.
    ///
    /// ```
    /// let machines = firstlight_lab::published::machines();
    /// assert_eq!(machines[0].name(), "skylake-384g");
    /// ```
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}-{}g", self.generation.to_lowercase(), self.gib_per_node)
    }
}

impl Threads {
    /// As a table says it: of a node's CPUs, and how many threads that is.
    #[must_use]
    pub fn share(&self) -> String {
        format!("{} % ({})", self.percent_of_cpus, self.threads)
    }
}

/// All machines of the published sweep over threads.
#[must_use]
pub fn machines() -> Vec<Machine> {
    let table = table("deferred-threads").unwrap_or_default();
    // Checked by a test: the file is part of the program.
    serde_json::from_value(table["machines"].clone()).unwrap_or_default()
}

/// The one whose name begins with `name`.
///
/// # Errors
/// All names, where none or several do.
pub fn machine(name: &str) -> Result<Machine, String> {
    let machines = machines();
    let alike = || {
        machines
            .iter()
            .filter(|machine| machine.name().starts_with(name))
    };
    match (alike().next(), alike().count()) {
        (Some(machine), 1) => Ok(machine.clone()),
        _ => {
            let names: Vec<String> = machines.iter().map(Machine::name).collect();
            Err(format!("expected one of {}", names.join(", ")))
        }
    }
}

/// A table as it was published; `None` if there is none of this name.
#[must_use]
pub fn table(name: &str) -> Option<Value> {
    let (_, text) = TABLES.iter().find(|(known, _)| *known == name)?;
    serde_json::from_str(text).ok()
}

/// A table for a person, in the form it was published in.
#[must_use]
pub fn text(name: &str) -> Option<String> {
    let table = table(name)?;
    let mut text = String::new();
    let _ = writeln!(text, "{}\n", table["source"].as_str().unwrap_or_default());
    match name {
        "deferred-threads" => machines()
            .iter()
            .for_each(|machine| threads(&mut text, machine)),
        "regression-5.8" => regression(&mut text, &table),
        "pre-zeroing" => pre_zeroing(&mut text, &table),
        "sparc-32t" => totals(&mut text, &table),
        _ => fields(&mut text, &table),
    }
    Some(text)
}

/// `34.9 %  2662.7 (2.9)`.
#[must_use]
pub fn cell(figure: &Figure) -> String {
    let speedup = figure
        .speedup_percent
        .map_or(String::new(), |percent| format!("{percent:.1} %"));
    let time = format!("{:.1} ({:.1})", figure.mean_ms, figure.stdev_ms);
    format!("{speedup:>8} {time:>16}")
}

fn threads(text: &mut String, machine: &Machine) {
    let _ = writeln!(
        text,
        "{}: {}, {} nodes, {} CPUs, {} GiB a node, {}",
        machine.name(),
        machine.cpu,
        machine.nodes,
        machine.cpus,
        machine.gib_per_node,
        machine.platform
    );
    let _ = writeln!(
        text,
        "  {:<16} {:>25}  {:>25}",
        "node % (threads)", "kernel boot, ms", "deferred init, ms"
    );
    for row in &machine.rows {
        let threads = row.share();
        let _ = writeln!(
            text,
            "  {threads:<16} {}  {}",
            cell(&row.boot),
            cell(&row.deferred)
        );
    }
    text.push('\n');
}

fn regression(text: &mut String, table: &Value) {
    for boot in table["boot"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "  {:<42} {:>6} s",
            string(&boot["kernel"]),
            boot["s"].to_string()
        );
    }
    for side in ["before", "after"] {
        let _ = writeln!(text, "\n  {side}");
        for line in table["excerpts"][side].as_array().into_iter().flatten() {
            let _ = writeln!(
                text,
                "  [{:>12.6}] {}",
                line[0].as_f64().unwrap_or(0.0),
                string(&line[1])
            );
        }
    }
}

fn pre_zeroing(text: &mut String, table: &Value) {
    let _ = writeln!(
        text,
        "  {:<8} {:<12} {:>24}",
        "pages", "pre-zeroed", "three rounds, s"
    );
    for row in table["rows"].as_array().into_iter().flatten() {
        let pages = if row["thp"] == true { "THP" } else { "4 KiB" };
        let zeroed = if row["prezeroed"] == true {
            "yes"
        } else {
            "no"
        };
        let rounds = row["s"]
            .as_array()
            .into_iter()
            .flatten()
            .map(Value::to_string);
        let rounds: Vec<String> = rounds.collect();
        let _ = writeln!(text, "  {pages:<8} {zeroed:<12} {:>24}", rounds.join(", "));
    }
}

/// Shutdown, Firmware, Kernel, Services, Total, and what they leave unexplained.
fn totals(text: &mut String, table: &Value) {
    let _ = writeln!(text, "  {:<16} {:>9} {:>9}", "s", "before", "after");
    let rows = || table["totals"].as_array().into_iter().flatten();
    for row in rows() {
        if row["phase"] == "total" {
            let rest = |side: &str| {
                let parts = rows().filter(|row| row["phase"] != "total");
                row[side]
                    .as_u64()
                    .unwrap_or(0)
                    .saturating_sub(parts.filter_map(|row| row[side].as_u64()).sum())
            };
            let _ = writeln!(
                text,
                "  {:<16} {:>9} {:>9}",
                "not explained",
                rest("before"),
                rest("after")
            );
        }
        let _ = writeln!(
            text,
            "  {:<16} {:>9} {:>9}",
            string(&row["phase"]),
            row["before"].to_string(),
            row["after"].to_string()
        );
    }
    let kernel = rows().find(|row| row["phase"] == "kernel");
    let lost = kernel.and_then(|row| Some(row["before"].as_f64()? - row["after"].as_f64()?));
    let _ = writeln!(
        text,
        "\n  of the kernel's {:.0} s less",
        lost.unwrap_or(0.0)
    );
    let mut explained = 0.0;
    for fix in table["fixes"].as_array().into_iter().flatten() {
        let saved = fix["saved"]
            .as_f64()
            .or(fix["before"].as_f64())
            .unwrap_or(0.0);
        explained += saved;
        let _ = writeln!(text, "  {saved:>8.1}  {}", string(&fix["what"]));
    }
    let _ = writeln!(
        text,
        "  {:>8.1}  not explained",
        lost.unwrap_or(0.0) - explained
    );
    for row in table["x86"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "\n  x86, {}: {} s less",
            string(&row["machine"]),
            row["saved"]
        );
    }
}

fn fields(text: &mut String, table: &Value) {
    for (name, value) in table.as_object().into_iter().flatten() {
        if name != "source" {
            let _ = writeln!(text, "  {name:<42} {value}");
        }
    }
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_there_and_whole() {
        let machines = machines();
        let rows: usize = machines.iter().map(|machine| machine.rows.len()).sum();
        assert_eq!((machines.len(), rows), (6, 42));
        let mut names: Vec<String> = machines.iter().map(Machine::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 6);
        for (name, part) in [
            ("deferred-threads", "92.3 %      138.0 (1.0)"),
            (
                "regression-5.8",
                "[    2.028450] ACPI: PM-Timer IO Port: 0x448",
            ),
            ("memory-blocks", "16288"),
            ("pre-zeroing", "17.9, 14.8, 14.9"),
            ("sparc-32t", "not explained            0         0"),
        ] {
            let text = text(name).unwrap();
            assert!(text.contains(part), "{part} in {text}");
            assert!(!table(name).unwrap()["source"].as_str().unwrap().is_empty());
        }
        assert!(
            text("sparc-32t")
                .unwrap()
                .contains("  354.4  not explained")
        );
        assert_eq!(text("other"), None);
    }

    #[test]
    fn a_machine_is_found_by_the_start_of_its_name() {
        assert_eq!(machine("sky").map(|machine| machine.cpus), Ok(104));
        assert!(machine("zen").unwrap_err().contains("zen-16g"));
        assert!(machine("none").is_err());
    }
}
