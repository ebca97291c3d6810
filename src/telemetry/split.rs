//! What became of computing a request's prompt elsewhere.

macro_rules! decisions {
    ($($variant:ident $name:literal $modes:ident $meaning:literal;)*) => {
        /// The one decision on a request of a pool that may split requests.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum SplitDecision {
            $(#[doc = $meaning] $variant,)*
        }

        impl SplitDecision {
            /// Every decision, in the order of the documentation.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The metric label.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// When it is made, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)*
                }
            }

            const fn modes(self) -> Modes {
                match self {
                    $(Self::$variant => Modes::$modes,)*
                }
            }
        }
    };
}

/// Where a decision can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Modes {
    Every,
    Header,
    Inline,
}

decisions! {
    PrefillDecode "prefill-decode" Inline
        "The prompt was computed at the prefill endpoint and handed to the decode endpoint.";
    DecodeOnly "decode-only" Every
        "The decider found it not worth it: too little of the prompt is missing at the decode endpoint.";
    Sidecar "sidecar" Header
        "The sidecar was told; whether it did anything, only the servers' own counters tell.";
    NoPrompt "no-prompt" Every
        "No prompt was read.";
    NoPrefillEndpoint "no-prefill-endpoint" Every
        "It was worth it, and no prefill endpoint is fit, or it is the decode endpoint itself.";
    NotSplittable "not-splittable" Inline
        "It was worth it, and the request cannot be shared: several prompts or answers, `echo` or `prompt_logprobs`, an API other than completions, chat and messages, or a body that was not read whole or has more than 16 MiB.";
    PrefillRefused "prefill-refused" Inline
        "The prefill endpoint could not be reached, or its cluster had no room; the decode endpoint did it all.";
    PrefillError "prefill-error" Inline
        "It answered with another status than 200; the decode endpoint did it all.";
    PrefillTimeout "prefill-timeout" Inline
        "It did not answer within `prefillTimeout`; the decode endpoint did it all.";
    PrefillReset "prefill-reset" Inline
        "It broke off its answer; the decode endpoint did it all.";
    PrefillNoParams "prefill-no-params" Inline
        "Its answer has no transfer parameters, or not all of them; the decode endpoint did it all.";
    PrefillOversized "prefill-oversized" Inline
        "Its answer has more than 1 MiB; the decode endpoint did it all.";
    ClientGone "client-gone" Inline
        "The client left before the prefill endpoint had answered.";
}

impl SplitDecision {
    /// Those that a pool can make, `inline` or for a sidecar: others are not exported, so that a
    /// counter which is there means that it could move.
    pub fn of_mode(inline: bool) -> impl Iterator<Item = Self> {
        let other = if inline { Modes::Header } else { Modes::Inline };
        Self::ALL
            .into_iter()
            .filter(move |decision| decision.modes() != other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_inline_modes_claim_that_a_prompt_was_computed_elsewhere() {
        let header: Vec<&str> = SplitDecision::of_mode(false)
            .map(SplitDecision::as_str)
            .collect();
        assert_eq!(
            header,
            ["decode-only", "sidecar", "no-prompt", "no-prefill-endpoint"]
        );
        let inline: Vec<SplitDecision> = SplitDecision::of_mode(true).collect();
        assert_eq!(inline.len(), SplitDecision::ALL.len() - 1);
        assert!(!inline.contains(&SplitDecision::Sidecar));
    }
}
