//! All integration tests of `joblog` in one binary.

mod all {
    mod follow;
    mod hostile;
    mod mutations;
    mod sequences;
    mod vectors;
}
