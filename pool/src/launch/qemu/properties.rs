//! Lists of properties: `q35,memory-backend=ram0`, or a JSON object.
//!
//! What is read is written back in the same form. A comma inside a value is
//! doubled in text, as QEMU wants it.

use super::size;
use serde_json::{Map, Value};

/// Properties in the order they were given.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Properties {
    json: bool,
    /// A name, and a value where there is one.
    pairs: Vec<(String, Option<Value>)>,
}

impl Properties {
    /// An empty list, to be written as text.
    pub(super) fn new() -> Self {
        Self {
            json: false,
            pairs: Vec::new(),
        }
    }

    /// An empty list in the form of this one.
    pub(super) fn like(&self) -> Self {
        Self {
            json: self.json,
            pairs: Vec::new(),
        }
    }

    /// Reads `text`; a first word without `=` is the value of `implied`.
    pub(super) fn read(text: &str, implied: &str) -> Result<Self, String> {
        if text.starts_with('{') {
            let object: Map<String, Value> =
                serde_json::from_str(text).map_err(|error| error.to_string())?;
            let pairs = object.into_iter().map(|(name, value)| (name, Some(value)));
            return Ok(Self {
                json: true,
                pairs: pairs.collect(),
            });
        }
        let mut list = Self::new();
        for part in split(text) {
            match part.split_once('=') {
                Some((name, value)) => list.pairs.push((name.into(), Some(value.into()))),
                None if list.pairs.is_empty() && !implied.is_empty() => {
                    list.pairs.push((implied.into(), Some(part.into())));
                }
                None => list.pairs.push((part, None)),
            }
        }
        Ok(list)
    }

    /// The last value of `name`; a name without a value is `on`.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        let mut named = self.pairs.iter().rev();
        let (_, value) = named.find(|(pair, _)| pair == name)?;
        Some(value.as_ref().map_or_else(|| "on".into(), plain))
    }

    /// All values of the names for which `is` holds, in order.
    pub(super) fn all(&self, is: &dyn Fn(&str) -> bool) -> Vec<String> {
        let named = self.pairs.iter().filter(|(pair, _)| is(pair));
        named
            .filter_map(|(_, value)| value.as_ref().map(plain))
            .collect()
    }

    /// Whether a switch is on; `usual` where nothing is said.
    pub(super) fn is_on(&self, name: &str, usual: bool) -> bool {
        self.get(name).map_or(usual, |value| {
            matches!(value.as_str(), "on" | "yes" | "true" | "y")
        })
    }

    /// The size called `name`.
    pub(super) fn size(&self, name: &str, unit: u64) -> Option<Result<u64, String>> {
        self.get(name).map(|text| size::parse(&text, unit))
    }

    /// Adds a property at the end.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.pairs.push((name.into(), Some(value.into())));
        self
    }

    /// Adds the properties of `other` for which `keep` holds.
    pub(super) fn with_those(mut self, other: &Self, keep: impl Fn(&str) -> bool) -> Self {
        let kept = other.pairs.iter().filter(|(name, _)| keep(name));
        self.pairs.extend(kept.cloned());
        self
    }

    /// As QEMU reads it; the value of `implied` comes first and without its name.
    pub(super) fn write(&self, implied: &str) -> String {
        if self.json {
            let pairs = self.pairs.iter().cloned();
            let object: Map<String, Value> = pairs
                .map(|(name, value)| (name, value.unwrap_or(Value::Bool(true))))
                .collect();
            return Value::Object(object).to_string();
        }
        let mut words = Vec::new();
        for (at, (name, value)) in self.pairs.iter().enumerate() {
            let value = value.as_ref().map(|value| plain(value).replace(',', ",,"));
            words.push(match value {
                Some(value) if at == 0 && name == implied => value,
                Some(value) => format!("{name}={value}"),
                None => name.clone(),
            });
        }
        words.join(",")
    }
}

/// A value as text writes it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "on".into(),
        Value::Bool(false) => "off".into(),
        other => other.to_string(),
    }
}

/// Splits at single commas; a doubled one stands for itself.
pub(super) fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == ',' && characters.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(character);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back_as_it_was() {
        for text in [
            "q35",
            "q35,accel=tcg",
            "node,memdev=a",
            "file,path=a,,b,flag,size=1G",
        ] {
            let list = Properties::read(text, "type").expect("text");
            assert_eq!(list.write("type"), text);
        }
    }

    #[test]
    fn values_are_found_in_either_form() {
        let text = Properties::read(
            "memory-backend-ram,id=m,size=1G,size=2G,share,mem-path=a,,b",
            "qom-type",
        );
        let json = r#"{"qom-type":"memory-backend-ram","id":"m","size":2147483648,"share":true,"mem-path":"a,b"}"#;
        let json = Properties::read(json, "qom-type");
        for list in [text.expect("text"), json.expect("JSON")] {
            assert_eq!(list.get("qom-type").as_deref(), Some("memory-backend-ram"));
            assert_eq!(list.get("mem-path").as_deref(), Some("a,b"));
            assert_eq!(list.size("size", 1), Some(Ok(2 << 30)));
            assert!(list.is_on("share", false));
            assert!(list.is_on("dump", true) && !list.is_on("dump", false));
            assert_eq!(list.get("none"), None);
        }
        Properties::read("{", "").expect_err("no JSON");
        let named = Properties::read("type=q35", "type").expect("text");
        assert_eq!(named.get("type").as_deref(), Some("q35"));
    }
}
