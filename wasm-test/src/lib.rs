//! Real components around the module: simulated model servers, a real Envoy, the demo.
