//! What the label of a grant says: which device it is for, and whose that is. Labels are in the daemon's journal, so this
//! is all that a program that was killed has to know again.

use crate::class::Slot;
use firstlight_pool::protocol::{GrantRow, Label, Status};
use std::fmt;
use std::str::FromStr;

/// How devices reach pods. One way at a time for a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As a device plugin's: kubelet chooses a device for a pod.
    Plugin,
    /// As a driver's: the scheduler chooses a device for a claim.
    Driver,
}

impl Way {
    /// What the label of a grant begins with.
    const fn mark(self) -> &'static str {
        match self {
            Self::Plugin => "k8s",
            Self::Driver => "dra",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Plugin => "the device plugin",
            Self::Driver => "the driver of claims",
        })
    }
}

/// The first 64 bits of a claim's UUID, of which 60 are random: what fits into a label beside names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimKey(u64);

impl ClaimKey {
    /// The key of a claim with this UID, if it is a UUID in its usual form.
    ///
    /// ```
    /// use firstlight_kubernetes::label::ClaimKey;
    /// let key = ClaimKey::of_uid("3f2a9c11-b0d3-4e21-8c55-0242ac120002");
    /// assert_eq!(key.map(|key| key.to_string()), Some("3f2a9c11b0d34e21".into()));
    /// assert_eq!(ClaimKey::of_uid("../../etc/passwd"), None);
    /// ```
    #[must_use]
    pub fn of_uid(uid: &str) -> Option<Self> {
        let is_hyphen = |at: usize| matches!(at, 8 | 13 | 18 | 23);
        let is_digit = |one: u8| one.is_ascii_digit() || (b'a'..=b'f').contains(&one);
        let is_uuid = uid.len() == 36
            && uid.bytes().enumerate().all(|(at, one)| {
                if is_hyphen(at) {
                    one == b'-'
                } else {
                    is_digit(one)
                }
            });
        let digits: String = uid.chars().filter(|one| *one != '-').take(16).collect();
        is_uuid.then(|| digits.parse().ok()).flatten()
    }
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:016x}", self.0))
    }
}

impl FromStr for ClaimKey {
    type Err = ();

    fn from_str(digits: &str) -> Result<Self, ()> {
        let key = u64::from_str_radix(digits, 16).map(Self).map_err(drop)?;
        if key.to_string() == digits {
            Ok(key)
        } else {
            Err(())
        }
    }
}

/// Whether it is a name of Kubernetes: it becomes a part of a path.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |one: u8| one.is_ascii_lowercase() || one.is_ascii_digit() || b"-.".contains(&one);
    name.starts_with(|one: char| one.is_ascii_alphanumeric())
        && name.len() <= 253
        && name.bytes().all(plain)
}

/// Whose a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A pod's, `namespace/name`, where kubelet says which.
    Pod(Option<String>),
    /// A claim's, `namespace/name`.
    Claim(ClaimKey, String),
}

impl Owner {
    /// Whether it is known whose: a grant for it is kept then when a container starts again.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Pod(None))
    }

    /// The claim, where it is one's.
    #[must_use]
    pub fn claim(&self) -> Option<ClaimKey> {
        match self {
            Self::Pod(_) => None,
            Self::Claim(claim, _) => Some(*claim),
        }
    }
}

/// The label of a grant: its end is cut off where a name is too long, the device and the claim's key are not.
///
/// ```
/// use firstlight_kubernetes::class::Slot;
/// use firstlight_kubernetes::label::{self, Owner};
/// let slot = Slot { class: "2m-8g".parse()?, device: "0-3".parse()? };
/// let label = label::of(&slot, &Owner::Pod(Some("shop/vm-1".into())));
/// assert_eq!(label.as_str(), "k8s 2m-8g/0-3 shop/vm-1");
/// assert_eq!(label::read(&label).map(|held| held.slot), Some(slot));
/// # Ok::<(), String>(())
/// ```
#[must_use]
pub fn of(slot: &Slot, owner: &Owner) -> Label {
    let (way, whose) = match owner {
        Owner::Pod(name) => (Way::Plugin, name.as_deref().unwrap_or("?").to_string()),
        Owner::Claim(key, name) => (Way::Driver, format!("{key} {name}")),
    };
    Label::new(&format!("{} {slot} {whose}", way.mark()))
}

/// What the label of a grant says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The device.
    pub slot: Slot,
    /// The claim whose it is, where it is one's.
    pub claim: Option<ClaimKey>,
}

impl Held {
    /// How it reached its pod.
    #[must_use]
    pub fn way(&self) -> Way {
        match self.claim {
            None => Way::Plugin,
            Some(_) => Way::Driver,
        }
    }
}

/// What a label says, if it is one for Kubernetes.
#[must_use]
pub fn read(label: &Label) -> Option<Held> {
    let mut words = label.as_str().splitn(3, ' ');
    let mark = words.next()?;
    let (class, device) = words.next()?.split_once('/')?;
    let slot = Slot {
        class: class.parse().ok()?,
        device: device.parse().ok()?,
    };
    let whose = words.next()?;
    let claim = match mark {
        _ if mark == Way::Plugin.mark() => None,
        _ if mark == Way::Driver.mark() => Some(whose.split(' ').next()?.parse().ok()?),
        _ => return None,
    };
    Some(Held { slot, claim })
}

/// The device that a grant is for, and whose that is.
#[must_use]
pub fn of_grant(row: &GrantRow) -> Option<Held> {
    row.label.as_ref().and_then(read)
}

