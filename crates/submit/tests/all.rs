//! All integration tests of `submit` in one binary.

#![allow(clippy::disallowed_methods)]

mod all {
    mod corners;
    mod messages;
    mod mutations;
    mod native;
    mod scale;
    mod vectors;
    mod world;
}
