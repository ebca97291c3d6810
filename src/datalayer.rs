//! What is known of the model servers: who they are, what their metrics say, how fresh that is.

mod endpoint;

pub use endpoint::{Endpoint, EndpointId};
