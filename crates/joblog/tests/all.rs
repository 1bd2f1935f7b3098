//! All integration tests of `joblog` in one binary.

#![allow(clippy::disallowed_methods)]

mod all {
    mod follow;
    mod hostile;
    mod mutations;
    mod sequences;
    mod vectors;
}
