//! Which peer may allocate, and how much: pure decisions over what it is.
//!
//! Only root, the daemon's own user, members of the owner's group, and those that a quota
//! names may. All limits that apply to a client hold at the
//! same time; each is an [`Account`] that is charged when memory leaves, and
//! credited only when no process can reach it any more.

use super::Grant;
use crate::config::{Config, ConfigError, Size};
use crate::os::peer::{self, Peer};
use crate::protocol::GrantId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use toml::Spanned;

/// What a charge is booked on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Account {
    /// A user that a quota names.
    Uid(u32),
    /// Members of a group that a quota names, together.
    Group(u32),
    /// Processes of a cgroup that a quota names, together.
    Cgroup(String),
    /// A member of the owner's group, each on their own, with all its subordinate users.
    Member(u32),
    /// A grant, whichever users its slabs go to.
    Grant(GrantId),
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uid(uid) | Self::Member(uid) => write!(f, "user {uid}"),
            Self::Group(gid) => write!(f, "group {gid}"),
            Self::Cgroup(path) => write!(f, "cgroup {path}"),
            Self::Grant(id) => id.fmt(f),
        }
    }
}

/// A limit in force for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Limit {
    account: Account,
    most_bytes: u64,
}

/// What the configuration allows.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    owner_uid: u32,
    group: Option<u32>,
    observers: Option<u32>,
    member_bytes: Option<u64>,
    limits: Vec<Limit>,
}

/// Users and groups that the rules name, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Users.
    pub users: Vec<u32>,
    /// Groups.
    pub groups: Vec<u32>,
}

/// What a client is to the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Root or the daemon's own user: may also resize and drain.
    Owner,
    /// May allocate within limits, perhaps none.
    Client,
    /// May see everything and do nothing.
    Observer,
    /// May nothing.
    Stranger,
}

impl Rules {
    /// The rules of `config`, for a daemon that runs as `owner_uid`.
    ///
    /// # Errors
    /// A group this machine does not know.
    pub fn new(config: &Config, owner_uid: u32) -> Result<Self, ConfigError> {
        let access = &config.access;
        let number = |name: &Spanned<String>| {
            group_number(name.as_ref()).map_err(|text| config.wrong(name, &text))
        };
        let mut limits: Vec<Limit> = Vec::new();
        for quota in &config.quota {
            let account = match (&quota.uid, &quota.group, &quota.cgroup) {
                (Some(uid), _, _) => Account::Uid(*uid),
                (_, Some(group), _) => Account::Group(number(group)?),
                (_, _, Some(path)) => Account::Cgroup(path.as_ref().clone()),
                _ => continue,
            };
            // By name and by number, say: what one takes would be charged twice.
            if limits.iter().any(|limit| limit.account == account) {
                let text = format!("a quota for {account} is already there");
                return Err(config.wrong(&quota.bytes, &text));
            }
            limits.push(Limit {
                account,
                most_bytes: quota.bytes.as_ref().bytes(),
            });
        }
        let group = access.group.as_ref();
        Ok(Self {
            owner_uid,
            group: group.map(number).transpose()?,
            observers: access.observers.as_ref().map(number).transpose()?,
            member_bytes: access.quota.map(|size| size.bytes()),
            limits,
        })
    }

    /// The owner's group.
    #[must_use]
    pub fn group(&self) -> Option<u32> {
        self.group
    }

    /// Users and groups that may connect, besides the owner and its group; `None` where any
    /// may, because a cgroup has a quota and a file's permissions know none.
    #[must_use]
    pub fn admitted(&self) -> Option<Admitted> {
        let mut admitted = Admitted::default();
        admitted.groups.extend(self.observers);
        for limit in &self.limits {
            match limit.account {
                Account::Uid(uid) => admitted.users.push(uid),
                Account::Group(gid) => admitted.groups.push(gid),
                Account::Cgroup(_) => return None,
                Account::Member(_) | Account::Grant(_) => {}
            }
        }
        Some(admitted)
    }

    /// Whether a limit is for a cgroup, so that a peer's must be known.
    #[must_use]
    pub fn has_cgroups(&self) -> bool {
        let mut limits = self.limits.iter();
        limits.any(|limit| matches!(limit.account, Account::Cgroup(_)))
    }

    /// What an account may hold by these rules.
    fn most_bytes(&self, account: &Account) -> Option<u64> {
        if let Account::Member(_) = account {
            return self.member_bytes;
        }
        let limit = self.limits.iter().find(|limit| limit.account == *account);
        Some(limit?.most_bytes)
    }

