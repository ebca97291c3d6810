//! One VM: its contexts, and the callbacks Envoy makes, in Envoy's order.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::Thread;
use super::calls::{Answer, Call};
use super::engine::{Compiled, Machine, Trapped};
use super::guest::{Guest, Pair, Root};
use super::http::{HttpState, Phase, Reply};
use super::world::World;

/// What Envoy's configuration says about streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// `allow_on_headers_stop_iteration`
    pub(super) body_while_held: bool,
    /// `request_body_buffer_limit`, in bytes.
    pub(super) buffer_limit: usize,
}

#[derive(Debug)]
pub(super) struct Vm {
    machine: Machine,
    rules: Rules,
    /// Tells it from the VMs before it on its thread.
    pub(super) generation: u64,
}

/// What a callback wants to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Continue,
    Pause,
}

/// The head of a response.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) pairs: Vec<Pair>,
    pub(super) status: u16,
    pub(super) details: String,
    pub(super) upstream: Option<String>,
    pub(super) attempts: u64,
}

impl Vm {
    pub(super) fn start(
        compiled: &Compiled,
        thread: Thread,
        world: &Rc<RefCell<World>>,
        rules: Rules,
        generation: u64,
    ) -> Result<Self, Trapped> {
        let guest = Guest::new(thread, world);
        Ok(Self {
            machine: Machine::start(compiled, guest)?,
            rules,
            generation,
        })
    }

    pub(super) fn guest(&self) -> &Guest {
        self.machine.guest()
    }

    pub(super) fn memory_bytes(&mut self) -> usize {
        self.machine.memory_bytes()
    }

    /// Runs a callback of `context`; a missing one is passed over.
    fn enter(&mut self, name: &str, context: u32, rest: &[u32]) -> Result<Option<u32>, Trapped> {
        let guest = self.machine.guest_mut();
        (guest.current, guest.effective) = (context, None);
        let arguments = [&[context], rest].concat();
        let result = self.machine.run(name, &arguments);
        let guest = self.machine.guest_mut();
        (guest.current, guest.effective) = (0, None);
        result
    }

    fn ask(&mut self, name: &str, context: u32, rest: &[u32]) -> Result<Action, Trapped> {
        let result = self.enter(name, context, rest)?;
        Ok(match result {
            None | Some(0) => Action::Continue,
            Some(_) => Action::Pause,
        })
    }

    fn stream(&mut self, id: u32) -> &mut HttpState {
        let streams = &mut self.machine.guest_mut().streams;
        streams.get_mut(&id).expect("a stream that is not deleted")
    }
}

/// Root contexts.
impl Vm {
    /// Creates and configures a root context. `false` when the module refuses the configuration.
    pub(super) fn add_root(&mut self, configuration: &[u8]) -> Result<bool, Trapped> {
        let guest = self.machine.guest_mut();
        let id = guest.new_context_id();
        let root = Root {
            draining: false,
            tick: None,
        };
        guest.roots.insert(id, root);
        self.enter("proxy_on_context_create", id, &[0])?;
        if self.enter("proxy_on_vm_start", id, &[0])? == Some(0) {
            return Ok(false);
        }
        self.machine.guest_mut().configuration = Some(configuration.to_vec());
        let size = configuration.len() as u32;
        let accepted = self.enter("proxy_on_configure", id, &[size])?;
        self.machine.guest_mut().configuration = None;
        Ok(accepted != Some(0))
    }

    /// Lets the root contexts there are end when [`Vm::remove_drained`] comes.
    pub(super) fn drain(&mut self) {
        for root in self.machine.guest_mut().roots.values_mut() {
            root.draining = true;
        }
    }

    pub(super) fn remove_drained(&mut self) -> Result<(), Trapped> {
        let roots = self.guest().roots.iter();
        let drained = roots.filter(|(_, root)| root.draining).map(|(id, _)| *id);
        for id in drained.collect::<Vec<_>>() {
            self.enter("proxy_on_done", id, &[])?;
            self.enter("proxy_on_delete", id, &[])?;
            self.machine.guest_mut().roots.remove(&id);
        }
        Ok(())
    }

    /// The root context that new streams belong to.
    fn newest_root(&self) -> u32 {
        let mut roots = self.guest().roots.iter().rev();
        let newest = roots.find(|(_, root)| !root.draining);
        *newest.expect("a configured VM").0
    }

