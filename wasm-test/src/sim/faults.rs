//! What a test can make a server do that it would not do by itself.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::watch;

/// Everything that can be forced. The default forces nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overrides {
    /// Value of `vllm:num_requests_running` on the metrics page, for every engine.
    pub num_requests_running: Option<f64>,
    /// Value of `vllm:num_requests_waiting` on the metrics page, for every engine, all of it for
    /// lack of capacity.
    pub num_requests_waiting: Option<f64>,
    /// Value of `vllm:kv_cache_usage_perc` on the metrics page, for every engine, a fraction.
    pub kv_cache_usage: Option<f64>,
    /// Adds `DCGM_FI_DEV_GPU_UTIL{gpu="0"}` to the metrics page, in percent.
    pub gpu_util: Option<f64>,
    /// Which answers are kept back before their first byte.
    pub hold: Hold,
    /// Delays every metrics page.
    pub metrics_delay_ms: u64,
    /// What scrapes get.
    pub metrics: MetricsAnswer,
    /// The metrics page lacks the families whose name begins with one of these.
    pub metrics_without: Vec<String>,
    /// Generations that are answered with an error, before anything else is looked at.
    pub fail: Option<Failure>,
    /// Generations that end in a connection reset.
    pub reset: Option<Reset>,
    /// The server is up and its model is not there yet: `/health` and generations answer 503, the
    /// metrics page has no vLLM families, no model is listed.
    pub loading: Span,
    /// New connections are refused. Those that exist go on, so that a test can tell a closed port
    /// from a dead process; over HTTP, one of them or a time ends it.
    pub refuse_connections: Span,
    /// The engines take requests and compute nothing. Time stands still for them: when this ends
    /// they go on where they were.
    pub stuck: bool,
    /// The server knows nothing of other servers, whatever it was started with.
    pub no_kv_transfer: bool,
    /// Bytes of white space behind whole answers of generations.
    pub padding: usize,
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

/// For how long a fault lasts, counted from when it was set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    #[default]
    Never,
    UntilCleared,
    ForMs(u64),
}

/// What a scrape gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricsAnswer {
    #[default]
    Page,
    /// The page as it was when this was set.
    Frozen,
    /// As many random bytes as a page has, different ones each time.
    RandomBytes,
    /// An HTML page with status 200, as a login or an error page of a proxy.
    Html,
    /// This status without a page.
    Status(Status),
}

/// Generations answered with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    pub status: Status,
    /// How many; absent: all until cleared. Counts down to 0.
    #[serde(default)]
    pub times: Option<u32>,
}

/// Generations that end in a connection reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    pub at: ResetPoint,
    /// How many; absent: all until cleared. Counts down to 0.
    #[serde(default)]
    pub times: Option<u32>,
}

/// Where an answer breaks off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetPoint {
    /// The request is read, and no byte answered.
    BeforeResponse,
    /// After the head and so many chunks: events of a stream, or the one body of any other answer.
    /// An answer that has fewer is whole.
    AfterChunks(u32),
}

/// An HTTP status of an error, 400 to 599.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(StatusCode);

impl Status {
    /// `None` unless `code` is an error's.
    pub fn new(code: u16) -> Option<Self> {
        let status = StatusCode::from_u16(code).ok()?;
        (status.is_client_error() || status.is_server_error()).then_some(Self(status))
    }

    pub fn code(self) -> StatusCode {
        self.0
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(self.0.as_u16())
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let code = u16::deserialize(deserializer)?;
        Self::new(code).ok_or_else(|| serde::de::Error::custom("a status is from 400 to 599"))
    }
}

/// The overrides in force, shared by the server's handle and its connections.
#[derive(Debug)]
pub struct Faults {
    current: watch::Sender<Current>,
}

#[derive(Debug)]
struct Current {
    overrides: Overrides,
    since: Instant,
}

impl Current {
    fn new(overrides: Overrides) -> Self {
        Self {
            overrides,
            since: Instant::now(),
        }
    }
}

impl Faults {
    pub fn new(overrides: Overrides) -> Self {
        Self {
            current: watch::Sender::new(Current::new(overrides)),
        }
    }

    /// Replaces all overrides.
    pub fn set(&self, overrides: Overrides) {
        self.current.send_replace(Current::new(overrides));
    }

    pub fn current(&self) -> Overrides {
        self.current.borrow().overrides.clone()
    }

    pub fn metrics_delay(&self) -> Duration {
        Duration::from_millis(self.current.borrow().overrides.metrics_delay_ms)
    }

    /// Whether the model is not there yet.
    pub fn is_loading(&self) -> bool {
        let current = self.current.borrow();
        current.overrides.loading.lasts(current.since)
    }

    /// The error that this generation has to answer, if any.
    pub fn take_failure(&self) -> Option<Status> {
        let mut taken = None;
        self.current.send_if_modified(|current| {
            let failure = current.overrides.fail.as_mut();
            taken = failure.and_then(|fail| take(&mut fail.times).then_some(fail.status));
            taken.is_some()
        });
        taken
    }

    /// Where this generation's answer has to break off, if anywhere.
    pub fn take_reset(&self) -> Option<ResetPoint> {
        let mut taken = None;
        self.current.send_if_modified(|current| {
            let reset = current.overrides.reset.as_mut();
            taken = reset.and_then(|reset| take(&mut reset.times).then_some(reset.at));
            taken.is_some()
        });
        taken
    }

    /// Returns once an answer, of a generation or not, may start.
    pub async fn until_released(&self, generation: bool) {
        self.until(|current| match current.overrides.hold {
            Hold::None => true,
            Hold::Generations => !generation,
            Hold::All => false,
        })
        .await;
    }

    /// Returns once connections are to be refused.
    pub async fn until_refusing(&self) {
        self.until(|current| current.overrides.refuse_connections.lasts(current.since))
            .await;
    }

    /// Returns once connections are to be accepted.
    pub async fn until_accepting(&self) {
        let mut changes = self.current.subscribe();
        loop {
            let (span, since) = {
                let current = changes.borrow_and_update();
                (current.overrides.refuse_connections, current.since)
            };
            if !span.lasts(since) {
                return;
            }
            let Span::ForMs(milliseconds) = span else {
                // The sender is this very borrow's: there is no error.
                let _ = changes.changed().await;
                continue;
            };
            let end = since + Duration::from_millis(milliseconds);
            tokio::select! {
                () = tokio::time::sleep_until(end.into()) => {}
                _ = changes.changed() => {}
            }
        }
    }

    async fn until(&self, holds: impl Fn(&Current) -> bool) {
        let mut current = self.current.subscribe();
        // An error means the sender is gone, but this very borrow keeps it.
        let _ = current.wait_for(|current| holds(current)).await;
    }
}

impl Span {
    fn lasts(self, since: Instant) -> bool {
        match self {
            Self::Never => false,
            Self::UntilCleared => true,
            Self::ForMs(milliseconds) => since.elapsed() < Duration::from_millis(milliseconds),
        }
    }
}

/// Counts one more of `times`; `false` when none is left.
fn take(times: &mut Option<u32>) -> bool {
    match times {
        None => true,
        Some(left) => {
            let any = *left > 0;
            *left = left.saturating_sub(1);
            any
        }
    }
}