    /// Whether this is root or the daemon's user.
    #[must_use]
    pub fn is_owner(&self, uid: u32) -> bool {
        uid == 0 || uid == self.owner_uid
    }

    /// What `peer` is.
    #[must_use]
    pub fn standing(&self, peer: &Peer) -> Standing {
        if self.is_owner(peer.uid) {
            Standing::Owner
        } else if self.is_member(peer) || self.named(peer, peer.uid).next().is_some() {
            Standing::Client
        } else if self.observers.is_some_and(|group| peer.in_group(group)) {
            Standing::Observer
        } else {
            Standing::Stranger
        }
    }

    fn is_member(&self, peer: &Peer) -> bool {
        self.group.is_some_and(|group| peer.in_group(group))
    }

    /// Limits that name `peer`, as the user `user`.
    fn named<'r>(&'r self, peer: &'r Peer, user: u32) -> impl Iterator<Item = &'r Limit> {
        self.limits
            .iter()
            .filter(move |limit| match &limit.account {
                Account::Uid(uid) => user == *uid,
                Account::Group(gid) => peer.in_group(*gid),
                Account::Cgroup(path) => peer
                    .cgroup
                    .as_deref()
                    .is_some_and(|own| is_within(own, path)),
                Account::Member(_) | Account::Grant(_) => false,
            })
    }

    /// Whether an unknown limit may apply to `peer`: a process that connects and is
    /// gone must not be free of its cgroup's.
    fn cannot_tell(&self, peer: &Peer) -> bool {
        peer.cgroup.is_none() && self.standing(peer) != Standing::Owner && self.has_cgroups()
    }

    /// All limits that apply to `peer`: those of its own number, and those of the user that
    /// it counts as.
    fn limits(&self, peer: &Peer) -> Vec<Limit> {
        let mut limits: Vec<_> = self.named(peer, peer.user).cloned().collect();
        let own = self
            .named(peer, peer.uid)
            .filter(|own| !limits.contains(own));
        let own: Vec<_> = own.cloned().collect();
        limits.extend(own);
        if let Some(most_bytes) = self.member_bytes
            && self.is_member(peer)
            && self.standing(peer) == Standing::Client
        {
            limits.push(Limit {
                account: Account::Member(peer.user),
                most_bytes,
            });
        }
        limits
    }
}

/// Whether `own` is the cgroup `path` or lies below it.
fn is_within(own: &str, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    own.strip_prefix(path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn group_number(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match peer::group_id(name) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(format!("this machine has no group {name:?}")),
        Err(error) => Err(format!("cannot look up group {name:?}: {error}")),
    }
}

/// What is charged to whom.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    used_bytes: BTreeMap<Account, u64>,
}

/// Why a client may not have more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exceeded {
    /// A limit is for a cgroup, and the client's cannot be told.
    UnknownCgroup {
        /// Its process.
        pid: u32,
    },
    /// It would exceed a limit.
    Limit {
        /// Whose.
        account: Account,
        /// The limit.
        most_bytes: u64,
        /// What is charged.
        used_bytes: u64,
        /// What would be.
        more_bytes: u64,
    },
}

impl Exceeded {
    /// The account that has too much.
    #[must_use]
    pub fn account(&self) -> Option<&Account> {
        match self {
            Self::UnknownCgroup { .. } => None,
            Self::Limit { account, .. } => Some(account),
        }
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCgroup { pid } => write!(
                f,
                "a quota is for a cgroup, and that of process {pid} cannot be told: it is gone, or \
                 the kernel is older than Linux 6.5"
            ),
            Self::Limit {
                account,
                most_bytes,
                used_bytes,
                more_bytes,
            } => {
                let [most, used, more] = [*most_bytes, *used_bytes, *more_bytes].map(Size::new);
                write!(
                    f,
                    "{account} may hold {most}; {used} are charged, with what it gave back and no \
                     clean slab has replaced yet; {more} more are too much"
                )
            }
        }
    }
}

/// A charge, to be credited once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    accounts: Vec<Account>,
    bytes: u64,
}

