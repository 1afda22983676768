//! What a status says, and to whom.

use super::*;

#[test]
fn a_row_of_each_quota_says_what_is_held_and_owed() {
    let (_folder, mut pool) = pool();
    let rows = |pool: &mut Pool, viewer: u32| {
        let status = Request::Status(StatusQuery::default());
        match request(pool, 9, &peer(viewer), status).reply {
            Reply::Status(status) => status.quotas,
            other => panic!("{other:?}"),
        }
    };
    let bytes = |row: &QuotaRow| (row.charged_bytes, row.held_bytes, row.owed_bytes);
    let all = rows(&mut pool, 0);
    assert_eq!((all[0].of, all[0].name.as_str()), (QuotaOf::User, "1000"));
    assert_eq!((all.len(), all[0].most_bytes), (1, Some(4 << 20)));
    assert_eq!(bytes(&all[0]), (0, 0, 0));
    let (serial, memory) = taken(&mut pool, 1000).unwrap();
    assert_eq!(bytes(&rows(&mut pool, 0)[0]), (2 << 20, 2 << 20, 0));
    assert!(rows(&mut pool, 1000).is_empty(), "a client reads no row");
    // Given back and open all the same, it is owed.
    end_lease(&mut pool, serial);
    until(&mut pool, |pool| has_revoked(pool));
    assert_eq!(bytes(&rows(&mut pool, 0)[0]), (2 << 20, 0, 2 << 20));
    drop(memory);
    until(&mut pool, |pool| bytes(&rows(pool, 0)[0]) == (0, 0, 0));
}

#[test]
fn a_client_reads_no_row_of_another_user() {
    let other = "[[quota]]\nuid = 1002\nbytes = \"4M\"\n";
    let (_folder, mut pool) = pool_of(&format!("{CONFIG}{other}"));
    let _kept = request(&mut pool, 1, &peer(1000), Request::Take(LEAST));
    let status = Request::Status(StatusQuery::default());
    let mut rows = |from, uid| match request(&mut pool, from, &peer(uid), status.clone()).reply {
        Reply::Status(status) => status.leases,
        other => panic!("{other:?}"),
    };
    assert_eq!(rows(2, 1002), [], "another user");
    assert_eq!(rows(3, 1000).len(), 1, "the same user");
    assert_eq!(rows(4, 0).len(), 1, "root");
}
