//! All integration tests of `submit` in one binary.

mod all {
    mod messages;
    mod mutations;
    mod native;
    mod scale;
    mod vectors;
    mod world;
}
