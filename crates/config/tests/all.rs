//! All integration tests of `config` in one binary.

mod all {
    mod language;
    mod mutations;
    mod vectors;
    mod world;
}
