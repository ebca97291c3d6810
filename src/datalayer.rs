//! What is known of the model servers: who they are, what their metrics say, how fresh that is.
