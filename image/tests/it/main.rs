//! The image's file, as others read it, on processors whose loaders do. What boots it is tested in `lab/tests/it/`, the
//! ELF file of x86-64 and its loader there too.
#![cfg_attr(
    target_arch = "aarch64",
    expect(
        clippy::unwrap_used,
        reason = "a test fails by panicking; its numbers are small"
    )
)]

#[cfg(target_arch = "aarch64")]
mod arm64_image;
