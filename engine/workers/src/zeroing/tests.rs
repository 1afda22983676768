//! Policy and pace against what they promise, without memory.

use super::pace::Pace;
use super::{Decision, Knobs, Policy, Seen};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

fn on() -> Knobs {
    Knobs {
        enabled: true,
        batch_bytes: 2 * MIB,
        ..Knobs::defaults()
    }
}

fn seen(now_ms: u64, stock_bytes: u64, unknown_bytes: u64) -> Seen {
    Seen {
        now_ns: now_ms * MS,
        stock_bytes,
        unknown_bytes,
        ..Seen::default()
    }
}

fn waits(decision: Decision) -> bool {
    matches!(decision, Decision::Wait { .. })
}

#[test]
fn freed_memory_wakes_it_and_the_low_mark_stops_it() {
    let (knobs, mut policy) = (on(), Policy::new());
    assert_eq!(
        policy.look(&knobs, seen(0, 0, 63 * MIB)),
        Decision::Wait {
            until_ns: 1000 * MS
        }
    );
    let mut stock = 0;
    while !waits(policy.look(&knobs, seen(1000, stock, 256 * MIB - stock))) {
        assert!(stock < knobs.low_bytes, "{stock}");
        stock += knobs.batch_bytes;
    }
    assert_eq!(stock, knobs.low_bytes);
    // A block less, and much is free: the stock is below its mark.
    assert!(!waits(
        policy.look(&knobs, seen(2000, stock - 2 * MIB, 192 * MIB))
    ));
}

#[test]
fn the_stock_follows_the_demand_and_forgets_it() {
    let (knobs, mut policy) = (on(), Policy::new());
    let look = |policy: &mut Policy, s: u64, demand| {
        policy.look(
            &knobs,
            Seen {
                demand_bytes: demand,
                ..seen(s * 1000, 1 << 40, 1 << 40)
            },
        );
        policy.target_bytes() / MIB
    };
    assert_eq!(look(&mut policy, 0, 0), 64);
    assert_eq!(look(&mut policy, 1, 200 * MIB), 400);
    // Nothing more is requested: half of it each period, down to the low mark.
    assert_eq!(look(&mut policy, 2, 200 * MIB), 400);
    assert_eq!(look(&mut policy, 3, 200 * MIB), 200);
    assert_eq!(look(&mut policy, 4, 200 * MIB), 100);
    assert_eq!(look(&mut policy, 5, 200 * MIB), 64);
    // However much is requested.
    assert_eq!(look(&mut policy, 6, 1 << 40), 1024);
}

#[test]
fn a_miss_wakes_it_whatever_was_freed() {
    let (knobs, mut policy) = (on(), Policy::new());
    assert!(waits(policy.look(&knobs, seen(0, 0, 4 * MIB))));
    let miss = Seen {
        demand_bytes: 2 * MIB,
        missed_bytes: 2 * MIB,
        ..seen(1, 0, 4 * MIB)
    };
    assert_eq!(policy.look(&knobs, miss), Decision::Zero { bytes: 2 * MIB });
    assert_eq!(policy.backlog_bytes(), 4 * MIB);
}

#[test]
fn it_backs_off_while_caches_are_refilled_often() {
    let (knobs, mut policy) = (on(), Policy::new());
    let look = |policy: &mut Policy, now_ms, refills| {
        let seen = Seen {
            refills: Some(refills),
            ..seen(now_ms, 0, 1 << 30)
        };
        policy.look(&knobs, seen)
    };
    let until = |ms: u64| Decision::Wait { until_ns: ms * MS };
    assert!(!waits(look(&mut policy, 0, 0)));
    assert_eq!(look(&mut policy, 1, 1000), until(2));
    assert_eq!(look(&mut policy, 2, 2000), until(4));
    assert_eq!(look(&mut policy, 4, 4000), until(8));
    for ms in [8, 16, 32, 64, 128, 256, 512] {
        look(&mut policy, ms, ms * 1000);
    }
    // No longer than the delay; at once when it is quiet.
    assert_eq!(look(&mut policy, 1024, 1_024_000), until(2024));
    assert!(!waits(look(&mut policy, 2024, 1_024_010)));
    // Never, if it is switched off.
    let knobs = Knobs {
        busy_per_ms: 0,
        ..knobs
    };
    let seen = Seen {
        refills: Some(9_000_000),
        ..seen(2025, 0, 1 << 30)
    };
    assert!(!waits(policy.look(&knobs, seen)));
}

#[test]
fn more_workers_for_a_long_backlog_if_cpus_are_idle() {
    let of = |mib, idle| Policy::workers(mib * MIB, 2 * MIB, idle);
    assert_eq!(
        [of(0, 8), of(63, 8), of(64, 8), of(1 << 20, 8)],
        [1, 1, 2, 8]
    );
    assert_eq!([of(1 << 20, 0), of(1 << 20, 1), of(128, 2)], [1, 1, 2]);
    assert_eq!(
        Policy::workers(u64::MAX, 1 << 30, u32::MAX),
        1 + (1 << 29) - 1
    );
}

#[test]
fn the_rate_holds_from_any_moment_on() {
    let pace = Pace::new();
    pace.charge(5, 1 << 40, || 0);
    assert_eq!(pace.may_begin(0), Ok(()));
    pace.charge(0, 1000, || 1_000_000);
    assert_eq!(
        [pace.may_begin(MS - 1), pace.may_begin(MS)],
        [Err(MS), Ok(())]
    );
    // Of another worker that began at the same moment.
    pace.charge(0, 1000, || 1_000_000);
    assert_eq!(pace.may_begin(MS), Err(2 * MS));
    pace.charge(4 * MS, u64::MAX, || 1);
    assert_eq!(pace.may_begin(u64::MAX - 1), Err(u64::MAX));
    pace.forgive();
    assert_eq!(pace.may_begin(0), Ok(()));
}