impl Charge {
    /// Whether it is booked on no account: the owner has no limits.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.accounts.is_empty()
    }

    /// Whether it is booked on this account.
    #[must_use]
    pub fn is_on(&self, account: &Account) -> bool {
        self.accounts.contains(account)
    }

    /// What it is booked on.
    #[must_use]
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Ledger {
    /// Whether `bytes` could be charged to every account of `peer`.
    ///
    /// # Errors
    /// The first limit it would exceed.
    pub fn allows(&self, rules: &Rules, peer: &Peer, bytes: u64) -> Result<(), Exceeded> {
        self.within(rules, peer, bytes).map(drop)
    }

    /// The limits that apply to `peer`, all of which allow `bytes` more.
    fn within(&self, rules: &Rules, peer: &Peer, bytes: u64) -> Result<Vec<Limit>, Exceeded> {
        if rules.cannot_tell(peer) {
            return Err(Exceeded::UnknownCgroup { pid: peer.pid });
        }
        self.within_limits(rules.limits(peer), bytes)
    }

    fn within_limits(&self, limits: Vec<Limit>, bytes: u64) -> Result<Vec<Limit>, Exceeded> {
        for limit in &limits {
            let used_bytes = self.used(&limit.account);
            if used_bytes.saturating_add(bytes) > limit.most_bytes {
                return Err(Exceeded::Limit {
                    account: limit.account.clone(),
                    most_bytes: limit.most_bytes,
                    used_bytes,
                    more_bytes: bytes,
                });
            }
        }
        Ok(limits)
    }

    /// Charges `bytes` to every account of `peer`, or to none.
    ///
    /// # Errors
    /// The first limit it would exceed.
    pub fn charge(&mut self, rules: &Rules, peer: &Peer, bytes: u64) -> Result<Charge, Exceeded> {
        let limits = self.within(rules, peer, bytes)?;
        Ok(self.charge_all(limits, bytes))
    }

    /// Charges a slab to a grant, whichever user takes it.
    ///
    /// # Errors
    /// As many as it is for are charged.
    pub fn charge_grant(&mut self, grant: &Grant) -> Result<Charge, Exceeded> {
        let limit = Limit {
            account: grant.account(),
            most_bytes: grant.most_bytes(),
        };
        let limits = self.within_limits(vec![limit], grant.class_bytes)?;
        Ok(self.charge_all(limits, grant.class_bytes))
    }

    fn charge_all(&mut self, limits: Vec<Limit>, bytes: u64) -> Charge {
        let accounts: Vec<_> = limits.into_iter().map(|limit| limit.account).collect();
        let charge = Charge { accounts, bytes };
        self.book(&charge);
        charge
    }

    /// Charges what an earlier daemon charged, whatever the limits are now.
    pub fn book(&mut self, charge: &Charge) {
        for account in &charge.accounts {
            let used = self.used_bytes.entry(account.clone()).or_default();
            *used = used.saturating_add(charge.bytes);
        }
    }

    /// Takes a charge back.
    pub fn credit(&mut self, charge: Charge) {
        for account in charge.accounts {
            if let Some(used) = self.used_bytes.get_mut(&account) {
                *used = used.saturating_sub(charge.bytes);
                if *used == 0 {
                    self.used_bytes.remove(&account);
                }
            }
        }
    }

    /// All accounts with a limit or a charge: the limit that is in force, and the charge.
    pub fn accounts<'a>(
        &'a self,
        rules: &'a Rules,
    ) -> impl Iterator<Item = (&'a Account, Option<u64>, u64)> {
        let limits = rules.limits.iter().map(|limit| &limit.account);
        let all: BTreeSet<&'a Account> = limits.chain(self.used_bytes.keys()).collect();
        let row = |account: &'a Account| (account, rules.most_bytes(account), self.used(account));
        all.into_iter().map(row)
    }

    /// What is charged to an account.
    #[must_use]
    pub fn used(&self, account: &Account) -> u64 {
        self.used_bytes.get(account).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn rules(text: &str) -> Rules {
        Rules::new(&Config::parse(Path::new("test"), text).unwrap(), 900).unwrap()
    }

    fn peer(uid: u32, gid: u32, groups: &[u32], cgroup: Option<&str>) -> Peer {
        Peer {
            pid: 1,
            uid,
            user: uid,
            gid,
            groups: groups.to_vec(),
            cgroup: cgroup.map(str::to_owned),
        }
    }

    const RULES: &str = "
        access = { group = \"500\", quota = \"4G\", observers = \"700\" }
        [[quota]]
        uid = 1000
        bytes = \"8G\"
        [[quota]]
        group = \"600\"
        bytes = \"6G\"
        [[quota]]
        cgroup = \"/machine.slice\"
        bytes = \"2G\"
    ";

    #[test]
    fn no_user_may_unless_something_says_so() {
        let rules = rules(RULES);
        for (peer, standing) in [
            (peer(0, 0, &[], None), Standing::Owner),
            (peer(900, 1, &[], None), Standing::Owner),
            (peer(1, 500, &[], None), Standing::Client),
            (peer(1, 2, &[3, 500], None), Standing::Client),
            (peer(1000, 2, &[], None), Standing::Client),
            (peer(1, 600, &[], None), Standing::Client),
            (peer(1, 2, &[], Some("/machine.slice")), Standing::Client),
            (
                peer(1, 2, &[], Some("/machine.slice/a/b")),
                Standing::Client,
            ),
            (peer(1, 2, &[], Some("/machine.slices")), Standing::Stranger),
            (peer(1, 2, &[], Some("/")), Standing::Stranger),
            (peer(1, 2, &[3], None), Standing::Stranger),
            (peer(1, 700, &[], None), Standing::Observer),
            (peer(1, 2, &[700], None), Standing::Observer),
            (peer(1, 700, &[500], None), Standing::Client),
        ] {
            assert_eq!(rules.standing(&peer), standing, "{peer:?}");
        }
        let none = self::rules("");
        assert_eq!(none.standing(&peer(1, 0, &[], None)), Standing::Stranger);
        assert_eq!(
            rules.admitted(),
            None,
            "a cgroup's processes are any user's"
        );
        assert_eq!(none.admitted(), Some(Admitted::default()));
        let named = self::rules(&RULES.replace("cgroup = \"/machine.slice\"", "uid = 1001"));
        let admitted = Admitted {
            users: vec![1000, 1001],
            groups: vec![700, 600],
        };
        assert_eq!(named.admitted(), Some(admitted));
    }

    #[test]
    fn every_limit_that_applies_holds_and_a_refusal_charges_nothing() {
        const G: u64 = 1 << 30;
        let rules = rules(RULES);
        let mut ledger = Ledger::default();
        let both = peer(1000, 600, &[], Some("/"));
        let other = peer(1, 600, &[], Some("/"));
        let first = ledger.charge(&rules, &both, 5 * G).unwrap();
        // 8 G for the user, but 6 G for the group.
        let refused = ledger.charge(&rules, &both, 2 * G).unwrap_err();
        assert!(
            refused.to_string().starts_with("group 600 may hold"),
            "{refused}"
        );
        assert_eq!(ledger.used(&Account::Uid(1000)), 5 * G);
        ledger.charge(&rules, &other, 2 * G).unwrap_err();
        let second = ledger.charge(&rules, &other, G).unwrap();
        ledger.credit(first);
        ledger.charge(&rules, &other, 5 * G).unwrap();
        ledger.credit(second);
        assert_eq!(ledger.used(&Account::Group(600)), 5 * G);
        assert_eq!(ledger.used(&Account::Uid(1000)), 0);
    }

    #[test]
    fn members_each_on_their_own_the_owner_without_limit() {
        let rules = rules(RULES);
        let mut ledger = Ledger::default();
        let (one, two) = (peer(1, 500, &[], Some("/")), peer(2, 500, &[], Some("/")));
        ledger.charge(&rules, &one, 4 << 30).unwrap();
        ledger.charge(&rules, &one, 1).unwrap_err();
        ledger.charge(&rules, &two, 4 << 30).unwrap();
        ledger
            .charge(&rules, &peer(0, 500, &[], None), u64::MAX)
            .unwrap();
        // Together with what is there, more than can be counted: refused, not wrapped.
        ledger.charge(&rules, &two, u64::MAX).unwrap_err();
    }

    #[test]
    fn a_client_that_hides_its_cgroup_gets_nothing_where_cgroups_have_quotas() {
        let member = |cgroup| peer(1, 500, &[], cgroup);
        let mut ledger = Ledger::default();
        let with = rules(RULES);
        let refused = ledger.charge(&with, &member(None), 1).unwrap_err();
        assert!(refused.to_string().contains("cgroup"), "{refused}");
        ledger.charge(&with, &member(Some("/user")), 1).unwrap();
        ledger.charge(&with, &peer(0, 0, &[], None), 1).unwrap();
        let without = rules("access = { group = \"500\" }");
        ledger.charge(&without, &member(None), 1).unwrap();
    }

    #[test]
    fn what_this_machine_does_not_know_and_what_is_there_twice_is_shown_with_its_line() {
        let root = "[[quota]]\ngroup = \"root\"\nbytes = 1\n[[quota]]\ngroup = \"0\"\nbytes = 1\n";
        for (text, message) in [
            (
                "access = { group = \"no such\" }",
                "test, line 1: this machine has no group \"no such\"",
            ),
            (
                "\n[[quota]]\ngroup = \"no such\"\nbytes = 1\n",
                "test, line 3: this machine has no group",
            ),
            (root, "test, line 6: a quota for group 0 is already there"),
        ] {
            let config = Config::parse(Path::new("test"), text).unwrap();
            let error = Rules::new(&config, 0).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
