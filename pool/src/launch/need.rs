//! Memory of a guest, as command lines of Firstlight write it.

use firstlight_figures::size;
use std::fmt;
use std::str::FromStr;

/// Memory of one guest node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// How much.
    pub bytes: u64,
    /// From which node of the host; from any when `None`.
    pub node: Option<u32>,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Bytes(self.bytes))?;
        self.node
            .map_or(Ok(()), |node| write!(f, " of node {node}"))
    }
}

/// `8G`, `512M`, `32G@1`: a unit is needed, the node is not.
///
/// ```
/// use firstlight_pool::launch::Need;
/// assert_eq!("32G@1".parse(), Ok(Need { bytes: 32 << 30, node: Some(1) }));
/// assert!("32".parse::<Need>().is_err());
/// ```
impl FromStr for Need {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (amount, node) = match text.split_once('@') {
            None => (text, None),
            Some((amount, node)) => {
                let number = node.parse();
                let number = number.map_err(|_| format!("{node:?} is no number of a node"))?;
                (amount, Some(number))
            }
        };
        if amount.ends_with(|last: char| last.is_ascii_digit()) {
            return Err(format!(
                "{amount:?} has no unit, expected for example 8G or 512M"
            ));
        }
        let bytes = size::parse(amount).map_err(|error| error.to_string())?;
        if bytes == 0 {
            return Err("no memory at all".into());
        }
        Ok(Self { bytes, node })
    }
}

/// Bytes for people: `8 GiB`, `129 MiB`, or plain.
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        for (shift, unit) in units {
            let whole = self.0 >> shift;
            if whole > 0 && whole << shift == self.0 {
                return write!(f, "{whole} {unit}");
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_name_a_size_and_perhaps_a_node() {
        let need = |bytes, node| Ok(Need { bytes, node });
        assert_eq!("8G".parse(), need(8 << 30, None));
        assert_eq!("8GiB@0".parse(), need(8 << 30, Some(0)));
        for wrong in ["", "@1", "8", "8@1", "8G@", "8G@x", "8G@-1", "0G", "8G@1@2"] {
            wrong.parse::<Need>().expect_err(wrong);
        }
    }
}