/// The rate changes between the moment a worker reads it and the moment it charges.
#[test]
fn what_an_old_rate_charges_late_is_forgiven() {
    let pace = Pace::new();
    pace.charge(0, 2 * MIB, || {
        pace.forgive();
        1
    });
    assert_eq!(pace.may_begin(0), Ok(()));
    pace.charge(0, 1000, || 1_000_000);
    assert_eq!(pace.may_begin(0), Err(MS));
}

fn knobs() -> impl Strategy<Value = Knobs> {
    let bytes = || prop_oneof![Just(0), 0..256 * MIB, Just(u64::MAX)];
    (
        bytes(),
        bytes(),
        1..u64::MAX,
        12u32..31,
        1..3_600_000u64,
        0..1000u64,
    )
        .prop_map(
            |(low_bytes, high_bytes, wake_bytes, batch, delay_ms, busy_per_ms)| Knobs {
                low_bytes,
                high_bytes,
                wake_bytes,
                batch_bytes: 1 << batch,
                delay_ms,
                busy_per_ms,
                ..on()
            },
        )
}

/// Time that passes, unknown memory freed, stock and unknown memory taken, misses, refills.
type Event = (u64, u64, u64, u64, u64, u64);

fn event() -> impl Strategy<Value = Event> {
    let mib = || prop_oneof![Just(0), 0..512 * MIB];
    (0..5_000 * MS, mib(), mib(), mib(), mib(), 0..200_000u64)
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "long, and neither pace nor policy has unsafe code")]
    fn any_rate_is_kept(
        rate in 1u64..1 << 40,
        steps in prop::collection::vec((0..100 * MS, 1u64..1 << 24), 1..200),
    ) {
        let (pace, mut now, mut zeroed, mut most) = (Pace::new(), 0u64, 0u128, 0u64);
        for (more, bytes) in steps {
            now += more;
            if pace.may_begin(now).is_ok() {
                pace.charge(now, bytes, || rate);
                zeroed += u128::from(bytes);
                most = most.max(bytes);
            }
            let allowed = u128::from(rate) * u128::from(now) / 1_000_000_000;
            prop_assert!(zeroed <= allowed + u128::from(most) + 1);
        }
    }

    /// Whatever happens: it zeroes only if it may, never past the high mark, and a wait has an end.
    #[test]
    #[cfg_attr(miri, ignore = "long, and neither pace nor policy has unsafe code")]
    fn it_keeps_its_marks(
        knobs in knobs(), disabled in 0..400usize,
        events in prop::collection::vec(event(), 1..200),
    ) {
        let (mut policy, mut seen, mut total) = (Policy::new(), Seen::default(), 0);
        for (index, (ns, freed, taken, lost, missed, refills)) in events.into_iter().enumerate() {
            let knobs = Knobs { enabled: index != disabled % 200, ..knobs };
            seen.now_ns += ns;
            seen.unknown_bytes = (seen.unknown_bytes + freed).saturating_sub(lost);
            let hit = taken.min(seen.stock_bytes);
            seen.stock_bytes -= hit;
            seen.demand_bytes += hit + missed;
            seen.missed_bytes += missed;
            total += refills;
            seen.refills = (refills % 3 > 0).then_some(total);
            match policy.look(&knobs, seen) {
                Decision::Zero { bytes } => {
                    prop_assert!(knobs.enabled);
                    prop_assert_eq!(bytes, knobs.batch_bytes);
                    prop_assert!(seen.unknown_bytes > 0);
                    prop_assert!(seen.stock_bytes < knobs.high_bytes);
                    prop_assert!(seen.stock_bytes < policy.target_bytes());
                    let zeroed = bytes.min(seen.unknown_bytes);
                    seen.stock_bytes += zeroed;
                    seen.unknown_bytes -= zeroed;
                }
                Decision::Wait { until_ns } => {
                    prop_assert!(until_ns > seen.now_ns);
                    prop_assert!(until_ns - seen.now_ns <= knobs.delay_ms * MS);
                    prop_assert!(knobs.enabled || policy.backlog_bytes() == 0);
                }
            }
            prop_assert!(policy.target_bytes() <= knobs.high_bytes);
            prop_assert!(policy.target_bytes() >= knobs.low_bytes.min(knobs.high_bytes));
        }
    }

    /// Without an end of demand or a pause, the stock reaches its target.
    #[test]
    #[cfg_attr(miri, ignore = "long, and neither pace nor policy has unsafe code")]
    fn it_reaches_the_target(knobs in knobs(), unknown in 0..1u64 << 34, stock in 0..1u64 << 30) {
        let knobs = Knobs { wake_bytes: 4096, ..knobs };
        let (mut policy, mut seen) = (Policy::new(), Seen {
            unknown_bytes: unknown, stock_bytes: stock, ..Seen::default()
        });
        let batches = unknown / knobs.batch_bytes + 2;
        prop_assume!(batches < 100_000);
        for _ in 0..batches {
            if let Decision::Zero { bytes } = policy.look(&knobs, seen) {
                let zeroed = bytes.min(seen.unknown_bytes);
                seen.stock_bytes += zeroed;
                seen.unknown_bytes -= zeroed;
            }
        }
        let target = knobs.low_bytes.min(knobs.high_bytes);
        prop_assert!(seen.stock_bytes >= target || seen.unknown_bytes < 4096);
    }
}
