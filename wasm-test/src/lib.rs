//! Real components around the module: simulated model servers, a real Envoy and a fake one, the demo.

pub mod artifact;
pub mod bench;
pub mod check;
pub mod demo;
pub mod envoy;
pub mod host;
pub mod istio;
pub mod oci;
pub mod program;
pub mod progress;
pub mod prompts;
pub mod repository;
pub mod scenario;
pub mod schema;
pub mod shapes;
pub mod sim;
pub mod testbed;
pub mod wasm;
