//! KV-cache-aware endpoint picking for LLM inference, inside Envoy.
//!
//! The module holds a request until its prompt is read, hashes the prompt's blocks, asks an index
//! which model server already holds them, weighs that against what the servers' own metrics say,
//! and names the upstream host in a header that Envoy's `override_host` policy obeys.
//!
//! Everything but `host` is pure: time and randomness are arguments, nothing is global, and what
//! should be done is returned, not done. `host` exists on wasm32 only and translates.

pub mod config;
pub mod datalayer;
pub mod flow;
// A test program has no Envoy to call.
#[cfg(all(target_arch = "wasm32", not(test)))]
mod host;
pub mod prefix;
pub mod replication;
pub mod requestcontrol;
pub mod requesthandling;
pub mod scheduling;
pub mod telemetry;
pub mod time;
mod words;
