//! Grants: what a holder may do and may not, and what outlives what.

use super::super::start::most_grants;
use super::*;
use crate::protocol::{GrantId, GrantRequest, GrantRow, Granted, Refusal, Revoke, Status};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use std::fs;
use std::path::PathBuf;

/// Slabs of the only class.
const SLABS: GrantRequest = GrantRequest {
    page: PageSize::Transparent,
    node: None,
    size_class_bytes: 2 << 20,
    uses: 1,
    label: None,
};

fn made(pool: &mut Pool, grant: GrantRequest) -> Result<Granted, Refusal> {
    match request(pool, 0, &peer(0), Request::Grant(grant)).reply {
        Reply::Grant(granted) => Ok(granted),
        Reply::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

/// A grant of so many slabs.
fn of(pool: &mut Pool, uses: u32) -> Granted {
    let label = Some(Label::new("ns/pod"));
    made(
        pool,
        GrantRequest {
            uses,
            label,
            ..SLABS
        },
    )
    .unwrap()
}

/// The only reply to a request of some user by a grant.
fn by(pool: &mut Pool, grant: GrantId, from: ConnectionId, request: Request) -> Outgoing {
    let mut outgoing = pool.step(Event::Request {
        from,
        peer: peer(4711),
        grant: Some(grant),
        request,
    });
    assert_eq!(outgoing.len(), 1, "{outgoing:?}");
    outgoing.remove(0)
}

fn refused(outgoing: Outgoing) -> Refusal {
    match outgoing.reply {
        Reply::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

fn taken_by(
    pool: &mut Pool,
    grant: GrantId,
    from: ConnectionId,
) -> Result<(Serial, OwnedFd), Refusal> {
    let outgoing = by(pool, grant, from, Request::Take(LEAST));
    match (outgoing.reply, outgoing.lease) {
        (Reply::Take(_), Some((serial, mut parts))) => {
            assert!(pool.step(Event::Allocated(serial)).is_empty());
            Ok((serial, parts.remove(0)))
        }
        (Reply::Refused(refusal), None) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

fn status(outgoing: Outgoing) -> Status {
    match outgoing.reply {
        Reply::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

/// Rows of all grants, as the owner sees them.
fn rows(pool: &mut Pool) -> Vec<GrantRow> {
    let query = Request::Status(StatusQuery::default());
    status(request(pool, 0, &peer(0), query)).grants
}

fn has_socket(granted: &Granted) -> bool {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let address = SocketAddrUnix::new(granted.socket.as_str()).unwrap();
    rustix::net::connect(&socket, &address).is_ok()
}

fn revoked(pool: &mut Pool, grant: GrantId) -> Result<u32, Refusal> {
    match request(pool, 0, &peer(0), Request::Revoke(Revoke { grant })).reply {
        Reply::Revoke(revoked) => Ok(revoked.held_slabs),
        Reply::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_holder_of_any_user_gets_as_many_slabs_as_are_granted_and_no_more() {
    let (_folder, mut pool) = pool();
    let granted = of(&mut pool, 2);
    assert!(has_socket(&granted));
    let kept = [1, 2].map(|from| taken_by(&mut pool, granted.grant, from).unwrap());
    let refusal = taken_by(&mut pool, granted.grant, 3).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Quota);
    let text = format!("slabs out by {}: 2 of 2", granted.grant);
    assert_eq!(refusal.message, text);
    assert_eq!(refusal.retry_after_ms, None);
    // The user has no right to one elsewhere.
    assert_eq!(taken(&mut pool, 4711).unwrap_err(), RefusalCode::Denied);
    assert_eq!(clean(&mut pool), 1);
    let row = rows(&mut pool).remove(0);
    assert_eq!((row.charged_slabs, row.held_slabs, row.uses), (2, 2, 2));
    assert_eq!(row.label, Some(Label::new("ns/pod")));
    drop(kept);
}

#[test]
fn a_use_is_a_slab_until_no_process_can_reach_it_and_it_is_replaced() {
    let (_folder, mut pool) = pool();
    let grant = of(&mut pool, 1).grant;
    let (serial, memory) = taken_by(&mut pool, grant, 1).unwrap();
    end_lease(&mut pool, serial);
    let refusal = taken_by(&mut pool, grant, 1).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Busy, "it is being emptied");
    assert!(refusal.retry_after_ms >= Some(20), "{refusal:?}");
    until(&mut pool, |pool| has_revoked(pool));
    let refusal = taken_by(&mut pool, grant, 1).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Quota);
    assert!(
        refusal.message.contains("can still be reached"),
        "{refusal:?}"
    );
    let row = rows(&mut pool).remove(0);
    assert_eq!((row.charged_slabs, row.held_slabs), (1, 0));
    drop(memory);
    until(&mut pool, |pool| rows(pool)[0].charged_slabs == 0);
    taken_by(&mut pool, grant, 1).unwrap();
}

#[test]
fn a_holder_may_do_nothing_else() {
    let (_folder, mut pool) = pool();
    let granted = of(&mut pool, 1);
    let grant = granted.grant;
    for other in [
        Request::Drain,
        Request::Fill(FillChange::default()),
        Request::Resize(Resize {
            page: PageSize::Transparent,
            node: None,
            size_class_bytes: 2 << 20,
            slabs: 0,
        }),
        Request::Grant(SLABS),
        Request::Revoke(Revoke { grant }),
    ] {
        let refusal = refused(by(&mut pool, grant, 1, other.clone()));
        assert_eq!(refusal.code, RefusalCode::Denied, "{other:?}");
    }
    for other in [
        Take::of((2 << 20) + 1),
        Take {
            node: Some(0),
            ..LEAST
        },
        Take {
            page: Some(PageSize::Huge),
            ..LEAST
        },
    ] {
        let refusal = refused(by(&mut pool, grant, 1, Request::Take(other)));
        assert_eq!(refusal.code, RefusalCode::BadRequest, "{refusal:?}");
    }
    assert_eq!((clean(&mut pool), rows(&mut pool).len()), (3, 1));
    // Nor may users, with or without memory of their own, make and end grants.
    for (uid, other) in [
        (1000, Request::Grant(SLABS)),
        (1000, Request::Revoke(Revoke { grant })),
    ] {
        let refusal = refused(request(&mut pool, 5, &peer(uid), other));
        assert_eq!(refusal.code, RefusalCode::Denied);
    }
}

#[test]
fn a_holder_sees_and_ends_leases_of_its_grant_alone() {
    let (_folder, mut pool) = pool();
    let [one, other] = [(); 2].map(|()| of(&mut pool, 1).grant);
    let (first, _memory) = taken_by(&mut pool, one, 1).unwrap();
    let (second, _memory) = taken_by(&mut pool, other, 2).unwrap();
    // The same user's, on the pool's own socket.
    let (third, _memory) = taken(&mut pool, 0).unwrap();
    let name = |pool: &Pool, serial| pool.machine.leases().id(serial).unwrap();
    let query = || Request::Status(StatusQuery::default());
    let seen = status(by(&mut pool, one, 1, query()));
    let own = name(&pool, first);
    assert_eq!(seen.leases.len(), 1);
    assert_eq!(
        (&seen.leases[0].lease, seen.leases[0].grant),
        (&Some(own.clone()), Some(one))
    );
    assert_eq!(seen.leases[0].label, Some(Label::new("ns/pod")));
    assert!(seen.grants.iter().map(|row| row.grant).eq([one]));
    assert!(seen.quotas.is_empty());
    // On another connection to the same socket no name.
    let seen = status(by(&mut pool, one, 3, query()));
    assert_eq!((seen.leases.len(), &seen.leases[0].lease), (1, &None));
    let seen = status(request(&mut pool, 9, &peer(1000), query()));
    assert!(seen.leases.is_empty() && seen.grants.is_empty());
    for (from, serial) in [(3, first), (1, second), (1, third)] {
        let give = Request::Give(Give {
            lease: name(&pool, serial),
        });
        let refusal = refused(by(&mut pool, one, from, give));
        assert_eq!(refusal.code, RefusalCode::UnknownLease);
    }
    let give = Request::Give(Give { lease: own });
    let given = by(&mut pool, one, 1, give);
    assert!(matches!(given.reply, Reply::Give));
}

#[test]
fn what_cannot_be_granted_is_refused_with_the_reason() {
    let (folder, mut pool) = pool();
    let no_class = GrantRequest {
        size_class_bytes: 4 << 20,
        ..SLABS
    };
    let too_many = GrantRequest { uses: 4, ..SLABS };
    for (grant, text) in [
        (no_class, "0 slabs of 4M of thp pages are kept"),
        (
            too_many,
            "3 slabs of 2M of thp pages are kept, and the grant is for 4",
        ),
    ] {
        let refusal = made(&mut pool, grant).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::BadRequest);
        assert!(refusal.message.starts_with(text), "{refusal:?}");
    }
    // No line of the journal can be written: another file has the name under which it is written as a whole.
    let new = folder.path().join("leases.new");
    fs::create_dir(&new).unwrap();
    pool.journal_mut().break_off();
    let refusal = made(&mut pool, SLABS).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Internal);
    let folders = || fs::read_dir(folder.path().join("grants")).unwrap().count();
    until(&mut pool, |_| folders() == 0);
    fs::remove_dir(new).unwrap();
    let most = most_grants();
    for _ in 0..most {
        made(&mut pool, SLABS).unwrap();
    }
    let refusal = made(&mut pool, SLABS).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Quota);
    let text = format!("there are {most} grants, and no more at once");
    assert!(refusal.message.starts_with(&text), "{refusal:?}");
    assert_eq!(folders(), most);
    // One that ends makes place for another.
    let id = rows(&mut pool)[0].grant;
    revoked(&mut pool, id).unwrap();
    made(&mut pool, SLABS).unwrap();
}

#[test]
fn a_grant_that_is_revoked_gives_no_more_and_takes_nothing_away() {
    let (folder, mut pool) = pool();
    let granted = of(&mut pool, 2);
    let (serial, memory) = taken_by(&mut pool, granted.grant, 1).unwrap();
    assert_eq!(revoked(&mut pool, granted.grant), Ok(1));
    until(&mut pool, |_| !Path::new(&granted.folder).exists());
    assert_eq!(pool.doors.ended(), [granted.grant]);
    let refusal = taken_by(&mut pool, granted.grant, 1).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Denied);
    let refusal = revoked(&mut pool, granted.grant).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::UnknownGrant);
    assert!(rows(&mut pool).is_empty());
    // Its lease goes on, and is named by the grant.
    assert!(memory_file::held_bytes(&memory).unwrap() > 0);
    let query = Request::Status(StatusQuery::default());
    let leases = status(request(&mut pool, 0, &peer(0), query)).leases;
    assert_eq!(leases[0].grant, Some(granted.grant));
    end_lease(&mut pool, serial);
    drop(memory);
    until(&mut pool, |pool| clean(pool) == 3);
    assert_eq!(
        fs::read_dir(folder.path().join("grants")).unwrap().count(),
        0
    );
}

#[test]
fn a_grant_ends_with_its_folder() {
    let (folder, mut pool) = pool();
    let [moved, removed] = [(); 2].map(|()| of(&mut pool, 1));
    fs::rename(&moved.folder, folder.path().join("moved")).unwrap();
    // Another one at its name is not it.
    fs::create_dir(&moved.folder).unwrap();
    fs::remove_dir_all(&removed.folder).unwrap();
    pool.tick();
    assert!(
        rows(&mut pool)
            .iter()
            .map(|row| row.grant)
            .eq([moved.grant])
    );
    assert_eq!(pool.doors.ended(), [removed.grant]);
    fs::remove_dir_all(folder.path().join("moved")).unwrap();
    pool.tick();
    assert!(rows(&mut pool).is_empty());
}

/// The next daemon in this folder.
fn next_in(folder: &Path, before: Pool) -> Pool {
    // Without an end, as where it is killed.
    drop(before);
    let mut pool = pool_in(folder, Threads::new().unwrap(), CONFIG);
    pool.restore_grants(&mut |_| {});
    pool.restore(std::collections::BTreeMap::new());
    pool
}

#[test]
fn the_next_daemon_has_grants_with_what_is_charged_to_them() {
    let (folder, mut pool) = pool();
    let [granted, gone] = [(); 2].map(|()| of(&mut pool, 1));
    let outgoing = by(&mut pool, granted.grant, 1, Request::Take(LEAST));
    let (serial, _parts) = outgoing.lease.unwrap();
    pool.step(Event::Allocated(serial));
    fs::remove_dir_all(&gone.folder).unwrap();
    // One that was killed before it wrote a grant down.
    let name = granted.grant.to_string();
    let [unwritten, of_another] = ["grant-00000abc-999", "grant-00000abd-1"]
        .map(|other| PathBuf::from(granted.folder.replace(&name, other)));
    for folder in [&unwritten, &of_another] {
        fs::create_dir_all(folder).unwrap();
    }
    let mut pool = next_in(folder.path(), pool);
    let row = rows(&mut pool).remove(0);
    assert_eq!(rows(&mut pool).len(), 1, "one folder was removed");
    until(&mut pool, |_| !unwritten.parent().unwrap().exists());
    assert!(
        of_another.exists(),
        "a daemon with another socket here has it"
    );
    assert_eq!(
        (row.grant, row.charged_slabs, row.held_slabs),
        (granted.grant, 1, 1)
    );
    // That of the first daemon may be mounted elsewhere: there is another in the same folder.
    assert!(pool.doors.is_open(granted.grant) && has_socket(&granted));
    let refusal = taken_by(&mut pool, granted.grant, 1).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Quota);
    let names: Vec<_> = [(); 2].map(|()| of(&mut pool, 1).grant).into();
    assert!(!names.contains(&gone.grant) && !names.contains(&granted.grant));
    assert_eq!(revoked(&mut pool, granted.grant), Ok(1));
    let mut pool = next_in(folder.path(), pool);
    assert_eq!(rows(&mut pool).len(), 2);
    end_lease(&mut pool, serial);
    let account = crate::lease::quota::Account::Grant(granted.grant);
    until(&mut pool, |pool| pool.machine.charged(&account) == 0);
}

/// An earlier version had the socket in the grant's own folder.
#[test]
fn a_grant_without_a_folder_to_mount_goes_with_all_that_it_has() {
    let (folder, mut pool) = pool();
    let granted = of(&mut pool, 1);
    let own = Path::new(&granted.folder).parent().unwrap();
    fs::rename(&granted.socket, own.join("pool.sock")).unwrap();
    fs::remove_dir(&granted.folder).unwrap();
    let mut pool = next_in(folder.path(), pool);
    until(&mut pool, |_| !own.exists());
    assert!(rows(&mut pool).is_empty());
}
