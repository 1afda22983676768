//! The body of `vm.create`: a guest that is made over the API of a VMM that runs already.
//!
//! The VMM inherits the files when it is started, as it does with a guest on its command line, and
//! the body names them. What holds of `--memory` and `--memory-zone` holds of `memory` and `zones`,
//! so the body is planned as the command line that says the same.

use super::{CloudHypervisorPlan, OF_THE_ZONE, PAYLOADS, REPLACED, refuse};
use crate::launch::backing::Backing;
use crate::launch::error::PlanError;
use crate::launch::need::Need;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

type Object = Map<String, Value>;

/// A body's members as they are written: what is not of memory stays so, numbers of any length among it.
type Body = BTreeMap<String, String>;

/// A body and how it changes.
#[derive(Debug)]
pub(in crate::launch) struct ApiPlan {
    pub(in crate::launch) arguments: Vec<OsString>,
    text: String,
    body: Body,
    /// Its `memory`, read.
    memory: Option<Object>,
    /// The command line that says the same about memory.
    pub(in crate::launch) line: CloudHypervisorPlan,
}

fn unreadable(place: &str, reason: impl Into<String>) -> PlanError {
    PlanError::Unreadable {
        option: "--vm-config".into(),
        text: place.into(),
        reason: reason.into(),
    }
}

/// An object of the body as the properties of an option.
fn properties(place: &str, object: &Object) -> Result<String, PlanError> {
    let mut words = Vec::new();
    for (name, value) in object {
        // What is no name could be read as an option, or as another property.
        let is_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(unreadable(place, format!("{name:?} is no property")));
        }
        let value = match (name.as_str(), value) {
            ("zones", _) | (_, Value::Null) => continue,
            ("hotplug_method", Value::String(how)) if how == "VirtioMem" => "virtio-mem".into(),
            (_, Value::Bool(true)) => "on".into(),
            (_, Value::Bool(false)) => "off".into(),
            // Others are no longer what was written.
            (_, Value::Number(number)) if number.is_u64() || number.is_i64() => number.to_string(),
            (_, Value::Number(_)) => {
                let text = format!("{name} is no whole number below 2^64, expected one");
                return Err(unreadable(place, text));
            }
            (_, Value::String(text)) if !text.contains([',', '"', '[', ']']) => text.clone(),
            _ => return Err(unreadable(place, format!("{name} is {value}"))),
        };
        words.push(format!("{name}={value}"));
    }
    Ok(words.join(","))
}

/// The command line that says of memory what a body says.
fn line(body: &Body, memory: Option<&Object>) -> Result<Vec<OsString>, PlanError> {
    let mut words: Vec<String> = vec![PAYLOADS[0].into(), "payload".into()];
    if let Some(memory) = memory {
        words.extend(["--memory".into(), properties("memory", memory)?]);
        let zones = memory.get("zones").filter(|zones| !zones.is_null());
        let zones = zones.map(|zones| {
            let zones = zones.as_array().filter(|zones| !zones.is_empty());
            zones.ok_or_else(|| unreadable("memory.zones", "expected a list of zones"))
        });
        if let Some(zones) = zones.transpose()? {
            words.push("--memory-zone".into());
            for zone in zones {
                let object = zone.as_object();
                let zone = object.ok_or_else(|| unreadable("memory.zones", "expected objects"));
                words.push(properties("memory.zones", zone?)?);
            }
        }
    }
    let written = |name: &str| body.get(name).map(String::as_str);
    if written("landlock_enable") == Some("true") {
        words.push("--landlock".into());
    }
    if written("numa").is_some_and(|numa| numa != "null") {
        words.push("--numa".into());
    }
    Ok(words.into_iter().map(OsString::from).collect())
}

/// A zone on a file of the pool.
fn on(mut zone: Object, file: &Backing) -> Value {
    zone.retain(|name, _| !REPLACED.contains(&name.as_str()));
    zone.insert("file".into(), file.path.clone().into());
    zone.insert("shared".into(), true.into());
    Value::Object(zone)
}

