//! All integration tests of `config` in one binary.

#![allow(clippy::disallowed_methods)]

mod all {
    mod language;
    mod mutations;
    mod vectors;
    mod world;
}