    /// Runs the tick that is due.
    pub(super) fn tick(&mut self, root: u32, now: Duration) -> Result<(), Trapped> {
        self.enter("proxy_on_tick", root, &[])?;
        let root = self.machine.guest_mut().roots.get_mut(&root);
        if let Some(tick) = root.and_then(|root| root.tick.as_mut()) {
            // Armed again once the callback is over.
            tick.next = now + tick.period;
        }
        self.resume_streams()
    }

    pub(super) fn end_call(&mut self, call: &Call, answer: Answer) -> Result<(), Trapped> {
        if !self.guest().roots.contains_key(&call.root) {
            return Ok(());
        }
        let (headers, body) = answer.into_parts();
        let sizes = [call.token, headers.len() as u32, body.len() as u32, 0];
        self.machine.guest_mut().call_answer = Some((headers, body));
        let outcome = self.enter("proxy_on_http_call_response", call.root, &sizes);
        self.machine.guest_mut().call_answer = None;
        outcome?;
        self.resume_streams()
    }

    fn resume_streams(&mut self) -> Result<(), Trapped> {
        let ids: Vec<u32> = self.guest().streams.keys().copied().collect();
        ids.into_iter().try_for_each(|id| self.settle(id))
    }
}

/// Requests.
impl Vm {
    /// Creates a stream's context and shows it the request's headers.
    pub(super) fn request_headers(&mut self, pairs: Vec<Pair>, end: bool) -> Result<u32, Trapped> {
        let root = self.newest_root();
        let guest = self.machine.guest_mut();
        let id = guest.new_context_id();
        guest.streams.insert(id, HttpState::new(root));
        let count = pairs.len() as u32;
        self.stream(id).request_headers.show(pairs);
        self.stream(id).request_body.ended = end;
        self.enter("proxy_on_context_create", id, &[root])?;
        let action = self.ask("proxy_on_request_headers", id, &[count, end.into()])?;
        let body_while_held = self.rules.body_while_held;
        let stream = self.stream(id);
        match action {
            // An answer stops the stream, whatever the callback returns.
            Action::Continue if stream.reply.is_some() => {}
            Action::Continue => stream.send(),
            Action::Pause if body_while_held => stream.phase = Phase::Held,
            Action::Pause => stream.phase = Phase::Stopped,
        }
        self.settle(id)?;
        Ok(id)
    }

    pub(super) fn request_body(&mut self, id: u32, piece: &[u8], end: bool) -> Result<(), Trapped> {
        let limit = self.rules.buffer_limit;
        let stream = self.stream(id);
        stream.request_body.ended |= end;
        match stream.phase {
            Phase::Replied(_) => return Ok(()),
            Phase::Stopped => {
                stream.request_body.withheld.extend_from_slice(piece);
                stream.request_body.withheld_end |= end;
                return Ok(());
            }
            Phase::Held | Phase::Sent => {}
        }
        stream.request_body.arrive(piece);
        // What is held already is checked as it grows, whatever the callback then says.
        let mut too_large =
            stream.request_body.holding() && stream.request_body.shown().len() > limit;
        let size = stream.request_body.shown().len() as u32;
        let action = self.ask("proxy_on_request_body", id, &[size, end.into()])?;
        let stream = self.stream(id);
        match action {
            Action::Continue => {
                if !too_large {
                    stream.request_body.release();
                    stream.phase = Phase::Sent;
                }
            }
            Action::Pause => {
                stream.request_body.hold();
                too_large |= stream.request_body.shown().len() > limit;
            }
        }
        if too_large {
            stream.reply = Some(Reply {
                status: 413,
                details: "request_payload_too_large".to_owned(),
                body: b"Payload Too Large".to_vec(),
                headers: Vec::new(),
            });
        }
        self.settle(id)
    }

    pub(super) fn request_trailers(&mut self, id: u32, pairs: Vec<Pair>) -> Result<(), Trapped> {
        let count = pairs.len() as u32;
        let stream = self.stream(id);
        if stream.phase == Phase::Stopped || matches!(stream.phase, Phase::Replied(_)) {
            return Ok(());
        }
        stream.request_body.ended = true;
        stream.request_trailers.show(pairs);
        let action = self.ask("proxy_on_request_trailers", id, &[count])?;
        if action == Action::Continue {
            let stream = self.stream(id);
            stream.request_trailers.hide();
            stream.request_body.release();
            stream.phase = Phase::Sent;
        }
        self.settle(id)
    }

