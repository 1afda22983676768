//! Documents are held to the files in `schemas/`.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// One document, as its schema wants it.
pub(crate) fn document(text: &[u8]) -> Value {
    let document = serde_json::from_slice(text)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(text)));
    hold(&document);
    document
}

/// Fails where a document is not as its schema wants it.
pub(crate) fn hold(document: &Value) {
    let wrong = wrong(document);
    assert_eq!(wrong, [""; 0], "{}: {document:#}", document["schema"]);
}

/// What is wrong with it. Fields that the schema does not have are, too: programs that read documents pass them over.
fn wrong(document: &Value) -> Vec<String> {
    let name = document["schema"].as_str();
    let Some(name) = name.and_then(|name| name.strip_prefix("firstlight.")) else {
        return vec!["no schema is named".into()];
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../schemas")
        .join(format!("{}.json", name.replace('/', "-")));
    let Ok(text) = fs::read(&path) else {
        return vec![format!("no {}", path.display())];
    };
    let schema = serde_json::from_slice(&text).unwrap();
    let mut wrong = Vec::new();
    let checks = Checks { whole: &schema };
    checks.value(&schema, document, "", &mut wrong);
    wrong
}

/// Of JSON Schema, what the files in `schemas/` use. A crate that knows all of it brings 36 others along, four of them twice.
struct Checks<'s> {
    whole: &'s Value,
}

impl Checks<'_> {
    fn value(&self, schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
        let Some(keys) = schema.as_object() else {
            // `true` takes anything, `false` nothing.
            if schema != &Value::Bool(true) {
                wrong.push(format!("{at}: {value} is one too many"));
            }
            return;
        };
        let fields = keys.get("properties").and_then(Value::as_object);
        for (key, wanted) in keys {
            let fits = match &**key {
                // The whole's own, and what is said of others below.
                "$schema" | "$defs" | "title" | "description" | "format" | "default" => true,
                "type" => match wanted {
                    Value::Array(types) => types.iter().any(|one| is_a(value, one)),
                    one => is_a(value, one),
                },
                "const" => value == wanted,
                "enum" => wanted.as_array().unwrap().contains(value),
                "minimum" => value.as_f64().is_none_or(|n| n >= wanted.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|n| n <= wanted.as_f64().unwrap()),
                "minItems" | "maxItems" => value.as_array().is_none_or(|list| {
                    let (most, count) = (wanted.as_u64().unwrap(), list.len() as u64);
                    if key == "minItems" {
                        count >= most
                    } else {
                        count <= most
                    }
                }),
                "required" => value.as_object().is_none_or(|object| {
                    let names = wanted.as_array().unwrap();
                    names
                        .iter()
                        .all(|name| object.contains_key(name.as_str().unwrap()))
                }),
                "$ref" => {
                    let name = wanted.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                    self.value(&self.whole["$defs"][name], value, at, wrong);
                    true
                }
                "anyOf" | "oneOf" => {
                    let found: Vec<Vec<String>> = wanted
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|one| self.wrong(one, value, at))
                        .collect();
                    let count = found.iter().filter(|wrong| wrong.is_empty()).count();
                    if key == "oneOf" {
                        count == 1
                    } else {
                        count > 0
                    }
                }
                "items" => {
                    let first = keys.get("prefixItems").and_then(Value::as_array);
                    let rest = value.as_array().into_iter().flatten().enumerate();
                    for (number, one) in rest.skip(first.map_or(0, Vec::len)) {
                        self.value(wanted, one, &format!("{at}/{number}"), wrong);
                    }
                    true
                }
                "prefixItems" => {
                    let list = value.as_array().into_iter().flatten();
                    for (number, (one, wanted)) in list.zip(wanted.as_array().unwrap()).enumerate()
                    {
                        self.value(wanted, one, &format!("{at}/{number}"), wrong);
                    }
                    true
                }
                "properties" => {
                    for (name, one) in value.as_object().into_iter().flatten() {
                        match wanted.get(name) {
                            Some(wanted) => self.value(wanted, one, &format!("{at}/{name}"), wrong),
                            // Others may have it.
                            None if keys.contains_key("oneOf") || keys.contains_key("anyOf") => {}
                            None if keys.contains_key("additionalProperties") => {}
                            None => wrong.push(format!("{at}: {name} is not in the schema")),
                        }
                    }
                    true
                }
                "additionalProperties" | "patternProperties" => {
                    let numbers = keys.contains_key("patternProperties");
                    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
                    let pattern = key == "patternProperties";
                    // The keys of a map are any, or numbers.
                    let wanted = if pattern { &wanted["^\\d+$"] } else { wanted };
                    assert!(!wanted.is_null(), "{at}: another pattern");
                    let own = |name: &str| fields.is_some_and(|fields| fields.contains_key(name));
                    for (name, one) in value.as_object().into_iter().flatten() {
                        if !own(name) && (numbers && is_number(name)) == pattern {
                            self.value(wanted, one, &format!("{at}/{name}"), wrong);
                        }
                    }
                    true
                }
                other => panic!("{at}: {other} is not known here"),
            };
            if !fits {
                wrong.push(format!("{at}: {value} is not {key} {wanted}"));
            }
        }
    }

    fn wrong(&self, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        self.value(schema, value, at, &mut wrong);
        wrong
    }
}

fn is_a(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type is called {other}"),
    }
}

#[test]
fn a_document_that_is_not_as_its_schema_wants_it_is_seen() {
    let good = json!({"schema": "firstlight.pool-fill/1", "on": true, "rate": 0});
    assert_eq!(wrong(&good), [""; 0]);
    for (key, value) in [
        ("on", json!("yes")),
        ("rate", json!(-1)),
        ("rate", Value::Null),
        ("else", json!(1)),
        ("schema", json!("firstlight.pool-fill/9")),
        ("schema", Value::Null),
    ] {
        let mut bad = good.clone();
        bad[key] = value;
        assert_ne!(wrong(&bad), [""; 0], "{bad}");
    }
    let mut short = good;
    short.as_object_mut().unwrap().remove("on");
    assert_ne!(wrong(&short), [""; 0], "{short}");
}
