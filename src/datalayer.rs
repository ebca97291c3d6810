//! What is known of the model servers: who they are, what their metrics say, how fresh that is.
//!
//! A scrape's answer runs through three layers: [`exposition`] reads the text format and knows no
//! metric, one file per engine ([`vllm`]) knows that engine's metric names, and [`metrics`] is the
//! plain data every engine is reduced to.

mod endpoint;
pub mod exposition;
mod freshness;
pub mod metrics;
mod reading;
mod scrape_plan;
pub mod snapshot;
pub mod vllm;

pub use endpoint::{Endpoint, EndpointId};
pub use freshness::freshness;
pub use metrics::EndpointMetrics;
pub use scrape_plan::ScrapePlan;
pub use snapshot::{EndpointSnapshot, PoolSnapshot};
