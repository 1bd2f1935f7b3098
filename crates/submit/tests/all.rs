//! All integration tests of `submit` in one binary.

mod all {
    mod scale;
    mod vectors;
    mod world;
}
