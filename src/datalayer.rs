//! What is known of the model servers: who they are, what their metrics say, how fresh that is.
//!
//! A scrape's answer runs through four layers: [`exposition`] reads the text format and knows no
//! metric, one table per engine names that engine's families, `page` reads a page by such a table,
//! and [`metrics`] is the plain data every engine is reduced to. [`engine`] chooses the table.

mod adapters;
mod check_plan;
pub mod clusters;
mod condition;
mod endpoint;
pub mod engine;
pub mod exposition;
mod families;
mod freshness;
pub mod gpu;
mod host_status;
pub mod metrics;
mod model_list;
pub mod outcomes;
mod page;
mod progress;
mod readiness;
mod reading;
mod scrape_plan;
mod sglang;
pub mod snapshot;
mod triton;
mod trtllm;
mod vllm;

pub use adapters::Adapters;
pub use check_plan::{CheckPlan, Question, Readiness};
pub use condition::{Condition, Unusable};
pub use endpoint::{Endpoint, EndpointId};
pub use freshness::freshness;
pub use gpu::GpuReading;
pub use host_status::{HostStatus, Member};
pub use metrics::EndpointMetrics;
pub use model_list::{ListAnswer, ModelList};
pub use outcomes::Outcomes;
pub use progress::Progress;
pub use readiness::{CheckAnswer, readiness};
pub use scrape_plan::ScrapePlan;
pub use snapshot::{EndpointSnapshot, PoolSnapshot};
