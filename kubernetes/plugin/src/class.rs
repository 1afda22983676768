//! What slabs are called in Kubernetes: a class of them is a resource, a slab that is kept is a device of it.

use firstlight_pool::config::Size;
use firstlight_pool::protocol::PageSize;
use std::fmt;
use std::str::FromStr;

/// What the names of resources begin with.
pub const DOMAIN: &str = "firstlight.dev";

/// Slabs that pods don't tell apart: of one size, of the same pages, on any node.
///
/// ```
/// use firstlight_kubernetes::class::Class;
/// let class: Class = "2m-8g".parse()?;
/// assert_eq!(class.bytes, 8 << 30);
/// assert_eq!(class.resource(), "firstlight.dev/2m-8g");
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// Their pages.
    pub page: PageSize,
    /// Bytes of one.
    pub bytes: u64,
}

impl Class {
    /// The resource that pods ask for.
    #[must_use]
    pub fn resource(&self) -> String {
        format!("{DOMAIN}/{self}")
    }

    /// The class of a resource, if it is one of the pool's.
    #[must_use]
    pub fn of_resource(resource: &str) -> Option<Self> {
        let name = resource.strip_prefix(DOMAIN)?.strip_prefix('/')?;
        name.parse().ok()
    }

    /// As a part of a variable's name.
    #[must_use]
    pub fn variable(&self) -> String {
        self.to_string().to_uppercase().replace('-', "_")
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{}-{}", self.page, Size::new(self.bytes));
        f.pad(&name.to_lowercase())
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let parts = name.split_once('-').and_then(|(page, bytes)| {
            let is_of = |one: &PageSize| one.word().to_lowercase() == page;
            let page = PageSize::ALL.into_iter().find(is_of)?;
            let bytes = bytes.parse::<Size>().ok()?.bytes();
            Some(Self { page, bytes })
        });
        // Compared as a whole, so that a class has one name only.
        let class = parts.filter(|class| class.to_string() == name);
        class.ok_or_else(|| format!("{name:?} is no class, expected one such as 2m-8g"))
    }
}

/// A device of a class: one slab that is kept, by its node and its number there. Which slab of them it is makes no
/// difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId {
    /// The node; `None` where the class is bound to none.
    pub node: Option<u32>,
    /// Which of that node.
    pub index: u32,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = self.index;
        match self.node {
            Some(node) => f.pad(&format!("{node}-{index}")),
            None => f.pad(&format!("any-{index}")),
        }
    }
}

impl FromStr for DeviceId {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let parts = name.split_once('-').and_then(|(node, index)| {
            let node = match node {
                "any" => None,
                node => Some(node.parse().ok()?),
            };
            let index = index.parse().ok()?;
            Some(Self { node, index })
        });
        let device = parts.filter(|device| device.to_string() == name);
        device.ok_or_else(|| format!("{name:?} is no device, expected one such as 0-3 or any-3"))
    }
}

/// A device of the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// Its class.
    pub class: Class,
    /// Which of them.
    pub device: DeviceId,
}

impl Slot {
    /// The device's name in a driver's pool, where all classes are together.
    ///
    /// ```
    /// use firstlight_kubernetes::class::Slot;
    /// let slot = Slot { class: "2m-8g".parse()?, device: "0-3".parse()? };
    /// assert_eq!(slot.name(), "2m-8g-0-3");
    /// assert_eq!(Slot::of_name("2m-8g-0-3"), Some(slot));
    /// # Ok::<(), String>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}-{}", self.class, self.device)
    }

    /// The device of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let (at, _) = name.match_indices('-').nth(1)?;
        Some(Self {
            class: name[..at].parse().ok()?,
            device: name[at + 1..].parse().ok()?,
        })
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.class, self.device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_as_what_it_names() {
        for name in ["2m-8g", "1g-16g", "thp-256m", "2m-1t", "2m-2097152k"] {
            let class: Result<Class, _> = name.parse();
            match class {
                Ok(class) => assert_eq!(class.to_string(), name),
                // The same as 2m-2g.
                Err(_) => assert_eq!(name, "2m-2097152k"),
            }
        }
        for wrong in ["", "2m", "2m-", "4k-8g", "2M-8G", "2m-8g-1", "2m-0008g"] {
            assert!(wrong.parse::<Class>().is_err(), "{wrong}");
        }
        for name in ["0-0", "12-345", "any-7"] {
            assert_eq!(name.parse::<DeviceId>().unwrap().to_string(), name);
        }
        for wrong in [
            "",
            "-",
            "0-",
            "any",
            "0-00",
            "+1-2",
            "1-any",
            "0-4294967296",
        ] {
            assert!(wrong.parse::<DeviceId>().is_err(), "{wrong}");
        }
        for wrong in [
            "",
            "-",
            "2m-8g",
            "2m-8g-",
            "2m-8g-0",
            "2m-8g-0-3-1",
            "x-2m-8g-0-3",
        ] {
            assert_eq!(Slot::of_name(wrong), None, "{wrong}");
        }
    }
}
