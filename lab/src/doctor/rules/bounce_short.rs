//! A bounce buffer that could not be allocated, or is full.

use super::shared::{Case, Hit, Rule, number_after};

pub(super) const RULE: Rule = Rule {
    id: "bounce-buffer-short",
    why: "devices that cannot reach all of memory, or none of a confidential guest's, need the bounce buffer; it is taken from low memory at boot, and there was not enough of that",
    cure: "swiotlb=N,any places it above 4 GiB; swiotlb= with more where it is full",
    fixed_in: None,
    keys: &[
        "software IO TLB: Cannot allocate",
        "software IO TLB: No low mem",
        "Can not allocate SWIOTLB buffer",
        "Cannot allocate SWIOTLB buffer",
        "swiotlb buffer is full",
        "swiotlb_init_remap: unable to map",
    ],
    find,
};

/// The most that one request may have.
const MOST_BYTES: u64 = 256 << 10;

/// What a device says that has no space, or found none.
const FULL: &[&str] = &["swiotlb buffer is full"];

fn find(case: &Case<'_>) -> Vec<Hit> {
    // Who switches it off needs none at boot.
    let off = |value: &str| value.split(',').any(|word| word == "noforce");
    let keys = if case.value("swiotlb").is_some_and(off) {
        FULL
    } else {
        RULE.keys
    };
    let Some(entry) = case.any_of(keys) else {
        return Vec::new();
    };
    if number_after(entry.text, "total") == Some(0) {
        return vec![Hit::at(entry, "").instead(
            "there is no bounce buffer at all, and a device needs one: iommu=off or swiotlb=noforce on the command line, or a kernel that saw no need at boot",
            "leave iommu=off out, so that the IOMMU or a bounce buffer is there; swiotlb= with more helps nothing here",
        )];
    }
    let request = number_after(entry.text, "(sz:").filter(|bytes| *bytes > MOST_BYTES);
    let Some(bytes) = request else {
        return vec![Hit::at(entry, "")];
    };
    let detail = format!("a request of {} KiB", bytes >> 10);
    vec![Hit::at(entry, detail).instead(
        "one request may have 256 KiB of the bounce buffer, however much of it is free",
        "a kernel whose driver keeps its requests below 256 KiB; swiotlb= with more helps nothing here",
    )]
}
