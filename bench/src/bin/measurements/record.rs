//! What commands printed, and where and when: [`Record`], schema `firstlight.measurement/1`.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use firstlight_bench::host;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::Plan;

/// Most samples of a balloon that are kept.
const MOST_SAMPLES: usize = 100;
const SCHEMA: &str = "firstlight.measurement/1";

/// A measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// [`SCHEMA`].
    pub(crate) schema: String,
    /// The plan's name.
    pub(crate) name: String,
    /// When, in UTC.
    pub(crate) date: String,
    /// The commit that was measured; with `+` the tree had changes.
    pub(crate) commit: String,
    /// The host, in words.
    pub(crate) host: String,
    /// Its load when the measurement began and ended, where it was noted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) load: Option<[String; 2]>,
    /// What to know about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// What was run, in order.
    pub(crate) runs: Vec<Run>,
}

/// A command and what it printed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    pub(crate) command: String,
    /// A JSON document, or a list of lines.
    pub(crate) output: Value,
}

impl Record {
    /// Runs the commands of a plan.
    pub(crate) fn measure(plan: &Plan, root: &Path) -> Result<Self, Box<dyn Error>> {
        let begin = host::load();
        let mut runs = Vec::new();
        for command in plan.commands {
            eprintln!("measurements: {}: {command}", plan.name);
            runs.push(Run {
                command: (*command).to_owned(),
                output: output(command, root)?,
            });
        }
        Ok(Self {
            schema: SCHEMA.into(),
            name: plan.name.into(),
            date: line("date -u +%F", root)?,
            commit: commit(root)?,
            host: host::line(),
            load: Some([begin, host::load()]),
            note: None,
            runs,
        })
    }

    fn path(name: &str, root: &Path) -> PathBuf {
        root.join("testdata/measurements")
            .join(format!("{name}.json"))
    }

    /// The record of a plan.
    pub(crate) fn read(plan: &Plan, root: &Path) -> Result<Self, String> {
        let path = Self::path(plan.name, root);
        let name = path.display();
        let text = fs::read(&path).map_err(|error| {
            format!(
                "cannot read {name}: {error}; make measurements ONLY={} makes it",
                plan.name
            )
        })?;
        let record: Self =
            serde_json::from_slice(&text).map_err(|error| format!("{name}: {error}"))?;
        if record.schema != SCHEMA || record.name != plan.name {
            return Err(format!(
                "{name} is {:?} of {:?}; expected {SCHEMA:?} of {:?}",
                record.schema, record.name, plan.name
            ));
        }
        Ok(record)
    }

    pub(crate) fn write(&self, root: &Path) -> Result<(), Box<dyn Error>> {
        let path = Self::path(&self.name, root);
        let unfinished = path.with_extension("unfinished");
        fs::write(&unfinished, serde_json::to_string_pretty(self)? + "\n")?;
        Ok(fs::rename(unfinished, path)?)
    }

    /// The outputs, as lines.
    pub(crate) fn texts(&self) -> Result<Vec<Vec<String>>, String> {
        let lines = |run: &Run| {
            serde_json::from_value(run.output.clone())
                .map_err(|error| format!("{}: no lines: {error}", run.command))
        };
        self.runs.iter().map(lines).collect()
    }

    /// Where its figures are from, below the figures.
    pub(crate) fn source(&self) -> String {
        let load = self.load.as_ref().map_or(String::new(), |[begin, end]| {
            format!("; load {begin} before, {end} after")
        });
        let note = self
            .note
            .as_ref()
            .map_or(String::new(), |note| format!(" {note}"));
        let commands: Vec<&str> = self.runs.iter().map(|run| &*run.command).collect();
        format!(
            "{}{load}. {}, commit {}.{note} Printed by:\n\n```sh\n{}\n```\n",
            self.host,
            self.date,
            self.commit,
            commands.join("\n")
        )
    }
}

/// What a command prints: JSON if it is, else lines.
fn output(command: &str, root: &Path) -> Result<Value, Box<dyn Error>> {
    let text = shell(command, root)?;
    let lines = || Value::from(text.lines().map(str::trim_end).collect::<Vec<_>>());
    if !text.starts_with('{') {
        return Ok(lines());
    }
    let mut document: Value = serde_json::from_str(&text)?;
    // The gaps and phases of a Linux are many, and in no table.
    if document["schema"] == "firstlight.compare/1"
        && let Some(rows) = document["rows"].as_array_mut()
    {
        rows.retain(|row| row["kind"] == "descriptors" || row["kind"] == "milestone");
    }
    // Of a boot with a balloon, what is told of that; QEMU's memory over time is many samples.
    if document["schema"] == "firstlight.run/1" && document["balloon"].is_object() {
        let fields = ["schema", "clock", "machine", "balloon"];
        if let Some(document) = document.as_object_mut() {
            document.retain(|name, _| fields.contains(&&**name));
        }
        for samples in ["host_resident_bytes", "host_balloon_bytes"] {
            if let Some(samples) = document["balloon"][samples].as_array_mut() {
                let step = samples.len().div_ceil(MOST_SAMPLES).max(1);
                let mut at = 0;
                samples.retain(|_| {
                    at += 1;
                    (at - 1) % step == 0
                });
            }
        }
    }
    Ok(document)
}

fn shell(command: &str, root: &Path) -> Result<String, Box<dyn Error>> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(root)
        .env(
            "PATH",
            format!("{}:{path}", root.join(target).join("release").display()),
        )
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{command}: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn line(command: &str, root: &Path) -> Result<String, Box<dyn Error>> {
    Ok(shell(command, root)?.trim().to_owned())
}

/// The commit; figures and what shows them are no changes of what is measured.
fn commit(root: &Path) -> Result<String, Box<dyn Error>> {
    let head = line("git rev-parse --short HEAD", root)?;
    let changed = "git status --porcelain --untracked-files=no -- . \
                   ':!testdata/measurements' ':!docs' ':!*.md'";
    let plus = if line(changed, root)?.is_empty() {
        ""
    } else {
        "+"
    };
    Ok(head + plus)
}
