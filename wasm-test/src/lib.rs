//! Real components around the module: simulated model servers, a real Envoy, the demo.

pub mod artifact;
pub mod check;
pub mod demo;
pub mod envoy;
mod repository;
pub mod sim;
pub mod testbed;
pub mod wasm;
