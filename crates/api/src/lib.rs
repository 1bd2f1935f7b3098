//! What goes over the wire.
//!
//! - `agent`: messages between manager and agents (protobuf), the same whether they cross a network or a channel; they are
//!   `model`'s, because the pure rooms speak in them too
//! - `grpc`: those messages as one bidirectional gRPC stream
//! - `explain`: why a job waits, why a machine does nothing (JSON)
//! - `rest`: what people and tools exchange with a manager (JSON); `submit`: the same of a submit in protobuf; `usage`: where the time
//!   went
//!
//! Types and their framing only: who may say what is decided in `trust`, what it means in `manager` and `agent`.

#![forbid(unsafe_code)]

pub mod explain;
pub mod grpc;
pub mod rest;
pub mod submit;
pub mod usage;

pub use model::agent;
