//! Linux as a platform for the engine.
