//! Which requests for memory are refused, and with what.

use super::*;

#[test]
fn a_quota_counts_the_slab_that_is_allocated_and_not_what_was_requested() {
    let (_folder, mut pool) = pool();
    let kept: Vec<_> = (0..2).map(|_| taken(&mut pool, 1000).unwrap()).collect();
    assert_eq!(taken(&mut pool, 1000).unwrap_err(), RefusalCode::Quota);
    // A refused client took nothing from the others.
    assert_eq!(clean(&mut pool), 1);
    assert!(taken(&mut pool, 0).is_ok());
    assert_eq!(taken(&mut pool, 0).unwrap_err(), RefusalCode::Empty);
    drop(kept);
}

#[test]
fn a_take_beyond_the_quota_destroys_no_clean_slab() {
    let (_folder, mut pool) = pool_of(&CONFIG.replace("\"4M\"", "\"3M\""));
    // As fast as any machine: the largest slab would grow to 4 MiB.
    pool.machine.zeroed(64 << 30, 64);
    let take = Take {
        bytes: 3 << 20,
        max_topup_ms: 60_000,
        ..LEAST
    };
    for _ in 0..4 {
        match request(&mut pool, 0, &peer(1000), Request::Take(take.clone())).reply {
            Reply::Refused(refusal) => assert_eq!(refusal.code, RefusalCode::Quota),
            other => panic!("{other:?}"),
        }
        assert_eq!(clean(&mut pool), 3);
    }
    assert!(taken(&mut pool, 1000).is_ok());
}

/// What the owner is refused with.
fn refused(pool: &mut Pool) -> (RefusalCode, Option<u32>) {
    let take = Take {
        bytes: 1,
        node: None,
        page: None,
        max_topup_ms: 0,
        topup_if_faster: false,
        label: None,
    };
    match request(pool, 0, &peer(0), Request::Take(take)).reply {
        Reply::Refused(refusal) => (refusal.code, refusal.retry_after_ms),
        other => panic!("{other:?}"),
    }
}

#[test]
fn clients_hear_when_to_ask_again_only_while_something_is_filled() {
    let (_folder, mut pool) =
        pool_of(&CONFIG.replace("rate = \"0\"", "rate = \"0\", batch = \"1\""));
    // From here on nothing is finished.
    stall(&mut pool, true);
    let more = Resize {
        page: PageSize::Transparent,
        node: None,
        size_class_bytes: 2 << 20,
        slabs: 4,
    };
    let resized = request(&mut pool, 0, &peer(0), Request::Resize(more));
    assert!(matches!(resized.reply, Reply::Resize(_)));
    let _kept: Vec<_> = (0..3).map(|_| taken(&mut pool, 0).unwrap()).collect();
    // As fast as any machine, however busy this one is.
    pool.machine.zeroed(64 << 30, 6_400_000_000);
    let (code, ms) = refused(&mut pool);
    assert_eq!(code, RefusalCode::Empty);
    // A slab of 2 MiB takes less than that.
    assert_eq!(ms, Some(20));
    turn_filling(&mut pool, false);
    assert_eq!(refused(&mut pool), (RefusalCode::Empty, None));
    turn_filling(&mut pool, true);
    stall(&mut pool, true);
    let folder = tempfile::tempdir().unwrap();
    let figures = folder.path().join("memory");
    std::fs::write(&figures, "some avg10=50.00 avg60=0 avg300=0 total=0\n").unwrap();
    let gauge = Gauge::of_files(figures, "/nonexistent");
    pool.workers.set_watch(Watch::new(Some(10.0), gauge));
    pool.tick();
    assert_eq!(refused(&mut pool), (RefusalCode::Empty, None));
}