impl ApiPlan {
    /// Plans the body `text` of the VMM that `arguments` start.
    pub(in crate::launch) fn new(
        arguments: &[OsString],
        text: &str,
        asked: &[Need],
        is_file: &dyn Fn(&Path) -> bool,
    ) -> Result<Self, PlanError> {
        let starts = |one: &OsString| {
            let name = one.to_str().and_then(|text| text.split('=').next());
            name.is_some_and(|name| PAYLOADS.contains(&name) || name == "--restore")
        };
        if arguments.iter().any(starts) {
            let text = "this command line starts a guest by itself, and --vm-config is for one that \
                        is made over the API: leave one of them out";
            return refuse("", text);
        }
        let landlock = arguments.iter().filter(|one| *one == "--landlock");
        let body: BTreeMap<String, &RawValue> =
            serde_json::from_str(text).map_err(|error| unreadable("", error.to_string()))?;
        let written = body.into_iter();
        let body: Body = written
            .map(|(name, value)| (name, value.get().into()))
            .collect();
        let memory = body.get("memory").map(|memory| {
            serde_json::from_str::<Option<Object>>(memory)
                .map_err(|_| unreadable("memory", "expected an object"))
        });
        let memory = memory.transpose()?.flatten();
        let mut words = line(&body, memory.as_ref())?;
        words.extend(landlock.cloned());
        Ok(Self {
            arguments: arguments.to_vec(),
            text: text.into(),
            line: CloudHypervisorPlan::new(&words, asked, is_file)?,
            body,
            memory,
        })
    }

