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

#[test]
fn a_label_is_read_by_those_who_read_the_name_of_its_lease() {
    let others = "[[quota]]\nuid = 1002\nbytes = \"4M\"\n[access]\nobservers = \"1003\"\n";
    let (_folder, mut pool) = pool_of(&format!("{CONFIG}{others}"));
    let label = Some(Label::new("web-1"));
    let take = Request::Take(Take {
        label: label.clone(),
        ..LEAST
    });
    let _kept = request(&mut pool, 1, &peer(1000), take);
    let status = Request::Status(StatusQuery::default());
    let mut seen = |from, uid| match request(&mut pool, from, &peer(uid), status.clone()).reply {
        Reply::Status(status) => {
            let rows = status.leases.into_iter();
            rows.map(|row| (row.lease.is_some(), row.label)).collect()
        }
        other => panic!("{other:?}"),
    };
    let table: [(_, _, &[_], _); 5] = [
        (
            1,
            1000,
            &[(true, label.clone())],
            "the connection it was taken on",
        ),
        (2, 0, &[(true, label)], "root"),
        (3, 1000, &[(false, None)], "another of the same user"),
        (4, 1003, &[(false, None)], "an observer"),
        (5, 1002, &[], "another user"),
    ];
    for (from, uid, expected, whose) in table {
        let seen: Vec<_> = seen(from, uid);
        assert_eq!(seen, expected, "{whose}");
    }
}
