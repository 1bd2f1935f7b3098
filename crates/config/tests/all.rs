//! All integration tests of `config` in one binary.

mod all {
    pub mod language;
    pub mod mutations;
    pub mod vectors;
    pub mod world;
}
