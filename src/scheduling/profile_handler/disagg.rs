//! Prefill and decode on different endpoints.

use std::rc::Rc;

use super::{Decider, ProfileHandler, SoFar};
use crate::config::{ConfigError, Fields, KeyDoc, Kind, LaterKey, choice, key, later, section};
use crate::scheduling::Request;
use crate::scheduling::plugin::{Build, Plugin, PluginType, Role};
use crate::scheduling::producer::NAME;
use crate::scheduling::registry::Setup;

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "runs the decode profile, and the prefill profile where the decider says so; the \
             request goes to the decode pick, and the prompt to the prefill pick as the pool's \
             `disaggregation` says",
    missing: "nobody left for prefill, or the decode pick itself, or no prompt read: decode alone",
    later: LATER,
    ..PluginType::new(
        "disagg-profile-handler",
        Role::ProfileHandler,
        Build::Reads(build),
    )
};

/// In every spelling llm-d takes; in any case.
const ORDERS: Kind = choice(&[
    "decode-first",
    "decodeFirst",
    "decode_first",
    "decode",
    "prefill-first",
    "prefillFirst",
    "prefill_first",
    "prefill",
]);

#[rustfmt::skip]
const PARAMETERS: &[KeyDoc] = &[
    key("stageOrder", ORDERS, "\"decode-first\"", "Which profile runs first; prefill first always runs both."),
    section("profiles", "The names of the profiles."),
    key("profiles.decode", NAME, "\"decode\"", "Whose pick gets the request; required as a profile."),
    key("profiles.prefill", NAME, "\"prefill\"", "Whose pick computes the prompt."),
    section("deciders", "Who decides."),
    key("deciders.prefill", NAME, "null", "A decider by its name; absent: prefill never runs."),
    key("decodeProfile", NAME, "null", "The older form of `profiles.decode`; the two forms do not mix."),
    key("prefillProfile", NAME, "null", "The older form of `profiles.prefill`."),
    key("deciderPluginName", NAME, "null", "The oldest form of `deciders.prefill`."),
    key("prefillDeciderPluginName", NAME, "null", "The older form of `deciders.prefill`."),
];

const ENCODE: &str = "leave it out: there is no encode stage";
const LATER: &[LaterKey] = &[
    later("profiles.encode", ENCODE),
    later("deciders.encode", ENCODE),
    later("encodeProfile", ENCODE),
    later("encodeDeciderPluginName", ENCODE),
];

const NESTED: [&str; 3] = ["stageOrder", "profiles", "deciders"];
const FLAT: [&str; 4] = [
    "decodeProfile",
    "prefillProfile",
    "deciderPluginName",
    "prefillDeciderPluginName",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    DecodeFirst,
    PrefillFirst,
}

/// Runs decode and, where it is worth it, prefill.
#[derive(Debug)]
struct Disagg {
    order: Order,
    decode: String,
    prefill: String,
    /// Absent: prefill does not run, unless it comes first.
    decider: Option<Rc<dyn Decider>>,
}

fn build(fields: &Fields<'_>, setup: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    let given = |names: &[&str]| names.iter().any(|name| fields.given(name).is_some());
    if given(&NESTED) && given(&FLAT) {
        let expected = "profiles and deciders, or the older flat names";
        return Err(ConfigError::expected(fields.path(), expected, "both"));
    }
    let (decode, prefill) = fields.section("profiles", |profiles| {
        Ok((profiles.text("decode")?, profiles.text("prefill")?))
    })?;
    let nested = fields.section("deciders", |deciders| {
        setup.optional_decider(deciders, "prefill")
    })?;
    let older = setup.optional_decider(fields, "prefillDeciderPluginName")?;
    let oldest = setup.optional_decider(fields, "deciderPluginName")?;
    let decider = nested.or(older).or(oldest);
    let (first, second) = (Order::DecodeFirst, Order::PrefillFirst);
    let spellings = [first, first, first, first, second, second, second, second];
    let stage_order = fields.choice("stageOrder", &spellings)?;
    if stage_order == Order::PrefillFirst && decider.is_some() {
        let expected = "no prefill decider with prefill first: prefill then always runs";
        let path = fields.path_of("deciders");
        return Err(ConfigError::expected(&path, expected, "one"));
    }
    Ok(Plugin::ProfileHandler(Rc::new(Disagg {
        order: stage_order,
        decode: fields.optional_text("decodeProfile")?.unwrap_or(decode),
        prefill: fields.optional_text("prefillProfile")?.unwrap_or(prefill),
        decider,
    })))
}

impl Disagg {
    /// The prefill profile, where it is there and has not run.
    fn pending_prefill(&self, so_far: &SoFar<'_>) -> Option<usize> {
        let place = so_far.find(&self.prefill)?;
        (!so_far.has_run(place)).then_some(place)
    }
}

impl ProfileHandler for Disagg {
    fn check(&self, profiles: &[&str]) -> Result<(), String> {
        if !profiles.contains(&self.decode.as_str()) {
            return Err(format!("there is no profile {:?} for decode", self.decode));
        }
        let known = [self.decode.as_str(), self.prefill.as_str()];
        match profiles.iter().find(|name| !known.contains(name)) {
            Some(other) => Err(format!("profile {other:?} would never run")),
            None => Ok(()),
        }
    }

    fn next(&self, request: &Request, so_far: &SoFar<'_>) -> Option<usize> {
        let decode = so_far.find(&self.decode)?;
        let has_prompt = request.total_blocks > 0;
        if self.order == Order::PrefillFirst {
            let prefill = self.pending_prefill(so_far).filter(|_| has_prompt);
            return prefill
                .filter(|_| !so_far.has_run(decode))
                .or_else(|| (!so_far.has_run(decode)).then_some(decode));
        }
        if !so_far.has_run(decode) {
            return Some(decode);
        }
        let pick = so_far.pick(decode)?;
        let prefill = self.pending_prefill(so_far)?;
        let decider = self.decider.as_ref()?;
        (has_prompt && decider.wants_prefill(request, Some(pick))).then_some(prefill)
    }

    fn primary(&self, so_far: &SoFar<'_>) -> Option<usize> {
        so_far.find(&self.decode)
    }

    fn prefill(&self, so_far: &SoFar<'_>) -> Option<usize> {
        let place = so_far.find(&self.prefill)?;
        so_far.has_run(place).then_some(place)
    }

    fn splits(&self) -> bool {
        true
    }
}