/// The claim that a grant is for, and its `namespace`, `name` where the label has room for all of it.
#[must_use]
pub fn claim_of(row: &GrantRow) -> Option<(ClaimKey, Option<(String, String)>)> {
    let claim = of_grant(row)?.claim?;
    let label = row.label.as_ref()?.as_str();
    let name = label.splitn(4, ' ').nth(3);
    // One that is full may have been cut off.
    let name = name.filter(|_| label.len() < Label::MOST_BYTES);
    let (namespace, name) = name.and_then(|name| name.split_once('/')).unzip();
    Some((claim, namespace.map(Into::into).zip(name.map(Into::into))))
}

/// Refuses a pool whose devices have reached pods another way than this.
///
/// # Errors
/// Which have, and what is to be done.
pub fn only(way: Way, status: &Status) -> Result<(), String> {
    let other = |row: &&GrantRow| of_grant(row).is_some_and(|held| held.way() != way);
    let Some(row) = status.grants.iter().find(other) else {
        return Ok(());
    };
    let (other, grant) = match way {
        Way::Plugin => (Way::Driver, row.grant),
        Way::Driver => (Way::Plugin, row.grant),
    };
    Err(format!(
        "{grant} was made by {other}, and a pool is served one way at a time, now by {way}: drain the node, then end what \
         is left with `firstlight-pool revoke {grant}`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{Class, DeviceId};
    use firstlight_pool::protocol::{GrantId, PageSize};

    const UID: &str = "ffffffff-ffff-4fff-8fff-ffffffffffff";

    fn longest() -> Slot {
        Slot {
            class: Class {
                page: PageSize::Transparent,
                bytes: (1 << 44) - (2 << 20),
            },
            device: DeviceId {
                node: Some(u32::MAX),
                index: u32::MAX,
            },
        }
    }

    fn row(slot: &Slot, label: Label) -> GrantRow {
        GrantRow {
            grant: GrantId {
                prefix: 1,
                number: 7,
            },
            label: Some(label),
            page: slot.class.page,
            node: None,
            size_class_bytes: slot.class.bytes,
            uses: 1,
            charged_slabs: 0,
            held_slabs: 0,
        }
    }

    #[test]
    fn the_longest_name_leaves_the_device_and_the_claim_in_the_label() {
        let slot = longest();
        let name = "x".repeat(253);
        let label = of(&slot, &Owner::Pod(Some(name.clone())));
        assert_eq!(read(&label), Some(Held { slot, claim: None }));
        let key = ClaimKey::of_uid(UID).unwrap();
        let label = of(&slot, &Owner::Claim(key, name));
        let claim = Some(key);
        assert_eq!(read(&label), Some(Held { slot, claim }));
        assert_eq!(claim_of(&row(&slot, label)), Some((key, None)));
        let label = of(&slot, &Owner::Claim(key, "a/b".into()));
        let name = Some(("a".into(), "b".into()));
        assert_eq!(claim_of(&row(&slot, label)), Some((key, name)));
        assert_eq!(read(&of(&slot, &Owner::Pod(None))).unwrap().slot, slot);
    }

    #[test]
    fn labels_of_others_say_nothing() {
        for other in [
            "",
            "k8s ",
            "k8s 2m-8g",
            "k8s 2m-8g/0-3",
            "web 2m-8g/0-3 x",
            "dra 2m-8g/0-3",
            "dra 2m-8g/0-3 shop/vm",
            "dra 2m-8g/0-3 3F2A9C11B0D34E21 shop/vm",
            "dra 2m-8g/0-3 3f2a9c11 shop/vm",
        ] {
            assert_eq!(read(&Label::new(other)), None, "{other}");
        }
    }

    #[test]
    fn only_a_uuid_has_a_key() {
        assert!(ClaimKey::of_uid(UID).is_some());
        let wrong = [
            "",
            "3f2a9c11",
            "3f2a9c11-b0d3-4e21-8c55-0242ac12000",
            "3f2a9c11-b0d3-4e21-8c55-0242ac12000/",
            "3f2a9c11-b0d3-4e21-8c55-0242AC120002",
            "3f2a9c11b-0d3-4e21-8c55-0242ac120002",
        ];
        for uid in wrong {
            assert_eq!(ClaimKey::of_uid(uid), None, "{uid}");
        }
    }

    #[test]
    fn what_is_no_name_is_no_part_of_a_path() {
        for name in ["vm-1", "a.b", "0"] {
            assert!(is_name(name), "{name}");
        }
        let long = "x".repeat(254);
        for name in ["", "..", "a/b", "A", "a?b", "a%2f", "-a", &long] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn a_pool_is_served_one_way() {
        let slot = longest();
        let key = ClaimKey::of_uid(UID).unwrap();
        let with = |label| Status {
            grants: vec![
                row(&slot, Label::new("not of Kubernetes")),
                row(&slot, label),
            ],
            ..Status::default()
        };
        let claims = with(of(&slot, &Owner::Claim(key, "a/b".into())));
        let pods = with(of(&slot, &Owner::Pod(None)));
        assert_eq!(only(Way::Driver, &claims), Ok(()));
        assert_eq!(only(Way::Plugin, &pods), Ok(()));
        let text = only(Way::Plugin, &claims).unwrap_err();
        assert!(
            text.contains("-7 was made by the driver of claims"),
            "{text}"
        );
        let text = only(Way::Driver, &pods).unwrap_err();
        assert!(text.contains("-7 was made by the device plugin"), "{text}");
    }
}
