//! The daemon as a process, with real clients, real huge pages where the
//! machine lets us have them, and everything done to it that a hostile
//! neighbour or a bad day may do.
//!
//! Long runs: `make soak`, which sets the numbers of rounds.

mod crash;
mod draw;
mod export;
mod flood;
mod folders;
mod grant_folders;
mod grants;
mod guest;
mod held_epoll;
mod held_page;
mod held_pipe;
mod held_threads;
mod hostile;
mod kit;
mod manager;
mod namespace;
mod older_kernel;
mod openings;
mod operate;
mod poison;
mod refill;
mod reload;
mod restart;
mod serve;
mod service;
mod tenant;
