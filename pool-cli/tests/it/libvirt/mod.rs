//! Domains of a real libvirtd on memory of a real pool, in a host of their own that ends
//! with each test (`host.sh`). Skipped with a line where there is no libvirt; `make libvirt`
//! installs it and lets none be skipped.

mod command;
mod fallback;
mod kit;
mod life;
mod speed;
