//! The recorded boots are all there and each has its log.

use crate::common;

#[test]
fn every_recorded_boot_has_its_log() {
    let boots = common::golden();
    assert_eq!(boots.len(), 125);
    for boot in &boots {
        assert!(!common::log(&boot.name).is_empty(), "{}", boot.name);
        assert!(!boot.input.e820.is_empty(), "{}", boot.name);
    }
}
