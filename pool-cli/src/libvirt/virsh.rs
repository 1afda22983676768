//! libvirt, as `virsh` speaks to it.

use crate::failure::Failure;
use std::io::Write;
use std::process::{Command, Stdio};

/// A connection, by its name.
pub(super) struct Virsh<'o> {
    /// The URI; virsh's own choice when absent.
    pub(super) connect: Option<&'o str>,
}

impl Virsh<'_> {
    /// The definition that the next start uses.
    pub(super) fn definition(&self, domain: &str) -> Result<String, Failure> {
        self.ask("dumpxml", domain, &["--inactive", "--security-info"])
    }

    /// What libvirt says about a domain under `title`, such as `yes` under `Persistent`.
    pub(super) fn fact(&self, domain: &str, title: &str) -> Result<String, Failure> {
        let facts = self.ask("dominfo", domain, &[])?;
        let mut facts = facts.lines().filter_map(|line| line.split_once(':'));
        let fact = facts.find(|(name, _)| *name == title);
        Ok(fact
            .map(|(_, value)| value.trim().into())
            .unwrap_or_default())
    }

    /// Puts `xml` in the place of a domain's definition.
    pub(super) fn define(&self, xml: &str) -> Result<(), Failure> {
        let mut file = tempfile::NamedTempFile::new()
            .map_err(|error| Failure::Io(format!("cannot make a temporary file: {error}")))?;
        file.write_all(xml.as_bytes())
            .map_err(|error| Failure::Io(format!("cannot write a temporary file: {error}")))?;
        let mut command = self.command("define");
        command.arg("--file").arg(file.path());
        said(command).map(drop)
    }

    fn ask(&self, question: &str, domain: &str, options: &[&str]) -> Result<String, Failure> {
        let mut command = self.command(question);
        command.args(options).arg("--domain").arg(domain);
        said(command)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new("virsh");
        command.env("LC_ALL", "C").stdin(Stdio::null());
        if let Some(uri) = self.connect {
            command.args(["--connect", uri]);
        }
        command.args(["--quiet", name]);
        command
    }
}

fn said(mut command: Command) -> Result<String, Failure> {
    let output = command.output().map_err(|error| {
        Failure::Pool(format!(
            "cannot start virsh: {error}; expected it in PATH: Debian has it in libvirt-clients"
        ))
    })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let words = text
            .lines()
            .map(|line| line.trim_start_matches("error: ").trim());
        let lines: Vec<&str> = words.filter(|line| !line.is_empty()).collect();
        return Err(Failure::Pool(format!("virsh: {}", lines.join("; "))));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| Failure::Pool("virsh printed no UTF-8, expected a definition in XML".into()))
}
