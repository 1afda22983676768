//! What real Linux did: `testdata/golden/linux_boots.json`, as tests read it.

pub(crate) mod checkers;
pub(crate) mod here;
pub(crate) mod hotplug;
pub(crate) mod image;
pub(crate) mod qemu;
pub(crate) mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// One recorded boot.
#[derive(Debug, Clone)]
pub(crate) struct Golden {
    /// Name of the boot; its log is `logs/NAME.log`.
    pub(crate) name: String,
    /// "6.1" or "6.12".
    pub(crate) kernel: String,
    /// What went in.
    pub(crate) input: GoldenInput,
    /// What the kernel made of it.
    pub(crate) expect: Value,
}

/// What went into a boot.
#[derive(Debug, Clone)]
pub(crate) struct GoldenInput {
    /// Rows as printed: first byte, last byte, kind.
    pub(crate) e820: Vec<(u64, u64, String)>,
    /// The SRAT rows as recorded.
    pub(crate) srat: Vec<Value>,
    /// Command line words beyond the standard ones.
    pub(crate) cmdline_extra: String,
    /// CPUs.
    pub(crate) cpus: u64,
    /// Whether CPUID says there is a hypervisor.
    pub(crate) hypervisor_bit: bool,
}

/// The folder `testdata/` of the repository.
pub(crate) fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata")
}

/// A number, also as text in hexadecimal.
pub(crate) fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => {
            let digits = text.strip_prefix("0x").unwrap();
            u64::from_str_radix(digits, 16).unwrap()
        }
        other => other.as_u64().unwrap(),
    }
}

/// All recorded boots.
pub(crate) fn golden() -> Vec<Golden> {
    let text = fs::read_to_string(testdata().join("golden/linux_boots.json")).unwrap();
    let records: Vec<Value> = serde_json::from_str(&text).unwrap();
    records.iter().map(record).collect()
}

fn record(value: &Value) -> Golden {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let input = &value["input"];
    let e820 = input["e820"].as_array().unwrap().iter();
    Golden {
        name: text(&value["name"]),
        kernel: text(&value["kernel"]),
        input: GoldenInput {
            e820: e820
                .map(|row| (number(&row[0]), number(&row[1]), text(&row[2])))
                .collect(),
            srat: input["srat"].as_array().unwrap().clone(),
            cmdline_extra: text(&input["cmdline_extra"]),
            cpus: input["cpus"].as_u64().unwrap(),
            hypervisor_bit: input["hypervisor_bit"].as_bool().unwrap(),
        },
        expect: value["expect"].clone(),
    }
}

/// The serial log of a boot.
pub(crate) fn log(name: &str) -> Vec<u8> {
    fs::read(testdata().join("golden/logs").join(format!("{name}.log"))).unwrap()
}
