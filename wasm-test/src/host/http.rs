//! One HTTP stream as Envoy keeps it for a filter: what it holds, what it shows, what went on.

use std::collections::BTreeMap;

use super::guest::Pair;

#[derive(Debug)]
pub(super) struct HttpState {
    /// The root context the stream belongs to.
    pub(super) root: u32,
    pub(super) phase: Phase,
    pub(super) request_headers: Shown,
    pub(super) request_body: Body,
    pub(super) request_trailers: Shown,
    pub(super) response_headers: Shown,
    /// The piece whose callback is running.
    pub(super) response_body: Vec<u8>,
    /// By path, segments joined by dots.
    pub(super) properties: BTreeMap<String, Vec<u8>>,
    /// The module asked for the request to go on.
    pub(super) resumed: bool,
    /// The module asked for an answer.
    pub(super) reply: Option<Reply>,
}

/// How far the request has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Headers are held, the body is shown as it comes.
    #[default]
    Held,
    /// Headers are held, and so is all that follows, without being shown.
    Stopped,
    /// It is on its way to the cluster.
    Sent,
    /// Envoy answered it.
    Replied(Reply),
}

/// An answer of Envoy or of a module, not of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// What `response.code_details` shows.
    pub details: String,
    pub body: Vec<u8>,
    /// Beside `:status` and what describes the body.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A header map, which is shown to the module at times.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) pairs: Vec<Pair>,
    visible: bool,
}

impl Shown {
    pub(super) fn show(&mut self, pairs: Vec<Pair>) {
        self.pairs = pairs;
        self.visible = true;
    }

    pub(super) fn hide(&mut self) {
        self.visible = false;
    }

    /// Shows it or not; how it was before.
    pub(super) fn reveal(&mut self, visible: bool) -> bool {
        std::mem::replace(&mut self.visible, visible)
    }

    pub(super) fn shown(&mut self) -> Option<&mut Vec<Pair>> {
        self.visible.then_some(&mut self.pairs)
    }
}

/// A request's body on its way through.
#[derive(Debug, Default)]
pub(super) struct Body {
    /// Held, and shown together with what comes next.
    held: Vec<u8>,
    holding: bool,
    /// The piece whose callback is running, while nothing is held.
    piece: Vec<u8>,
    /// Came while the stream was stopped.
    pub(super) withheld: Vec<u8>,
    /// The end of the stream came while it was stopped.
    pub(super) withheld_end: bool,
    /// Went on to the cluster.
    pub(super) sent: Vec<u8>,
    /// Its end came.
    pub(super) ended: bool,
}

impl Body {
    /// A piece came. What is held already grows by it before the module is asked.
    pub(super) fn arrive(&mut self, piece: &[u8]) {
        if self.holding {
            self.held.extend_from_slice(piece);
        } else {
            self.piece = piece.to_vec();
        }
    }

    pub(super) fn shown(&self) -> &[u8] {
        if self.holding {
            &self.held
        } else {
            &self.piece
        }
    }

    pub(super) fn shown_mut(&mut self) -> &mut Vec<u8> {
        if self.holding {
            &mut self.held
        } else {
            &mut self.piece
        }
    }

    pub(super) fn holding(&self) -> bool {
        self.holding
    }

    /// The module paused: the piece is held.
    pub(super) fn hold(&mut self) {
        if !self.holding {
            self.held = std::mem::take(&mut self.piece);
            self.holding = true;
        }
    }

    /// The module let it go on.
    pub(super) fn release(&mut self) {
        let mut gone = std::mem::take(&mut self.held);
        gone.append(&mut self.piece);
        self.sent.append(&mut gone);
        self.holding = false;
    }
}

impl HttpState {
    pub(super) fn new(root: u32) -> Self {
        Self {
            root,
            phase: Phase::default(),
            request_headers: Shown::default(),
            request_body: Body::default(),
            request_trailers: Shown::default(),
            response_headers: Shown::default(),
            response_body: Vec::new(),
            properties: BTreeMap::new(),
            resumed: false,
            reply: None,
        }
    }

    pub(super) fn set_text(&mut self, property: &str, value: &str) {
        self.properties.insert(property.to_owned(), value.into());
    }

    /// Numbers are eight bytes, little-endian.
    pub(super) fn set_number(&mut self, property: &str, value: u64) {
        let bytes = value.to_le_bytes().to_vec();
        self.properties.insert(property.to_owned(), bytes);
    }
}