    /// The body on `files`, one for each need; without any as it was, or with the memory that only
    /// `--memory` says.
    pub(in crate::launch) fn body(&self, files: &[Backing]) -> String {
        let has_size = self
            .line
            .memory
            .as_ref()
            .is_some_and(|one| one.list.get("size").is_some());
        let is_complete = !self.line.zones.is_empty() || (has_size && self.line.needs.len() == 1);
        if files.is_empty() && is_complete {
            return self.text.clone();
        }
        let mut body = self.body.clone();
        let mut memory = self.memory.clone().unwrap_or_default();
        let given = memory
            .remove("zones")
            .and_then(|zones| zones.as_array().cloned());
        let zones: Vec<Object> = if let Some(given) = given {
            memory.remove("mergeable");
            given
                .iter()
                .filter_map(|zone| zone.as_object().cloned())
                .collect()
        } else {
            let moved = memory.clone().into_iter();
            let moved: Object = moved
                .filter(|(name, _)| {
                    let name = name.as_str();
                    OF_THE_ZONE.contains(&name) || (files.is_empty() && REPLACED.contains(&name))
                })
                .collect();
            memory.retain(|name, _| {
                let name = name.as_str();
                !REPLACED.contains(&name) && !OF_THE_ZONE.contains(&name)
            });
            memory.insert("size".into(), 0.into());
            let zones = self.line.new_zones.iter().zip(&self.line.needs);
            let zones = zones.map(|(zone, need)| {
                let mut new = moved.clone();
                new.insert("id".into(), zone.get("id").into());
                new.insert("size".into(), need.bytes.into());
                let node = need.node.filter(|_| files.is_empty());
                new.extend(node.map(|node| ("host_numa_node".into(), node.into())));
                new
            });
            zones.collect()
        };
        if self.line.zones.is_empty() && zones.len() > 1 {
            let node = |(at, zone): (usize, &Object)| json!({"guest_numa_id": at, "memory_zones": [zone["id"]]});
            let nodes = zones.iter().enumerate().map(node);
            body.insert("numa".into(), nodes.collect::<Value>().to_string());
        }
        let zones = zones.into_iter().enumerate();
        let zones = zones.map(|(at, zone)| match files.get(at) {
            Some(file) => on(zone, file),
            None => Value::Object(zone),
        });
        memory.insert("zones".into(), zones.collect());
        body.insert("memory".into(), Value::Object(memory).to_string());
        let members = body.into_iter();
        let members = members.map(|(name, value)| format!("{}:{value}", Value::String(name)));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first number is above 2^64, and no float is exactly it; the second no float at all.
    const NUMBERS: &str = r#""new":[18446744073709551617, 1e400],"#;
    const KEPT: &str = r#""cpus":{"boot_vcpus":4,"max_vcpus":4},"new":[18446744073709551617, 1e400],"payload":{"kernel":"vmlinux"}"#;

    fn plan(memory: &str, asked: &[&str]) -> Result<ApiPlan, PlanError> {
        let asked: Vec<Need> = asked.iter().map(|text| text.parse().unwrap()).collect();
        let arguments = ["--api-socket", "/run/vm.sock"].map(OsString::from);
        let text = format!("{{{KEPT}{memory}}}");
        let is_file = |path: &Path| path == Path::new("/var/saved");
        ApiPlan::new(&arguments, &text, &asked, &is_file)
    }

    fn files(plan: &ApiPlan) -> Vec<Backing> {
        let file = |at: usize| Backing {
            path: format!("/proc/self/fd/{}", 3 + at),
            align_bytes: None,
        };
        (0..plan.line.needs.len()).map(file).collect()
    }

    /// A body's memory, our `--memory`, and what it becomes: among them the forms of the VMM's
    /// docs/api.md and of its tests that put command lines beside bodies.
    const CASES: [(&str, &[&str], &str); 9] = [
        (
            "",
            &[],
            r#","memory":{"size":0,"zones":[{"id":"mem0","size":536870912,FILE0}]}"#,
        ),
        (
            "",
            &["1G@1"],
            r#","memory":{"size":0,"zones":[{"id":"mem0","size":1073741824,FILE0}]}"#,
        ),
        (
            r#","memory":{"size":1073741824,"mergeable":true,"hugepages":true,"hugepage_size":2097152,"thp":true}"#,
            &[],
            r#","memory":{"size":0,"thp":true,"zones":[{"id":"mem0","size":1073741824,FILE0}]}"#,
        ),
        (
            r#","memory":{"size":536870912,"shared":true,"prefault":true,"zones":null}"#,
            &["512M"],
            r#","memory":{"size":0,"zones":[{"id":"mem0","size":536870912,FILE0}]}"#,
        ),
        (
            r#","memory":{"size":1073741824,"hotplug_method":"VirtioMem","hotplug_size":1073741824}"#,
            &[],
            r#","memory":{"size":0,"hotplug_method":"VirtioMem",
                "zones":[{"id":"mem0","size":1073741824,"hotplug_size":1073741824,FILE0}]}"#,
        ),
        (
            r#","memory":{"size":0,"zones":[{"id":"a","size":2097152,"host_numa_node":1},
                {"id":"b","size":4194304,"file":"/dev/hugepages","hugepages":true,"prefault":true}]},
                "numa":[{"guest_numa_id":0,"memory_zones":["a"]},{"guest_numa_id":1,"memory_zones":["b"]}]"#,
            &[],
            r#","memory":{"size":0,"zones":[{"id":"a","size":2097152,FILE0},{"id":"b","size":4194304,FILE1}]},
                "numa":[{"guest_numa_id":0,"memory_zones":["a"]},{"guest_numa_id":1,"memory_zones":["b"]}]"#,
        ),
        (
            r#","memory":{"size":0,"mergeable":true,"zones":[{"id":"a","size":2097152,"new":{"deep":1}}]}"#,
            &[],
            "",
        ),
        (
            "",
            &["1G@0", "2G"],
            r#","memory":{"size":0,"zones":[{"id":"firstlight0","size":1073741824,FILE0},
                {"id":"firstlight1","size":2147483648,FILE1}]},
                "numa":[{"guest_numa_id":0,"memory_zones":["firstlight0"]},
                {"guest_numa_id":1,"memory_zones":["firstlight1"]}]"#,
        ),
        (
            r#","memory":{"size":0,"mergeable":true,"zones":[{"id":"a","size":2097152,"new":1}]}"#,
            &[],
            r#","memory":{"size":0,"zones":[{"id":"a","size":2097152,"new":1,FILE0}]}"#,
        ),
    ];

    #[test]
    fn bodies_before_and_after() {
        let parsed = |text: &str| {
            assert!(text.contains(NUMBERS), "{text}");
            serde_json::from_str::<Value>(&text.replace(NUMBERS, "")).unwrap()
        };
        for (memory, asked, expected) in CASES {
            let plan = plan(memory, asked);
            if expected.is_empty() {
                assert!(plan.unwrap_err().to_string().contains("new is"), "{memory}");
                continue;
            }
            let plan = plan.unwrap_or_else(|error| panic!("{memory}: {error}"));
            let files = files(&plan);
            let expected = expected
                .replace("FILE0", r#""file":"/proc/self/fd/3","shared":true"#)
                .replace("FILE1", r#""file":"/proc/self/fd/4","shared":true"#);
            let body = parsed(&plan.body(&files));
            assert_eq!(body, parsed(&format!("{{{KEPT}{expected}}}")), "{memory}");
            if !memory.is_empty() {
                assert_eq!(
                    plan.body(&[]),
                    format!("{{{KEPT}{memory}}}"),
                    "without the pool"
                );
            }
            // A command line says the same.
            let words = |all: Vec<OsString>| -> std::collections::BTreeSet<String> {
                let words = all.into_iter().map(|word| word.into_string().unwrap());
                words
                    .flat_map(|word| word.split(',').map(String::from).collect::<Vec<_>>())
                    .collect()
            };
            let body = ApiPlan::new(&plan.arguments, &body.to_string(), &[], &|_| false).unwrap();
            let mut said = words(line(&body.body, body.memory.as_ref()).unwrap());
            let mut expected = words(plan.line.with_memory(&files));
            for set in [&mut said, &mut expected] {
                set.retain(|word| !word.contains("_zones=") && !word.starts_with("guest_numa_id"));
            }
            assert_eq!(said, expected, "{memory}");
        }
    }

    #[test]
    fn without_the_pool_a_guest_has_the_memory_that_was_asked_for() {
        for (memory, asked, expected) in [
            (
                "",
                &["1G@1"][..],
                r#"[{"id":"mem0","size":1073741824,"host_numa_node":1}]"#,
            ),
            (
                r#","memory":{"size":2097152,"hugepages":true}"#,
                &["1M", "1M@0"],
                r#"[{"id":"firstlight0","size":1048576,"hugepages":true},
                    {"id":"firstlight1","size":1048576,"hugepages":true,"host_numa_node":0}]"#,
            ),
        ] {
            let body = plan(memory, asked).unwrap().body(&[]);
            let body: Value = serde_json::from_str(&body.replace(NUMBERS, "")).unwrap();
            let expected: Value = serde_json::from_str(expected).unwrap();
            assert_eq!(body["memory"]["zones"], expected, "{memory}");
            assert_eq!(body["memory"]["size"], 0, "{memory}");
        }
    }

    #[test]
    fn what_cannot_be_on_the_pool_is_refused_with_what_to_change() {
        let zone = |properties: &str| format!(r#","memory":{{"size":0,"zones":[{properties}]}}"#);
        for (memory, words) in [
            (
                r#","memory":{"size":1,"shared":false}"#.into(),
                "shared=off would copy",
            ),
            (r#","memory":5"#.into(), "memory: expected an object"),
            (
                r#","memory":{"size":"1G,file=x"}"#.into(),
                "size is \"1G,file=x\"",
            ),
            (r#","memory":{"size":-1}"#.into(), "no size"),
            (
                r#","memory":{"size":18446744073709551616}"#.into(),
                "memory: size is no whole number below 2^64",
            ),
            (
                zone(r#"{"id":"a","size":1,"hotplug_size":1.5}"#),
                "hotplug_size is no whole number",
            ),
            (
                r#","memory":{"size":1,"hotplug_size":1}"#.into(),
                "virtio-mem",
            ),
            (
                r#","landlock_enable":true"#.into(),
                "--landlock allows files",
            ),
            (zone(""), "expected a list of zones"),
            (zone("1"), "expected objects"),
            (zone(r#"{"size":1}"#), "has an id"),
            (zone(r#"{"-x":1},{"-y":1}"#), "\"-x\" is no property"),
            (
                zone(r#"{"id":"a","size":1073741824,"z=1,size":4096}"#),
                "\"z=1,size\" is no property",
            ),
            (
                zone(r#"{"id":"a","size":1,"file":"/var/saved"}"#),
                "would not be used",
            ),
            (
                zone(r#"{"id":"a","size":1},{"id":"a","size":1}"#),
                "memory zone a: another zone has this id",
            ),
        ] {
            let memory: String = memory;
            let error = plan(&memory, &[]).map(drop).unwrap_err().to_string();
            assert!(error.contains(words), "{memory}: {error}");
        }
        let new = |line: &str, text: &str| {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            ApiPlan::new(&arguments, text, &[], &|_| false).map(drop)
        };
        for (line, text, words) in [
            (
                "--api-socket s --kernel=k",
                "{}",
                "starts a guest by itself",
            ),
            ("--restore source_url=f", "{}", "starts a guest by itself"),
            ("--api-socket s --landlock", "{}", "--landlock allows files"),
            ("--api-socket s", "{", "--vm-config : "),
            ("--api-socket s", "[]", "--vm-config : "),
        ] {
            let error = new(line, text).unwrap_err().to_string();
            assert!(error.contains(words), "{line}: {error}");
        }
        new("--api-socket s", "{}").unwrap();
    }
}
