//! The command `firstlight`.

fn main() {}
