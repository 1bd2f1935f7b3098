//! All integration tests of `submit` in one binary.

mod all {
    mod vectors;
    mod world;
}
