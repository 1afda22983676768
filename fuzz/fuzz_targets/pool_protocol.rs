//! The pool's messages: whatever comes in is a message within its bounds or an
//! error that can be shown, and what was read comes out of the encoder as it is.
#![no_main]

use firstlight_pool::protocol::{
    LeaseId, MOST_GRANT_ROWS, MOST_NUMBER, MOST_REPLY_BYTES, MOST_REQUEST_BYTES, MOST_STATUS_ROWS,
    Reply, Request,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match Request::decode(data) {
        Ok(request) => {
            assert!(data.len() <= MOST_REQUEST_BYTES);
            match &request {
                Request::Take(take) => assert!((1..=MOST_NUMBER).contains(&take.bytes)),
                Request::Give(give) => check_name(&give.lease),
                Request::Resize(resize) => {
                    assert!((1..=MOST_NUMBER).contains(&resize.size_class_bytes));
                }
                Request::Grant(grant) => {
                    assert!((1..=MOST_NUMBER).contains(&grant.size_class_bytes) && grant.uses > 0);
                }
                Request::Status(_) | Request::Fill(_) | Request::Drain | Request::Revoke(_) => {}
            }
            let again = request.encode().expect("what was read can be written");
            assert_eq!(Request::decode(&again), Ok(request));
        }
        Err(error) => assert!(error.to_string().len() < 10 * data.len() + 400),
    }
    match Reply::decode(data) {
        Ok(reply) => {
            assert!(data.len() <= MOST_REPLY_BYTES);
            if let Reply::Status(status) = &reply {
                assert!(status.pools.len() <= MOST_STATUS_ROWS);
                assert!(status.leases.len() <= MOST_STATUS_ROWS);
                assert!(status.grants.len() <= MOST_GRANT_ROWS);
                let names = status.leases.iter().filter_map(|row| row.lease.as_ref());
                names.for_each(check_name);
            }
            // A message near the limit may be longer without its short forms.
            if let Ok(again) = reply.encode() {
                assert_eq!(Reply::decode(&again), Ok(reply));
            }
        }
        Err(error) => assert!(error.to_string().len() < 10 * data.len() + 400),
    }
});

fn check_name(lease: &LeaseId) {
    let name = lease.as_str();
    assert!(!name.is_empty() && name.len() <= LeaseId::MOST_BYTES);
    assert!(
        name.bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'/')
    );
}
