//! Keeps inline-epp and its servers running, to be tried by hand.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

use super::{DemoError, Options, WORKERS};
use crate::envoy::{CANONICAL, Envoy};
use crate::sim::{Sim, SimConfig};

/// The port of the shipped configuration.
pub const DEFAULT_PORT: u16 = 8080;

/// Servers and Envoy; dropping it ends them.
#[derive(Debug)]
pub struct Serving {
    envoy: Envoy,
    sim: Sim,
}

impl Serving {
    /// Starts on `port` of 127.0.0.1, or on the first free one from [`DEFAULT_PORT`] on.
    pub async fn start(options: &Options, port: Option<u16>) -> Result<Self, DemoError> {
        let sim = Sim::start(&options.sim_config(), usize::from(options.servers)).await?;
        let port = free_port(port)?;
        let envoy = Envoy::builder(CANONICAL)
            .endpoints(&sim.addresses())
            .concurrency(WORKERS)
            .plugin(|plugin| plugin["debugHeaders"] = true.into())
            .bootstrap(move |bootstrap| {
                let listener = &mut bootstrap["static_resources"]["listeners"][0];
                listener["address"]["socket_address"]["port_value"] = port.into();
            })
            .start()
            .await?;
        Ok(Self { envoy, sim })
    }

    /// What runs where, and what to paste.
    pub fn instructions(&self) -> String {
        let servers: Vec<String> = self
            .sim
            .addresses()
            .iter()
            .map(ToString::to_string)
            .collect();
        format!(
            "Envoy with inline-epp: {}, admin: http://{}\nmodel servers: {}\n\n\
             The second request continues the first one's prompt and goes to the same server:\n\n{}\n\
             What it counts:\n\n  curl -s http://{1}/stats/prometheus | grep epp_\n\n\
             Ctrl-C ends it.\n",
            self.envoy.url(),
            self.envoy.admin_address(),
            servers.join(", "),
            self.curl_commands(),
        )
    }

    /// Shell commands that ask twice and show the debug headers of the answers.
    pub fn curl_commands(&self) -> String {
        let url = self.envoy.url();
        let config = SimConfig::default();
        let model = config.model_name();
        format!(
            r#"  prompt="$(printf 'line %s: the cache is warm\n' $(seq 100) | tr '\n' ' ')"
  ask() {{ curl -s -D - -o /dev/null {url}/v1/completions -H 'content-type: application/json' \
    -d "{{\"model\": \"{model}\", \"max_tokens\": 16, \"prompt\": \"$1\"}}" | grep x-epp; }}
  ask "$prompt"
  ask "$prompt and so on"
"#
        )
    }
}

/// `port` if it is free, else an error; without one, the first free port from the default on.
fn free_port(port: Option<u16>) -> io::Result<u16> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(|_| port);
    match port {
        Some(port) => bind(port)
            .map_err(|error| io::Error::new(error.kind(), format!("port {port}: {error}"))),
        None => (DEFAULT_PORT..=u16::MAX)
            .find_map(|port| bind(port).ok())
            .ok_or_else(|| io::Error::other("no port is free")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_an_error_that_names_it_and_without_one_another_is_taken() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = taken.local_addr().expect("bound").port();
        let error = free_port(Some(port)).expect_err("it is in use");
        assert!(error.to_string().contains(&port.to_string()), "{error}");
        assert!(free_port(None).is_ok_and(|free| free >= DEFAULT_PORT && free != port));
    }
}
