//! Users of a life, and whose limits hold for each: said here, not asked of the machine's rules.

use super::life::M;
use crate::config::Config;
use crate::lease::Whose;
use crate::lease::quota::{Account, Rules};
use crate::os::peer::Peer;
use std::collections::BTreeMap;
use std::path::Path;

/// A process's user, group and cgroup.
#[derive(Debug)]
pub(super) struct User {
    uid: u32,
    /// Another user's number in a user namespace: it counts as its owner.
    counts_as: u32,
    gid: u32,
    cgroup: &'static str,
    is_client: bool,
    is_limited_by: &'static [Limit],
}

/// Whose limit.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Uid(u32),
    Group,
    Cgroup,
    Member(u32),
}

const QUOTA_GROUP: u32 = 2000;
const OWNERS_GROUP: u32 = 3000;
const OBSERVERS: u32 = 4000;
const NO_GROUP: u32 = 5000;
const CGROUP: &str = "/vm";

pub(super) const ROOT: User = user(0, 0, "/", &[]);

/// Root, users of all kinds of limits, a stranger, an observer.
pub(super) const USERS: &[User] = &[
    user(1000, NO_GROUP, "/", &[Limit::Uid(1000)]),
    user(1001, NO_GROUP, "/", &[Limit::Uid(1001)]),
    user(1002, NO_GROUP, "/", &[Limit::Uid(1002)]),
    ROOT,
    User {
        is_client: false,
        ..user(1003, NO_GROUP, "/", &[])
    },
    user(1004, QUOTA_GROUP, "/", &[Limit::Group]),
    user(1005, QUOTA_GROUP, "/", &[Limit::Group]),
    user(1006, OWNERS_GROUP, "/", &[Limit::Member(1006)]),
    User {
        counts_as: 1006,
        ..user(101_006, OWNERS_GROUP, "/", &[Limit::Member(1006)])
    },
    user(1007, NO_GROUP, "/vm/a", &[Limit::Cgroup]),
    user(1000, NO_GROUP, "/vm/b", &[Limit::Uid(1000), Limit::Cgroup]),
    User {
        is_client: false,
        ..user(1008, OBSERVERS, "/", &[])
    },
];

const fn user(uid: u32, gid: u32, cgroup: &'static str, is_limited_by: &'static [Limit]) -> User {
    User {
        uid,
        counts_as: uid,
        gid,
        cgroup,
        is_client: true,
        is_limited_by,
    }
}

impl Limit {
    fn account(self) -> Account {
        match self {
            Self::Uid(uid) => Account::Uid(uid),
            Self::Group => Account::Group(QUOTA_GROUP),
            Self::Cgroup => Account::Cgroup(CGROUP.into()),
            Self::Member(uid) => Account::Member(uid),
        }
    }
}

impl User {
    pub(super) fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether it may allocate and give back.
    pub(super) fn is_client(&self) -> bool {
        self.is_client
    }

    pub(super) fn sees_all(&self) -> bool {
        self.is_root() || self.gid == OBSERVERS
    }

    /// For whom what it does counts.
    pub(super) fn whose(&self) -> Whose {
        Whose::User(self.counts_as)
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    /// Whose limits hold for what it allocates.
    pub(super) fn accounts(&self) -> Vec<Account> {
        let limits = self.is_limited_by.iter();
        limits.map(|limit| limit.account()).collect()
    }

    pub(super) fn peer(&self) -> Peer {
        Peer {
            pid: 1,
            uid: self.uid,
            user: self.counts_as,
            gid: self.gid,
            groups: Vec::new(),
            cgroup: Some(self.cgroup.into()),
        }
    }
}

/// The user that a number counts as.
pub(super) fn counts_as(uid: u32) -> u32 {
    let user = USERS.iter().find(|user| user.uid == uid);
    user.map_or(uid, |user| user.counts_as)
}

/// Limits of all accounts, in bytes.
pub(super) type Quotas = BTreeMap<Account, u64>;

/// A limit for each account, of so many times 2 MiB at most.
pub(super) fn quotas(mut below: impl FnMut(usize) -> usize, most: usize) -> Quotas {
    let accounts = USERS.iter().flat_map(User::accounts);
    let accounts: std::collections::BTreeSet<_> = accounts.collect();
    let draw = |account| (account, (1 + below(most) as u64) * 2 * M);
    accounts.into_iter().map(draw).collect()
}

/// The machine's rules that say the same.
pub(super) fn rules(quotas: &Quotas) -> Rules {
    let mut text = String::new();
    for (account, bytes) in quotas {
        let whose = match account {
            Account::Uid(uid) => format!("uid = {uid}"),
            Account::Group(gid) => format!("group = \"{gid}\""),
            Account::Cgroup(path) => format!("cgroup = {path:?}"),
            // Grants are no rules.
            Account::Grant(_) => continue,
            // One limit for each of them.
            Account::Member(_) => {
                text.insert_str(
                    0,
                    &format!(
                        "[access]\ngroup = \"{OWNERS_GROUP}\"\nquota = {bytes}\n\
                         observers = \"{OBSERVERS}\"\n"
                    ),
                );
                continue;
            }
        };
        text += &format!("[[quota]]\n{whose}\nbytes = {bytes}\n");
    }
    let config = Config::parse(Path::new("simulation"), &text).expect("a configuration");
    Rules::new(&config, u32::MAX).expect("rules")
}
