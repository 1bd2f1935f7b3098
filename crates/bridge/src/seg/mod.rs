//! The scheduler event generator: the logs of many schedulers in, one stream of job state changes out.
//!
//! Pure: [`protocol`] (the lines), [`number`] and [`clock`] (numbers and local times as the original reads them), [`passes`] (which of
//! two local times is meant) and `times` (events that wait for that), one
//! file for each log format ([`pbs`], [`lsf`], [`condor`], [`slurm`], [`fork`], [`sge`]), [`poll`] (a site's command), [`pool`] (our own journal) and [`lines`] (bytes to lines
//! under a limit). With IO: [`follow`] (files that grow, rotate and vanish) [`run`] (the loop with its ending
//! rules), [`notes`] (what people should know, without waiting for them) and [`plugin`] (modules of others). Which format is read how is said in one place, [`module`].

pub mod clock;
pub mod condor;
pub mod follow;
pub mod fork;
pub mod lines;
pub mod lsf;
pub mod module;
pub mod notes;
pub mod number;
pub mod passes;
pub mod pbs;
pub mod plugin;
pub mod poll;
pub mod pool;
pub mod protocol;
pub mod run;
pub mod settings;
pub mod sge;
pub mod slurm;
mod times;

pub use module::Module;
use passes::InOrder;
pub use passes::Reached;
pub use protocol::{Event, Message, State};

/// Takes events as they are found.
pub trait Sink {
    /// One change of one job.
    fn event(&mut self, event: &Event<'_>);
    /// Something a person should know, such as a record that cannot be read.
    fn note(&mut self, text: &str);
    /// The same where something could not be read: what is told is not all there was.
    fn missed(&mut self, text: &str) {
        self.note(text);
    }
    /// A line of the protocol that is no change of a job, as modules of others may have.
    fn message(&mut self, _message: &Message<'_>) {}
    /// True when nobody wants more: whoever reads a long log asks between blocks.
    fn is_over(&mut self) -> bool {
        false
    }
}

/// One log format: bytes in the order of the file go in, events come out. Keeps what is unfinished.
pub trait Format {
    /// The next bytes of the log.
    fn feed(&mut self, bytes: &[u8], sink: &mut dyn Sink);
    /// Bytes held back because their line is not complete.
    fn pending(&self) -> usize;
    /// Has a record begun that is not complete?
    fn is_unfinished(&self) -> bool;
    /// What comes next is the rest of a line whose beginning is not told: it is dropped.
    fn skip_line(&mut self);
    /// Forgets what is unfinished: the next bytes are the beginning of another file, or of another record.
    fn reset(&mut self);
    /// When the record that begins with this line was written, if the line says so. Only formats whose logs are in
    /// order of time answer; the others are read from the start.
    fn stamp(&mut self, line: &[u8]) -> Option<i64>;
    /// The same of formats whose records are in any order: good enough to tell the age of a file.
    fn when(&mut self, line: &[u8]) -> Option<i64>;
    /// A line that was told before, of the file before the one that comes next. It tells nothing, but that file may repeat it.
    fn recall(&mut self, _line: &[u8]) {}
    /// How the text begins, as far as it is known, and at which byte what is fed next begins. Called before that.
    fn begins(&mut self, _head: &[u8], _offset: u64) {}
    /// When what is fed next was written: not after `until`, when the file was last changed; and after `since`, if it is known that
    /// it was not there before. Called before its bytes are fed.
    fn written(&mut self, _since: Option<i64>, _until: i64) {}
    /// Nothing more is to be had now: what is held, because only what follows can tell when it was, is told.
    fn settle(&mut self, _sink: &mut dyn Sink) {}
    /// How far the log has come, for [`Format::go_on`] of the next file's parser.
    fn reached(&self) -> Option<Reached> {
        None
    }
    /// This file goes on where another one of the same log ended: in a doubled hour only that tells which pass it is.
    fn go_on(&mut self, _reached: Option<Reached>) {}
}

/// Is a line what such a log holds?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Legible {
    /// A record, or something else that belongs there.
    Yes,
    /// A part of a record, or something that is none: whatever it was is not told.
    No,
}

/// A format that is read line by line.
pub trait LineFormat {
    /// One line without its newline; never holds a NUL.
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) -> Legible;
    /// See [`Format::stamp`].
    fn stamp(&mut self, line: &[u8]) -> Option<i64>;
    /// See [`Format::when`].
    fn when(&mut self, line: &[u8]) -> Option<i64> {
        self.stamp(line)
    }
    /// Has a record of several lines begun?
    fn is_inside(&self) -> bool {
        false
    }
    /// Another file begins.
    fn reset(&mut self) {}
    /// See [`Format::recall`].
    fn recall(&mut self, _line: &[u8]) {}
    /// The order of the lines, for formats with local times.
    fn order(&self) -> Option<&dyn InOrder> {
        None
    }
    /// The same, to be told more about it.
    fn order_mut(&mut self) -> Option<&mut dyn InOrder> {
        None
    }
    /// See [`Format::written`].
    fn written(&mut self, since: Option<i64>, until: i64) {
        if let Some(order) = self.order_mut() {
            order.written(since, until);
        }
    }
    /// See [`Format::settle`].
    fn settle(&mut self, _sink: &mut dyn Sink) {}
}

/// Could this be the rest of a message of several lines? Where messages may have some, a line that is no record is one of these, if
/// it is text.
fn is_text(line: &[u8]) -> bool {
    line.iter().all(|byte| *byte >= 0x20 && *byte != 0x7f || b"\t\r\x0b\x0c".contains(byte))
}