#[test]
fn the_first_client_waits_where_it_has_started_the_daemon_and_nothing_is_clean() {
    let (_folder, mut pool) =
        pool_of(&CONFIG.replace("rate = \"0\"", "rate = \"0\", batch = \"1\""));
    let now = Instant::now();
    let waits = |pool: &mut Pool| refused(pool).0 == RefusalCode::Busy;
    // The daemon had memory for its first client: others hear that there is none.
    pool.machine.activated(now);
    stall(&mut pool, true);
    let _kept: Vec<_> = (0..3).map(|_| taken(&mut pool, 0).unwrap()).collect();
    let more = Resize {
        page: PageSize::Transparent,
        node: None,
        size_class_bytes: 2 << 20,
        slabs: 4,
    };
    request(&mut pool, 0, &peer(0), Request::Resize(more));
    assert!(!waits(&mut pool));
    pool.machine.activated(now);
    assert!(waits(&mut pool));
    // Not for what never comes.
    let none = Take {
        bytes: 1 << 40,
        ..LEAST
    };
    let Reply::Refused(refusal) = request(&mut pool, 0, &peer(0), Request::Take(none)).reply else {
        panic!("there is no such slab");
    };
    assert_eq!(refusal.code, RefusalCode::Empty);
    // And not for ever.
    let begin = now.checked_sub(Duration::from_secs(30)).expect("an uptime");
    pool.machine.activated(begin);
    assert!(!waits(&mut pool));
}

/// Two clients at once, each of which gets what it wants where the other wants nothing.
#[test]
fn slabs_that_are_topped_up_at_once_need_their_memory_together() {
    let (folder, mut pool) = pool();
    let meminfo = folder.path().join("meminfo");
    let available = |mib: u64| {
        let text = format!("MemAvailable: {} kB\n", mib << 10);
        std::fs::write(&meminfo, text).unwrap();
    };
    available(400);
    pool.files.set_meminfo(&meminfo);
    // As fast as any machine, to the machine.
    pool.machine.zeroed(64 << 30, 64);
    let mut take = |from: ConnectionId| {
        let take = Take {
            bytes: 256 << 20,
            max_topup_ms: 60_000,
            ..LEAST
        };
        let outgoing = pool.step(Event::Request {
            from,
            peer: peer(0),
            grant: None,
            request: Request::Take(take),
        });
        let mut refusals = outgoing.into_iter().map(|one| match one.reply {
            Reply::Refused(refusal) => (one.to, refusal.code),
            other => panic!("{other:?}"),
        });
        refusals.next()
    };
    assert_eq!(take(1), None, "it waits for its memory");
    assert_eq!(take(2), Some((2, RefusalCode::Empty)));
    available(600);
    assert_eq!(take(3), None);
    for from in [1, 3] {
        pool.step(Event::HungUp(from));
    }
}

#[test]
fn a_top_up_without_a_thread_is_refused_with_a_reason_and_uses_up_no_slab() {
    let (_folder, mut pool) = pool_on(Threads::no_more().0, CONFIG);
    until(&mut pool, |pool| clean(pool) == 3);
    let go_on = hold_threads(&pool);
    pool.machine.zeroed(64 << 30, 64);
    let take = Take {
        bytes: 3 << 20,
        max_topup_ms: 60_000,
        ..LEAST
    };
    for _ in 0..4 {
        match request(&mut pool, 0, &peer(1000), Request::Take(take.clone())).reply {
            Reply::Refused(refusal) => {
                assert_eq!(refusal.code, RefusalCode::Busy);
                assert!(refusal.message.contains("thread"), "{refusal:?}");
                assert!(refusal.retry_after_ms.is_some());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(clean(&mut pool), 3);
    }
    // Nor is any of it charged.
    let kept: Vec<_> = (0..2).map(|_| taken(&mut pool, 1000).unwrap()).collect();
    drop((go_on, kept));
}

#[test]
fn a_worker_that_cannot_be_started_is_started_later() {
    let (threads, are_more) = Threads::no_more();
    let (_folder, mut pool) = pool_on(threads, CONFIG);
    let go_on = hold_threads(&pool);
    until(&mut pool, |pool| row(pool).trouble.is_some());
    let trouble = row(&mut pool).trouble.unwrap();
    assert!(trouble.contains("no thread is ready"), "{trouble}");
    are_more.store(true, std::sync::atomic::Ordering::Relaxed);
    until(&mut pool, |pool| clean(pool) == 3);
    drop(go_on);
}
