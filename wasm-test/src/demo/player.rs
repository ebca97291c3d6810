//! Plays a workload: so many turns at once, a turn only after the one before it was answered.

use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::client::{Answer, TurnError, ask};
use super::workload::Workload;
use crate::sim::template::Message;

/// One turn that is over.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Index of the conversation.
    pub conversation: usize,
    /// Index of the turn in its conversation.
    pub turn: usize,
    /// How it ended.
    pub result: Result<Answer, TurnError>,
}

/// All that was played.
#[derive(Debug, Clone, Default)]
pub struct Played {
    /// In the order in which they ended.
    pub turns: Vec<Turn>,
    /// Every conversation's messages, the servers' answers included.
    pub histories: Vec<Vec<Message>>,
}

/// Plays `workload` against the Envoy at the URL `envoy`; `on_turn` is called after every turn.
pub async fn play(
    workload: &Workload,
    envoy: &str,
    model: &str,
    in_flight: usize,
    mut on_turn: impl FnMut(),
) -> Played {
    // One connection a turn in flight is enough; a proxy of the machine's environment is not ours.
    let http = reqwest::Client::builder().no_proxy().build();
    let http = http.unwrap_or_default();
    let mut stage = Stage::new(workload);
    let mut turns = Vec::with_capacity(workload.order.len());
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < in_flight
            && let Some((conversation, messages)) = stage.next()
        {
            let http = &http;
            running.push(async move { (conversation, ask(http, envoy, model, &messages).await) });
        }
        let Some((conversation, result)) = running.next().await else {
            return Played {
                turns,
                histories: stage.histories,
            };
        };
        let turn = stage.finish(conversation, result.as_ref().ok());
        turns.push(Turn {
            conversation,
            turn,
            result,
        });
        on_turn();
    }
}

/// Which turn may come next.
struct Stage<'a> {
    workload: &'a Workload,
    pending: VecDeque<usize>,
    busy: Vec<bool>,
    finished: Vec<usize>,
    histories: Vec<Vec<Message>>,
}

impl<'a> Stage<'a> {
    fn new(workload: &'a Workload) -> Self {
        let conversations = workload.questions.len();
        let opening: Vec<Message> = workload
            .system
            .iter()
            .map(|text| message("system", text))
            .collect();
        Self {
            workload,
            pending: workload.order.iter().copied().collect(),
            busy: vec![false; conversations],
            finished: vec![0; conversations],
            histories: vec![opening; conversations],
        }
    }

    /// The first turn of the order whose conversation is not busy: its conversation, and all
    /// messages up to its question. `None` when every conversation with turns left is busy.
    fn next(&mut self) -> Option<(usize, Vec<Message>)> {
        let position = self.pending.iter().position(|one| !self.busy[*one])?;
        let conversation = self.pending.remove(position)?;
        self.busy[conversation] = true;
        let question = &self.workload.questions[conversation][self.finished[conversation]];
        let history = &mut self.histories[conversation];
        history.push(message("user", question));
        Some((conversation, history.clone()))
    }

    /// Takes the answer into the history; returns the index of the turn that ended.
    fn finish(&mut self, conversation: usize, answer: Option<&Answer>) -> usize {
        if let Some(answer) = answer {
            self.histories[conversation].push(message("assistant", &answer.text));
        }
        self.busy[conversation] = false;
        self.finished[conversation] += 1;
        self.finished[conversation] - 1
    }
}

fn message(role: &str, content: &str) -> Message {
    Message {
        role: role.to_owned(),
        content: content.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::demo::workload::Kind;

    fn workload() -> Workload {
        let questions = |name| (1..=2).map(|n| format!("{name}{n}")).collect();
        Workload {
            kind: Kind::SharedSystemPrompt,
            system: Some("rules".to_owned()),
            questions: vec![questions("a"), questions("b")],
            order: vec![0, 0, 1, 1],
        }
    }

    fn contents(messages: &[Message]) -> Vec<&str> {
        messages.iter().map(|one| one.content.as_str()).collect()
    }

    #[test]
    fn a_turn_waits_for_the_answer_before_it_and_lets_others_pass() {
        let workload = workload();
        let mut stage = Stage::new(&workload);
        assert_eq!(stage.next().map(|next| next.0), Some(0));
        assert_eq!(stage.next().map(|next| next.0), Some(1));
        assert!(stage.next().is_none());
        stage.finish(1, None);
        assert_eq!(stage.next().map(|next| next.0), Some(1));
    }

    #[test]
    fn a_turn_carries_everything_said_before_it() {
        let workload = workload();
        let mut stage = Stage::new(&workload);
        let first = stage.next().expect("a turn is due").1;
        assert_eq!(contents(&first), ["rules", "a1"]);
        let answer = Answer {
            text: "well".to_owned(),
            server: None,
            decision: None,
            time_to_first_token: Duration::ZERO,
        };
        assert_eq!(stage.finish(0, Some(&answer)), 0);
        let second = stage.next().expect("the next turn is due").1;
        assert_eq!(contents(&second), ["rules", "a1", "well", "a2"]);
        assert_eq!(stage.finish(0, None), 1);
    }
}
