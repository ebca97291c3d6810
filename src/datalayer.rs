//! What is known of the model servers: who they are, what their metrics say, how fresh that is.

mod endpoint;

pub use endpoint::{Endpoint, EndpointId};
//!
//! A scrape's answer runs through three layers: [`exposition`] reads the text format and knows no
//! metric, one file per engine ([`vllm`]) knows that engine's metric names, and [`metrics`] is the
//! plain data every engine is reduced to.

pub mod exposition;
pub mod metrics;
mod reading;
pub mod snapshot;
pub mod vllm;
