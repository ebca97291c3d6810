//! The shape of a demo, as the command line gives it.

use clap::Args;
use serde::Serialize;

use crate::sim::config::positive;
use crate::sim::{Preset, SimConfig};

/// How much is played, and on what.
#[derive(Debug, Clone, PartialEq, Args, Serialize)]
pub struct Options {
    /// Conversations
    #[arg(long, default_value_t = 26, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub conversations: u16,
    /// Turns of each conversation
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=40))]
    pub turns: u16,
    /// Turns in flight at once, of different conversations
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub in_flight: u16,
    /// Simulated model servers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=26))]
    pub servers: u8,
    /// Seed of the conversations' texts and of the order of their turns
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Model and GPU whose speed is simulated
    #[arg(long, value_enum, default_value = "a100-8b")]
    #[serde(skip)]
    pub preset: Preset,
    /// Divides every simulated delay: 2 is twice as fast
    #[arg(long, default_value_t = 2.0, value_parser = positive)]
    pub time_scale: f64,
}

impl Default for Options {
    /// The defaults of the command line.
    fn default() -> Self {
        Self {
            conversations: 26,
            turns: 6,
            in_flight: 8,
            servers: 4,
            seed: 1,
            preset: Preset::A100Llama8b,
            time_scale: 2.0,
        }
    }
}

impl Options {
    /// Turns of all conversations.
    pub fn turns_in_all(&self) -> usize {
        usize::from(self.conversations) * usize::from(self.turns)
    }

    /// Whether conversations, turns, concurrency and servers are the default ones, for which the
    /// absolute targets were set.
    pub fn has_default_shape(&self) -> bool {
        let shape = |options: &Self| {
            (
                options.conversations,
                options.turns,
                options.in_flight,
                options.servers,
            )
        };
        shape(self) == shape(&Self::default())
    }

    /// The settings of every simulated server.
    pub fn sim_config(&self) -> SimConfig {
        SimConfig {
            preset: self.preset,
            time_scale: self.time_scale,
            ..SimConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, clap::Error> {
        Options::augment_args(clap::Command::new("demo").no_binary_name(true))
            .try_get_matches_from(arguments)
            .and_then(|matches| Options::from_arg_matches(&matches))
    }

    #[test]
    fn the_defaults_are_those_of_the_command_line() {
        assert_eq!(parse(&[]).expect("nothing required"), Options::default());
    }

    #[test]
    fn another_seed_or_speed_keeps_the_shape_and_another_size_does_not() {
        let shape = |arguments: &[&str]| parse(arguments).expect("valid").has_default_shape();
        assert!(shape(&["--seed", "7", "--time-scale", "5"]));
        for argument in [
            "--conversations=5",
            "--turns=2",
            "--in-flight=1",
            "--servers=3",
        ] {
            assert!(!shape(&[argument]), "{argument}");
        }
    }

    #[test]
    fn sizes_that_cannot_be_played_are_refused() {
        for argument in [
            "--conversations=0",
            "--turns=0",
            "--in-flight=0",
            "--servers=0",
            "--servers=27",
            "--time-scale=0",
        ] {
            assert!(parse(&[argument]).is_err(), "{argument}");
        }
    }
}
