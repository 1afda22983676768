//! Lists of properties, `size=1G,shared=on`, and sizes, as Cloud Hypervisor reads them.

use crate::launch::error::PlanError;

/// Properties, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct List(Vec<(String, String)>);

impl List {
    pub(super) fn read(option: &str, text: &str) -> Result<Self, PlanError> {
        let unreadable = |reason: &str| PlanError::Unreadable {
            option: option.into(),
            text: text.into(),
            reason: reason.into(),
        };
        if text.contains(['"', '[', ']']) {
            return Err(unreadable("no property of memory has quotes or brackets"));
        }
        let parts = text.trim().split(',').filter(|part| !part.is_empty());
        let pairs = parts.map(|part| {
            let (name, value) = part.split_once('=')?;
            Some((name.to_owned(), value.trim().to_owned()))
        });
        let pairs: Option<Vec<_>> = pairs.collect();
        pairs
            .map(Self)
            .ok_or_else(|| unreadable("expected property=value, with commas between"))
    }

    /// The last of this name, as it is the one that counts.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.iter().rev();
        let found = pairs.find(|(given, _)| given == name)?;
        Some(found.1.as_str()).filter(|value| !value.is_empty())
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| ["on", "true"].contains(&value.to_lowercase().as_str()))
    }

    pub(super) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.push((name.into(), value.into()));
        self
    }

    pub(super) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Those of these names; all others with `false`.
    pub(super) fn of(&self, names: &[&str], are_kept: bool) -> Self {
        let kept = self.0.iter();
        let kept = kept.filter(|(name, _)| names.contains(&name.as_str()) == are_kept);
        Self(kept.cloned().collect())
    }

    pub(super) fn write(&self) -> String {
        let pairs = self.0.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join(",")
    }
}

/// Reads a size as the VMM does: a whole number, perhaps with K, M or G.
pub(super) fn size(option: &str, text: &str) -> Result<u64, PlanError> {
    let unreadable = || PlanError::Unreadable {
        option: option.into(),
        text: text.into(),
        reason: "it is no size, expected for example 8G or 512M".into(),
    };
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(unreadable()),
    };
    let number: u64 = digits.parse().map_err(|_| unreadable())?;
    number.checked_mul(1 << shift).ok_or_else(unreadable)
}
