//! What the answer to a health check (`GET /health`) says.
//!
//! The call goes through one of Envoy's clusters, so the answer is the server's or Envoy's own. An
//! answer that came from the server carries `x-envoy-upstream-service-time`, which Envoy adds; its
//! own carry their cause in the body.

/// The parts of an answer that matter.
#[derive(Clone, Copy, Debug)]
pub struct CheckAnswer<'a> {
    /// `:status`, empty when the connection broke amid the answer.
    pub status: &'a [u8],
    /// It carries `x-envoy-upstream-service-time`.
    pub by_server: bool,
    /// It carries `x-envoy-overloaded`: the cluster's circuit breaker is open, or that of a proxy
    /// beside the server.
    pub overloaded: bool,
    /// The body, or its beginning.
    pub body: &'a [u8],
}

/// Whether who answered so may get requests; `None` when that cannot be told from it.
///
/// A server that says 503, or whose port refuses, may not. Whoever gives any other answer may: many
/// servers have no such path. A time-out or a broken connection tells nothing, since a busy server
/// may be slow; nor does what only the cluster's limits have to do with.
pub fn readiness(answer: CheckAnswer<'_>) -> Option<bool> {
    match answer.status {
        b"503" => {
            let is_told = answer.by_server || says_refused(answer.body);
            (is_told && !answer.overloaded).then_some(false)
        }
        b"" | b"504" => None,
        _ => Some(true),
    }
}

/// Envoy's word for a connection that was not established, be it `remote connection failure`, with
/// the reason after it or not. A connection that took too long is a `connection timeout`.
fn says_refused(body: &[u8]) -> bool {
    const CAUSE: &[u8] = b"connection failure";
    body.windows(CAUSE.len()).any(|part| part == CAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_server(status: &str) -> Option<bool> {
        readiness(CheckAnswer {
            status: status.as_bytes(),
            by_server: true,
            overloaded: false,
            body: b"upstream connect error",
        })
    }

    fn by_envoy(status: &str, body: &str) -> Option<bool> {
        readiness(CheckAnswer {
            status: status.as_bytes(),
            by_server: false,
            overloaded: false,
            body: body.as_bytes(),
        })
    }

    #[test]
    fn a_server_is_not_ready_only_when_it_says_503() {
        assert_eq!(by_server("503"), Some(false));
        for status in ["200", "204", "301", "401", "404", "405", "429", "500"] {
            assert_eq!(by_server(status), Some(true), "{status}");
        }
    }

    #[test]
    fn of_envoys_own_answers_only_a_refused_connection_counts() {
        let error = "upstream connect error or disconnect/reset before headers. ";
        for (cause, verdict) in [
            ("reset reason: remote connection failure", Some(false)),
            ("reset reason: local connection failure", Some(false)),
            (
                "reset reason: connection failure, transport failure reason: delayed connect error: \
              Connection refused",
                Some(false),
            ),
            (
                "retried and the latest reset reason: remote connection failure",
                Some(false),
            ),
            ("reset reason: connection termination", None),
            ("reset reason: connection timeout", None),
            ("reset reason: overflow", None),
            ("", None),
        ] {
            assert_eq!(
                by_envoy("503", &format!("{error}{cause}")),
                verdict,
                "{cause}"
            );
        }
        assert_eq!(by_envoy("503", "no healthy upstream"), None);
        assert_eq!(by_envoy("504", "upstream request timeout"), None);
        assert_eq!(by_envoy("", ""), None);
    }

    #[test]
    fn overload_marks_nobody_whoever_says_so() {
        for by_server in [false, true] {
            let answer = CheckAnswer {
                status: b"503",
                by_server,
                overloaded: true,
                body: b"reset reason: remote connection failure",
            };
            assert_eq!(readiness(answer), None);
        }
    }
}
