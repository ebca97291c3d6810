//! What a test can make a server do that it would not do by itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Everything that can be forced. The default forces nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overrides {
    /// Value of `vllm:num_requests_running` on the metrics page.
    pub num_requests_running: Option<f64>,
    /// Value of `vllm:num_requests_waiting` on the metrics page, all of it for lack of capacity.
    pub num_requests_waiting: Option<f64>,
    /// Value of `vllm:kv_cache_usage_perc` on the metrics page, a fraction.
    pub kv_cache_usage: Option<f64>,
    /// Adds `DCGM_FI_DEV_GPU_UTIL{gpu="0"}` to the metrics page, in percent.
    pub gpu_util: Option<f64>,
    /// Which answers are kept back before their first byte.
    pub hold: Hold,
    /// Delays every metrics page.
    pub metrics_delay_ms: u64,
}

/// Which answers are kept back. The engine goes on meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    #[default]
    None,
    /// Those that generate text: the server still looks healthy.
    Generations,
    /// All but the simulator's own: a process that is stopped.
    All,
}

/// The overrides in force, shared by the server's handle and its connections.
#[derive(Debug)]
pub struct Faults {
    current: watch::Sender<Overrides>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            current: watch::Sender::new(Overrides::default()),
        }
    }
}

impl Faults {
    /// Replaces all overrides.
    pub fn set(&self, overrides: Overrides) {
        self.current.send_replace(overrides);
    }

    pub fn current(&self) -> Overrides {
        self.current.borrow().clone()
    }

    pub fn metrics_delay(&self) -> Duration {
        Duration::from_millis(self.current.borrow().metrics_delay_ms)
    }

    /// Returns once an answer, of a generation or not, may start.
    pub async fn until_released(&self, generation: bool) {
        let mut current = self.current.subscribe();
        let released = |overrides: &Overrides| match overrides.hold {
            Hold::None => true,
            Hold::Generations => !generation,
            Hold::All => false,
        };
        // An error means the sender is gone, but this very borrow keeps it.
        let _ = current.wait_for(released).await;
    }
}