    /// Does what the module asked for while its callback ran.
    fn settle(&mut self, id: u32) -> Result<(), Trapped> {
        let stream = self.stream(id);
        if let Some(reply) = stream.reply.take() {
            if matches!(stream.phase, Phase::Replied(_)) {
                return Ok(());
            }
            return self.answer(id, reply);
        }
        if std::mem::take(&mut stream.resumed) {
            let stopped = stream.phase == Phase::Stopped;
            stream.send();
            if stopped {
                let withheld = std::mem::take(&mut stream.request_body.withheld);
                let end = stream.request_body.withheld_end;
                if !withheld.is_empty() || end {
                    return self.request_body(id, &withheld, end);
                }
            }
            self.stream(id).request_body.release();
        }
        Ok(())
    }

    /// Envoy answers: the module sees it as a response, and nothing more of the request.
    fn answer(&mut self, id: u32, reply: Reply) -> Result<(), Trapped> {
        let mut pairs = vec![
            (b":status".to_vec(), reply.status.to_string().into_bytes()),
            (
                b"content-length".to_vec(),
                reply.body.len().to_string().into_bytes(),
            ),
            (b"content-type".to_vec(), b"text/plain".to_vec()),
        ];
        for (name, value) in &reply.headers {
            pairs.retain(|(key, _)| key != name);
            pairs.push((name.clone(), value.clone()));
        }
        let head = Head {
            pairs,
            status: reply.status,
            details: reply.details.clone(),
            ..Head::default()
        };
        let body = reply.body.clone();
        self.stream(id).phase = Phase::Replied(reply);
        self.response_headers(id, head, body.is_empty())?;
        if body.is_empty() {
            return Ok(());
        }
        self.response_body(id, &body, true)
    }
}

/// Responses.
impl Vm {
    pub(super) fn response_headers(
        &mut self,
        id: u32,
        head: Head,
        end: bool,
    ) -> Result<(), Trapped> {
        let count = head.pairs.len() as u32;
        let stream = self.stream(id);
        stream.set_number("response.code", head.status.into());
        stream.set_text("response.code_details", &head.details);
        if let Some(upstream) = &head.upstream {
            stream.set_text("upstream.address", upstream);
            stream.set_number("upstream.request_attempt_count", head.attempts);
        }
        stream.response_headers.show(head.pairs);
        let action = self.ask("proxy_on_response_headers", id, &[count, end.into()])?;
        unpaused(action);
        self.stream(id).response_headers.hide();
        Ok(())
    }

    pub(super) fn response_body(
        &mut self,
        id: u32,
        piece: &[u8],
        end: bool,
    ) -> Result<(), Trapped> {
        self.stream(id).response_body = piece.to_vec();
        let size = piece.len() as u32;
        let action = self.ask("proxy_on_response_body", id, &[size, end.into()])?;
        unpaused(action);
        self.stream(id).response_body.clear();
        Ok(())
    }

    /// The stream is over: log, done, delete.
    pub(super) fn finish(&mut self, id: u32, details: Option<&str>) -> Result<(), Trapped> {
        let stream = self.stream(id);
        if let Some(details) = details {
            stream.set_text("response.code_details", details);
        }
        // An access log sees both heads, whatever the filter was shown last.
        let shown = stream.request_headers.reveal(true);
        stream.response_headers.reveal(true);
        self.enter("proxy_on_log", id, &[])?;
        let stream = self.stream(id);
        stream.request_headers.reveal(shown);
        stream.response_headers.hide();
        self.enter("proxy_on_done", id, &[])?;
        self.enter("proxy_on_delete", id, &[])?;
        self.machine.guest_mut().streams.remove(&id);
        Ok(())
    }
}

fn unpaused(action: Action) {
    assert_eq!(
        action,
        Action::Continue,
        "a response that is paused is not modelled"
    );
}

impl HttpState {
    fn send(&mut self) {
        self.request_headers.hide();
        self.phase = Phase::Sent;
    }
}
