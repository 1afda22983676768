//! Which figures decide: [`Figures`].

use crate::compare::Kind;

/// Figures by name. A name is that of a figure or of a kind of figures, or both with a colon
/// between them (`phase:memmap early`); `*` stands for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// These decide; where there are none, all but gaps and services.
    pub only: Vec<String>,
    /// These do not.
    pub ignore: Vec<String>,
}

impl Figures {
    /// Whether this one may decide. Gaps and services explain: they do so only where they are named.
    #[must_use]
    pub fn decides(&self, kind: Kind, name: &str) -> bool {
        let among = |names: &[String]| names.iter().any(|pattern| is_meant(pattern, kind, name));
        let wanted = match self.only.is_empty() {
            true => !matches!(kind, Kind::Gap | Kind::Service),
            false => among(&self.only),
        };
        wanted && !among(&self.ignore)
    }

    /// Names that no figure has.
    pub(super) fn unknown<'f>(
        &self,
        figures: impl Iterator<Item = (Kind, &'f str)> + Clone,
    ) -> Vec<String> {
        let names = self.only.iter().chain(&self.ignore);
        let unknown = names.filter(|pattern| {
            let mut figures = figures.clone();
            !figures.any(|(kind, name)| is_meant(pattern, kind, name))
        });
        unknown.cloned().collect()
    }
}

/// Whether `pattern` names the figure.
#[must_use]
pub fn is_meant(pattern: &str, kind: Kind, name: &str) -> bool {
    let whole = format!("{}:{name}", kind.name());
    [kind.name(), name, &whole]
        .iter()
        .any(|text| matches(pattern, text))
}

/// Whether `text` is `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else {
            return false;
        };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_figures_and_for_kinds() {
        for (pattern, meant) in [
            ("memmap early", true),
            ("phase", true),
            ("phase:memmap early", true),
            ("memmap*", true),
            ("*early", true),
            ("p*:*map*y", true),
            ("*", true),
            ("memmap", false),
            ("gap", false),
            ("gap:*", false),
            ("", false),
        ] {
            assert_eq!(
                is_meant(pattern, Kind::Phase, "memmap early"),
                meant,
                "{pattern:?}"
            );
        }
    }

    #[test]
    fn gaps_decide_only_where_they_are_named() {
        let figures = |only: &[&str], ignore: &[&str]| {
            let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            Figures {
                only: list(only),
                ignore: list(ignore),
            }
        };
        assert!(!figures(&[], &[]).decides(Kind::Gap, "a -> b"));
        assert!(figures(&["a -> *"], &[]).decides(Kind::Gap, "a -> b"));
        assert!(!figures(&["total"], &[]).decides(Kind::Phase, "SMP"));
        assert!(!figures(&[], &["SMP"]).decides(Kind::Phase, "SMP"));
        let known = [(Kind::Total, "total"), (Kind::Phase, "SMP")];
        let unknown = figures(&["total", "memap"], &["SMP"]).unknown(known.into_iter());
        assert_eq!(unknown, ["memap"]);
    }
}
