//@ file engine/memory/src/levels.rs
