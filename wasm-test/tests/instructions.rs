//! What reading a body and deciding cost, in instructions of the built code: the same on every
//! machine, however busy. In one program, so that one is built while the other runs.

#[path = "instructions/body.rs"]
mod body;
#[path = "instructions/decision.rs"]
mod decision;
