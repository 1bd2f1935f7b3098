//! The sub-commands, one file each.

pub(crate) mod classad;
