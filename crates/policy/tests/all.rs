//! All integration tests of `policy` in one binary.

#![allow(clippy::disallowed_methods)]

mod all {
    mod details;
    mod invariants;
    mod loading;
    mod rules;
    mod scenarios;
    mod seed;
    mod slots;
    mod table;
    mod world;
}
